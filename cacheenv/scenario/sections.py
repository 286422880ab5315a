"""The sections of a scenario, one frozen dataclass each, and the names that a key may take.

The fields below are the reference of the YAML keys: each has its default, its meaning and its unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from cacheenv.scenario.schema import (
    Rule,
    choice,
    flag,
    groups,
    integer,
    mapping,
    number,
    section,
    text,
    text_or_mapping,
)
from cacheenv.sim.cache.eviction import EVICTIONS
from cacheenv.sim.decode.damping import DAMPINGS
from cacheenv.sim.decode.preemption import PREEMPTIONS
from cacheenv.sim.prefill.discipline import DISCIPLINES
from cacheenv.sim.state.codes import (
    ARRIVALS,
    BACKLOGS,
    CANDIDATE_ORDERS,
    FIRST_TOKENS,
    HANDOVERS,
    INDEX_LEARNS,
    MEMORY_POLICIES,
    ON_REJECT,
    SHARINGS,
)
from cacheenv.workload import GENERATORS

#: The workload that is read from a file; every other kind is a generator.
TRACE_KIND = "mooncake"
WORKLOAD_KINDS = (*GENERATORS, TRACE_KIND)
SPLITS = ("all", "train", "test")
PREDICTION_KINDS = ("oracle", "star", "weak", "none")
#: When pages are copied to host memory: with each computed prompt, there after some hits, or when they leave the GPU.
HOST_WRITES = ("write_through", "write_through_selective", "write_back")
HOST_LOADS = ("layerwise", "blocking")
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
    window_requests: int | None = integer(
        None, "requests of an episode, from a random place of the trace; null = all of it", low=1, optional=True
    )
    split: str = choice("all", SPLITS, "part of the trace's time that is played: the first 80 %, the rest, or all")
    arrivals: str = choice(
        "auto", ARRIVALS, "closed: a turn comes think_s after the answer before; auto: closed for chat and coding_agent"
    )
    on_reject: str = choice("end_session", ON_REJECT, "what a refused user does: give up (closed), or come again")
    retry_s: float = number(1.0, "time until a refused user comes again, s (on_reject retry)", above=0)
    max_retries: int = integer(3, "times a refused user comes again before giving up (on_reject retry)", low=1)
    max_in_flight: int | None = integer(
        None, "requests in the system at most, the others wait outside; null = no bound", low=1, optional=True
    )
    params: Mapping[str, Any] = mapping("parameters of the generator")


@dataclass(frozen=True)
class PrefillConfig:
    """Prefill instances."""

    count: int = integer(8, "instances", low=1, high=4096)
    preset: str | Mapping[str, Any] = text_or_mapping(
        "llama2-70b_8xA800_mooncake", "model on hardware: a name, coefficients, or {model, gpu, tp}"
    )
    cache_tokens: int | None = integer(
        None,
        "prefix cache of an instance's GPUs, tokens (running prompts included); null = what the hardware holds",
        low=1,
        optional=True,
    )
    host_cache_tokens: int = integer(0, "prefixes in the host memory of an instance, tokens; 0 = none", low=0)
    host_gbytes_per_s: float = number(100.0, "rate of loading from host memory, all GPUs together, GB/s", above=0)
    host_setup_s: float = number(0.0, "fixed time of each batch that loads from host memory, s", low=0)
    host_write: str = choice("write_through", HOST_WRITES, "when pages are copied to host memory")
    host_write_after_hits: int = integer(
        1, "write_through_selective: hits of a page on the GPU before it is copied", low=1
    )
    load: str = choice("layerwise", HOST_LOADS, "loading behind the batch's computing, layer by layer, or before it")
    eviction: str = choice("lru", tuple(EVICTIONS), "what goes first when the cache is full")
    cache_outputs: bool = flag(True, "answers with known ids return to the cache when they are complete")
    protect_queued: bool = flag(False, "what a waiting request found cached is not evicted before it has run")
    queue: str = choice("fcfs", tuple(DISCIPLINES), "queue discipline: which waiting prompts are batched first")
    lpm_fallback: int = integer(128, "waiting requests above which lpm orders as fcfs", low=0)
    lpm_check_tokens: int = integer(32, "lpm: hits up to this are candidates for in-batch deferral, tokens", low=-1)
    lpm_defer_tokens: int = integer(32, "lpm: defer where this many tokens are shared with an earlier one", low=1)
    lpm_ageing_tokens: int = integer(100, "lpm_aged: what a round of waiting counts for, tokens of match", low=0)
    batch_tokens: int = integer(8192, "new tokens a batch at most (the first request is always taken)", low=1)
    chunk_tokens: int = integer(8192, "longest piece of a prompt a batch, tokens; 0 = prompts are not cut", low=0)
    max_batch_requests: int = integer(64, "requests a batch at most", low=1, high=65536)
    schedule_s: float = number(0.0, "from a request's routing until it may be batched or pull, s", low=0)
    backlog: str = choice(
        "now", BACKLOGS, "when waiting prompts are priced: now, behind what is cached and waits longer, or at dispatch"
    )
    pre_prefill: int = integer(0, "the first k instances have the role pre-prefill", low=0)


@dataclass(frozen=True)
class DecodeConfig:
    """Decode instances."""

    count: int = integer(8, "instances", low=1, high=4096)
    preset: str | Mapping[str, Any] = text_or_mapping(
        "llama2-70b_8xA800_mooncake", "model on hardware: a name, coefficients, or {model, gpu, tp}"
    )
    kv_tokens: int | None = integer(None, "KV capacity, tokens; null = the preset's", low=2, optional=True)
    max_batch: int = integer(256, "requests in the batch at most", low=1, high=65536)
    reserve_tokens: int = integer(512, "head-room for growth of each request at admission, tokens", low=1)
    join_stall_s: float = number(0.0, "stall of the first step after a join, s a join", low=0)
    preemption: str = choice("recompute", tuple(PREEMPTIONS), "what a preempted request pays when it resumes")
    swap_gbytes_per_s: float = number(25.0, "bandwidth of swapping in, GB/s", above=0)
    damping: str = choice("sglang", tuple(DAMPINGS), "how careful admission is after a preemption")


@dataclass(frozen=True)
class NetworkConfig:
    """NICs and the rules of transfers."""

    REPLACED: ClassVar[Mapping[str, str]] = {
        "overlap": "handover (last_chunk where it was true, blocking where it was false)"
    }

    link: str = text("rdma_4x200g_te", "link preset: bandwidth and set-up time of every instance's NIC")
    nic_gbytes_per_s: float | None = number(None, "NIC bandwidth, GB/s; null = the preset's", above=0, optional=True)
    setup_s: float | None = number(None, "fixed time of a transfer, s; null = the preset's", low=0, optional=True)
    per_block_s: float = number(0.0, "fixed time of each page moved, s", low=0)
    layers: int | None = integer(
        None, "pieces of layer-wise overlap; null = the model's layers", low=1, high=100_000, optional=True
    )
    sharing: str = choice("max_min", SHARINGS, "how flows share NICs: max-min fair, or an equal part at each end")
    handover: str = choice(
        "chunked", HANDOVERS, "hand-over: piece by piece, behind the last piece, or after the prefill"
    )
    handover_fixed_s: float | None = number(
        None, "fixed time of a hand-over, s; null = as setup_s", low=0, optional=True
    )
    handover_load_gbytes_per_s: float | None = number(
        None, "DRAM to GPU at decode, GB/s; null = KV arrives in the GPU", above=0, optional=True
    )
    peer_pulls: bool = flag(True, "prefill instances may pull prefixes from each other")


@dataclass(frozen=True)
class StoreConfig:
    """Cluster-wide KV store."""

    capacity_tokens: int = integer(0, "capacity, tokens; 0 = no store", low=0)
    nic_gbytes_per_s: float = number(100.0, "bandwidth of the store's NIC, GB/s", above=0)
    eviction: str = choice("lru", tuple(EVICTIONS), "what goes first when the store is full")
    write_through: bool = flag(True, "every computed prefix is written to the store")


@dataclass(frozen=True)
class IndexConfig:
    """What the router believes about the caches."""

    delay_s: float = number(0.0, "age of the events when they arrive, s; 0 = exact", low=0)
    learns: str = choice(
        "stored", INDEX_LEARNS, "when a prompt counts as cached: when its pages are stored, or when it is routed there"
    )
    shards: int = integer(1, "parts of the index, by a hash of the page", low=1, high=4096)
    events_per_s: float | None = number(
        None, "events that a shard takes in at most, pages/s; null = all at once", above=0, optional=True
    )
    high_water: int = integer(
        100_000, "events that wait at a shard at most, more are lost (events_per_s)", low=1, high=10_000_000
    )
    memory_tokens: int = integer(0, "router's memory of what it sent, tokens a prefill instance; 0 = off", low=0)
    memory_policy: str = choice(
        "lru",
        MEMORY_POLICIES,
        "what it forgets: the oldest beyond memory_tokens, or also what is older than memory_ttl_s",
    )
    memory_ttl_s: float = number(120.0, "memory_policy ttl: forgotten when not sent again for so long, s", above=0)


@dataclass(frozen=True)
class RouterConfig:
    """What the router's own computing takes: one server, one request after the other."""

    decide_s: float = number(0.0, "router's time for a decision, s; decisions wait for each other", low=0)
    decide_s_per_block: float = number(0.0, "the same for each page of the prompt, s", low=0)


