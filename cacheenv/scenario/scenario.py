"""A scenario: its sections together, built from a mapping and checked as a whole."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cacheenv.errors import ConfigError, InputError
from cacheenv.physics import list_models
from cacheenv.scenario.consistency import check_cluster, check_workload
from cacheenv.scenario.fleet import groups_of, with_counts
from cacheenv.scenario.keys import flat, merged, nested
from cacheenv.scenario.schema import build, integer, number, section, text
from cacheenv.scenario.sections import (
    TRACE_KIND,
    AdmissionConfig,
    ClusterConfig,
    DecodeConfig,
    PredictionConfig,
    RescheduleConfig,
    RewardConfig,
    SloConfig,
    WorkloadConfig,
)
from cacheenv.scenario.workloads import make_workload, played_trace
from cacheenv.workload import Workload


@dataclass(frozen=True)
class Scenario:
    """A workload on a cluster with objectives: everything that a run needs besides the policy and the seed."""

    name: str = text("unnamed", "name in tables")
    description: str = text("-", "one line")
    workload: WorkloadConfig = section(WorkloadConfig)
    cluster: ClusterConfig = section(ClusterConfig)
    reschedule: RescheduleConfig = section(RescheduleConfig)
    prediction: PredictionConfig = section(PredictionConfig)
    slo: SloConfig = section(SloConfig)
    reward: RewardConfig = section(RewardConfig)
    admission: AdmissionConfig = section(AdmissionConfig)
    router: str = text("mooncake", "policy that routes where the agent does not, and with a rescheduler named alone")
    rescheduler: str = text("none", "policy that reschedules in environments whose agent does not; 'none' = nobody")
    warmup_requests: int = integer(0, "first requests that metrics and rewards leave out", low=0)
    warmup_share: float = number(0.0, "the same as a share of the episode's; the larger holds", low=0.0, high=0.9)
    horizon_s: float | None = number(None, "end of an episode, s; null = all served", above=0, optional=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dict of all keys, defaults included; `load_scenario` takes it back."""
        return dataclasses.asdict(self)

    def with_overrides(self, overrides: Mapping[str, Any] | None) -> Scenario:
        """This scenario with some keys (dotted, nested or mixed) changed, checked as when read from a file."""
        return build_scenario(self.to_dict(), f"scenario {self.name}", overrides) if overrides else self

    def at_rate(self, rate_rps: float) -> Scenario:
        """This scenario at another mean arrival rate; a trace is played faster or slower.

        Args:
            rate_rps: Requests a second. Of a trace: requests but the first, over the time from first to last.
        """
        if self.workload.kind != TRACE_KIND:
            return self.with_overrides({"workload.rate_rps": rate_rps})
        arrival_s = played_trace(self.workload, self.cluster.page_tokens).requests["arrival_s"]
        span_s = float(arrival_s[-1] - arrival_s[0]) if len(arrival_s) else 0.0
        if span_s <= 0:
            raise InputError(f"{self.workload.trace}: all requests arrive at once, so there is no rate to change")
        scale = self.workload.rate_scale * rate_rps * span_s / (len(arrival_s) - 1)
        return self.with_overrides({"workload.rate_scale": scale})

    @property
    def candidate_slots(self) -> int:
        """K, candidate slots of each decode instance: where all may be moved, the places of the largest batch."""
        slots = self.reschedule.candidates
        if slots is not None:
            return slots
        sections = [group.section for group in groups_of(self.cluster)]
        return max(section.max_batch for section in sections if isinstance(section, DecodeConfig))

    def make_workload(self, seed: int = 0) -> Workload:
        """The requests of one episode.

        Args:
            seed: Seed of the generator, and of the place of a trace's window; a trace without windows ignores it.

        Returns:
            The workload; of a trace without windows the same object on every call (the file is read once).
        """
        return make_workload(self.workload, self.cluster.page_tokens, seed)


def build_scenario(base: Mapping[str, Any], source: str, overrides: Mapping[str, Any] | None) -> Scenario:
    """A checked scenario.

    Args:
        base: Nested mapping of its keys; what is absent has its default.
        source: Where the mapping comes from, for messages.
        overrides: Changes, nested or with dotted keys.

    Raises:
        InputError: One line that names `source` (or the overrides) and the key and says what was expected.
    """
    changes: dict[str, Any] = {}
    try:
        changes = with_absolute_paths(nested(overrides or {}))
        base = with_absolute_paths(base)
        tree = merged(_without_foreign_params(base, changes), changes)
        scenario: Scenario = build(Scenario, with_counts(base, changes, tree))
        check_cluster(scenario.cluster)
        check_workload(scenario.workload, scenario.warmup_requests)
    except ConfigError as problem:
        changed = any(key == problem.place or key.startswith(problem.place + ".") for key in flat(changes))
        origin = "override" if changed and problem.place else source
        raise InputError(f"{origin}: {problem}") from None
    return scenario


def _without_foreign_params(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """`base` without generator parameters, trace and windows where `changes` asks for another kind of workload."""
    old, new = base.get("workload"), changes.get("workload")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return base
    kind = old.get("kind", WorkloadConfig().kind)
    if new.get("kind", kind) == kind:
        return base
    kept = {key: value for key, value in old.items() if key not in ("params", "trace", "window_requests", "split")}
    return {**base, "workload": kept}


def with_absolute_paths(tree: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """`tree` with absolute paths of its trace and of models' configs.

    Args:
        tree: Nested mappings of a scenario.
        folder: Where a file is looked for first; then under the working directory.
    """
    result = dict(tree)
    options = tree.get("workload")
    if isinstance(options, Mapping) and options.get("trace"):
        result["workload"] = {**options, "trace": _absolute(options["trace"], folder)}
    cluster = tree.get("cluster")
    if isinstance(cluster, Mapping):
        changed = {key: _with_absolute_model(cluster[key], folder) for key in ("prefill", "decode") if key in cluster}
        if isinstance(cluster.get("instances"), list):
            changed["instances"] = [_with_absolute_model(group, folder) for group in cluster["instances"]]
        result["cluster"] = {**cluster, **changed}
    return result


def _with_absolute_model(section: Any, folder: Path | None) -> Any:
    """A section of instances whose preset is derived from a file: with its absolute path."""
    if not isinstance(section, Mapping):
        return section
    preset = section.get("preset")
    model = preset.get("model") if isinstance(preset, Mapping) and "tp" in preset else None
    if not isinstance(preset, Mapping) or model is None or model in list_models():
        return section
    path = os.fspath(model) if isinstance(model, os.PathLike) else model
    if not isinstance(path, str) or not (path.endswith(".json") or len(Path(path).parts) > 1):
        return section
    return {**section, "preset": {**preset, "model": _absolute(path, folder)}}


def _absolute(path: Any, folder: Path | None) -> Any:
    """An absolute path: in `folder` if it is there, else under the working directory."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if not isinstance(path, str):
        return path
    found = Path(path).expanduser()
    if folder is not None and not found.is_absolute() and (folder / found).exists():
        found = folder / found
    return str(found.absolute())
