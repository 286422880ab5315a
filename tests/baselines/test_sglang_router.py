"""cache_aware of the SGLang gateway: imbalance test, match test, ties, and the defects that it keeps."""

from __future__ import annotations

from collections import Counter

from cacheenv_baselines import make


def remember(view, hits):
    """What the router remembers of this prompt on each instance."""
    view.prefill.memory_hit_tokens = hits
    best = max(hits)
    view.request[0].memory_hit_tokens = best
    view.request[0].memory_instance = hits.index(best) if best else -1


def shares(view, router, draws=1000):
    return Counter(router.route(view)[0] for _ in range(draws))


def test_a_match_above_the_threshold_goes_to_its_instance(build, fill, decider):
    view = build(3, 1)
    fill(view.prefill, unfinished_requests=[0, 64, 5])
    remember(view, [100, 301, 200])
    assert shares(view, decider("sglang"), 50) == {1: 50}


def test_the_threshold_is_strict(build, fill, decider):
    view = build(3, 1)
    fill(view.prefill, unfinished_requests=[4, 9, 5])
    remember(view, [100, 300, 200])
    assert decider("sglang").route(view)[0] == 0
    assert decider("sglang", cache_threshold=0.29).route(view)[0] == 1


def test_the_engine_cache_is_not_what_the_router_reads(build, fill, decider):
    view = build(2, 1)
    fill(view.prefill, hit_tokens=[0, 900], unfinished_requests=[0, 1])
    assert decider("sglang").route(view)[0] == 0


def test_both_imbalance_tests_must_hold_strictly(build, fill, decider):
    view = build(2, 1)
    remember(view, [900, 0])
    for loads, expected in (([64, 0], 0), ([65, 0], 1), ([195, 130], 0), ([196, 130], 1), ([264, 200], 0)):
        fill(view.prefill, unfinished_requests=loads)
        assert decider("sglang").route(view)[0] == expected, loads


def test_struct_defaults(build, fill, decider):
    view = build(2, 1)
    remember(view, [500, 0])
    fill(view.prefill, unfinished_requests=[2, 0])
    assert decider("sglang").route(view)[0] == 0
    assert decider("sglang_struct").route(view)[0] == 1, "0.5 is not above 0.5"
    remember(view, [501, 0])
    assert decider("sglang_struct").route(view)[0] == 0
    fill(view.prefill, unfinished_requests=[33, 0])
    assert decider("sglang_struct").route(view)[0] == 1, "33 is above 32"


def test_miss_goes_to_the_least_loaded(build, fill, decider):
    """Reported: misses went to the smallest tree. Loads 0 and 30, 60 unique prompts, none ends: 45 and 45."""
    view, router = build(2, 1), decider("sglang")
    fill(view.prefill, unfinished_requests=[0, 30])
    assert decider("sglang").route(view)[0] == 0
    for _ in range(60):
        view.prefill[router.route(view)[0]].unfinished_requests += 1
    assert list(view.prefill.unfinished_requests) == [45, 45]


def test_imbalance_mode_forgets_affinity(build, fill, decider):
    """Reported and kept: loads 70, 0, 0, 1, cached on 2 only: 1 or 2 at random, never 2 for sure."""
    view = build(4, 1)
    fill(view.prefill, unfinished_requests=[70, 0, 0, 1])
    remember(view, [0, 0, 900, 0])
    counts = shares(view, decider("sglang"))
    assert set(counts) == {1, 2} and 430 < counts[1] < 570


def test_ties_of_load_are_random(build, decider):
    counts = shares(build(4, 1), decider("sglang"), 2000)
    assert all(400 < counts[i] < 600 for i in range(4))


def test_equal_matches_go_where_the_memory_says(build, decider):
    view = build(3, 1)
    remember(view, [900, 900, 900])
    view.request[0].memory_instance = 2
    assert decider("sglang").route(view)[0] == 2


def test_one_prompt_ten_times_one_prefill_instance_and_decode_on_its_own(build, decider):
    """Reported: one index for both pools made the owner flip. The pools are chosen independently."""
    view, router = build(2, 2), decider("sglang")
    prefills, decodes = set(), Counter()
    for _ in range(10):
        prefill, decode, pull = router.route(view)
        assert pull == 0
        remember(view, [1000 if i == prefill else 0 for i in range(2)])
        prefills.add(prefill)
        decodes[decode] += 1
        view.decode[decode].inflight_requests += 1
    assert len(prefills) == 1
    assert decodes == {0: 5, 1: 5}


def test_prefill_load_is_held_until_the_answer_ends(build, fill, decider):
    """Instance 0 has nothing to compute; the gateway sees three answers that go on, and takes instance 1."""
    view = build(2, 1)
    fill(view.prefill, inflight_requests=[0, 2], unfinished_requests=[3, 2], backlog_s=[0.0, 9.0])
    assert decider("sglang").route(view)[0] == 1
    assert decider("least_requests").route(view)[0] == 0


def test_requirements_on_the_cluster():
    for name, tokens in (("sglang", 16_777_216), ("sglang_struct", 2500)):
        assert make(name).requires == {"cluster.prefill.queue": "fcfs", "cluster.prefill.eviction": "lru_node"}
        assert make(name).brings == {"cluster.index.memory_tokens": tokens}
