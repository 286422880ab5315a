"""Decode choices of rescheduling systems: Llumnix's dispatch and STAR's placement."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from cacheenv_baselines import make
from cacheenv_baselines.llumnix_dispatch import dispatch_freeness
from cacheenv_baselines.star import horizon_steps
from cacheenv_baselines.star_placement import promised_load


def chosen(decider, name, view, **params):
    return decider(name, **params).route(view)[1]


def test_freeness_of_the_dispatcher_by_hand(build, fill):
    view = build(1, 2)
    assert dispatch_freeness(view, 0, 16) == math.inf
    # 10,000 - 6,000 resident - 800 reserved - 2,000 of prompts on their way - 900 preempted = 300 free; 3 run, 1 waits,
    # 1 was preempted and 2 are on their way.
    fill(view.decode, capacity_tokens=10_000, kv_tokens=6000, reserved_tokens=800, running_requests=3)
    fill(view.decode, waiting_requests=1, pending_requests=2, pending_tokens=2000)
    fill(view.decode, preempted_requests=1, preempted_tokens=900)
    assert dispatch_freeness(view, 0, 16) == pytest.approx(300 / 16 / 7)


def test_llumnix_dispatches_to_the_freest(build, fill, decider):
    # Free blocks a request: 90,000 / 16 / 10 = 562.5; 96,000 / 16 / 12 = 500; 50,000 / 16 / 5 = 625. The one with the
    # most free memory is not the freest, nor is the one with the fewest tokens.
    view = build(1, 3)
    fill(view.decode, running_requests=[10, 12, 5], kv_tokens=[10_000, 4000, 50_000])
    assert chosen(decider, "llumnix_dispatch", view) == 2
    # 8,000 tokens of two preempted requests wait there: 42,000 / 16 / 7 = 375.
    view.decode[2].preempted_requests, view.decode[2].preempted_tokens = 2, 8000
    assert chosen(decider, "llumnix_dispatch", view) == 0


def test_llumnix_takes_idle_instances_at_random(build, decider):
    view, policy = build(1, 4), decider("llumnix_dispatch")
    view.decode[2].running_requests = 1
    counted = Counter(policy.route(view)[1] for _ in range(300))
    assert sorted(counted) == [0, 1, 3] and min(counted.values()) > 60


def test_star_places_by_what_is_predicted(build, add_running, decider):
    # Now 3,000 tokens against 2,500. The request of instance 0 ends at once; that of instance 1 stays over the whole
    # horizon of 2,000 steps, so W = 1,500 against more than 2,500.
    view = build(1, 2)
    add_running(view, [{"instance": 0, "kv_tokens": 3000, "predicted_remaining_tokens": 1.0},
                       {"instance": 1, "kv_tokens": 2500, "predicted_remaining_tokens": 9000.0}])  # fmt: skip
    assert chosen(decider, "star_placement", view) == 0
    assert chosen(decider, "star_placement", view, first_weight=1.0) == 1


def test_star_counts_what_is_on_its_way(build, fill):
    # Three requests of 1,000 tokens each, of which one was preempted. First weight 1: their tokens now.
    view = build(1, 2)
    assert promised_load(view, 0, 2000.0, 1.0) == 0.0
    fill(view.decode, pending_requests=1, waiting_requests=1, pending_tokens=2000)
    fill(view.decode, preempted_requests=1, preempted_tokens=1000)
    assert promised_load(view, 0, 2000.0, 1.0) == 3000.0
    # Mean output 2,000, grid 0, 1,000, ..., 7,000: gone at the third point. Weights 1/2 and 1/4.
    assert promised_load(view, 0, 7000.0, 0.5) == pytest.approx(3 * (0.5 * 1000 + 0.25 * 2000))


def test_star_looks_for_room_first(build, add_running, decider):
    # 1,000 of prompt + 0.5 x 800 of output + 2,000 resident = 3,400.
    view = build(1, 3, predicted_output_tokens=800.0)
    add_running(view, [{"instance": d, "kv_tokens": kv} for d, kv in enumerate((1000, 2000, 3000))])
    assert chosen(decider, "star_placement", view) == 0
    view.decode.capacity_tokens = [2399, 3400, 9000]
    assert chosen(decider, "star_placement", view) == 1
    view.decode.capacity_tokens = [2399, 3399, 9000]
    assert chosen(decider, "star_placement", view) == 2
    view.decode.capacity_tokens = [2399, 3399, 4399]
    assert chosen(decider, "star_placement", view) == 0, "room nowhere: the least workload"


def test_star_breaks_ties_at_random(build, decider):
    view, policy = build(1, 3), decider("star_placement")
    view.decode[1].capacity_tokens = 10
    counted = Counter(policy.route(view)[1] for _ in range(200))
    assert sorted(counted) == [0, 2] and min(counted.values()) > 60


def test_horizon_is_the_mean_output(build):
    view = build()
    assert horizon_steps(view, 0.0) == 2000.0
    assert horizon_steps(view, 300.0) == 300.0


def test_kinds():
    assert {make(name).kind for name in ("star_placement", "llumnix_dispatch")} == {"decode_choice"}
    assert make("star_placement").needs_running
