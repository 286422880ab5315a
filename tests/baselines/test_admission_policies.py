"""Admission policies: early rejection, its prediction-based form, the check after the prefill, and decode memory."""

from __future__ import annotations

import pytest

from cacheenv.policy import DECISION_ADMIT

AT_ARRIVAL = ["early_reject", "predictive_reject", "late_reject", "kv_reject"]


@pytest.fixture
def loaded(build):
    """Proposed: prefill 1, decode 0, no pull; SLO 10 s to the first token, 0.1 s between tokens."""

    def create():
        view = build(2, 2)
        view.cluster[0].slo_ttft_s, view.cluster[0].slo_tbt_tail_s = 10.0, 0.1
        view.cluster[0].proposed = (1 * 2 + 0) * 2
        return view

    return create


@pytest.mark.parametrize("name", AT_ARRIVAL)
def test_prefill_load_is_that_of_the_proposed_route(loaded, fill, decider, name):
    view, rule = loaded(), decider(name)
    fill(view.prefill, backlog_s=[100.0, 9.0], prefill_s=1.0)
    assert rule.act(view) == 1, "load 1.0 is not above 1.0"
    fill(view.prefill, backlog_s=[0.0, 9.01])
    assert rule.act(view) == 0
    if name != "kv_reject":  # whose threshold is of the memory
        assert decider(name, threshold=1.1).act(view) == 1


@pytest.mark.parametrize("name", AT_ARRIVAL)
def test_a_pull_counts_with_its_transfer(loaded, fill, decider, name):
    view = loaded()
    fill(view.prefill, prefill_s=11.0, prefill_pull_s=2.0, transfer_s=3.0, pull_tokens=500)
    assert decider(name).act(view) == 0
    view.cluster[0].proposed += 1
    assert decider(name).act(view) == 1
    fill(view.prefill, transfer_s=8.5)
    assert decider(name).act(view) == 0


@pytest.mark.parametrize("name", AT_ARRIVAL)
def test_refusal_of_the_router_stands_and_no_slo_refuses_nothing(build, fill, decider, name):
    view = build(2, 2)
    fill(view.prefill, backlog_s=1e6)
    fill(view.decode, running_requests=50_000, kv_tokens=99_000, waiting_requests=9, waiting_tokens=99_000)
    assert decider(name).act(view) == 1
    view.cluster[0].proposed = 8
    assert decider(name).act(view) == 0


@pytest.mark.parametrize("name", ["early_reject", "predictive_reject", "kv_reject"])
def test_what_was_accepted_at_arrival_is_not_refused_later(loaded, fill, decider, name):
    view = loaded()
    fill(view.decode, decode_e_s=1.0)
    assert decider(name).act(view) == 0
    view.cluster[0].decision = DECISION_ADMIT
    assert decider(name).act(view) == 1


# -- early_reject


def test_early_reject_counts_this_request_once(loaded, fill, decider):
    """Steps of 0.02 s + 1 us a token; 1001 tokens more on one of two instances are half of a mean of 0.001001 s.

    Counted on both, the larger prompt below would be refused: 0.02 + 0.001 + 0.0795 s on each.
    """
    view, rule = loaded(), decider("early_reject")
    fill(view.decode, decode_e_s=0.0, kv_tokens=[79_000, 79_998])
    assert rule.act(view) == 1, "(0.1 + 0.099 ... + 0.001001) / 2 is at most 0.1"
    fill(view.decode, kv_tokens=[79_002, 79_998])
    assert rule.act(view) == 0, "159,000 tokens and 1001 make a mean of 0.1000005 s"
    fill(view.decode, decode_e_s=0.001, kv_tokens=0)
    view.request[0].prompt_tokens = 79_500
    assert rule.act(view) == 1, "once: (0.02 + 0.02 + 0.001 + 0.0795) / 2 = 0.06"


def test_early_reject_counts_who_waits_at_decode_but_not_who_is_on_the_way(loaded, fill, decider):
    """0.02 s + 1 ms a request: a mean of 80 requests, with this one, is the SLO of 0.1 s."""
    view, rule = loaded(), decider("early_reject")
    fill(view.decode, decode_f_s=0.0, running_requests=[70, 60], waiting_requests=[20, 4], preempted_requests=[5, 0])
    assert rule.act(view) == 1, "159 and this one"
    fill(view.decode, waiting_requests=[20, 5])
    assert rule.act(view) == 0
    fill(view.decode, waiting_requests=[20, 4], pending_requests=200, pending_tokens=200_000)
    assert rule.act(view) == 1
    fill(view.decode, decode_f_s=1e-6, running_requests=0, waiting_requests=0, preempted_requests=0, kv_tokens=50_000)
    fill(view.decode, waiting_tokens=[20_000, 0], preempted_tokens=[36_990, 0])  # 156,990 + 1001, and 1 ms
    assert rule.act(view) == 1
    fill(view.decode, preempted_tokens=[38_100, 0])
    assert rule.act(view) == 0


