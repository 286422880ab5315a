"""Scenarios: workload, cluster, objectives. One frozen dataclass a section, one strict way to load them.

The fields below are the reference of the YAML keys: each has its default, its meaning and its unit.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cacheenv.errors import InputError, suggestion
from cacheenv.scenario.consistency import TRACE_KIND, check_consistency
from cacheenv.scenario.schema import (
    ConfigError,
    build,
    choice,
    dotted_keys,
    flag,
    integer,
    mapping,
    merged,
    nested,
    number,
    read_yaml_mapping,
    section,
    text,
)

if TYPE_CHECKING:
    from cacheenv.workload.table import Workload

SCENARIO_DIRECTORY = Path(__file__).resolve().parent.parent / "scenarios"
DEFAULT_SCENARIO = "kimi-chat"
WORKLOAD_KINDS = ("chat", "reasoning", "coding_agent", TRACE_KIND)
PREDICTION_KINDS = ("oracle", "star", "weak", "none")
REWARD_KINDS = ("slo", "latency", "shaped")


@dataclass(frozen=True)
class WorkloadConfig:
    """Where the requests come from: a seeded generator, or a trace file."""

    kind: str = choice("chat", WORKLOAD_KINDS, "generator, or 'mooncake' for a trace in Mooncake's JSONL format")
    requests: int = integer(2000, "requests an episode (generators)", low=1, high=100_000_000)
    rate_rps: float = number(4.0, "mean arrival rate, requests/s (generators)", above=0)
    trace: str | None = text(None, "trace file (kind mooncake), relative to the YAML file or cwd", optional=True)
    rate_scale: float = number(1.0, "arrivals this many times as fast (traces)", above=0)
    start_s: float = number(0.0, "start of the window of the trace, s", low=0)
    duration_s: float | None = number(None, "length of the window, s; null = to the end", above=0, optional=True)
    limit: int | None = integer(None, "at most this many requests of the trace; null = all", low=1, optional=True)
    params: Mapping[str, Any] = mapping("parameters of the generator")


@dataclass(frozen=True)
class PrefillConfig:
    """Prefill instances."""

    count: int = integer(8, "instances", low=1, high=4096)
    preset: str = text("llama2-70b_8xA800_mooncake", "hardware and model preset (latency coefficients)")
    cache_tokens: int = integer(3_000_000, "prefix cache of an instance, tokens (running prompts included)", low=1)
    queue: str = choice("fcfs", ("fcfs", "lpm"), "queue discipline: arrival order or longest prefix match first")
    lpm_fallback: int = integer(128, "waiting requests above which lpm orders as fcfs", low=0)
    lpm_check_tokens: int = integer(32, "lpm: hits up to this are candidates for in-batch deferral, tokens", low=-1)
    lpm_defer_tokens: int = integer(32, "lpm: defer where this many tokens are shared with an earlier one", low=1)
    batch_tokens: int = integer(8192, "new tokens a batch at most (the first request is always taken)", low=1)
    chunk_tokens: int = integer(8192, "longest piece of a prompt a batch, tokens; 0 = prompts are not cut", low=0)
    max_batch_requests: int = integer(64, "requests a batch at most", low=1, high=65536)
    pre_prefill: int = integer(0, "the first k instances have the role pre-prefill", low=0)


@dataclass(frozen=True)
class DecodeConfig:
    """Decode instances."""

    count: int = integer(8, "instances", low=1, high=4096)
    preset: str = text("llama2-70b_8xA800_mooncake", "hardware and model preset (latency coefficients)")
    kv_tokens: int | None = integer(None, "KV capacity, tokens; null = the preset's", low=2, optional=True)
    max_batch: int = integer(256, "requests in the batch at most", low=1, high=65536)
    reserve_tokens: int = integer(512, "head-room for growth of each request at admission, tokens", low=1)
    join_stall_s: float = number(0.0, "stall of the first step after a join, s a join", low=0)
    preemption: str = choice("recompute", ("recompute", "swap"), "what a preempted request pays when it resumes")
    swap_gbytes_per_s: float = number(25.0, "bandwidth of swapping in, GB/s", above=0)


@dataclass(frozen=True)
class NetworkConfig:
    """NICs and the rules of transfers."""

    link: str = text("rdma_4x200g_te", "link preset: bandwidth and set-up time of every instance's NIC")
    nic_gbytes_per_s: float | None = number(None, "NIC bandwidth, GB/s; null = the preset's", above=0, optional=True)
    setup_s: float | None = number(None, "fixed time of a transfer, s; null = the preset's", low=0, optional=True)
    per_block_s: float = number(0.0, "fixed time of each page moved, s", low=0)
    layers: int = integer(80, "model layers: granularity of layer-wise overlap", low=1, high=100_000)
    overlap: bool = flag(True, "hand-over runs behind the prefill, layer by layer; false: starts at its end")
    peer_pulls: bool = flag(True, "prefill instances may pull prefixes from each other")


@dataclass(frozen=True)
class StoreConfig:
    """Cluster-wide KV store."""

    capacity_tokens: int = integer(0, "capacity, tokens; 0 = no store", low=0)
    nic_gbytes_per_s: float = number(100.0, "bandwidth of the store's NIC, GB/s", above=0)
    write_through: bool = flag(True, "every computed prefix is written to the store")


@dataclass(frozen=True)
class IndexConfig:
    """What the router believes about the caches."""

    kind: str = choice("central", ("central",), "one index fed by events of the instances")
    delay_s: float = number(0.0, "age of the events when they arrive, s; 0 = exact", low=0)
    memory_tokens: int = integer(0, "router's memory of what it sent, tokens a prefill instance; 0 = off", low=0)


@dataclass(frozen=True)
class ClusterConfig:
    """The machines."""

    page_tokens: int = integer(512, "tokens of a page (block)", low=1, high=1_000_000)
    response_overhead_s: float = number(0.0, "constant added to every token's arrival at the client, s", low=0)
    prefill: PrefillConfig = section(PrefillConfig)
    decode: DecodeConfig = section(DecodeConfig)
    network: NetworkConfig = section(NetworkConfig)
    store: StoreConfig = section(StoreConfig)
    index: IndexConfig = section(IndexConfig)


@dataclass(frozen=True)
class RescheduleConfig:
    """Moving running requests between decode instances."""

    period_s: float = number(1.0, "time between rescheduling ticks, s", above=0)
    candidates: int = integer(4, "K, requests of each decode instance that may be moved", low=1, high=1024)
    candidate_order: str = choice(
        "remaining_per_kv", ("remaining_per_kv", "shortest_kv"), "which K: most predicted work a KV token, or least KV"
    )
    stall_s: float = number(0.025, "downtime of a moved request besides the copy of its delta, s", low=0)


@dataclass(frozen=True)
class PredictionConfig:
    """Prediction of output lengths: all that policies and observations see of them."""

    kind: str = choice("star", PREDICTION_KINDS, "error model; none = population mean of what is left")
    tau_tokens: float | None = number(
        None, "tokens over which the error fades; null = 0.6 (star) or 2 (weak) x mean output", above=0, optional=True
    )


@dataclass(frozen=True)
class SloConfig:
    """Objectives of each request; null = not checked."""

    ttft_s: float | None = number(30.0, "time to the first token, s", above=0, optional=True)
    tpot_s: float | None = number(None, "mean gap between tokens, s", above=0, optional=True)
    tbt_tail_s: float | None = number(0.1, "mean of the worst tenth of the gaps, s", above=0, optional=True)
    e2e_s: float | None = number(None, "time to the last token, s", above=0, optional=True)


@dataclass(frozen=True)
class RewardConfig:
    """Reward of the environment."""

    kind: str = choice("slo", REWARD_KINDS, "reward function")
    violation: float = number(1.0, "c_v, price of a request that misses an objective", low=0)
    rejection: float = number(1.0, "c_r, price of a rejected request", low=0)


@dataclass(frozen=True)
class AdmissionConfig:
    """Admission control."""

    allow_reject: bool = flag(True, "policies may reject requests")


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
    horizon_s: float | None = number(None, "end of an episode, s; null = all served", above=0, optional=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dict of all keys, defaults included; `load_scenario` takes it back."""
        return dataclasses.asdict(self)

    def with_overrides(self, overrides: Mapping[str, Any] | None) -> Scenario:
        """This scenario with some keys (dotted, nested or mixed) changed, checked as when read from a file."""
        return load_scenario(self, overrides) if overrides else self

    def at_rate(self, rate_rps: float) -> Scenario:
        """This scenario at another mean arrival rate; a trace is played faster or slower.

        Args:
            rate_rps: Requests a second. Of a trace: requests but the first, over the time from first to last.
        """
        if self.workload.kind != TRACE_KIND:
            return self.with_overrides({"workload.rate_rps": rate_rps})
        arrival_s = self.make_workload().requests["arrival_s"]
        span_s = float(arrival_s[-1] - arrival_s[0]) if len(arrival_s) else 0.0
        if span_s <= 0:
            raise InputError(f"{self.workload.trace}: all requests arrive at once, so there is no rate to change")
        scale = self.workload.rate_scale * rate_rps * span_s / (len(arrival_s) - 1)
        return self.with_overrides({"workload.rate_scale": scale})

    def make_workload(self, seed: int = 0) -> Workload:
        """The requests of one episode.

        Args:
            seed: Seed of the generator; traces ignore it.

        Returns:
            The workload; of a trace the same object on every call (the file is read once).
        """
        from cacheenv import workload

        options = self.workload
        page_tokens = self.cluster.page_tokens
        if options.kind == TRACE_KIND:
            stat = os.stat(str(options.trace))
            return _load_trace(
                str(options.trace), (stat.st_mtime_ns, stat.st_size), options.rate_scale, options.start_s,
                options.duration_s, options.limit, page_tokens,
            )  # fmt: skip
        return workload.generate(
            options.kind,
            requests=options.requests,
            rate_rps=options.rate_rps,
            page_tokens=page_tokens,
            seed=seed,
            params=options.params,
        )


