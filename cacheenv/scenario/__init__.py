"""Scenarios: what a run needs besides the policy and the seed, and the one strict way to load it."""

from cacheenv.scenario.sections import (
    DEFAULT_SCENARIO,
    Scenario,
    list_scenarios,
    load_scenario,
)

__all__ = ["DEFAULT_SCENARIO", "Scenario", "list_scenarios", "load_scenario"]
