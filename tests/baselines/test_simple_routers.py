"""Routers without a cache rule, and the two that look at nothing but the cache and the batch."""

from __future__ import annotations

from collections import Counter

import pytest

from cacheenv.testing import random_stream
from cacheenv_baselines.rules import two_choices


def dispatch(view, decider, count, tokens=1000):
    """Routes `count` requests of one instant; loads move inside the decision, nothing finishes."""
    chosen = []
    for _ in range(count):
        prefill, decode, _ = decider.route(view)
        chosen.append((prefill, decode))
        view.prefill[prefill].inflight_requests += 1
        view.prefill[prefill].backlog_s += tokens / 1000.0
        view.decode[decode].inflight_requests += 1
        view.decode[decode].pending_requests += 1
        view.decode[decode].pending_tokens += tokens
    return chosen


def test_random_reaches_every_pair_alike(build, decider):
    router, view = decider("random"), build(2, 3)
    counts = Counter(router.route(view) for _ in range(6000))
    assert set(counts) == {(p, d, 0) for p in range(2) for d in range(3)}
    assert all(870 < count < 1130 for count in counts.values())


def test_random_follows_its_seed(build, decider):
    view = build(4, 4)
    same = [[decider("random", seed).route(view) for _ in range(3)] for seed in (7, 7, 8)]
    assert same[0] == same[1]
    streams = [decider("random", seed) for seed in (7, 8)]
    assert [streams[0].route(view) for _ in range(9)] != [streams[1].route(view) for _ in range(9)]


def test_round_robin_takes_each_pool_in_turn(build, decider):
    router, view = decider("round_robin"), build(2, 3)
    assert [router.route(view)[:2] for _ in range(7)] == [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1), (1, 2), (0, 0)]


def test_least_requests_counts_requests_and_not_tokens(build, fill, decider):
    view = build(3, 2)
    fill(view.prefill, inflight_requests=[2, 1, 3], backlog_s=[0.0, 90.0, 0.0])
    fill(view.decode, inflight_requests=[5, 4], kv_tokens=[10, 90_000])
    assert decider("least_requests").route(view) == (1, 1, 0)


def test_least_requests_breaks_ties_at_random(build, fill, decider):
    view, router = build(3, 2), decider("least_requests")
    fill(view.prefill, inflight_requests=[1, 0, 0])
    counts = Counter(router.route(view)[0] for _ in range(1000))
    assert counts[0] == 0 and 430 < counts[1] < 570


def test_equal_prompts_of_one_instant_spread_evenly(build, decider):
    """Reported: load never counted, one of eight engines got all 480 concurrent requests."""
    view = build(8, 8)
    chosen = dispatch(view, decider("least_requests"), 480)
    assert set(Counter(prefill for prefill, _ in chosen).values()) == {60}
    assert set(Counter(decode for _, decode in chosen).values()) == {60}


def test_outstanding_work_counts_and_not_the_completion_rate(build, fill, decider):
    """Reported: the backend with long requests completes least and was sent still more."""
    view = build(2, 2)
    fill(view.decode, inflight_requests=[10, 1], dispatched_requests=[10, 100])
    assert decider("least_requests").route(view)[1] == 1


def test_least_backlog_weighs_by_tokens(build, decider):
    """Reported: equal request counts are not equal work. One prompt of 10,000, then prompts of 100."""
    view, router = build(2, 2), decider("least_backlog")
    first = dispatch(view, router, 1, tokens=10_000)[0]
    rest = dispatch(view, router, 99, tokens=100)
    assert set(rest) == {(1 - first[0], 1 - first[1])}


def test_least_backlog_reads_seconds_and_tokens(build, fill, decider):
    view = build(3, 3)
    fill(view.prefill, backlog_s=[2.0, 3.0, 1.0], inflight_requests=[0, 0, 9])
    fill(view.decode, kv_tokens=[10, 0, 30], pending_tokens=[15, 100, 0], inflight_requests=[9, 0, 0])
    assert decider("least_backlog").route(view) == (2, 0, 0)


def test_least_kv_sees_promises_of_the_same_instant(build, decider):
    """Reported: all decisions of one tick read the same snapshot and pile up on one worker."""
    view, choice = build(1, 4), decider("least_kv")
    assert choice.policy.kind == "decode_choice"
    counts = Counter(decode for _, decode in dispatch(view, choice, 100))
    assert set(counts.values()) == {25}


def test_power_of_two_never_takes_the_most_loaded(build, fill, decider):
    view, router = build(3, 3), decider("power_of_two")
    fill(view.prefill, inflight_requests=[1, 2, 3])
    fill(view.decode, inflight_requests=[3, 1, 2])
    routes = [router.route(view) for _ in range(3000)]
    prefills, decodes = (Counter(route[k] for route in routes) for k in (0, 1))
    # Two distinct of three: the best is in two pairs of three, the second best wins the third pair.
    assert prefills[2] == 0 and 1900 < prefills[0] < 2100
    assert decodes[0] == 0 and 1900 < decodes[1] < 2100


