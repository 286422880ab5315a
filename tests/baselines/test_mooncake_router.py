"""Mooncake's Algorithm 1: costs, the pull ratio, decode choice, refusal."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tiny_cluster import requests, run, tiny

from cacheenv_baselines import make


def hits(view, local, pull, prefill_s, prefill_pull_s, transfer_s):
    view.prefill.hit_tokens = local
    view.prefill.pull_tokens = pull
    view.prefill.prefill_s = prefill_s
    view.prefill.prefill_pull_s = prefill_pull_s
    view.prefill.transfer_s = transfer_s
    view.request[0].best_hit_tokens = max(a + b for a, b in zip(local, pull, strict=True))


def test_queue_transfer_and_prefill_are_added(build, fill, decider):
    view = build(3, 1)
    # Holder 2 computes the rest in 0.5 s after its queue; the others pull (0.25 s) and compute in 0.5 s.
    hits(view, [0, 0, 800], [800, 800, 0], [1.0, 1.0, 0.5], [0.5, 0.5, 0.5], [0.25, 0.25, 0.0])
    fill(view.prefill, backlog_s=[0.125, 0.25, 2.0])
    assert decider("mooncake").route(view) == (0, 0, 1)
    fill(view.prefill, backlog_s=[0.125, 0.25, 0.3])
    assert decider("mooncake").route(view) == (2, 0, 0), "0.8 on the holder is below 0.875"
    fill(view.prefill, transfer_s=[0.25, 0.0625, 0.0], backlog_s=[0.125, 0.25, 0.3125])
    router = decider("mooncake")
    assert {router.route(view) for _ in range(50)} == {(1, 0, 1), (2, 0, 0)}, "0.8125 on both: a random one"


def test_local_variant_never_pulls(build, fill, decider):
    view = build(3, 1)
    hits(view, [0, 0, 800], [800, 800, 0], [1.0, 0.9, 0.4], [0.1, 0.1, 0.4], [0.1, 0.1, 0.0])
    fill(view.prefill, backlog_s=[0.0, 0.0, 2.0])
    fill(view.prefill, backlog_s=[0.0, 0.01, 2.0])
    assert decider("mooncake").route(view) == (0, 0, 1)
    assert decider("mooncake_local").route(view) == (1, 0, 0)


@pytest.mark.parametrize(
    ("local", "pull", "expected"),
    [(200, 101, 1), (200, 100, 0), (0, 1, 1), (0, 0, 0), (300, 0, 0)],
    ids=["above", "equal is not above", "no local match is infinite", "nothing anywhere", "is the holder"],
)
def test_pull_ratio(build, decider, local, pull, expected):
    view = build(1, 1)
    hits(view, [local], [pull], [1.0], [0.1], [0.1])
    assert decider("mooncake").route(view) == (0, 0, expected)


def test_threshold_is_a_parameter(build, decider):
    view = build(1, 1)
    hits(view, [200], [500], [1.0], [0.1], [0.1])
    assert decider("mooncake").route(view)[2] == 1
    assert decider("mooncake", threshold=3.5).route(view)[2] == 0


def test_transfer_is_not_compared_with_computing(build, decider):
    """Kept: above the ratio it pulls even where the link makes that slower than computing."""
    view = build(1, 1)
    hits(view, [0], [800], [1.0], [0.2], [5.0])
    assert decider("mooncake").route(view)[2] == 1


@pytest.mark.parametrize("name", ["mooncake", "mooncake_local"])
def test_all_equal_is_a_random_pair(build, decider, name):
    router, view = decider(name), build(2, 2)
    counts = Counter(router.route(view)[:2] for _ in range(1000))
    assert set(counts) == {(p, d) for p in range(2) for d in range(2)}
    assert all(190 < count < 310 for count in counts.values())


@pytest.mark.parametrize("name", ["mooncake", "mooncake_local"])
def test_groups_of_one_instant_stay_together(name):
    # Four groups of four prompts that share 400 tokens and have 10 of their own, all at once on two instances. An index
    # that learns at the assignment keeps a group where its first one went: 4 * 3 * 400 of 6560 tokens are promised.
    rows = [(0.0, [*range(1000 * group, 1000 * group + 400), *(-100 * at - 9 - k for k in range(10))], 1)
            for at in range(4) for group in range(4)]  # fmt: skip
    scenario = tiny(prefill__count=2, prefill__max_batch_requests=1)
    assigned = run(scenario, requests(rows), name)
    assert assigned.rows.hit_predicted_tokens.sum() == assigned.rows.hit_tokens.sum() == 4800
    spread = [{int(row.prefill_instance) for row in assigned.rows[group::4]} for group in range(4)]
    assert [len(instances) for instances in spread] == [1] * 4
    stored = replace(make(name), brings={})
    assert run(scenario, requests(rows), stored).rows.hit_predicted_tokens.sum() == 0


def test_decode_takes_the_least_predicted_step(build, fill, decider):
    view = build(1, 3)
    # 0.02 + 0.001 * (B + 1) + 1e-6 * (tokens + 1000): 0.042, 0.037, 0.038.
    fill(view.decode, inflight_requests=[0, 10, 1], kv_tokens=[20_000, 3000, 15_000], pending_tokens=[0, 2000, 0])
    assert decider("mooncake").route(view)[1] == 1
    fill(view.decode, pending_tokens=[0, 4000, 0])
    assert decider("mooncake").route(view)[1] == 2


def test_decode_sees_requests_of_the_same_instant(build, decider):
    view, router, chosen = build(1, 4), decider("mooncake"), []
    for _ in range(100):
        decode = router.route(view)[1]
        chosen.append(decode)
        view.decode[decode].inflight_requests += 1
        view.decode[decode].pending_tokens += 1000
    assert sorted(chosen.count(d) for d in range(4)) == [25] * 4


def test_refusal_is_off_by_default_and_on_by_parameter(build, decider):
    view = build(1, 1)
    view.cluster[0].slo_ttft_s = 0.99
    assert decider("mooncake").route(view) == (0, 0, 0)
    assert decider("mooncake", reject=1).route(view) == "reject"
    view.cluster[0].allow_reject = 0
    assert decider("mooncake", reject=1).route(view) == (0, 0, 0)
    view.cluster[0].allow_reject, view.cluster[0].slo_ttft_s = 1, 1.0
    assert decider("mooncake", reject=1).route(view) == (0, 0, 0), "at the SLO is within it"
    view.cluster[0].slo_tbt_tail_s = 0.0219  # predicted: 0.02 + 0.001 + 0.001
    assert decider("mooncake", reject=1).route(view) == "reject"


def test_mooncake_min_pulls_only_where_that_beats_computing(build, fill, decider):
    """The ratio test of `mooncake` pulls over a link that is slower than computing; this one compares."""
    view = build(2, 1)
    fill(view.prefill, hit_tokens=[100, 0], pull_tokens=[800, 900], backlog_s=[0.0, 5.0], prefill_s=1.0)
    fill(view.prefill, prefill_pull_s=0.1, transfer_s=0.8)
    assert decider("mooncake_min").route(view) == (0, 0, 1)
    fill(view.prefill, transfer_s=0.95)
    assert decider("mooncake_min").route(view) == (0, 0, 0)
    assert decider("mooncake").route(view) == (0, 0, 1)
    assert decider("mooncake_min").policy.brings == decider("mooncake").policy.brings


def test_mooncake_min_counts_the_faster_of_both_in_the_cost(build, fill, decider):
    """1 s of computing; or 0.2 + 0.3 s after a pull, behind 0.4 s of backlog: 0.9 s."""
    view = build(2, 1)
    fill(view.prefill, pull_tokens=[0, 500], prefill_s=1.0, prefill_pull_s=[1.0, 0.3], transfer_s=[0.0, 0.2])
    fill(view.prefill, backlog_s=[0.0, 0.4])
    assert decider("mooncake_min").route(view) == (1, 0, 1)
    fill(view.prefill, backlog_s=[0.0, 0.6])
    assert decider("mooncake_min").route(view) == (0, 0, 0)
