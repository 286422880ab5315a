"""What is to be run: policies on scenarios, with what each policy's system needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cacheenv.commands.execute import Task
from cacheenv.commands.identity import config_hash, program_hash
from cacheenv.errors import InputError
from cacheenv.scenario import Scenario
from cacheenv.scenario.keys import differences


@dataclass(frozen=True)
class Entry:
    """A policy on a scenario.

    Attributes:
        policy: Its name, as given.
        base: The scenario as chosen.
        scenario: The scenario with what the policy's system needs.
        changes: The engine features among it, dotted; what the router keeps is left out.
        common_cluster: Whether the needs were left out.
    """

    policy: str
    base: Scenario
    scenario: Scenario
    changes: dict[str, Any]
    common_cluster: bool

    def task(self, seed: int, rate_rps: float | None = None) -> Task:
        """The simulation of this entry with a seed, optionally at another rate."""
        base = self.base if rate_rps is None else self.base.at_rate(rate_rps)
        return Task(base, self.policy, seed, self.common_cluster)

    def identity(self, seed: int, rate_rps: float | None = None) -> dict[str, Any]:
        """The keys by which a finished run is found again."""
        return {
            "scenario": self.base.name,
            "policy": self.policy,
            "seed": seed,
            "rate_rps": rate_rps,
            "base_hash": config_hash(self.base),
            "config_hash": config_hash(self.scenario),
            "program_hash": program_hash(self.policy),
        }


def plan(scenarios: Sequence[Scenario], policies: Sequence[str], common_cluster: bool) -> list[Entry]:
    """All scenarios x policies, with each policy's needs applied to the scenario unless the cluster is common."""
    from cacheenv.run.simulate import apply_requirements, complete_bundle

    entries = []
    for scenario in scenarios:
        for name in policies:
            try:
                bundle = complete_bundle(name, scenario)
                unchanged = apply_requirements(scenario, bundle, common_cluster=True)
                changed = apply_requirements(scenario, bundle, common_cluster)
            except InputError as problem:
                raise InputError(f"policy {name} on scenario {scenario.name}: {problem}") from None
            changes = {key: new for key, (_, new) in differences(unchanged.to_dict(), changed.to_dict()).items()}
            entries.append(Entry(name, scenario, changed, changes, common_cluster))
    return entries


def changes_by_policy(entries: Sequence[Entry]) -> dict[str, Any]:
    """Policy -> scenario -> what was changed for it, as it is kept with the results."""
    changes: dict[str, Any] = {}
    for entry in entries:
        changes.setdefault(entry.policy, {})[entry.base.name] = {"changes": entry.changes}
    return changes
