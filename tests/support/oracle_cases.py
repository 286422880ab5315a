"""Invented small clusters, workloads and action scripts, from a property-test engine or from a plain random generator.

Everything is small, so that caches and decode memory run over. Numbers with a unit of time or of bytes are drawn from
continuous distributions: two events then coincide only where the rules make them coincide (equal arrivals, two equal
prompts of one batch), never by accident, and rounding cannot decide which comes first.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hypothesis import strategies as st
from reference import ReferenceCluster, ReferenceRequest

Choice = TypeVar("Choice")
CACHE, DECODE = "cache", "decode"
NAMESPACE_STEP = 1 << 32  # block ids of namespace n start at n times this


class Source:
    """Where choices come from: `integer(low, high)` decides everything that is discrete, `rng` the continuous rest."""

    def __init__(self, integer: Callable[[int, int], int], rng: random.Random) -> None:
        self.integer = integer
        self.rng = rng

    def pick(self, options: Sequence[Choice]) -> Choice:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.integer(0, one_in - 1) == one_in - 1

    def real(self, low: float, high: float) -> float:
        """Log-uniform."""
        return math.exp(self.rng.uniform(math.log(low), math.log(high)))

    def real_or_zero(self, low: float, high: float) -> float:
        return 0.0 if self.chance(2) else self.real(low, high)


@dataclass(frozen=True)
class Case:
    """One comparison: the cluster, the requests, and what is decided.

    `moves` is None where nobody reschedules. With `pick_legal` a move action counts through the legal moves of the
    moment, with "stay" behind them; otherwise it is taken as it is, legal or not. `verdicts` are the answers to the
    questions after a prefill, where the cluster has them.
    """

    cluster: ReferenceCluster
    requests: tuple[ReferenceRequest, ...]
    routes: tuple[int, ...]
    moves: tuple[int, ...] | None
    pick_legal: bool
    seed: int
    verdicts: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Limits:
    """How large a case may get."""

    requests: int = 24
    pages: int = 12  # of a prompt
    output_tokens: int = 30


def build_case(source: Source, limits: Limits) -> Case:
    """A case from a source of choices."""
    focus = source.pick([None, None, CACHE, DECODE])
    page_tokens = source.pick([1, 4, 16])
    requests = build_requests(source, limits, page_tokens, focus)
    cluster = build_cluster(source, page_tokens, requests)
    cluster = replace(cluster, **focused(source, focus, cluster, requests))
    pairs = cluster.num_prefill * cluster.num_decode
    least_pull = 1 if focus == CACHE else 0
    routes = tuple(
        2 * pairs if source.chance(12) else 2 * source.integer(0, pairs - 1) + source.integer(least_pull, 1)
        for _ in requests
    )
    moves = None
    if focus == DECODE or source.chance(2):
        everything = cluster.num_decode * cluster.candidates * cluster.num_decode
        moves = tuple(source.integer(0, everything) for _ in range(source.integer(1, 4 * len(requests))))
    case = Case(cluster, requests, routes, moves, not source.chance(3), source.integer(0, 1000))
    case = with_held_prefixes(source, case)
    case = with_evictions(source, case)
    case = with_answers(source, case)
    case = replace(case, cluster=replace(case.cluster, **build_network(source, case.cluster)))
    case = with_damping(source, case)
    case = with_all_candidates(source, case)
    case = with_second_checks(source, case)
    case = with_host_memory(source, case)
    case = with_users(source, case)
    case = with_queues(source, case)
    case = with_replication(source, case)
    case = with_router_time(source, case)
    case = with_shards(source, case)
    case = with_short_memory(source, case)
    case = with_disciplines(source, case)
    return with_fleet(source, case)


# What was added later is drawn last, one function each, so that the cases from before keep their shape.


def with_held_prefixes(source: Source, case: Case) -> Case:
    """Whether waiting requests hold what they match."""
    return replace(case, cluster=replace(case.cluster, protect_queued=source.chance(2)))


def with_evictions(source: Source, case: Case) -> Case:
    """What goes from full caches, and from a full store."""
    kinds = ["lru", "lru_node", "lfu", "fifo", "length_aware", "watermark"]
    cluster = replace(case.cluster, eviction=source.pick(kinds), store_eviction=source.pick(kinds))
    return replace(case, cluster=cluster)


def with_damping(source: Source, case: Case) -> Case:
    """How careful decode instances are after a preemption."""
    return replace(case, cluster=replace(case.cluster, damping=source.pick(["sglang", "none"])))


def with_all_candidates(source: Source, case: Case) -> Case:
    """Whether all running requests may be moved."""
    return replace(case, cluster=replace(case.cluster, candidates=None)) if source.chance(4) else case


def with_second_checks(source: Source, case: Case) -> Case:
    """Whether admission is asked again after prefills, and what it answers."""
    if not source.chance(3):
        return case
    verdicts = tuple(not source.chance(4) for _ in case.requests)
    return replace(case, cluster=replace(case.cluster, after_prefill=True), verdicts=verdicts)


def with_host_memory(source: Source, case: Case) -> Case:
    """Whether there is a second tier behind the GPUs, what it costs, and what comes there."""
    if source.chance(2):
        return case
    pages = max(len(request.blocks) for request in case.requests)
    cluster = replace(
        case.cluster,
        host_cache_tokens=source.integer(1, 5 * pages) * case.cluster.page_tokens,
        host_bytes_per_s=case.cluster.nic_bytes_per_s * source.real(0.3, 30.0),
        host_setup_s=source.real_or_zero(0.001, 0.1),
        host_write=source.pick(["write_through", "write_through_selective", "write_back"]),
        host_write_after_hits=source.pick([1, 2]),
        load=source.pick(["layerwise", "blocking"]),
    )
    return replace(case, cluster=cluster)


def with_users(source: Source, case: Case) -> Case:
    """The case with users who wait: for answers, to try again, or outside a full system."""
    if not source.chance(2):
        return case
    mean_s = source.real(0.05, 5.0)
    hasty = source.chance(4)
    thinking = tuple(
        replace(request, think_s=0.0 if hasty else source.rng.expovariate(1.0 / mean_s)) for request in case.requests
    )
    cluster = replace(
        case.cluster,
        arrivals=source.pick(["closed", "closed", "open"]),
        on_reject=source.pick(["end_session", "retry"]),
        retry_s=source.real(0.05, 5.0),
        max_retries=source.integer(1, 3),
        max_in_flight=source.pick([None, source.integer(1, 8)]),
    )
    return replace(case, cluster=cluster, requests=thinking)


def with_queues(source: Source, case: Case) -> Case:
    """What the router believes of prompts on their way; and, in some cases, more of them.

    Those have the same requests within a part of the time that computing them takes, one a batch, in small caches, so
    that requests wait and what they count on is evicted before they run.
    """
    beliefs = {"index_learns": source.pick(["stored", "assigned"]), "backlog": source.pick(["now", "now", "dispatch"])}
    case = replace(case, cluster=replace(case.cluster, **beliefs))
    if not source.chance(3):
        return case
    cluster, last_s = case.cluster, max(1e-3, case.requests[-1].arrival_s)
    linear_s = cluster.prefill_a_s * len(case.requests) + cluster.prefill_b_s * sum(
        request.prompt_tokens for request in case.requests
    )
    factor = source.real(0.2, 1.0) * linear_s / cluster.num_prefill / last_s
    requests = tuple(replace(request, arrival_s=request.arrival_s * factor) for request in case.requests)
    pages = max(len(request.blocks) for request in requests) + source.integer(0, 3)
    cache_tokens = min(cluster.cache_tokens, pages * cluster.page_tokens)
    return replace(case, cluster=replace(cluster, max_batch_requests=1, cache_tokens=cache_tokens), requests=requests)


def with_replication(source: Source, case: Case) -> Case:
    """Whether what is hit often is copied to other prefill instances; and, in most of these cases, something that is.

    Then all prompts of a namespace begin with the same pages, many are the same, and most come to the first instance.
    """
    if not source.chance(2):
        return case
    cluster = replace(
        case.cluster,
        num_prefill=case.cluster.num_prefill + source.pick([0, 1, 2]),
        replication_hits=source.pick([1, 1, 2, 3]),
        window_s=source.real(0.1, 100.0),
        replicas=source.integer(2, 5),
    )
    case = replace(case, cluster=cluster)
    if source.chance(4):
        return case
    fresh = 1 + max(
        block % NAMESPACE_STEP for request in case.requests for block in (*request.blocks, *request.answer_blocks)
    )
    pages = source.integer(1, 6)
    tokens = pages * cluster.page_tokens
    popular = source.pick(case.requests)
    requests = []
    for request in case.requests:
        if source.chance(3):
            request = replace(popular, arrival_s=request.arrival_s, session=request.session, think_s=request.think_s)
        first = request.namespace * NAMESPACE_STEP + fresh
        blocks = (*range(first, first + pages), *request.blocks)
        requests.append(replace(request, prompt_tokens=request.prompt_tokens + tokens, blocks=blocks))
    routes = tuple(route if source.chance(3) else route % (2 * cluster.num_decode) for route in case.routes)
    cluster = replace(
        cluster,
        cache_tokens=cluster.cache_tokens + source.integer(1, 3) * tokens,
        kv_tokens=cluster.kv_tokens + source.integer(1, 3) * tokens,
    )
    return replace(case, cluster=cluster, requests=tuple(requests), routes=routes)


def with_router_time(source: Source, case: Case) -> Case:
    """Whether the router's decisions take time, in some cases more of it than there is between arrivals."""
    if not source.chance(3):
        return case
    gap_s = max(1e-3, case.requests[-1].arrival_s) / len(case.requests)
    pages = max(len(request.blocks) for request in case.requests)
    changes = {
        "decide_s": gap_s * source.real_or_zero(0.01, 2.0),
        "decide_s_per_block": gap_s / pages * source.real_or_zero(0.01, 2.0),
    }
    return replace(case, cluster=replace(case.cluster, **changes))


