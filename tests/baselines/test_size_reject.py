"""Refusal by forecast and by size."""

from __future__ import annotations

import math

import pytest

from cacheenv.policy import DECISION_ADMIT
from cacheenv_baselines.size_reject import pressure_on


@pytest.fixture
def loaded(build):
    """Proposed: prefill 1, decode 0, no pull; SLO 10 s to the first token, 0.1 s between tokens; 100,000 KV tokens."""

    def create(**request):
        view = build(2, 2, **request)
        view.cluster[0].slo_ttft_s, view.cluster[0].slo_tbt_tail_s = 10.0, 0.1
        view.cluster[0].proposed = (1 * 2 + 0) * 2
        return view

    return create


FORECAST = {"size": 0}


def test_refuses_a_late_first_token(loaded, fill, decider):
    view = loaded()
    fill(view.prefill, backlog_s=[99.0, 9.0])
    assert decider("size_reject", **FORECAST).act(view) == 1
    fill(view.prefill, backlog_s=[0.0, 9.01])
    assert decider("size_reject", **FORECAST).act(view) == 0
    assert decider("size_reject", ttft=1.1, **FORECAST).act(view) == 1


def test_refuses_long_steps(loaded, fill, decider):
    """0.02 + 0.001 x (n + 1) + 1e-6 x (promised + 1,000) s: with 10,000 promised tokens n = 68 makes 0.1 s."""
    view = loaded()
    fill(view.decode, inflight_requests=[68, 0], kv_tokens=[4000, 0], pending_tokens=[5999, 0])
    assert decider("size_reject", **FORECAST).act(view) == 1
    fill(view.decode, inflight_requests=[69, 0])
    assert decider("size_reject", **FORECAST).act(view) == 0
    assert decider("size_reject", tbt=1.02, **FORECAST).act(view) == 1


def test_refuses_what_does_not_fit_beside_what_was_promised(loaded, fill, decider):
    """1,000 of the prompt and 512 in reserve."""
    view = loaded()
    view.cluster[0].slo_tbt_tail_s = math.inf
    fill(view.decode, kv_tokens=[60_000, 0], pending_tokens=[38_488, 0])
    assert decider("size_reject", **FORECAST).act(view) == 1
    fill(view.decode, kv_tokens=[60_001, 0])
    assert decider("size_reject", **FORECAST).act(view) == 0
    assert decider("size_reject", kv=1.01, **FORECAST).act(view) == 1


def test_pressure_by_hand(loaded, fill):
    view = loaded()
    assert pressure_on(view, 1, 0) == 0.0
    fill(view.prefill, backlog_s=[9.0, 3.0])
    assert pressure_on(view, 1, 0) == pytest.approx(0.3)
    fill(view.decode, kv_tokens=[30_000, 0], pending_tokens=[10_000, 0])
    assert pressure_on(view, 1, 0) == pytest.approx(0.5)  # 0.04 of the 0.08 s above an empty step
    fill(view.decode, inflight_requests=[16, 0])
    assert pressure_on(view, 1, 0) == pytest.approx(0.7)
    view.cluster[0].slo_tbt_tail_s = math.inf
    assert pressure_on(view, 1, 0) == pytest.approx(0.4)


def asked(rule, view, prompt_tokens):
    """The answer for a prompt, without the rule's remembering it."""
    view.request[0].prompt_tokens = prompt_tokens
    remembered = rule.state.copy()
    answer = rule.act(view)
    rule.state = remembered
    return answer


def test_under_pressure_long_prompts_are_refused_first(loaded, fill, decider):
    """At pressure 0.5 a prompt may have 2 / 0.5^2 = 8 times the mean of those so far, itself included."""
    view, rule = loaded(), decider("size_reject")
    fill(view.prefill, backlog_s=5.0)
    assert [rule.act(view) for _ in range(19)] == [1] * 19
    # (19,000 + x) / 20 x 8 = x at x = 12,666.7
    assert (asked(rule, view, 12_600), asked(rule, view, 12_700)) == (1, 0)
    fill(view.prefill, backlog_s=0.0)
    assert asked(rule, view, 12_700) == 1, "an idle cluster takes it"
    fill(view.prefill, backlog_s=5.0)
    rule.state[3] = 0.0
    assert asked(rule, view, 12_700) == 1, "without rule 2"


def test_refusal_of_the_router_stands_and_no_slo_refuses_nothing_for_time(build, fill, decider):
    view = build(2, 2)
    fill(view.prefill, backlog_s=1e6)
    fill(view.decode, inflight_requests=50_000)
    assert decider("size_reject").act(view) == 1
    view.cluster[0].proposed = 8
    assert decider("size_reject").act(view) == 0


def test_what_was_accepted_at_arrival_is_not_refused_later(loaded, fill, decider):
    view, rule = loaded(), decider("size_reject")
    fill(view.decode, decode_e_s=1.0)
    assert rule.act(view) == 0
    view.cluster[0].decision = DECISION_ADMIT
    assert rule.act(view) == 1 and rule.state[5] == 1.0, "a request is counted once"