def test_tpot_slo_stands_in_for_a_tail_slo(loaded, fill, decider):
    view = loaded()
    view.cluster[0].slo_tbt_tail_s, view.cluster[0].slo_tpot_s = float("inf"), 0.04
    fill(view.decode, running_requests=30)
    assert decider("early_reject").act(view) == 0


# -- late_reject


def test_late_reject_reads_the_decode_load_after_the_prefill_only(loaded, fill, decider):
    """0.02 s + 1 ms a request on the request's own instance 0; at its arrival the decode load does not count."""
    view, rule = loaded(), decider("late_reject")
    fill(view.decode, decode_f_s=0.0, running_requests=[60, 500], waiting_requests=[15, 0], preempted_requests=[5, 0])
    assert rule.act(view) == 1
    view.cluster[0].decision = DECISION_ADMIT
    fill(view.prefill, backlog_s=1e6)
    assert rule.act(view) == 0, "80 and this one make 0.101 s"
    fill(view.decode, waiting_requests=[14, 0])
    assert rule.act(view) == 1
    fill(view.decode, decode_f_s=1e-6, waiting_tokens=[100, 0])
    assert rule.act(view) == 0, "its own tokens count"


def test_late_reject_asks_for_the_second_question():
    from cacheenv_baselines import make

    assert make("late_reject").admission.requires == {"admission.after_prefill": True}


# -- predictive_reject


def test_prediction_adds_what_prefill_finishes_by_then(loaded, fill, decider):
    """In 1 s: (1 + n) / 2 requests and 1000 tokens each; 0.02 + 0.001 * 80 is the SLO of 0.1."""
    view, rule = loaded(), decider("predictive_reject", decode_time_s=10)
    fill(view.decode, decode_f_s=0.0)
    fill(view.prefill, inflight_requests=[159, 0])
    assert rule.act(view) == 1
    fill(view.prefill, inflight_requests=[160, 0])
    assert rule.act(view) == 0
    fill(view.prefill, backlog_s=[2.0, 0.0], inflight_requests=[318, 0])
    assert rule.act(view) == 1, "half of a backlog of 2 s has left after 1 s"
    fill(view.prefill, inflight_requests=[320, 0])
    assert rule.act(view) == 0


def test_prediction_counts_tokens(loaded, fill, decider):
    """(1000 + n) / 2 tokens at 1 us and half a request: 0.0205 + ... reaches 0.1 at n = 158,000."""
    view, rule = loaded(), decider("predictive_reject")
    fill(view.prefill, inflight_tokens=[157_999, 0])
    assert rule.act(view) == 1
    fill(view.prefill, inflight_tokens=[158_001, 0])
    assert rule.act(view) == 0
    fill(view.prefill, inflight_tokens=[150_000, 0])
    fill(view.decode, waiting_tokens=[5_000, 0], preempted_tokens=[0, 2_999])
    assert rule.act(view) == 1
    fill(view.decode, waiting_tokens=[5_002, 0])
    assert rule.act(view) == 0


@pytest.fixture
def decoding(loaded, fill, add_running):
    """32 running requests, six of them since 9.1 s, and steps that are too long with 27 of them.

    26 stay: 0.02 + 0.0059 * 13.5 = 0.09965; with one of the six more, 0.1026.
    """
    view = loaded()
    rows = [{"instance": j % 2, "kv_tokens": 10, "elapsed_s": 9.1 if j < 6 else 1.0} for j in range(32)]
    fill(view.decode, decode_f_s=0.0, decode_e_s=0.0059)
    add_running(view, rows)
    return view


def test_prediction_removes_what_has_decoded_long_enough(decoding, decider):
    assert decider("early_reject").act(decoding) == 0
    assert decider("predictive_reject", decode_time_s=10).act(decoding) == 1
    decoding.running[0].elapsed_s = 9.0
    assert decider("predictive_reject", decode_time_s=10).act(decoding) == 0, "9 s and 1 s more do not exceed 10 s"
    assert decider("predictive_reject", decode_time_s=9.5).act(decoding) == 1


def test_decode_time_is_observed(decoding, decider):
    """Those since 9.1 s are taken to leave within 1 s where t_d is below 10.1 s."""
    rule, cluster = decider("predictive_reject"), decoding.cluster[0]
    assert rule.act(decoding) == 0, "nobody has ended: nobody is taken to leave"
    cluster.decode_time_s, cluster.decoded_requests = 10.2, 1
    assert rule.act(decoding) == 0
    cluster.decode_time_s = 10.0
    assert rule.act(decoding) == 1


def test_requests_that_wait_at_decode_count(loaded, fill, decider):
    view, rule = loaded(), decider("predictive_reject")
    fill(view.decode, decode_f_s=0.0, waiting_requests=79)
    assert rule.act(view) == 1
    fill(view.decode, preempted_requests=1)
    assert rule.act(view) == 0