@dataclass(frozen=True)
class ReplicationConfig:
    """Copies of hot prefixes on other prefill instances."""

    hits: int | None = integer(
        None, "hits of a page in a window on one instance, above which it is copied; null = off", low=1, optional=True
    )
    window_s: float = number(10.0, "length of the windows in which hits are counted, s", above=0)
    replicas: int = integer(
        2, "a copy is sent while fewer prefill instances than this have the pages or are sent them", low=2
    )


#: What a group of `cluster.instances` may say for itself of the keys of its role's section.
GROUP_KEYS = {
    "prefill": (
        "count preset cache_tokens host_cache_tokens host_gbytes_per_s host_setup_s eviction queue lpm_fallback "
        "lpm_check_tokens lpm_defer_tokens lpm_ageing_tokens batch_tokens chunk_tokens max_batch_requests"
    ).split(),
    "decode": (
        "count preset kv_tokens max_batch reserve_tokens join_stall_s preemption swap_gbytes_per_s damping"
    ).split(),
}
#: The same of `cluster.network`: what its instances are connected with.
GROUP_LINK_KEYS = ("link", "nic_gbytes_per_s", "setup_s")
GROUP_SECTIONS = {"prefill": PrefillConfig, "decode": DecodeConfig}


def _group_rules(role: str) -> dict[str, Rule]:
    """Key of a group of this role -> what its value must be."""
    own = {item.name: item.metadata["rule"] for item in fields(GROUP_SECTIONS[role]) if item.name in GROUP_KEYS[role]}
    links = {item.name: item.metadata["rule"] for item in fields(NetworkConfig) if item.name in GROUP_LINK_KEYS}
    return {"name": Rule("text", "name in messages"), **own, **links}