@functools.lru_cache(maxsize=4)
def _load_trace(
    path: str,
    _version: tuple[int, int],
    rate_scale: float,
    start_s: float,
    duration_s: float | None,
    limit: int | None,
    page_tokens: int,
) -> Workload:
    """Reads a trace once a process for each set of options and each state of the file."""
    from cacheenv.workload.table import Workload

    return Workload.from_mooncake(
        path,
        rate_scale=rate_scale,
        start_s=start_s,
        duration_s=duration_s,
        limit=limit,
        page_tokens=page_tokens,
    )


def list_scenarios() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(path.stem for path in SCENARIO_DIRECTORY.glob("*.yaml"))


def load_scenario(
    name_or_path: str | os.PathLike[str] | Mapping[str, Any] | Scenario = DEFAULT_SCENARIO,
    overrides: Mapping[str, Any] | None = None,
) -> Scenario:
    """Loads and checks a scenario.

    Args:
        name_or_path: Name of a packaged scenario, path of a YAML file, or a scenario as object or dict.
        overrides: Changes, nested or with dotted keys (`{"cluster.prefill.count": 4}`), mixed at will. Where they
            change `workload.kind`, the scenario's generator parameters and trace are dropped.

    Returns:
        The scenario.

    Raises:
        InputError: One line that names the file and the key and says what was expected.
    """
    base, source, folder = _read(name_or_path)
    changes: dict[str, Any] = {}
    try:
        changes = nested(overrides or {})
        _resolve_trace(changes, None)
        _resolve_trace(base, folder)
        scenario: Scenario = build(Scenario, merged(_without_foreign_params(base, changes), changes))
        check_consistency(scenario)
    except ConfigError as problem:
        changed = any(key == problem.place or key.startswith(problem.place + ".") for key in dotted_keys(changes))
        origin = "override" if changed and problem.place else source
        raise InputError(f"{origin}: {problem}") from None
    return scenario


