"""Early rejection and its prediction-based form."""

from __future__ import annotations

import pytest


@pytest.fixture
def loaded(build):
    """Proposed: prefill 1, decode 0, no pull; SLO 10 s to the first token, 0.1 s between tokens."""

    def create():
        view = build(2, 2)
        view.cluster[0].slo_ttft_s, view.cluster[0].slo_tbt_tail_s = 10.0, 0.1
        view.cluster[0].proposed = (1 * 2 + 0) * 2
        return view

    return create


@pytest.mark.parametrize("name", ["early_reject", "predictive_reject"])
def test_prefill_load_is_that_of_the_proposed_route(loaded, fill, decider, name):
    view, rule = loaded(), decider(name)
    fill(view.prefill, backlog_s=[100.0, 9.0], prefill_s=1.0)
    assert rule.act(view) == 1, "load 1.0 is not above 1.0"
    fill(view.prefill, backlog_s=[0.0, 9.01])
    assert rule.act(view) == 0
    assert decider(name, threshold=1.1).act(view) == 1


@pytest.mark.parametrize("name", ["early_reject", "predictive_reject"])
def test_a_pull_counts_with_its_transfer(loaded, fill, decider, name):
    view = loaded()
    fill(view.prefill, prefill_s=11.0, prefill_pull_s=2.0, transfer_s=3.0, pull_tokens=500)
    assert decider(name).act(view) == 0
    view.cluster[0].proposed += 1
    assert decider(name).act(view) == 1
    fill(view.prefill, transfer_s=8.5)
    assert decider(name).act(view) == 0


@pytest.mark.parametrize("name", ["early_reject", "predictive_reject"])
def test_refusal_of_the_router_stands_and_no_slo_refuses_nothing(build, fill, decider, name):
    view = build(2, 2)
    fill(view.prefill, backlog_s=1e6)
    fill(view.decode, step_after_s=1e6)
    assert decider(name).act(view) == 1
    view.cluster[0].proposed = 8
    assert decider(name).act(view) == 0


def test_early_reject_reads_the_decode_load_of_now(loaded, fill, decider):
    view, rule = loaded(), decider("early_reject")
    fill(view.decode, step_after_s=[0.15, 0.05])
    assert rule.act(view) == 1, "mean 0.1"
    fill(view.decode, step_after_s=[0.15, 0.06])
    assert rule.act(view) == 0
    fill(view.decode, step_after_s=0.05, pending_requests=200, pending_tokens=200_000)
    assert rule.act(view) == 1, "requests on their way are not in the present load"


def test_tpot_slo_stands_in_for_a_tail_slo(loaded, fill, decider):
    view = loaded()
    view.cluster[0].slo_tbt_tail_s, view.cluster[0].slo_tpot_s = float("inf"), 0.04
    fill(view.decode, step_after_s=0.05)
    assert decider("early_reject").act(view) == 0


def test_prediction_adds_what_prefill_finishes_by_then(loaded, fill, decider):
    """In 1 s: (1 + n) / 2 requests and 1000 tokens each; 0.02 + 0.001 * 80 is the SLO of 0.1."""
    view, rule = loaded(), decider("predictive_reject")
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


def test_prediction_removes_what_has_decoded_long_enough(loaded, fill, decider, add_running):
    """100 + 100 requests now (step 0.12 s with one more); those above 9 s will have left in 1 s."""
    view, rule = loaded(), decider("predictive_reject")
    fill(view.decode, decode_f_s=0.0, step_after_s=0.121)
    assert decider("early_reject").act(view) == 0
    rows = [{"instance": j % 2, "kv_tokens": 10, "elapsed_s": 9.1 if j < 6 else 1.0} for j in range(32)]
    fill(view.decode, decode_e_s=0.0059)
    add_running(view, rows)
    # 26 stay: 0.02 + 0.0059 * 13.5 = 0.09965; with one of the six more, 0.1026.
    assert rule.act(view) == 1
    view.running[0].elapsed_s = 9.0
    assert rule.act(view) == 0, "9 s and 1 s more do not exceed 10 s"
    assert decider("predictive_reject", decode_time_s=9.5).act(view) == 1


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
    assert decider("predictive_reject").act(view) == 1
    fill(view.prefill, inflight_requests=[192, 0])
    assert decider("predictive_reject").act(view) == 0