def test_those_that_leave_prefill_early_finish_in_time_too(loaded, fill, decider):
    """12 s ahead and t_d = 10 s: of a backlog of 12 s the first 2 s have come and gone."""
    view = loaded()
    view.cluster[0].slo_ttft_s = 100.0
    fill(view.decode, decode_f_s=0.0)
    fill(view.prefill, prefill_s=12.0, backlog_s=[12.0, 0.0], inflight_requests=[190, 0])
    # 190 * 10 / 12 = 158.3 and one: 0.02 + 0.001 * 79.7.
    assert decider("predictive_reject", decode_time_s=10).act(view) == 1
    fill(view.prefill, inflight_requests=[192, 0])
    assert decider("predictive_reject", decode_time_s=10).act(view) == 0


# -- kv_reject


@pytest.fixture
def crowded(build, fill, add_running):
    """Capacity 100,000 tokens, steps of 50 ms whatever runs, TPOT SLO 60 ms, 101 tokens of output: 1 s may be waited.

    Prefill takes 1 s, so two seconds from now there must be room: 40 steps.
    """
    view = build(2, 2)
    cluster = view.cluster[0]
    cluster.slo_tpot_s, cluster.proposed = 0.06, (1 * 2 + 0) * 2
    view.decode["reserve_tokens"] = 500
    view.request[0].predicted_output_tokens, view.request[0].prompt_tokens = 101.0, 10_000
    fill(view.decode, decode_d_s=0.05, decode_e_s=0.0, decode_f_s=0.0, step_s=0.05)
    rows = [{"instance": 0, "kv_tokens": 44_300, "predicted_remaining_tokens": left} for left in (30, 100)]
    add_running(view, rows)
    return view


def test_kv_reject_asks_for_room_at_the_latest_moment(crowded, fill, decider):
    """One of two leaves in time: 44,340 + 10,001 tokens and 500 each for two requests; of both 88,680 and 1500."""
    rule = decider("kv_reject")
    assert rule.act(crowded) == 1
    crowded.running[0].predicted_remaining_tokens = 41.0
    assert rule.act(crowded) == 0, "181 tokens too many"
    crowded.decode[0].capacity_tokens = 100_181
    assert rule.act(crowded) == 1
    assert decider("kv_reject", threshold=0.99).act(crowded) == 0


def test_kv_reject_counts_who_waits_is_preempted_or_on_the_way(crowded, fill, decider):
    """44,340 + 10,001 and 500 each for three requests leave 44,159 tokens."""
    rule = decider("kv_reject")
    fill(crowded.decode, waiting_requests=[1, 0], waiting_tokens=[44_159, 0], pending_tokens=[44_158, 0])
    assert rule.act(crowded) == 1
    fill(crowded.decode, waiting_tokens=[44_160, 0], pending_tokens=[44_159, 0])
    assert rule.act(crowded) == 0
    fill(crowded.decode, waiting_requests=0, waiting_tokens=0, pending_requests=[1, 0], pending_tokens=[44_160, 0])
    assert rule.act(crowded) == 0
    fill(crowded.decode, pending_requests=0, pending_tokens=0, preempted_requests=[1, 0], preempted_tokens=[44_160, 0])
    assert rule.act(crowded) == 0


def test_kv_reject_knows_how_long_a_request_may_wait(crowded, decider):
    """Room comes after 60 steps, 3 s: 2 s after the prefill, for 200 gaps at 10 ms to spare each."""
    rule = decider("kv_reject")
    crowded.running[0].predicted_remaining_tokens = 60.0
    crowded.running[0].kv_tokens = 50_000
    assert rule.act(crowded) == 0
    crowded.request[0].predicted_output_tokens = 203.0
    assert rule.act(crowded) == 1
    # The worst tenth of 202 gaps are 21: each may be 100 ms longer than a step, or 90 ms, in sum 2.1 or 1.89 s.
    crowded.cluster[0].slo_tbt_tail_s = 0.15
    assert rule.act(crowded) == 1
    crowded.cluster[0].slo_tbt_tail_s = 0.14
    assert rule.act(crowded) == 0


def test_kv_reject_refuses_what_would_wait_too_long_for_its_prefill(crowded, fill, decider):
    rule = decider("kv_reject")
    crowded.running.predicted_remaining_tokens = 1.0
    crowded.cluster[0].slo_ttft_s = 5.0
    fill(crowded.prefill, backlog_s=4.0)
    assert rule.act(crowded) == 1
    fill(crowded.prefill, backlog_s=4.1)
    assert rule.act(crowded) == 0


def test_kv_reject_refuses_what_runs_in_steps_that_are_too_long(crowded, fill, decider):
    rule = decider("kv_reject")
    crowded.running.predicted_remaining_tokens = 1.0
    fill(crowded.decode, decode_e_s=0.009)
    assert rule.act(crowded) == 1, "alone: 0.059 s"
    crowded.running[1].predicted_remaining_tokens = 1000.0
    assert rule.act(crowded) == 0, "two: 0.068 s"
