"""From a scenario and its cluster's numbers to the tables with which every episode starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from cacheenv.scenario import Scenario
from cacheenv.scenario.resolve import ClusterSpec, DecodeSpec, PrefillSpec
from cacheenv.scenario.sections import IndexConfig
from cacheenv.sim.core.kinds import code_of
from cacheenv.sim.index.central import BITS
from cacheenv.sim.prefill.discipline import DISCIPLINES
from cacheenv.sim.state.codes import (
    BACKLOGS,
    CANDIDATE_ORDERS,
    FIRST_TOKENS,
    HANDOVERS,
    INDEX_LEARNS,
    MEMORY_POLICIES,
    ON_REJECT,
    PREDICT_NOISY,
    PREDICT_NONE,
    PREDICT_ORACLE,
    SHARINGS,
)
from cacheenv.sim.state.columns import CONFIG, DECODE, INSTANCE, NIC, PREFILL, TREE, Table
from cacheenv.sim.state.world import World
from cacheenv.workload import Workload

#: Kind of predictor -> (a0, s0, s_inf) of `sim/compute/prediction.py`.
NOISE = {"star": (0.14, 0.4, 0.03), "weak": (0.05, 0.6, 0.03)}
TAU_SHARE = {"star": 0.6, "weak": 2.0}  # of the mean output length, where tau_tokens is not given


#: Coefficients that specifications and the table of instances have under the same name.
COEFFICIENTS = (
    "prefill_a_s", "prefill_b_s", "prefill_c_s", "n_tile", "decode_d_s", "decode_e_s", "decode_f_s",
)  # fmt: skip


#: The same of the tables of prefill and decode parts.
PREFILL_SETTINGS = (
    "queue", "lpm_fallback", "lpm_check_tokens", "lpm_defer_tokens", "lpm_ageing_tokens", "batch_tokens",
    "chunk_tokens", "max_batch_requests",
)  # fmt: skip
DECODE_SETTINGS = ("max_batch", "reserve_tokens", "join_stall_s", "preemption", "swap_bytes_per_s", "damping")


def pool_margin(spec: ClusterSpec) -> int:
    """Most pool rows that one event may take: a batch of requests, or the queue that lpm matches."""
    matching = (code_of(DISCIPLINES, "lpm"), code_of(DISCIPLINES, "lpm_aged"))
    return max(
        2 * row.max_batch_requests + (row.lpm_fallback if row.queue in matching else 0) + 8 for row in spec.prefill
    )


def flow_margin(scenario: Scenario, spec: ClusterSpec) -> int:
    """Most flows that one event may take: those of a prefill batch, or the answers of a whole decode batch."""
    answers = largest_batch(spec) + 8 if scenario.cluster.prefill.cache_outputs else 0
    return max(pool_margin(spec), answers)


def largest_batch(spec: ClusterSpec) -> int:
    """Places of the largest decode batch."""
    return max(row.max_batch for row in spec.decode)


def batch_places(spec: ClusterSpec) -> int:
    """Places of all decode batches together."""
    return sum(row.max_batch for row in spec.decode)


def start_tables(
    scenario: Scenario, spec: ClusterSpec, *, ticks: bool, needs_running: bool, admits: bool
) -> dict[str, np.ndarray]:
    """The tables with constant columns as an episode starts with them: name -> rows, see :class:`World`.

    Args:
        scenario: Settings.
        spec: Machines.
        ticks: Whether rescheduling ticks are decisions.
        needs_running: Whether the view lists the running requests at arrivals too.
        admits: Whether somebody answers the question to admission after a prefill, where the scenario has it.
    """
    config = CONFIG.start.copy()
    for name, value in _settings(scenario, spec).items():
        config[name] = value
    config["ticks"], config["needs_running"] = ticks, needs_running
    config["after_prefill"] = admits and scenario.admission.after_prefill and scenario.admission.allow_reject
    return {"config": config, **_machines(spec, scenario.cluster.page_tokens, scenario.cluster.index.memory_tokens)}


def fill_episode(world: World, scenario: Scenario, workload: Workload, prediction_seed: int) -> None:
    """Fills the settings that depend on the episode."""
    world.config["num_requests"] = len(workload)
    world.config["warmup_requests"] = max(scenario.warmup_requests, int(scenario.warmup_share * len(workload) + 1e-9))
    world.config["prediction_seed"] = prediction_seed
    closed = is_closed(scenario, workload)
    options = scenario.workload
    world.config["closed"] = closed
    world.config["users_wait"] = closed or options.on_reject == ON_REJECT[1] or options.max_in_flight is not None
    kind = scenario.prediction.kind
    if kind in NOISE:
        tau = scenario.prediction.tau_tokens
        if tau is None:
            tau = TAU_SHARE[kind] * float(workload.mean_residual_tokens[0])
        world.config["prediction_tau"] = tau


def is_closed(scenario: Scenario, workload: Workload) -> bool:
    """Whether later turns wait for the answer before: as the scenario says, else as the workload does."""
    arrivals = workload.arrivals if scenario.workload.arrivals == "auto" else scenario.workload.arrivals
    return arrivals == "closed"


def holder_words(spec: ClusterSpec) -> int:
    """int64 words of a bit set over the prefill instances, the store, and the instances' host memories."""
    return -(-(len(spec.prefill) * (2 if has_host(spec) else 1) + 1) // BITS)


def has_host(spec: ClusterSpec) -> bool:
    """Whether the prefill instances keep prefixes in host memory."""
    return any(row.host_cache_tokens > 0 for row in spec.prefill)


def limited_shards(index: IndexConfig) -> int:
    """Shards of the index that take in events at a bounded rate; 0 where all take them in at once."""
    return 0 if index.events_per_s is None else index.shards


def _settings(scenario: Scenario, spec: ClusterSpec) -> dict[str, Any]:
    cluster = scenario.cluster
    selective = cluster.prefill.host_write == "write_through_selective"
    return {
        "num_prefill": len(spec.prefill),
        "num_decode": len(spec.decode),
        "page_tokens": cluster.page_tokens,
        "holder_words": holder_words(spec),
        "layers": spec.layers,
        "sharing": SHARINGS.index(cluster.network.sharing),
        "handover": HANDOVERS.index(cluster.network.handover),
        "handover_fixed_s": -1.0 if spec.handover_fixed_s is None else spec.handover_fixed_s,
        "handover_load_bytes_per_s": _limit(cluster.network.handover_load_gbytes_per_s) * 1e9,
        "first_token": FIRST_TOKENS.index(cluster.first_token),
        "schedule_s": cluster.prefill.schedule_s,
        "router_works": cluster.router.decide_s > 0 or cluster.router.decide_s_per_block > 0,
        "decide_s": cluster.router.decide_s,
        "decide_s_per_block": cluster.router.decide_s_per_block,
        "peer_pulls": cluster.network.peer_pulls,
        "store_enabled": spec.store.capacity_tokens >= cluster.page_tokens,
        "write_through": cluster.store.write_through,
        "index_learns": INDEX_LEARNS.index(cluster.index.learns),
        "index_late": cluster.index.delay_s > 0 or limited_shards(cluster.index) > 0,
        "index_shards": limited_shards(cluster.index),
        "index_high_water": cluster.index.high_water,
        "index_event_s": 1.0 / _limit(cluster.index.events_per_s),
        "backlog": BACKLOGS.index(cluster.prefill.backlog),
        "memory_enabled": cluster.index.memory_tokens > 0,
        "memory_expires": cluster.index.memory_policy == MEMORY_POLICIES[1],
        "memory_ttl_s": cluster.index.memory_ttl_s,
        "host_enabled": has_host(spec),
        "host_write_back": has_host(spec) and cluster.prefill.host_write == "write_back",
        "host_blocking": cluster.prefill.load == "blocking",
        "host_after_hits": selective * cluster.prefill.host_write_after_hits,
        "candidates": scenario.candidate_slots,
        "all_candidates": scenario.reschedule.candidates is None,
        "equal_decode": len({row.kv_tokens for row in spec.decode}) == 1,
        "candidate_order": CANDIDATE_ORDERS.index(scenario.reschedule.candidate_order),
        "max_retries": scenario.workload.max_retries if scenario.workload.on_reject == ON_REJECT[1] else 0,
        "retry_s": scenario.workload.retry_s,
        "max_in_flight": scenario.workload.max_in_flight or 0,
        "allow_reject": scenario.admission.allow_reject,
        "batch_margin": pool_margin(spec),
        "flow_margin": flow_margin(scenario, spec),
        "cache_outputs": cluster.prefill.cache_outputs,
        "protect_queued": cluster.prefill.protect_queued,
        "replication_hits": cluster.replication.hits or 0,
        "replication_window_s": cluster.replication.window_s,
        "replicas": cluster.replication.replicas,
        "matches_all": any(row.queue == code_of(DISCIPLINES, "dfs_weight") for row in spec.prefill),
        "per_block_s": cluster.network.per_block_s,
        "index_delay_s": cluster.index.delay_s,
        "response_overhead_s": cluster.response_overhead_s,
        "period_s": scenario.reschedule.period_s,
        "stall_s": scenario.reschedule.stall_s,
        "slo_ttft_s": _limit(scenario.slo.ttft_s),
        "slo_tpot_s": _limit(scenario.slo.tpot_s),
        "slo_tbt_tail_s": _limit(scenario.slo.tbt_tail_s),
        "slo_e2e_s": _limit(scenario.slo.e2e_s),
        "horizon_s": _limit(scenario.horizon_s),
        **_prediction(scenario.prediction.kind),
    }


def _prediction(kind: str) -> dict[str, Any]:
    if kind in NOISE:
        a0, s0, s_inf = NOISE[kind]
        errors = {"prediction_a0": a0, "prediction_s0": s0, "prediction_s_inf": s_inf}
        return {"prediction": PREDICT_NOISY, **errors}
    return {"prediction": PREDICT_ORACLE if kind == "oracle" else PREDICT_NONE, "prediction_tau": 1.0}


def _rows(table: Table, count: int) -> np.ndarray:
    return np.repeat(table.start, count)


def _machines(spec: ClusterSpec, page_tokens: int, memory_tokens: int) -> dict[str, np.ndarray]:
    """Coordinates and coefficients of the instances, capacities of trees and links; see `sim/state/ids.py`."""
    prefills, decodes = len(spec.prefill), len(spec.decode)
    own = np.arange(prefills + decodes)
    instance, nic = _rows(INSTANCE, prefills + decodes), _rows(NIC, prefills + decodes + 1)
    prefill, decode = _rows(PREFILL, prefills), _rows(DECODE, decodes)
    prefill["instance"], decode["instance"] = own[:prefills], own[prefills:]
    instance["prefill"][:prefills], instance["decode"][prefills:] = own[:prefills], np.arange(decodes)
    instance["nic"], instance["tree"][:prefills] = own, own[:prefills]
    memories = prefills if memory_tokens > 0 else 0
    instance["memory_tree"][:memories] = prefills + 1 + np.arange(memories)
    hosts = prefills if has_host(spec) else 0  # a tree for each; an instance without host memory does not use its own
    first_host = prefills + 1 + memories
    tree = _rows(TREE, first_host + hosts)
    tree["holder"][: prefills + 1] = np.arange(prefills + 1)
    tree["eviction"][prefills] = spec.store.eviction
    tree["holder"][first_host:] = prefills + 1 + np.arange(hosts)
    tree["capacity_pages"][prefills] = spec.store.capacity_tokens // page_tokens
    tree["capacity_pages"][prefills + 1 : first_host] = memory_tokens // page_tokens
    nic["bytes_per_s"][-1] = spec.store.nic_bytes_per_s
    machines: tuple[PrefillSpec | DecodeSpec, ...] = (*spec.prefill, *spec.decode)
    for row, parts in enumerate(machines):
        nic[row]["bytes_per_s"] = parts.nic_bytes_per_s
        for name in ("setup_s", "kv_bytes", "kv_copy_bytes", "tensor_parallel"):
            nic[row][name] = getattr(parts, name)
        for name in COEFFICIENTS:
            if hasattr(parts, name):
                instance[row][name] = getattr(parts, name)
    for p, machine in enumerate(spec.prefill):
        instance[p]["prefill_floor_s"] = machine.min_prefill_s
        instance[p]["role"] = machine.role
        tree[p]["eviction"] = machine.eviction
        tree[p]["capacity_pages"] = machine.cache_tokens // page_tokens
        instance[p]["host_setup_s"] = machine.host_setup_s
        instance[p]["host_token_s"] = machine.kv_bytes / machine.host_bytes_per_s
        for name in PREFILL_SETTINGS:
            prefill[p][name] = getattr(machine, name)
        if machine.host_cache_tokens > 0:
            instance[p]["host_tree"] = first_host + p
            tree[first_host + p]["capacity_pages"] = machine.host_cache_tokens // page_tokens
    for d, goal in enumerate(spec.decode):
        instance[prefills + d]["kv_capacity_tokens"] = goal.kv_tokens
        for name in DECODE_SETTINGS:
            decode[d][name] = getattr(goal, name)
    return {"instance": instance, "nic": nic, "tree": tree, "prefill": prefill, "decode": decode}


def _limit(value: float | None) -> float:
    return float("inf") if value is None else float(value)
