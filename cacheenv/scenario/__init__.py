"""Scenarios: what a run needs besides the policy and the seed, the one strict way to load them, and their numbers."""

from cacheenv.scenario.load import DEFAULT_SCENARIO, list_scenarios, load_scenario
from cacheenv.scenario.resolve import ClusterSpec, DecodeSpec, PrefillSpec, StoreSpec, resolve
from cacheenv.scenario.scenario import Scenario
from cacheenv.scenario.sections import PREDICTION_KINDS, REWARD_KINDS, TRACE_KIND, WORKLOAD_KINDS

__all__ = [
    "DEFAULT_SCENARIO",
    "PREDICTION_KINDS",
    "REWARD_KINDS",
    "TRACE_KIND",
    "WORKLOAD_KINDS",
    "ClusterSpec",
    "DecodeSpec",
    "PrefillSpec",
    "Scenario",
    "StoreSpec",
    "list_scenarios",
    "load_scenario",
    "resolve",
]