def _read(origin: Any) -> tuple[dict[str, Any], str, Path | None]:
    """Raw mapping of a scenario, its name in messages, and the folder of relative paths."""
    if isinstance(origin, Scenario):
        return origin.to_dict(), f"scenario {origin.name}", None
    if isinstance(origin, Mapping):
        return dict(origin), "scenario", None
    if not isinstance(origin, (str, os.PathLike)):
        raise InputError(f"expected a scenario name, a YAML path, a mapping or a Scenario, got {origin!r}")
    name = os.fspath(origin)
    packaged = list_scenarios()
    if name in packaged:
        return read_yaml_mapping(SCENARIO_DIRECTORY / f"{name}.yaml"), f"scenario {name}", None
    path = Path(name)
    if path.suffix.lower() in (".yaml", ".yml") or len(path.parts) > 1 or path.exists():
        return {"name": path.stem, **read_yaml_mapping(path)}, str(path), path.parent
    hint = suggestion(name, packaged)
    raise InputError(f"unknown scenario '{name}'{hint}; expected a YAML path or one of: {', '.join(packaged)}")


def _without_foreign_params(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` without generator parameters and trace where `changes` asks for another kind of workload."""
    old, new = base.get("workload"), changes.get("workload")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return base
    kind = old.get("kind", WorkloadConfig().kind)
    if new.get("kind", kind) == kind:
        return base
    return {**base, "workload": {key: value for key, value in old.items() if key not in ("params", "trace")}}


def _resolve_trace(tree: dict[str, Any], folder: Path | None) -> None:
    """Makes `workload.trace` absolute: beside the YAML file if it is there, else under the working directory."""
    options = tree.get("workload")
    if not isinstance(options, Mapping):
        return
    trace = options.get("trace")
    if isinstance(trace, os.PathLike):
        trace = os.fspath(trace)
    if not isinstance(trace, str) or not trace:
        return
    path = Path(trace).expanduser()
    if folder is not None and not path.is_absolute() and (folder / path).exists():
        path = folder / path
    tree["workload"] = {**options, "trace": str(path.absolute())}
