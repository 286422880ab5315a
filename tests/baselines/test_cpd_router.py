"""Together CPD: short, cold and warm prompts in both versions, the store."""

from __future__ import annotations

from collections import Counter

import pytest

from cacheenv.policy import ROLE_PRE_PREFILL
from cacheenv_baselines import make


@pytest.fixture
def cluster(build, fill):
    """Instance 0 is for cold prompts, 1 to 3 are normal; the least loaded normal one is 2."""

    def create(prompt_tokens, remembered=0, on=0):
        view = build(4, 2, prompt_tokens=prompt_tokens, memory_hit_tokens=remembered)
        view.prefill[0].role = ROLE_PRE_PREFILL
        fill(view.prefill, unfinished_requests=[9, 5, 3, 4])
        view.prefill[on].memory_hit_tokens = remembered
        view.request[0].memory_instance = on if remembered else -1
        return view

    return create


def test_short_prompts_take_the_normal_policy(cluster, decider):
    """2,499 tokens at 4 characters are below 10,000."""
    assert decider("cpd").route(cluster(2499))[0] == 2
    assert decider("cpd").route(cluster(2500))[0] == 0


def test_version_1_counts_exactly_a_tenth_as_cold(cluster, decider):
    """11,000 characters, 1,100 matched, 9,900 unmatched: only the ratio speaks."""
    assert decider("cpd", version=1).route(cluster(2750, 275))[0] == 0
    router = decider("cpd", version=1)
    assert {router.route(cluster(2750, 276))[0] for _ in range(200)} == {1, 2, 3}


@pytest.mark.parametrize(
    ("remembered", "version_2", "version_1"),
    [
        (0, 0, 0),
        (2999, 0, 0),  # 9.997 % matched
        (3000, 2, 0),  # exactly a tenth: cold in version 1 only
        (15_000, 2, 0),  # half matched, but 60,000 characters are not
        (27_500, 2, 0),  # 10,000 characters unmatched
    ],
)
def test_cold_rule(cluster, decider, remembered, version_2, version_1):
    view = cluster(30_000, remembered)
    assert decider("cpd").route(view)[0] == version_2
    assert decider("cpd", version=1).route(view)[0] == version_1


def test_version_2_needs_both_conditions(cluster, decider):
    """Nothing matched, but with unmatched_chars 20,000 a prompt of 10,000 characters is not cold."""
    assert decider("cpd", unmatched_chars=20_000).route(cluster(2500))[0] == 2


def test_version_1_sends_warm_prompts_to_a_random_normal_instance(cluster, decider):
    view, router = cluster(30_000, 27_501, on=1), decider("cpd", version=1)
    counts = Counter(router.route(view)[0] for _ in range(3000))
    assert set(counts) == {1, 2, 3} and all(900 < count < 1100 for count in counts.values())


def test_version_2_sends_warm_prompts_by_prefix(cluster, decider):
    assert decider("cpd").route(cluster(30_000, 10_000, on=3))[0] == 3, "a third is above 0.3"
    assert decider("cpd").route(cluster(30_000, 9000, on=3))[0] == 2, "0.3 is not: least loaded normal instance"


def test_prefix_remembered_on_the_cold_instance_is_warm_but_stays_off_it(cluster, decider):
    view, router = cluster(30_000, 29_000, on=0), decider("cpd")
    assert {router.route(view)[0] for _ in range(50)} == {2}


def test_without_a_pre_prefill_instance(cluster, decider):
    view = cluster(30_000)
    view.prefill[0].role = 0
    assert decider("cpd").route(view)[0] == 2, "cold falls back to the normal policy"
    router = decider("cpd", version=1)
    assert {router.route(view)[0] for _ in range(200)} == {0, 1, 2, 3}, "version 1: to a random instance"


def test_load_of_the_cold_instance_is_no_imbalance(cluster, decider, fill):
    view = cluster(30_000, 20_000, on=3)
    fill(view.prefill, unfinished_requests=[500, 5, 3, 4])
    assert decider("cpd").route(view)[0] == 3


def test_store_is_used_where_it_saves_time(cluster, decider, fill):
    view = cluster(30_000, 29_000, on=3)
    view.request[0].store_hit_tokens = 29_000
    fill(view.prefill, pull_tokens=29_000, prefill_s=3.0, prefill_pull_s=0.5, transfer_s=1.0)
    assert decider("cpd").route(view)[::2] == (3, 1)
    fill(view.prefill, transfer_s=2.5)
    assert decider("cpd").route(view)[::2] == (3, 0)
    fill(view.prefill, transfer_s=1.0, hit_tokens=29_000)
    assert decider("cpd").route(view)[::2] == (3, 0), "the local prefix is as long"


def test_the_first_pre_prefill_instance_gets_all_that_is_cold(cluster, decider, fill):
    view = cluster(30_000)
    view.prefill[3].role = ROLE_PRE_PREFILL
    fill(view.prefill, backlog_s=[40.0, 0.0, 0.0, 3.0])
    assert decider("cpd").route(view)[0] == 0


def test_balanced_takes_the_pre_prefill_instance_with_the_least_backlog(cluster, decider, fill):
    view, router = cluster(30_000), decider("cpd_balanced")
    view.prefill[3].role = ROLE_PRE_PREFILL
    fill(view.prefill, backlog_s=[4.0, 0.0, 0.0, 3.0])
    assert {router.route(view)[0] for _ in range(20)} == {3}
    fill(view.prefill, backlog_s=3.0)
    counts = Counter(router.route(view)[0] for _ in range(1000))
    assert set(counts) == {0, 3} and 430 < counts[0] < 570
    assert router.route(cluster(30_000, 10_000, on=3))[0] == 3, "warm ones as in cpd"
    view = cluster(30_000)
    view.prefill[0].role = 0
    assert router.route(view)[0] == 2, "no pre-prefill instance: the normal policy"


@pytest.mark.parametrize("name", ["cpd", "cpd_balanced"])
def test_requirements_on_the_cluster(name):
    requires = make(name).requires
    assert requires["max:cluster.prefill.pre_prefill"] == 1, "two are left alone"
    assert requires["max:cluster.store.capacity_tokens"] > 0 and requires["cluster.store.write_through"] is True
    assert requires["cluster.network.peer_pulls"] is False
    assert make(name).brings == {"cluster.index.memory_tokens": 16_777_216}
