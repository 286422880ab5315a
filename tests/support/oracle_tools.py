"""Runs one case in the compiled engine and in the reference simulator, and compares what comes out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
from oracle_admission import check_facts_of_reference, check_facts_of_view, reward_counters
from oracle_cases import NAMESPACE_STEP, Case
from oracle_close import close
from oracle_facts import (
    Facts,
    instances_of_reference,
    instances_of_view,
    move_facts_of_reference,
    move_facts_of_view,
    route_facts_of_reference,
    route_facts_of_view,
)
from reference import ReferenceCluster, ReferenceSimulator, RequestRecord
from reference.live import LiveRequest
from reference.migration import Move

from cacheenv.physics import Preset, load_link, load_preset
from cacheenv.policy import as_bundle
from cacheenv.run.simulate import Result, collect, drive
from cacheenv.run.worlds import Worlds
from cacheenv.scenario import Scenario, load_scenario
from cacheenv.scenario.resolve import ClusterSpec, resolve
from cacheenv.sim.compute.prediction import noise
from cacheenv.sim.prefill.discipline.random import drawn
from cacheenv.sim.view.columns import DECISION_ADMIT, DECISION_ROUTE, View
from cacheenv.workload import Workload

PRESET, LINK = load_preset("llama2-70b_8xA800_mooncake"), load_link("rdma_4x200g_te")

#: Columns of the records that are compared, exactly or as :func:`close` says.
COUNTS = (
    "request session namespace prompt_tokens output_tokens hit_tokens hit_gpu_tokens hit_host_tokens "
    "hit_predicted_tokens hit_available_tokens pulled_tokens migrated_tokens rework_tokens preemptions migrations "
    "prefill_instance decode_instance outcome slo_met counted retries"
).split()
TIMES = (
    "arrival_s routed_s prefill_start_s prefill_end_s transfer_end_s decode_start_s finish_s ttft_s tpot_s e2e_s "
    "tbt_p99_s tbt_tail_s outside_s"
).split()
BIN_ERROR = 1.05**0.5 - 1.0 + 1e-9
SMALLEST_GAP_S, LARGEST_GAP_S = 1e-4, 7e4  # what the bins resolve


class TiedError(Exception):
    """The runs differ, but events come so close together that the rules do not say which of them is first.

    Token counts are whole numbers and all tokens have the same size, so that two flows of one NIC can end at the same
    time for different reasons, up to rounding; where steps all take the same time, a step can end together with another
    instance's or with a flow that an earlier step has started. The case says nothing then.
    """


@dataclass
class EngineRun:
    """The engine's side of a case."""

    result: Result
    worlds: Worlds
    decisions: list[Facts]


@numba.njit
def _noise(seed, request, refresh):
    return noise(seed, request, refresh)


@numba.njit
def _drawn(seed, instance, round_number, place):
    return drawn(seed, instance, round_number, place)


def scenario_of(cluster: ReferenceCluster) -> Scenario:
    """The scenario that describes the same cluster; the coefficients of its presets come from :func:`coefficients`."""
    load_rate = cluster.handover_load_bytes_per_s / 1e9 if math.isfinite(cluster.handover_load_bytes_per_s) else None
    return load_scenario(
        {
            "cluster": {
                "instances": groups_of(cluster),
                "page_tokens": cluster.page_tokens,
                "response_overhead_s": cluster.response_overhead_s,
                "first_token": cluster.first_token,
                "prefill": {
                    "count": cluster.num_prefill,
                    **_same(cluster, "cache_tokens eviction cache_outputs protect_queued"),
                    **_same(cluster, "queue lpm_fallback lpm_check_tokens lpm_defer_tokens lpm_ageing_tokens"),
                    **_same(cluster, "batch_tokens chunk_tokens max_batch_requests schedule_s backlog"),
                    **_same(cluster, "host_cache_tokens host_setup_s host_write host_write_after_hits load"),
                    "host_gbytes_per_s": cluster.host_bytes_per_s / 1e9,
                },
                "decode": {
                    "count": cluster.num_decode,
                    **_same(cluster, "kv_tokens max_batch reserve_tokens join_stall_s preemption damping"),
                    "swap_gbytes_per_s": cluster.swap_bytes_per_s / 1e9,
                },
                "network": {
                    "nic_gbytes_per_s": cluster.nic_bytes_per_s / 1e9,
                    **_same(cluster, "setup_s per_block_s layers sharing handover handover_fixed_s peer_pulls"),
                    "handover_load_gbytes_per_s": load_rate,
                },
                "store": {
                    "capacity_tokens": cluster.store_tokens,
                    "nic_gbytes_per_s": cluster.store_nic_bytes_per_s / 1e9,
                    "write_through": cluster.write_through,
                    "eviction": cluster.store_eviction,
                },
                "replication": {
                    "hits": cluster.replication_hits,
                    **_same(cluster, "window_s replicas"),
                },
                "router": _same(cluster, "decide_s decide_s_per_block"),
                "index": {
                    "delay_s": cluster.index_delay_s,
                    **_same(cluster, "shards events_per_s high_water memory_tokens memory_policy memory_ttl_s"),
                    "learns": cluster.index_learns,
                },
            },
            "reschedule": _same(cluster, "period_s candidates candidate_order stall_s"),
            "prediction": {"kind": cluster.prediction, "tau_tokens": cluster.tau_tokens},
            "slo": {name: getattr(cluster, f"slo_{name}") for name in ("ttft_s", "tpot_s", "tbt_tail_s", "e2e_s")},
            "admission": {"after_prefill": cluster.after_prefill},
            "warmup_requests": cluster.warmup_requests,
            "workload": _same(cluster, "arrivals on_reject retry_s max_retries max_in_flight"),
        }
    )