def test_power_of_two_keeps_the_first_drawn_on_equality(build, decider):
    view, router = build(3, 5), decider("power_of_two")
    for _ in range(50):
        stream = router.rng.copy()
        first = [two_choices(stream, count)[0] for count in (3, 5)]
        assert list(router.route(view)[:2]) == first


def test_two_choices_are_distinct_and_uniform():
    stream = random_stream(3)
    counts = Counter(two_choices(stream, 3) for _ in range(6000))
    assert set(counts) == {(i, j) for i in range(3) for j in range(3) if i != j}
    assert all(870 < count < 1130 for count in counts.values())


def test_longest_prefix_ignores_load(build, fill, decider):
    view = build(3, 2)
    fill(view.prefill, hit_tokens=[100, 300, 200], inflight_requests=[0, 500, 0])
    fill(view.decode, inflight_requests=[2, 1])
    router = decider("longest_prefix")
    assert [router.route(view) for _ in range(3)] == [(1, 0, 0), (1, 1, 0), (1, 0, 0)], "decode instances take turns"


def test_longest_prefix_takes_turns_among_equal_hits(build, fill, decider):
    """The counters of the sets {1, 3} and {1, 2, 3} and of "no hit" are apart, as in the proxy."""
    view, router = build(4, 1), decider("longest_prefix")

    def chosen(*hits):
        fill(view.prefill, hit_tokens=hits)
        return router.route(view)[0]

    assert [chosen(0, 0, 0, 0) for _ in range(5)] == [0, 1, 2, 3, 0]
    assert [chosen(0, 512, 0, 512) for _ in range(3)] == [1, 3, 1]
    assert [chosen(0, 512, 512, 512) for _ in range(2)] == [1, 2]
    assert chosen(0, 900, 0, 900) == 3, "the set counts, not the length of its hit"
    assert chosen(0, 512, 512, 512) == 3
    assert chosen(0, 0, 0, 0) == 1


def test_longest_prefix_with_more_instances_than_bits(build, fill, decider):
    view, router = build(20, 1), decider("longest_prefix")
    assert [router.route(view)[0] for _ in range(21)] == [*range(20), 0]
    fill(view.prefill, hit_tokens=[512 if i in (3, 11, 19) else 0 for i in range(20)])
    assert [router.route(view)[0] for _ in range(4)] == [3, 11, 19, 3]


def test_lmetric_multiplies(build, fill, decider):
    view = build(3, 3, prompt_tokens=1000)
    # 1000 * 3 = 3000, 400 * 5 = 2000, 100 * 21 = 2100: neither the best hit nor the shortest queue wins.
    fill(view.prefill, hit_tokens=[0, 600, 900], unfinished_requests=[2, 4, 20], inflight_requests=[9, 9, 0])
    fill(view.decode, inflight_requests=[3, 2, 3])
    assert decider("lmetric").route(view) == (1, 1, 0)


def test_lmetric_counts_tokens_that_wait(build, fill, decider):
    """Equal batches; 1000 + 500 new against 1400 new: the better hit waits behind more."""
    view = build(2, 1, prompt_tokens=1500)
    fill(view.prefill, hit_tokens=[1000, 100], unfinished_requests=[2, 2], inflight_new_tokens=[1000, 0])
    assert decider("lmetric").route(view)[0] == 1


def test_lmetric_idle_instance_does_not_beat_a_full_hit(build, fill, decider):
    """1 token x 2 against 1000 x 1: without "+ 1" the idle instance would score 0."""
    view = build(3, 1)
    fill(view.prefill, hit_tokens=[999, 0, 300], unfinished_requests=[1, 0, 0])
    assert decider("lmetric").route(view)[0] == 0
    fill(view.prefill, hit_tokens=[0, 0, 300])
    assert decider("lmetric").route(view)[0] == 2, "among idle instances fewer new tokens decide"


def test_lmetric_all_equal_is_random(build, decider):
    router, view = decider("lmetric"), build(3, 3)
    assert {router.route(view)[:2] for _ in range(300)} == {(p, d) for p in range(3) for d in range(3)}


@pytest.mark.parametrize(
    "name",
    ["random", "round_robin", "least_requests", "least_backlog", "least_kv", "power_of_two", "longest_prefix",
     "lmetric", "sglang", "sglang_struct", "mooncake", "mooncake_local", "cpd"],
)  # fmt: skip
def test_one_instance_of_each_kind(build, decider, name):
    """Also a prompt shorter than a page, with no match anywhere."""
    view, router = build(1, 1, prompt_tokens=7), decider(name)
    assert [router.route(view) for _ in range(3)] == [(0, 0, 0)] * 3