def with_shards(source: Source, case: Case) -> Case:
    """Whether the index takes in events at a bounded rate, by how many shards, and how many may wait.

    The order in which the pages of one eviction are told matters then. With `write_back` the engine tells of a whole
    run of pages before the host takes the first of them, which is left open here.
    """
    if not source.chance(3):
        return case
    pages = sum(len(request.blocks) for request in case.requests)
    per_s = pages / max(1e-3, case.requests[-1].arrival_s)
    write = case.cluster.host_write
    changes = {
        "shards": source.pick([1, 1, 2, 3, 7]),
        "events_per_s": per_s * source.real(0.1, 10.0),
        "high_water": source.pick([100, 100, 10, 3, 1]),
        "host_write": "write_through" if write == "write_back" else write,
    }
    return replace(case, cluster=replace(case.cluster, **changes))


def with_short_memory(source: Source, case: Case) -> Case:
    """Whether the router forgets what it has not sent for some time."""
    if case.cluster.memory_tokens == 0 or source.chance(2):
        return case
    ttl_s = max(1e-3, case.requests[-1].arrival_s) * source.real(0.05, 1.0)
    return replace(case, cluster=replace(case.cluster, memory_policy="ttl", memory_ttl_s=ttl_s))


def with_disciplines(source: Source, case: Case) -> Case:
    """Whether queues are in another order than those of `fcfs` and `lpm`."""
    if not source.chance(2):
        return case
    page = case.cluster.page_tokens
    changes = {
        "queue": source.pick(["dfs_weight", "dfs_weight", "random", "lpm_aged"]),
        "lpm_ageing_tokens": source.pick([1, page, 3 * page]),
    }
    return replace(case, cluster=replace(case.cluster, **changes))