def _same(cluster: ReferenceCluster, names: str) -> dict[str, Any]:
    return {name: getattr(cluster, name) for name in names.split()}


def spec_of(cluster: ReferenceCluster) -> ClusterSpec:
    """The cluster's numbers, as the engine takes them."""
    prefill = [_prefill_preset(cluster.of_prefill(index)) for index in range(cluster.num_prefill)]
    decode = [_decode_preset(cluster.of_decode(index)) for index in range(cluster.num_decode)]
    return resolve(scenario_of(cluster), prefill=prefill, decode=decode)


def _prefill_preset(like: ReferenceCluster) -> Preset:
    return replace(
        PRESET,
        **_same(like, "prefill_a_s prefill_b_s prefill_c_s min_prefill_s n_tile tensor_parallel kv_copies"),
        kv_bytes_per_token=like.kv_bytes_per_token / like.kv_copies,
    )


def _decode_preset(like: ReferenceCluster) -> Preset:
    return replace(
        PRESET,
        prefill_a_s=like.decode_prefill_a_s,
        prefill_b_s=like.decode_prefill_b_s,
        prefill_c_s=like.decode_prefill_c_s,
        min_prefill_s=like.decode_min_prefill_s,
        **_same(like, "decode_d_s decode_e_s decode_f_s tensor_parallel kv_copies"),
        kv_bytes_per_token=like.decode_kv_bytes_per_token / like.kv_copies,
    )


def groups_of(cluster: ReferenceCluster) -> list[dict[str, Any]]:
    """One group an instance, with what it has for itself; none where all are equal."""
    link = {"nic_bytes_per_s": "nic_gbytes_per_s", "setup_s": "setup_s"}
    rates = {"host_bytes_per_s": "host_gbytes_per_s", "swap_bytes_per_s": "swap_gbytes_per_s"}
    same = (
        "cache_tokens host_cache_tokens host_setup_s eviction queue batch_tokens chunk_tokens max_batch_requests "
        "kv_tokens max_batch reserve_tokens join_stall_s preemption damping"
    ).split()
    names = {**link, **rates, **{name: name for name in same}}
    return [
        {
            "role": role,
            **{
                names[field]: value / 1e9 if "bytes" in field else value
                for field, value in own.items()
                if field in names
            },
        }
        for role, instances in (("prefill", cluster.prefill_own), ("decode", cluster.decode_own))
        for own in instances
    ]


def workload_of(case: Case) -> Workload:
    """The engine's table of the case's requests."""
    rows = case.requests
    return Workload.from_arrays(
        [row.arrival_s for row in rows],
        [row.prompt_tokens for row in rows],
        [row.output_tokens for row in rows],
        [[block % NAMESPACE_STEP for block in row.blocks] for row in rows],
        page_tokens=case.cluster.page_tokens,
        namespace=[row.namespace for row in rows],
        session=[row.session for row in rows],
        answers=[[block % NAMESPACE_STEP for block in row.answer_blocks] for row in rows],
        think_s=[row.think_s for row in rows],
    )