def _common_keys() -> dict[str, str]:
    """Keys that no group has of its own -> where their one value stands."""
    return {
        f"{role}.{item.name}": f"cluster.{place}.{item.name}"
        for role in GROUP_KEYS
        for place, schema in ((role, GROUP_SECTIONS[role]), ("network", NetworkConfig))
        for item in fields(schema)
        if item.name not in (*GROUP_KEYS[role], *GROUP_LINK_KEYS)
    }


@dataclass(frozen=True)
class ClusterConfig:
    """The machines."""

    page_tokens: int = integer(512, "tokens of a page (block)", low=1, high=1_000_000)
    response_overhead_s: float = number(0.0, "constant added to every token's arrival at the client, s", low=0)
    first_token: str = choice(
        "prefill", FIRST_TOKENS, "who delivers it: prefill at its end, or decode with its first step"
    )
    instances: list[Mapping[str, Any]] = groups(
        "groups of instances with keys of their own (docs/fleets.md); [] = the counts of prefill and decode, all equal",
        {role: _group_rules(role) for role in GROUP_KEYS},
        _common_keys(),
    )
    prefill: PrefillConfig = section(PrefillConfig)
    decode: DecodeConfig = section(DecodeConfig)
    network: NetworkConfig = section(NetworkConfig)
    store: StoreConfig = section(StoreConfig)
    index: IndexConfig = section(IndexConfig)
    router: RouterConfig = section(RouterConfig)
    replication: ReplicationConfig = section(ReplicationConfig)


@dataclass(frozen=True)
class RescheduleConfig:
    """Moving running requests between decode instances."""

    period_s: float = number(1.0, "time between rescheduling ticks, s", above=0)
    candidates: int | None = integer(
        4, "K, requests of each decode instance that may be moved; null = all that run", low=1, high=1024, optional=True
    )
    candidate_order: str = choice(
        "remaining_per_kv", CANDIDATE_ORDERS, "which K: most predicted work a KV token, or least KV"
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
    """Objectives of each request: what a scenario does not name is not checked."""

    ttft_s: float | None = number(None, "time to the first token, s", above=0, optional=True)
    tpot_s: float | None = number(None, "mean gap between tokens, s", above=0, optional=True)
    tbt_tail_s: float | None = number(None, "mean of the worst tenth of the gaps, s", above=0, optional=True)
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
    after_prefill: bool = flag(False, "admission policies are asked again at the end of each prefill")