def with_fleet(source: Source, case: Case) -> Case:
    """Instances of different hardware, sizes, links and settings; some may be too small for some requests."""
    if not source.chance(2):
        return case
    cluster, page = case.cluster, case.cluster.page_tokens
    pages = max(len(request.blocks) for request in case.requests)
    total = max(request.prompt_tokens + request.output_tokens for request in case.requests)

    def link() -> dict[str, Any]:
        return {
            "nic_bytes_per_s": cluster.nic_bytes_per_s * source.real(0.3, 3.0),
            "setup_s": source.pick([cluster.setup_s, source.real(0.001, 0.2)]),
            "tensor_parallel": source.pick([1, 2]),
            "kv_copies": source.pick([1, 1, 2]),
        }

    def prefill() -> dict[str, Any]:
        speed = source.real(0.3, 3.0)
        host_tokens = source.pick([0, cluster.host_cache_tokens, source.integer(1, 5 * pages) * page])
        return {
            **link(),
            "prefill_a_s": cluster.prefill_a_s * speed,
            "prefill_b_s": cluster.prefill_b_s * speed * source.real(0.8, 1.25),
            "prefill_c_s": cluster.prefill_c_s * speed * source.real(0.8, 1.25),
            "n_tile": source.pick([cluster.n_tile, 8]),
            "cache_tokens": source.pick([cluster.cache_tokens, source.integer(1, 2 * pages) * page]),
            "host_cache_tokens": host_tokens if cluster.host_cache_tokens > 0 else 0,
            "host_bytes_per_s": cluster.host_bytes_per_s * source.real(0.5, 2.0),
            "eviction": source.pick([cluster.eviction, "lru", "lfu"]),
            "queue": source.pick([cluster.queue, "fcfs", "lpm"]),
            "batch_tokens": source.pick([cluster.batch_tokens, source.integer(1, 2 * pages * page)]),
            "chunk_tokens": source.pick([cluster.chunk_tokens, 0, source.integer(1, pages * page)]),
            "max_batch_requests": source.pick([cluster.max_batch_requests, 1, 2]),
            "kv_bytes_per_token": float(2 * source.rng.randrange(250, 1000)),
        }

    def decode() -> dict[str, Any]:
        speed = source.real(0.3, 3.0)
        kv_tokens = source.pick([cluster.kv_tokens, max(3, page, source.integer(total // 2, 2 * total))])
        return {
            **link(),
            "decode_d_s": cluster.decode_d_s * speed,
            "decode_e_s": cluster.decode_e_s * speed,
            "decode_f_s": cluster.decode_f_s * speed,
            "decode_prefill_a_s": cluster.decode_prefill_a_s * speed,
            "decode_min_prefill_s": cluster.decode_d_s * speed,
            "kv_tokens": kv_tokens,
            "max_batch": source.pick([cluster.max_batch, 2, 4]),
            "reserve_tokens": min(kv_tokens - 1, source.pick([cluster.reserve_tokens, 1, 3])),
            "preemption": source.pick([cluster.preemption, "recompute", "swap"]),
            "swap_bytes_per_s": cluster.swap_bytes_per_s * source.real(0.5, 2.0),
            "damping": source.pick([cluster.damping, "none"]),
            "decode_kv_bytes_per_token": float(2 * source.rng.randrange(250, 1000)),
        }

    own = {
        "prefill_own": tuple(prefill() for _ in range(cluster.num_prefill)),
        "decode_own": tuple(decode() for _ in range(cluster.num_decode)),
    }
    return replace(case, cluster=replace(cluster, **own))


def focused(
    source: Source, focus: str | None, cluster: ReferenceCluster, requests: Sequence[ReferenceRequest]
) -> dict[str, Any]:
    """Changes that make a scarce thing scarcer: pages of the caches, or memory of the decode instances."""
    pages = max(len(request.blocks) for request in requests)
    total = max(request.prompt_tokens + request.output_tokens for request in requests)
    if focus == CACHE:
        return {
            "num_prefill": source.integer(2, 3),
            "cache_tokens": (pages + source.integer(0, 3)) * cluster.page_tokens,
            "peer_pulls": True,
            "index_delay_s": 0.0,
        }
    if focus == DECODE:
        return {
            "num_decode": source.integer(2, 3),
            "kv_tokens": max(total + source.integer(0, total), cluster.page_tokens),
            "reserve_tokens": 1,
            "max_batch": source.pick([256, 8]),
            "nic_bytes_per_s": cluster.nic_bytes_per_s * source.real(5.0, 50.0),
            "prefill_b_s": cluster.prefill_b_s / 10.0,
            "prefill_c_s": cluster.prefill_c_s / 10.0,
        }
    return {}


def build_requests(source: Source, limits: Limits, page_tokens: int, focus: str | None) -> tuple[ReferenceRequest, ...]:
    """Requests that share prefixes as a tree: each continues, repeats or ignores an earlier one."""
    spaces = source.pick([1, 1, 2])
    mean_gap_s = source.real(0.01, 5.0)
    longest = source.pick([1, 2, source.integer(1, limits.pages), limits.pages]) * page_tokens
    if focus == DECODE:
        mean_gap_s = source.real(0.01, 0.3)
        longest = page_tokens
    longest_output = (
        limits.output_tokens
        if focus == DECODE
        else source.pick([2, source.integer(1, limits.output_tokens), limits.output_tokens])
    )
    time = 0.0 if source.chance(2) else source.real(0.01, 1.0)
    prompts: list[tuple[int, list[int]]] = []
    requests: list[ReferenceRequest] = []
    fresh = 0
    for index in range(source.integer(1, limits.requests)):
        if index and not source.chance(3):
            time += source.rng.expovariate(1.0 / mean_gap_s)
        tokens = source.integer(1, longest)
        own: list[int] = []
        if index and not source.chance(4):
            parent_tokens, parent = source.pick(prompts[-6:])
            if source.chance(4):
                tokens, own = parent_tokens, parent
            else:
                common = min(tokens, parent_tokens) // page_tokens
                own = parent[: source.pick([common, source.integer(0, common)])]
        pages = -(-tokens // page_tokens)
        added = pages - len(own)
        own = [*own, *range(fresh, fresh + added)]
        fresh += added
        prompts.append((tokens, own))
        space = source.integer(0, spaces - 1)
        requests.append(
            ReferenceRequest(
                arrival_s=time,
                prompt_tokens=tokens,
                output_tokens=source.integer(1, longest_output),
                blocks=tuple(space * NAMESPACE_STEP + block for block in own),
                session=source.integer(-1, 3),
                namespace=space,
            )
        )
    return tuple(requests)


def build_cluster(source: Source, page_tokens: int, requests: Sequence[ReferenceRequest]) -> ReferenceCluster:
    """A cluster in which most of the requests fit, but not many at once."""
    pages = max(len(request.blocks) for request in requests)
    prompt_tokens = max(request.prompt_tokens for request in requests)
    total = max(request.prompt_tokens + request.output_tokens for request in requests)
    tight = source.chance(16)  # the largest requests fit nowhere
    cache_pages = max(1, pages // 2) if tight else source.integer(pages, 3 * pages + 2)
    kv_tokens = max(3, page_tokens, total // 2 if tight else source.integer(total, 3 * total))
    kv_bytes = source.rng.randrange(500, 2000)
    rate = source.real(0.1, 20.0) * prompt_tokens * kv_bytes  # bytes/s
    step_s = source.real(0.005, 0.5)
    cluster = ReferenceCluster(
        page_tokens=page_tokens,
        response_overhead_s=source.real_or_zero(0.01, 1.0),
        num_prefill=source.pick([1, 2, 2, 3]),
        prefill_a_s=source.real(0.005, 0.1),
        prefill_b_s=source.real(0.003, 0.5) / prompt_tokens,
        prefill_c_s=source.real(0.0003, 0.2) / prompt_tokens**2,
        min_prefill_s=source.real_or_zero(0.01, 0.3),
        n_tile=source.pick([0, 8, 64]),
        cache_tokens=cache_pages * page_tokens + source.integer(0, page_tokens - 1),
        queue=source.pick(["fcfs", "lpm"]),
        lpm_fallback=source.pick([128, 3, 0]),
        lpm_check_tokens=source.pick([32, 0, 2 * page_tokens]),
        lpm_defer_tokens=source.pick([32, 1, page_tokens, 2 * page_tokens + 1]),
        batch_tokens=source.pick([8192, source.integer(1, 2 * prompt_tokens)]),
        chunk_tokens=source.pick([0, 8192, source.integer(1, prompt_tokens)]),
        max_batch_requests=source.pick([64, 3, 2, 1]),
        kv_bytes_per_token=float(kv_bytes),
        num_decode=source.pick([1, 2, 2, 3]),
        decode_d_s=step_s,
        decode_e_s=source.real_or_zero(0.05, 1.0) * step_s,
        decode_f_s=source.real_or_zero(0.05, 2.0) * step_s / total,
        kv_tokens=kv_tokens,
        max_batch=source.pick([256, 16, 8, 3, 2, 1]),
        reserve_tokens=min(kv_tokens - 1, source.pick([1, 1, 2, 8, 20])),
        join_stall_s=source.real_or_zero(0.2, 3.0) * step_s,
        preemption=source.pick(["recompute", "swap"]),
        swap_bytes_per_s=rate * source.real(0.2, 5.0),
        decode_kv_bytes_per_token=float(source.rng.randrange(500, 2000)),
        decode_prefill_a_s=source.real(0.005, 0.1),
        decode_prefill_b_s=source.real(0.01, 1.0) / prompt_tokens,
        decode_prefill_c_s=source.real(0.001, 0.5) / prompt_tokens**2,
        decode_min_prefill_s=step_s,
        nic_bytes_per_s=rate,
        setup_s=source.real_or_zero(0.001, 0.2),
        per_block_s=source.real_or_zero(0.0005, 0.05),
        layers=source.pick([4, 80, 1, 2]),
        handover="last_chunk" if source.chance(2) else "blocking",
        peer_pulls=not source.chance(3),
        store_nic_bytes_per_s=rate * source.real(0.3, 3.0),
        write_through=not source.chance(4),
        index_delay_s=source.real_or_zero(0.01, 2.0),
        memory_tokens=page_tokens * source.pick([0, source.integer(1, 2 * pages)]),
        period_s=source.real(0.5, 30.0) * step_s,
        candidates=source.integer(1, 4),
        candidate_order=source.pick(["remaining_per_kv", "shortest_kv"]),
        stall_s=source.real_or_zero(0.001, 0.1),
        prediction=source.pick(["oracle", "none", "star", "weak"]),
        tau_tokens=source.pick([None, 15.5]),
        slo_ttft_s=source.pick([None, source.real(0.1, 10.0)]),
        slo_tpot_s=source.pick([None, step_s * source.real(1.0, 5.0)]),
        slo_tbt_tail_s=source.pick([None, step_s * source.real(1.0, 10.0)]),
        slo_e2e_s=source.pick([None, source.real(0.5, 30.0)]),
        warmup_requests=source.pick([0, 1]) if len(requests) > 1 else 0,
    )
    if source.chance(2):
        cluster = replace(cluster, store_tokens=source.integer(1, 3 * pages) * page_tokens)
    return cluster


def with_answers(source: Source, case: Case) -> Case:
    """Ids of answers, and prompts that continue prompt and answer of an earlier request."""
    cluster = replace(case.cluster, cache_outputs=not source.chance(4))
    if source.chance(2):
        return replace(case, cluster=cluster)
    page = cluster.page_tokens
    longest = max(len(request.blocks) for request in case.requests)
    fresh = 1 + max(block % NAMESPACE_STEP for request in case.requests for block in request.blocks)
    requests: list[ReferenceRequest] = []
    for request in case.requests:
        if requests and not source.chance(3):
            before = source.pick(requests[-4:])
            path = [*before.blocks[: before.prompt_tokens // page], *before.answer_blocks]
            tokens = len(path) * page + source.integer(1, 2 * page)
            added = cluster.pages(tokens) - len(path)
            if len(path) + added <= longest:
                path += range(
                    before.namespace * NAMESPACE_STEP + fresh, before.namespace * NAMESPACE_STEP + fresh + added
                )
                fresh += added
                request = replace(request, prompt_tokens=tokens, blocks=tuple(path), namespace=before.namespace)
        filled = (request.prompt_tokens + request.output_tokens) // page - request.prompt_tokens // page
        if not source.chance(4):
            first = request.namespace * NAMESPACE_STEP + fresh
            request = replace(request, answer_blocks=tuple(range(first, first + filled)))
            fresh += filled
        requests.append(request)
    return replace(case, cluster=cluster, requests=tuple(requests))


def build_network(source: Source, cluster: ReferenceCluster) -> dict[str, Any]:
    """How flows share NICs, how prompts are handed over, and who delivers first tokens."""
    changes: dict[str, Any] = {
        "sharing": source.pick(["max_min", "max_min", "equal_split"]),
        "first_token": source.pick(["prefill", "decode"]),
    }
    if cluster.handover == "last_chunk" and not source.chance(3):
        changes["handover"] = "chunked"
    if source.chance(2):
        changes["handover_fixed_s"] = source.real_or_zero(0.001, 0.2)
    if source.chance(3):
        changes["handover_load_bytes_per_s"] = cluster.nic_bytes_per_s * source.real(0.3, 10.0)
    if source.chance(3):
        changes["schedule_s"] = cluster.prefill_a_s * source.real(0.1, 10.0)
    return changes


@st.composite
def cases(draw: Callable[..., Any], limits: Limits | None = None) -> Case:
    """Cases that the property tests shrink: all discrete choices are drawn one by one."""
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    return build_case(Source(lambda low, high: draw(st.integers(low, high)), rng), limits or Limits())


def random_case(seed: int, limits: Limits | None = None) -> Case:
    """The case of a number."""
    rng = random.Random(seed)
    return build_case(Source(rng.randint, rng), limits or Limits())