def choose(actions: Sequence[int], taken: int, legal: Sequence[int], stay: int, pick_legal: bool) -> int:
    """The next move action of a script; an illegal one, and any after the last, mean stay."""
    if taken >= len(actions):
        return stay
    if pick_legal:
        return [*legal, stay][actions[taken] % (len(legal) + 1)]
    action = actions[taken] % (stay + 1)
    return action if action in legal else stay


def accepted(action: int, prefill: Sequence[int], decode: Sequence[int]) -> int:
    """A route action of a script with the next instances that accept the request, where its own do not."""
    if action == 2 * len(prefill) * len(decode):
        return action

    def following(first: int, accepts: Sequence[int]) -> int:
        return next(index for index in [*range(first, len(accepts)), *range(first)] if accepts[index])

    p, d = following(action // 2 // len(decode), prefill), following(action // 2 % len(decode), decode)
    return 2 * (p * len(decode) + d) + action % 2


class EngineActor:
    """Replays a case's actions in the engine and notes what the view says at each decision."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.migrates = case.moves is not None
        self.admits = case.cluster.after_prefill
        self.decisions: list[Facts] = []
        self.routes = 0
        self.moves = 0
        self.checks = 0
        self.watch: Any = None  # called at each decision

    def act(self, view: View, mask: np.ndarray) -> int:
        if self.watch is not None:
            self.watch()
        if view.cluster[0].decision == DECISION_ADMIT:
            self.decisions.append({**instances_of_view(view), **check_facts_of_view(view)})
            self.checks += 1
            return int(self.case.verdicts[self.checks - 1])
        legal = np.flatnonzero(mask).tolist()
        stay = len(mask) - 1
        if view.cluster[0].decision != DECISION_ROUTE:
            self.decisions.append(move_facts_of_view(view, legal[:-1]))
            action = choose(self.case.moves or (), self.moves, legal[:-1], stay, self.case.pick_legal)
            self.moves += 1
            return action
        self.decisions.append(route_facts_of_view(view))
        accepts = view.prefill["accepts"].tolist(), view.decode["accepts"].tolist()
        action = accepted(self.case.routes[self.routes % len(self.case.routes)], *accepts)
        self.routes += 1
        return action if action in legal else action - 1  # a pull with nothing to pull is no pull


def run_engine(case: Case, watch: Any = None, prepare: Any = None) -> EngineRun:
    """The case in the compiled engine.

    Args:
        case: The case.
        watch: Function `watch(worlds)` called at each decision and at the end.
        prepare: Function `prepare(worlds)` called before the first event.
    """
    actor = EngineActor(case)
    bundle = as_bundle(actor)
    worlds = Worlds(scenario_of(case.cluster), bundle=bundle, ticks=actor.migrates, spec=spec_of(case.cluster))
    worlds.reset(0, case.seed, workload_of(case))
    if prepare is not None:
        prepare(worlds)
    if watch is not None:
        actor.watch = lambda: watch(worlds)
    drive(worlds, 0, bundle)
    if watch is not None:
        watch(worlds)
    return EngineRun(collect(worlds, 0, "script", case.seed), worlds, actor.decisions)


@dataclass
class ReferenceRun:
    """The reference simulator's side of a case."""

    records: list[RequestRecord]
    sim: ReferenceSimulator
    decisions: list[Facts]


def run_reference(case: Case, noise_seed: int) -> ReferenceRun:
    """The case in the reference simulator; the noise of predictions and the numbers of shuffles are the engine's."""
    decisions: list[Facts] = []
    cluster = replace(case.cluster, mean_residual_tokens=tuple(workload_of(case).mean_residual_tokens.tolist()))
    taken = [0, 0, 0]

    def route(sim: ReferenceSimulator, live: LiveRequest) -> tuple[int, int, bool] | str:
        decisions.append(route_facts_of_reference(sim, live))
        accepts = sim.prefill_accepts(live), sim.decode_accepts(live)
        action = accepted(case.routes[taken[0] % len(case.routes)], *accepts)  # who was refused comes again
        taken[0] += 1
        if action == 2 * cluster.num_prefill * cluster.num_decode:
            return "reject"
        return action // 2 // cluster.num_decode, action // 2 % cluster.num_decode, action % 2 == 1

    def move(sim: ReferenceSimulator, now: float, legal: list[Move]) -> tuple[int, int] | None:
        number = {
            (option.source * cluster.candidate_slots() + option.slot) * cluster.num_decode + option.destination: option
            for option in legal
        }
        decisions.append(move_facts_of_reference(sim, list(number)))
        stay = cluster.num_decode * cluster.candidate_slots() * cluster.num_decode
        action = choose(case.moves or (), taken[1], list(number), stay, case.pick_legal)
        taken[1] += 1
        return (number[action].request, number[action].destination) if action in number else None

    def admit(sim: ReferenceSimulator, live: LiveRequest) -> bool:
        decisions.append({**instances_of_reference(sim), **check_facts_of_reference(sim, live)})
        taken[2] += 1
        return case.verdicts[taken[2] - 1]

    def z(request: int, refresh: int) -> float:
        return float(_noise(noise_seed, request, refresh))

    def draw(instance: int, round_number: int, place: int) -> int:
        return int(_drawn(noise_seed, instance, round_number, place))

    moves = move if case.moves is not None else None
    sim = ReferenceSimulator(cluster, case.requests, route, moves, z, admit, draw)
    return ReferenceRun(sim.run(), sim, decisions)


# comparison


def differences(case: Case, engine: EngineRun, reference: ReferenceRun) -> list[str]:
    """Everything in which the two runs differ, the first in time first; empty where they agree."""
    found: list[str] = []

    def compare(place: str, left: Any, right: Any, scale: float = 0.0) -> None:
        if not close(left, right, scale):
            found.append(f"{place}: engine {left!r}, reference {right!r}")

    end_s = reference.sim.now
    for number, (seen, expected) in enumerate(zip(engine.decisions, reference.decisions, strict=False)):
        place = f"decision {number} at {expected['now_s']:.6g} s"
        compare(place, sorted(seen), sorted(expected))
        for name in expected:
            compare(f"{place}: {name}", seen.get(name), expected[name], end_s)
        if found:
            break
    compare("decisions", len(engine.decisions), len(reference.decisions))
    for row, record in zip(engine.result.requests, reference.records, strict=True):
        for name in COUNTS:
            compare(f"request {record.request}: {name}", int(row[name]), getattr(record, name))
        for name in TIMES:
            scale = end_s if name in ("ttft_s", "tpot_s", "e2e_s", "outside_s") else 0.0  # differences of times
            compare(f"request {record.request}: {name}", float(row[name]), getattr(record, name), scale)
        _compare_gaps(row, record, compare)
    for row, total in zip(engine.result.instances, reference.sim.instance_records(), strict=True):
        for name, value in dataclasses.asdict(total).items():
            found_value = row[name].item()
            compare(
                f"instance {total.kind}.{total.index}: {name}", found_value, value, end_s if "busy" in name else 0.0
            )
    state = engine.worlds.world(0).state[0]
    compare("events that the index lost", int(state.news_lost), reference.sim.shards.lost)
    counted = [record for record in reference.records if record.counted]
    for name, expected in reward_counters(counted, case.cluster).items():
        compare(name, state[name].item(), expected, end_s if name == "integral_s" else 0.0)
    return found


def _compare_gaps(row: Any, record: RequestRecord, compare: Any) -> None:
    """Statistics of token gaps against those of the exact gaps, to the resolution of the bins."""
    if not record.gaps_s or min(record.gaps_s) < SMALLEST_GAP_S or max(record.gaps_s) > LARGEST_GAP_S:
        return
    for name in ("tbt_p99", "tbt_tail"):
        exact = getattr(record, f"{name}_exact_s")
        within = abs(float(row[f"{name}_s"]) - exact) <= BIN_ERROR * exact
        compare(f"request {record.request}: {name} of exact gaps within a bin", within, True)


def check_case(case: Case) -> tuple[EngineRun, ReferenceRun]:
    """Runs both simulators and fails with the first differences.

    Returns:
        Both runs.

    Raises:
        TiedError: They differ where the order of events is open.
    """
    engine = run_engine(case)
    reference = run_reference(case, int(engine.worlds.world(0).config[0].prediction_seed))
    found = differences(case, engine, reference)
    if found and reference.sim.ties:
        raise TiedError
    assert not found, "\n".join(found[:12])
    return engine, reference
