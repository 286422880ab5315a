"""Routers of serving systems that weigh cache against load: Dynamo, llm-d, AIBrix, Preble, SMetric, and a plain sum."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from cacheenv.testing import random_stream
from cacheenv_baselines import make
from cacheenv_baselines.aibrix import running_statistics
from cacheenv_baselines.dynamo import cheapest, fill_decode_costs, fill_prefill_costs
from cacheenv_baselines.llmd import best_decode, kv_score, prefix_score, queue_score
from cacheenv_baselines.preble import INSTANCES, window_load_s


def prefill_of(router, view):
    return router.route(view)[0]


def among(router, view, part=0, draws=80):
    return {router.route(view)[part] for _ in range(draws)}


# -- dynamo


def test_dynamo_prefill_costs_by_hand(build, fill):
    """Pages of 100. (500 + 1000 - 0) / 100 = 15, (0 + 1000 - 300) / 100 = 7, and below 0 nothing counts."""
    view, costs = build(3, 1, prompt_tokens=1000), np.zeros(3)
    fill(view.prefill, inflight_new_tokens=[500, 0, 200], hit_tokens=[0, 300, 900])
    fill_prefill_costs(view, 1.0, 0.0, 1.0, costs)
    assert costs == pytest.approx([15, 7, 3])
    fill_prefill_costs(view, 2.0, 0.0, 0.5, costs)
    assert costs == pytest.approx([7.5, 2, 0])
    # Excess over the least: 5 of the prompt's 10 blocks, none, 2 of 10: credits 1 / 1.5, 1, 1 / 1.2.
    fill_prefill_costs(view, 1.0, 1.0, 1.0, costs)
    assert costs == pytest.approx([15, 7, 12 - 9 / 1.2])


def test_dynamo_decode_costs_by_hand(build, fill, add_running):
    """Prompts alone: 700 of 4,000 resident tokens; 200 on their way; 300 preempted; and the prompt of 1,000."""
    view, costs = build(1, 2, prompt_tokens=1000), np.zeros(2)
    add_running(view, [{"instance": 0, "kv_tokens": 4000, "prompt_tokens": 700}])
    fill(view.decode, pending_tokens=[200, 0], preempted_tokens=[0, 300], inflight_requests=[2, 1])
    fill_decode_costs(view, 0.0, costs)
    assert costs == pytest.approx([19, 13])
    fill_decode_costs(view, 4.0, costs)
    assert costs == pytest.approx([27, 17])


def test_dynamo_is_blind_to_generated_tokens(build, add_running, decider):
    view = build(1, 2)
    add_running(view, [{"instance": 0, "kv_tokens": 60_000, "prompt_tokens": 100},
                       {"instance": 1, "kv_tokens": 300, "prompt_tokens": 200}])  # fmt: skip
    assert decider("dynamo").route(view)[1] == 0


def test_dynamo_weighs_cache_against_queue(build, fill, decider):
    view = build(2, 1)
    fill(view.prefill, inflight_new_tokens=[400, 0], hit_tokens=[500, 0])
    assert prefill_of(decider("dynamo"), view) == 0
    assert prefill_of(decider("dynamo", overlap_weight=0.5), view) == 1
    fill(view.decode, kv_tokens=99_000)
    assert prefill_of(decider("dynamo"), view) == 0, "the prefill router takes no account of decode"


def test_dynamo_softmax_by_hand():
    """Costs 0, 1, 2 at temperature 0.5: weights 1, e^-1, e^-2."""
    rng, costs = random_stream(0), np.array([5.0, 6.0, 7.0])
    counts = Counter(cheapest(rng, costs, 0.5) for _ in range(6000))
    total = 1 + math.exp(-1) + math.exp(-2)
    for place in range(3):
        assert counts[place] / 6000 == pytest.approx(math.exp(-place) / total, abs=0.02)
    assert {cheapest(rng, costs, 0.0) for _ in range(50)} == {0}
    assert Counter(cheapest(rng, np.full(3, 2.0), 0.5) for _ in range(300)).keys() == {0, 1, 2}
    ties = Counter(cheapest(rng, np.array([3.0, 1.0, 1.0]), 0.0) for _ in range(1000))
    assert set(ties) == {1, 2} and 420 < ties[1] < 580


# -- llm-d


def test_llmd_scorers():
    assert [queue_score(waiting, 2, 6) for waiting in (2, 3, 6)] == [1.0, 0.75, 0.0]
    assert queue_score(4, 4, 4) == 1.0
    assert [kv_score(used, 1000) for used in (0, 250, 2000)] == [1.0, 0.75, 0.0]


def test_llmd_prefix_scorer_reads_memory_or_index(build, fill):
    view = build(1, 1, prompt_tokens=10_000)
    fill(view.prefill, hit_tokens=5000, memory_hit_tokens=1024)
    assert prefix_score(view, 0, 4096.0, True) == 0.25
    assert prefix_score(view, 0, 0.0, False) == 0.5
    fill(view.prefill, memory_hit_tokens=9000)
    assert prefix_score(view, 0, 4096.0, True) == 1.0, "no more than 256 blocks are hashed"


def test_llmd_approx_by_hand(build, fill, decider):
    """2 x prefix + queue: 2 x 0.4 + 0, 2 x 0.2 + 0.5, 0 + 1."""
    view = build(3, 1)
    fill(view.prefill, memory_hit_tokens=[400, 200, 0], queued_requests=[4, 2, 0], hit_tokens=[0, 0, 900])
    assert prefill_of(decider("llmd_approx"), view) == 2
    assert prefill_of(decider("llmd_approx", prefix_weight=2.4), view) == 2  # .96, .98, 1
    assert prefill_of(decider("llmd_approx", prefix_weight=2.6), view) == 0  # 1.04, 1.02, 1
    assert make("llmd_approx").brings == {"cluster.index.memory_tokens": 500_000}


def test_llmd_precise_counts_memory_in_use(build, fill, decider):
    """Three of four requests of 4,000 tokens are in the batch or in hand-over: 12,000 of 20,000 in use, so 0.4."""
    view = build(2, 1)
    fill(view.prefill, cache_capacity_tokens=20_000, cache_used_tokens=[0, 20_000])
    fill(view.prefill, inflight_requests=[4, 0], queued_requests=[1, 0], inflight_tokens=[16_000, 0])
    # 2 x 0.7 + 0 + 0.4 = 1.8 against 0 + 1 + 1 = 2; with 0.9 of the prompt cached 2.2.
    fill(view.prefill, hit_tokens=[700, 0], memory_hit_tokens=[0, 1000])
    assert prefill_of(decider("llmd_precise"), view) == 1
    fill(view.prefill, hit_tokens=[900, 0])
    assert prefill_of(decider("llmd_precise"), view) == 0
    # 0 + 2 x 0.7 + 0.4 against 0.5 x 1 + 1: the weight of the queue is half.
    fill(view.prefill, hit_tokens=[700, 0])
    assert prefill_of(decider("llmd_precise", queue_weight=0.5), view) == 0


def test_llmd_decode_sees_the_waiting_queue_and_kv(build, fill, decider):
    view, rng = build(1, 3), random_stream(0)
    fill(view.decode, waiting_requests=[0, 1, 0], preempted_requests=[1, 0, 0], running_requests=[0, 0, 60])
    assert decider("llmd_approx").route(view)[1] == 2, "a long batch counts for nothing"
    fill(view.decode, waiting_requests=0, preempted_requests=0, kv_tokens=[50_000, 20_000, 60_000])
    assert {best_decode(view, rng, 1.0, 0.0) for _ in range(60)} == {0, 1, 2}
    assert {best_decode(view, rng, 1.0, 1.0) for _ in range(60)} == {1}


# -- aibrix


def test_aibrix_statistics(build, fill):
    view = build(4, 1)
    fill(view.prefill, inflight_requests=[1, 3, 5, 7])
    assert running_statistics(view) == pytest.approx((1, 7, 4.0, math.sqrt(5)))


def test_aibrix_takes_the_longest_match_that_is_not_overloaded(build, fill, decider):
    """Running 1, 3, 5, 7: mean 4, deviation 2.24, so at most 6.2."""
    view, router = build(4, 1), decider("aibrix")
    fill(view.prefill, inflight_requests=[1, 3, 5, 7], memory_hit_tokens=[100, 300, 500, 900])
    assert prefill_of(router, view) == 2
    assert prefill_of(decider("aibrix", load_factor=2), view) == 3
    fill(view.prefill, memory_hit_tokens=[0, 500, 500, 0], hit_tokens=[900, 0, 0, 0])
    assert prefill_of(router, view) == 1, "of equal matches the fewest running"
    fill(view.prefill, memory_hit_tokens=[0, 0, 0, 900])
    assert prefill_of(router, view) == 0, "no match that may be used: the fewest running"


def test_aibrix_imbalance_leaves_only_the_idlest(build, fill, decider):
    view, router = build(4, 1), decider("aibrix")
    fill(view.prefill, inflight_requests=[8, 0, 2, 0], memory_hit_tokens=[0, 0, 900, 0])
    assert prefill_of(router, view) == 2, "a difference of 8 is none"
    fill(view.prefill, inflight_requests=[9, 0, 2, 0])
    assert among(router, view) == {1, 3}
    fill(view.prefill, memory_hit_tokens=[0, 100, 900, 0])
    assert among(router, view) == {1}


# -- smetric


def told(view, **request):
    for name, value in request.items():
        view.request[0][name] = value
    return view


def test_smetric_first_turns_go_by_load_and_later_ones_by_cache(build, fill, decider):
    view, router = build(3, 1, session=7), decider("smetric")
    fill(view.prefill, inflight_new_tokens=[300, 200, 500], hit_tokens=[0, 0, 900])
    assert prefill_of(router, view) == 1, "a first turn ignores the cache"
    assert prefill_of(router, view) == 2, "500 is not beyond twice the mean of 333"
    assert prefill_of(router, told(view, session=8)) == 1, "another session has its own first turn"
    assert prefill_of(router, told(view, session=7)) == 2
    assert [prefill_of(router, told(view, session=-1)) for _ in range(3)] == [1] * 3, "no session, no later turn"


def test_smetric_leaves_an_overloaded_holder(build, fill, decider):
    view, router = build(3, 1, session=7), decider("smetric")
    fill(view.prefill, inflight_new_tokens=[0, 100, 600], hit_tokens=[0, 0, 900])
    router.route(view)
    assert prefill_of(router, view) == 0, "600 is beyond twice the mean of 233"
    assert prefill_of(decider("smetric", overload=0.0), view) == 0
    fill(view.prefill, inflight_new_tokens=[100, 200, 600])
    assert prefill_of(router, view) == 2, "and not beyond twice the mean of 300"


def test_smetric_leaves_a_hit_well_below_the_history(build, fill, decider):
    """The last prompt had 1,250 tokens, 12 pages of 100; half of them is 600."""
    view, router = build(2, 1, session=7, prompt_tokens=1250), decider("smetric")
    fill(view.prefill, inflight_new_tokens=[0, 100], hit_tokens=[0, 599])
    router.route(view)
    assert prefill_of(router, view) == 0
    fill(view.prefill, hit_tokens=[0, 600], inflight_new_tokens=[1, 1])
    assert among(router, view) == {1}


def test_smetric_forgets_the_older_of_two_sessions_in_one_place(build, fill, decider):
    view, router = build(2, 1, session=3), decider("smetric")
    fill(view.prefill, inflight_new_tokens=[2, 3], hit_tokens=[0, 900])
    assert [prefill_of(router, view) for _ in range(3)] == [0, 1, 1]
    router.route(told(view, session=3 + 4096))
    assert prefill_of(router, told(view, session=3)) == 0, "a first turn again"
    assert prefill_of(router, view) == 1


def test_smetric_fetches_from_the_store_where_that_saves_time(build, fill, decider):
    view = build(1, 1, session=7, store_hit_tokens=800)
    fill(view.prefill, hit_tokens=100, pull_tokens=700, transfer_s=0.2, prefill_s=1.0, prefill_pull_s=0.3)
    assert decider("smetric").route(view) == (0, 0, 1)
    fill(view.prefill, transfer_s=0.8)
    assert decider("smetric").route(view) == (0, 0, 0)


# -- preble


def preble_state(router, loads_s, part=0):
    """Seconds of prefill sent within one part of the window."""
    first = 4 + part * INSTANCES
    router.state[first : first + len(loads_s)] = loads_s


def test_preble_exploits_a_match_longer_than_the_rest(build, fill, decider):
    view, router = build(3, 1), decider("preble")
    preble_state(router, [5.0, 9.0, 1.0])
    fill(view.prefill, hit_tokens=[501, 501, 0])
    assert prefill_of(router, view) == 0, "of the holders the least loaded"
    fill(view.prefill, hit_tokens=[500, 500, 0])
    assert prefill_of(router, view) == 2, "half of the prompt is not longer than the rest"


def test_preble_counts_the_seconds_that_it_sent(build, fill, decider):
    view, router = build(2, 1), decider("preble")
    fill(view.prefill, prefill_s=[2.0, 3.0])
    first = prefill_of(router, view)
    assert window_load_s(router.state, first) == [2.0, 3.0][first] and window_load_s(router.state, 1 - first) == 0.0
    assert prefill_of(router, view) == 1 - first


def test_preble_forgets_after_the_window(build, fill, decider):
    """Parts of 15 s: what was sent at 5 s is gone from 180 s on, and what was sent at 20 s is not."""
    view, router = build(2, 1), decider("preble")
    for now_s, prefill_s in ((5.0, 2.0), (20.0, 4.0)):
        view.cluster[0].now_s = now_s
        fill(view.prefill, prefill_s=prefill_s, hit_tokens=[999, 0])
        assert prefill_of(router, view) == 0
    fill(view.prefill, hit_tokens=0, prefill_s=0.0)
    view.cluster[0].now_s = 179.9
    router.route(view)
    assert window_load_s(router.state, 0) == 6.0
    view.cluster[0].now_s = 180.0
    router.route(view)
    assert window_load_s(router.state, 0) == 4.0
    view.cluster[0].now_s = 1e6
    router.route(view)
    assert window_load_s(router.state, 0) == 0.0


def test_preble_rebalances_after_its_warm_up(build, fill, decider):
    view, router = build(3, 1), decider("preble")
    fill(view.prefill, hit_tokens=[900, 0, 0], prefill_s=0.0, dispatched_requests=[50, 50, 49])
    preble_state(router, [3.0, 2.5, 2.0])
    assert prefill_of(router, view) == 0, "3 is not beyond 1.5 x 2"
    preble_state(router, [3.1, 2.5, 2.0])
    assert prefill_of(router, view) == 0, "149 of 150 requests"
    fill(view.prefill, dispatched_requests=50)
    assert prefill_of(router, view) == 2
    assert prefill_of(router, view) == 2, "to the lightest"
    router.state[1] = 0.0
    assert prefill_of(router, view) == 0, "switched off"


# -- linear


def test_linear_by_hand(build, fill, decider):
    """Unmatched .2, .6, 1; requests 4/4, 2/4, 0; tokens 300/600, 600/600, 0."""
    view = build(3, 2)
    fill(view.prefill, hit_tokens=[800, 400, 0], inflight_requests=[4, 2, 0], inflight_new_tokens=[300, 600, 0])
    assert prefill_of(decider("linear"), view) == 0  # .1 + .25, .3 + .5, .5
    assert prefill_of(decider("linear", unmatched=0.5, requests=0.5, tokens=0), view) == 2  # .6, .55, .5
    assert prefill_of(decider("linear", unmatched=1, requests=0.9, tokens=0), view) == 2  # 1.1, 1.05, 1
    assert prefill_of(decider("linear", unmatched=1, requests=1, tokens=-1), view) == 1  # .7, .1, 1
    fill(view.decode, inflight_requests=[4, 5], kv_tokens=[900, 100], pending_tokens=[0, 100])
    assert decider("linear").route(view)[1] == 0
    assert decider("linear", decode_requests=1, decode_tokens=0.2).route(view)[1] == 0  # .8 + .2, 1 + .044
    assert decider("linear", decode_requests=1, decode_tokens=0.3).route(view)[1] == 1  # .8 + .3, 1 + .067


@pytest.mark.parametrize(
    "name",
    ["hash_ring", "session", "prefix_hash", "dynamo", "llmd_approx", "llmd_precise", "aibrix", "smetric", "preble",
     "linear", "mooncake_min"],
)  # fmt: skip
def test_one_instance_of_each_kind(build, decider, name):
    """Also a prompt shorter than a page, with no match anywhere."""
    view, router = build(1, 1, prompt_tokens=7, first_block=-1), decider(name)
    assert [router.route(view) for _ in range(3)] == [(0, 0, 0)] * 3


@pytest.mark.parametrize("name", ["dynamo", "llmd_approx", "llmd_precise", "aibrix", "linear", "mooncake_min"])
def test_all_equal_is_random(build, decider, name):
    router, view = decider(name), build(3, 3)
    assert {router.route(view)[:2] for _ in range(300)} == {(p, d) for p in range(3) for d in range(3)}
