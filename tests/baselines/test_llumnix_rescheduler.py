"""Llumnix: freeness, pairing, the shortest sequence."""

from __future__ import annotations

import math

import pytest

from cacheenv_baselines import make
from cacheenv_baselines.llumnix import freeness


@pytest.fixture
def tight(build, add_running):
    """Instance 0: two requests and 80 free tokens (2.5 blocks each); 1 and 2 have more, 2 the most."""

    def create():
        view = build(1, 3)
        add_running(view, [{"instance": 0, "kv_tokens": 5000}, {"instance": 0, "kv_tokens": 4920},
                           {"instance": 1, "kv_tokens": 2000}, {"instance": 2, "kv_tokens": 1000}])  # fmt: skip
        view.decode.capacity_tokens = 10_000
        return view

    return create


def test_freeness_by_hand(build, fill):
    view = build(1, 2)
    assert freeness(view, 0, 16) == math.inf
    fill(view.decode, capacity_tokens=10_000, kv_tokens=6000, reserved_tokens=800, running_requests=3)
    assert freeness(view, 0, 16) == pytest.approx(3200 / 16 / 3)
    fill(view.decode, waiting_requests=2, pending_requests=3, pending_tokens=2000, first_waiting_tokens=500)
    assert freeness(view, 0, 16) == pytest.approx((3200 - 500) / 16 / 4), "the first waiting one only"
    fill(view.decode, preempted_requests=1, preempted_tokens=900, first_waiting_tokens=900)
    assert freeness(view, 0, 16) == pytest.approx((3200 - 900) / 16 / 4), "a preempted one is the first"
    fill(view.decode, kv_tokens=9500)
    assert freeness(view, 0, 16) < 0


def test_shortest_sequence_of_the_least_free_goes_to_the_freest(tight, decider):
    assert decider("llumnix").move(tight()) == (1, 2)


def test_ties_are_random(build, add_running, decider):
    """Two equal sources, two equal destinations, two equal sequences on each source."""
    view = build(1, 4)
    add_running(view, [{"instance": d, "kv_tokens": 4960} for d in (0, 0, 1, 1)])
    view.decode.capacity_tokens = 10_000
    router = decider("llumnix")
    assert {router.move(view) for _ in range(300)} == {(row, d) for row in (0, 1, 4, 5) for d in (2, 3)}


def test_threshold_is_blocks_a_request(tight, decider):
    view = tight()
    assert decider("llumnix", threshold=2.5).move(view) == "stay", "at the threshold is neither"
    assert decider("llumnix", block_tokens=13).move(view) == "stay", "80 / 13 / 2 = 3.08"


def test_an_instance_at_the_threshold_is_no_destination(build, add_running, decider):
    view = build(1, 2)
    add_running(view, [{"instance": 0, "kv_tokens": 100}, {"instance": 1, "kv_tokens": 1000}])
    view.decode[0].preempted_requests = 1
    view.decode[1].capacity_tokens = 1048
    assert decider("llumnix").move(view) == "stay"
    view.decode[1].capacity_tokens = 1049
    assert decider("llumnix").move(view) == (0, 1)


def test_unequal_load_without_shortage_is_left(tight, decider):
    view = tight()
    view.decode.capacity_tokens = 20_000
    assert decider("llumnix").move(view) == "stay"


def test_preemption_makes_a_source_and_no_destination(tight, decider):
    view = tight()
    view.decode[2].preempted_requests = 1
    assert decider("llumnix").move(view) == (1, 1)
    view.decode[0].capacity_tokens = 20_000
    assert decider("llumnix").move(view) == (8, 1), "2 is the only source now, 1 (500 blocks) freer than 0 (315)"


def test_engaged_instances_fall_away(tight, decider):
    view = tight()
    view.decode[2].can_receive = 0
    assert decider("llumnix").move(view) == (1, 1)
    view.decode[0].can_send = 0
    assert decider("llumnix").move(view) == "stay"


def test_pairs_are_zipped(build, add_running, decider):
    """Sources 0 (least free) and 1, destinations 3 (freest) and 2; the first pair does not fit."""
    view = build(1, 4)
    add_running(view, [{"instance": 0, "kv_tokens": 9990}, {"instance": 1, "kv_tokens": 9980},
                       {"instance": 2, "kv_tokens": 2000}, {"instance": 3, "kv_tokens": 1000}])  # fmt: skip
    view.decode.capacity_tokens = 10_000
    assert decider("llumnix").move(view) == (0, 3)
    view.decode[3].room_tokens = 9989
    assert decider("llumnix").move(view) == (4, 2), "1 is paired with 2, although it would fit on 3"


def test_idle_and_single(build, decider):
    assert decider("llumnix").move(build(1, 3)) == "stay"
    view = build(1, 1)
    view.decode[0].preempted_requests = 1
    assert decider("llumnix").move(view) == "stay"


def test_requirements_on_the_cluster():
    assert make("llumnix").requires == {"reschedule.candidate_order": "shortest_kv", "reschedule.period_s": 0.05}
