"""Invariants of the engine at every decision and at the end, whatever happens in between."""

from __future__ import annotations

import dataclasses
import os
from typing import Any
from unittest import mock

import numpy as np
import pytest
from engine_invariants import check_end, check_world
from hypothesis import HealthCheck, given, settings
from oracle_cases import Case, Limits, cases, random_case
from oracle_tools import EngineActor, EngineRun, run_engine, scenario_of, spec_of, workload_of
from reference import ReferenceCluster, ReferenceRequest

from cacheenv.policy import as_bundle
from cacheenv.run.simulate import collect, drive
from cacheenv.run.worlds import Worlds
from cacheenv.sim.state.allocate import Sizes

SEARCH = settings(
    deadline=None,
    max_examples=60 * int(os.environ.get("CACHEENV_SEARCH", 1)),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def watched(case: Case) -> EngineRun:
    """Runs a case with all checks."""
    run = run_engine(case, watch=check_world)
    check_end(run.worlds)
    check_records(case, run)
    return run


def check_records(case: Case, run: EngineRun) -> None:
    """Order of the times of each request, and what must add up over all."""
    rows, totals = run.result.requests, run.result.instances
    served = rows[rows["outcome"] == 1]
    chain = ["arrival_s", "routed_s", "prefill_start_s", "prefill_end_s"]
    for part, names in (
        (served[served["output_tokens"] > 1], [*chain, "transfer_end_s", "decode_start_s", "finish_s"]),
        (served[served["output_tokens"] == 1], [*chain, "finish_s"]),
    ):
        times = np.array([part[name] for name in names])
        assert np.all(np.isfinite(times)) and np.all(np.diff(times, axis=0) >= 0.0)
    for name in ("ttft_s", "tpot_s", "e2e_s", "tbt_p99_s", "tbt_tail_s"):
        assert np.all(served[name] >= 0.0) and np.all(np.isnan(rows[name][rows["outcome"] != 1]))
    assert np.all(served["tpot_s"] <= served["tbt_tail_s"] * 1.03)
    assert np.all(rows["hit_tokens"] < rows["prompt_tokens"])
    assert np.all(rows["hit_available_tokens"] < rows["prompt_tokens"])
    assert np.all(rows["outcome"] > 0)
    prefill, decode = totals[totals["kind"] == 0], totals[totals["kind"] == 1]
    computed = rows[np.isin(rows["outcome"], (1, 4))]  # those that were refused after their prefill too
    assert prefill["tokens"].sum() == (computed["prompt_tokens"] - computed["hit_tokens"]).sum()
    assert decode["tokens"].sum() == (served["output_tokens"] - 1).sum()
    assert np.isclose(totals["bytes_out"].sum(), totals["bytes_in"].sum(), rtol=1e-12)
    own_bytes, most_bytes = prefill_bytes(case)
    handed = served[served["output_tokens"] > 1]
    into_decode = (handed["prompt_tokens"] * own_bytes[0][handed["prefill_instance"]]).sum()
    assert decode["bytes_in"].sum() >= into_decode * (1 - 1e-12)
    pulled = rows["pulled_tokens"].sum() + totals["replicated_tokens"].sum()
    returned = [prefill["bytes_in"].sum() - pulled * limit for limit in (own_bytes[1].max(), own_bytes[0].min())]
    answered = sum(len(case.requests[index].answer_blocks) for index in served["request"]) * case.cluster.page_tokens
    most = answered * most_bytes if case.cluster.cache_outputs else 0.0
    rounding = 1e-12 * prefill["bytes_in"].sum()
    assert -rounding <= returned[1] and returned[0] <= most + rounding
    if case.moves is None:
        refused = rows[rows["outcome"] == 4]  # after their prefill: pieces of theirs may have been handed over
        handed_most = sum(
            (part["prompt_tokens"] * own_bytes[1][part["prefill_instance"]]).sum() for part in (handed, refused)
        )
        assert decode["bytes_in"].sum() <= handed_most * (1 + 1e-12)
        slack = 1e-9 * max(abs(limit) for limit in returned) + rounding
        assert returned[0] - slack <= decode["bytes_out"].sum() <= returned[1] + slack


def prefill_bytes(case: Case) -> tuple[list[np.ndarray], float]:
    """Bytes of a token from each prefill instance, at least and at most, and most from a decode instance."""
    cluster = case.cluster
    prefill = [cluster.of_prefill(index) for index in range(cluster.num_prefill)]
    decode = [cluster.of_decode(index) for index in range(cluster.num_decode)]
    own = [
        np.array([like.kv_bytes_per_token / like.kv_copies for like in prefill]),
        np.array([like.kv_bytes_per_token for like in prefill]),
    ]
    return own, max(like.decode_kv_bytes_per_token for like in decode)


@SEARCH
@given(cases())
def test_invariants(case: Case) -> None:
    watched(case)


@pytest.mark.parametrize("number", range(4))
def test_invariants_of_larger_cases(number: int) -> None:
    watched(random_case(1000 + number, Limits(requests=120, pages=20, output_tokens=60)))


def tiny_pools(sizes: Sizes) -> Sizes:
    """As few flows, nodes and index events as there can be."""
    trees = 1 + sizes.num_prefill * (1 + bool(sizes.memory_enabled) + bool(sizes.host_enabled))
    return dataclasses.replace(sizes, flows=1, nodes=trees, news=min(sizes.news, 2))


def run_in_tiny_pools(case: Case, watch: Any = check_world) -> tuple[EngineRun, list[float]]:
    """A run that starts with tiny pools, and the times at which they grew."""
    sizes, grow = Worlds._sizes, Worlds.grow
    grown_s: list[float] = []

    def growing(worlds: Worlds) -> None:
        grown_s.append(float(worlds.world(0).state[0].now_s))
        grow(worlds)
        check_world(worlds)

    with (
        mock.patch.object(Worlds, "_sizes", lambda worlds, **needed: tiny_pools(sizes(worlds, **needed))),
        mock.patch.object(Worlds, "grow", growing),
    ):
        return run_engine(case, watch=watch), grown_s


def same(left: EngineRun, right: EngineRun) -> bool:
    """Byte for byte, decisions included."""
    return (
        left.result.requests.tobytes() == right.result.requests.tobytes()
        and left.result.instances.tobytes() == right.result.instances.tobytes()
        and left.decisions == right.decisions
    )


def test_pools_grow_without_a_trace() -> None:
    grown_midway = 0
    for number in range(2000, 2030):
        case = random_case(number, Limits(requests=60))
        run, grown_s = run_in_tiny_pools(case)
        assert grown_s
        grown_midway += sum(time > 0.0 for time in grown_s)
        check_end(run.worlds)
        assert same(run, run_engine(case))
    assert grown_midway > 0


def test_one_prompt_may_evict_very_many_leaves() -> None:
    # 3000 prompts of one page each fill the cache; then one prompt takes all of it, and the index hears of each page
    # that goes one by one, later. No pool may run over in that single event.
    pages = 3000
    cluster = ReferenceCluster(
        page_tokens=1, cache_tokens=pages + 1, kv_tokens=10_000, max_batch_requests=1, prefill_a_s=1e-4,
        decode_d_s=1e-3, decode_min_prefill_s=1e-3, index_delay_s=1000.0,
    )  # fmt: skip
    requests = [ReferenceRequest(0.01 * index, 1, 1, (index,)) for index in range(pages)]
    requests.append(ReferenceRequest(100.0, pages, 1, tuple(range(pages, 2 * pages))))
    case = Case(cluster, tuple(requests), (0,) * len(requests), None, True, 0)
    run, _ = run_in_tiny_pools(case, watch=None)
    check_end(run.worlds)
    assert run.result.requests["outcome"].tolist() == [1] * len(requests)


def test_runs_repeat() -> None:
    for number in range(3000, 3010):
        case = random_case(number)
        assert same(run_engine(case), run_engine(case))


def test_a_world_is_like_new_after_a_reset() -> None:
    # The same tables serve one episode after the other.
    case = random_case(5)
    fresh = run_engine(case).result
    bundle = as_bundle(EngineActor(case))
    worlds = Worlds(scenario_of(case.cluster), bundle=bundle, ticks=case.moves is not None, spec=spec_of(case.cluster))
    for _ in range(2):
        worlds.reset(0, case.seed, workload_of(case))
        drive(worlds, 0, as_bundle(EngineActor(case)))
        again = collect(worlds, 0, "script", case.seed)
        assert again.requests.tobytes() == fresh.requests.tobytes()
