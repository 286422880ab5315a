"""Statistics and the reuse ceiling, against a slow model, published figures and an independent simulator."""

import json
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheenv.errors import InputError
from cacheenv.workload import Workload, generate, hit_ceiling, lru_hit_blocks, workload_stats


def slow_lru(workload, capacity):
    """The same cache as an ordered dictionary, oldest first."""
    cache, hits = OrderedDict(), []
    for index in range(len(workload)):
        ids = workload.blocks_of(index).tolist()
        most = (int(workload.requests[index].prompt_tokens) - 1) // workload.page_tokens
        length = 0
        while length < most and ids[length] in cache:
            length += 1
        hits.append(length)
        for block in reversed(ids):
            cache[block] = True
            cache.move_to_end(block)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=25), st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_lru_equals_the_slow_model(prompts, capacity):
    names = {}
    ids = [[names.setdefault(tuple(p[: k + 1]), len(names)) for k in range(len(p))] for p in prompts]
    count = len(prompts)
    lengths = [4 * len(p) - (index % 3) for index, p in enumerate(prompts)]
    workload = Workload.from_arrays(np.arange(count), lengths, np.ones(count, dtype=int), ids, page_tokens=4)
    assert lru_hit_blocks(workload, capacity).tolist() == slow_lru(workload, capacity)


def test_lru_equals_the_slow_model_on_chat():
    workload = generate("chat", requests=400, rate_rps=4.0, page_tokens=512, seed=5)
    for capacity in (1, 50, 700, 3000, workload.num_blocks):
        assert lru_hit_blocks(workload, capacity).tolist() == slow_lru(workload, capacity)
    assert sum(slow_lru(workload, 3000)) > sum(slow_lru(workload, 700)) > 0


def test_ceiling_by_hand():
    workload = Workload.from_arrays([0.0, 1.0, 2.0], [8, 8, 10], [1, 1, 1], [[1, 2], [1, 2], [1, 2, 3]], page_tokens=4)
    # The second prompt computes its last token, so only one of its two blocks is a hit; the third hits both.
    assert hit_ceiling(workload) == {"block_hit_rate": 3 / 7, "token_hit_rate": 12 / 26}


@pytest.mark.parametrize("capacity", [0, -3, 2.5, True])
def test_bad_capacity(capacity):
    workload = generate("reasoning", requests=3, rate_rps=1.0, page_tokens=64)
    with pytest.raises(InputError, match="cache capacity: expected a whole number of blocks >= 1"):
        lru_hit_blocks(workload, capacity)


def test_stats_by_hand():
    workload = Workload.from_arrays(
        [0.0, 1.0, 1.0, 4.0], [8, 8, 10, 3], [1, 2, 3, 6], [[1, 2], [1, 2], [1, 2, 3], [9]],
        page_tokens=4, session=[0, -1, 0, 5], namespace=[0, 0, 0, 2], name="four",
    )  # fmt: skip
    stats = workload_stats(workload, capacities=[2])
    assert {key: stats[key] for key in ("name", "requests", "page_tokens", "sessions", "namespaces")} == {
        "name": "four", "requests": 4, "page_tokens": 4, "sessions": 2, "namespaces": 2,
    }  # fmt: skip
    assert stats["arrivals"] == {
        "duration_s": 4.0,
        "rate_rps": 0.75,
        "gap_cv": pytest.approx(np.std([1, 0, 3]) / (4 / 3)),
        "distinct_times": 3,
        "largest_burst": 2,
    }
    assert stats["prompt_tokens"]["total"] == 29 and stats["prompt_tokens"]["p50"] == 8.0
    assert (stats["output_tokens"]["min"], stats["output_tokens"]["max"], stats["output_tokens"]["mean"]) == (1, 6, 3.0)
    assert stats["blocks"] == {"total": 8, "distinct": 4, "seen_once_share": 0.5, "most_shared": 3}
    assert stats["reuse"]["infinite"] == {"block_hit_rate": 3 / 8, "token_hit_rate": 12 / 29}
    assert stats["reuse"]["lru"][2]["block_hit_rate"] == sum(slow_lru(workload, 2)) / 8
    json.dumps(stats)  # Python scalars only


def test_stats_of_one_request_and_of_one_burst():
    one = workload_stats(generate("chat", requests=1, rate_rps=1.0, page_tokens=512))
    assert (one["arrivals"]["rate_rps"], one["arrivals"]["gap_cv"], one["arrivals"]["duration_s"]) == (None, None, 0.0)
    burst = workload_stats(Workload.from_arrays([2.0, 2.0], [4, 4], [1, 1], page_tokens=4))
    assert (burst["arrivals"]["rate_rps"], burst["arrivals"]["largest_burst"]) == (None, 2)


def test_conversation_trace_meets_the_published_figures(conversation_trace):
    stats = workload_stats(Workload.from_mooncake(conversation_trace), capacities=[1_000, 5_859, 10_000, 50_000])
    assert stats["reuse"]["infinite"]["block_hit_rate"] == pytest.approx(0.366, abs=0.001)
    assert stats["reuse"]["infinite"]["token_hit_rate"] == pytest.approx(0.374, abs=0.001)
    curve = {size: rates["block_hit_rate"] for size, rates in stats["reuse"]["lru"].items()}
    assert curve == {
        1_000: pytest.approx(0.044, abs=0.001),
        5_859: pytest.approx(0.136, abs=0.001),  # 3 M tokens, one node
        10_000: pytest.approx(0.211, abs=0.001),
        50_000: pytest.approx(0.355, abs=0.001),
    }
    assert stats["blocks"]["seen_once_share"] == pytest.approx(0.76, abs=0.005)
    assert stats["blocks"]["most_shared"] == stats["requests"] == 12_031
    assert stats["arrivals"]["distinct_times"] == 1180
    assert stats["arrivals"]["largest_burst"] == 28


def test_an_independent_simulator_agrees(conversation_trace):
    """PyPI's kvcache-simulator replays the second half of the trace after warming up with the first."""
    trace_module = pytest.importorskip("kvcache_sim.trace", reason="needs PyPI's kvcache-simulator")
    from kvcache_sim.plan import build_execution_plan
    from kvcache_sim.policies import simulate_policy

    workload = Workload.from_mooncake(conversation_trace)
    half = len(workload) // 2
    plan = build_execution_plan(trace_module.parse_trace_file(conversation_trace, block_size=512), 0.5)
    tokens = workload.requests["prompt_tokens"][half:].sum()
    for capacity in (1_000, 10_000, 50_000):
        other = simulate_policy(plan, "lru", capacity)
        assert (other.measurementMode, other.warmupRequests) == ("fixed_window", half)
        mine = lru_hit_blocks(workload, capacity)[half:].sum() * 512 / tokens
        # It also counts partial tails and the last token of a prompt: at most 0.001 more.
        assert mine == pytest.approx(other.hitRate, abs=0.001)
