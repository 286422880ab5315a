"""Admission is asked again at the end of a prefill; what is refused then has been computed in vain."""

from __future__ import annotations

import numpy as np
import pytest
from engine_invariants import check_end
from tiny_cluster import Script, requests, run, tiny

from cacheenv.policy import DECISION_ADMIT, proposed_route
from cacheenv.sim.state.codes import COMPLETED, REJECTED, REJECTED_LATE

ONE_BY_ONE = {"prefill__max_batch_requests": 1, "admission.after_prefill": True}


class Asked(Script):
    """Routes as told, and answers the questions after a prefill in their order."""

    admits = True

    def __init__(self, verdicts, **options):
        super().__init__(**options)
        self.verdicts, self.seen = list(verdicts), []

    def act(self, view, mask):
        if view.cluster[0].decision != DECISION_ADMIT:
            return super().act(view, mask)
        assert len(mask) == 2 and mask.all()
        row = view.decode[0]
        self.seen.append((
            float(view.cluster[0].now_s), int(view.request[0].index), proposed_route(view), int(row.running_requests),
            int(row.pending_requests),
        ))  # fmt: skip
        return self.verdicts[len(self.seen) - 1]


def test_what_is_refused_after_its_prefill():
    """1 ms a token, one prompt a batch: the first ends at 0.1 s, the second at 0.3 s and is refused.

    Its pages stay: the third prompt, the same one again at 1 s, computes its last token only.
    """
    twice = [("same", at) for at in range(200)]
    actor = Asked([1, 0, 1])
    done = run(tiny(**ONE_BY_ONE), requests([(0.0, 100, 101), (0.0, twice, 11), (1.0, twice, 11)]), actor)
    assert done.rows.outcome.tolist() == [COMPLETED, REJECTED_LATE, COMPLETED]
    refused = done.rows[1]
    assert (refused.prefill_start_s, refused.prefill_end_s) == pytest.approx((0.1, 0.3))
    assert np.isnan([refused.transfer_end_s, refused.decode_start_s, refused.finish_s, refused.ttft_s]).all()
    assert (refused.prefill_instance, refused.decode_instance, refused.slo_met) == (0, 0, 0)
    assert done.rows.hit_tokens.tolist() == [0, 0, 199]
    summary = done.result.summary
    names = "requests completed rejected rejected_late wasted_prefill_tokens".split()
    assert [summary[name] for name in names] == [3, 2, 0, 1, 200]
    assert done.result.decisions == 6
    # At 0.1 s nobody decodes and both are on their way; at 0.3 s the first one runs.
    route = (0, 0, 0)
    assert [seen[1:] for seen in actor.seen] == [(0, route, 0, 2), (1, route, 1, 1), (2, route, 1, 1)]
    assert [seen[0] for seen in actor.seen] == pytest.approx([0.1, 0.3, 1.001])
    check_end(done.worlds)


def test_the_prompts_of_a_batch_are_asked_about_in_its_order():
    actor = Asked([0, 1, 0])
    cluster = tiny(**{"admission.after_prefill": True})
    done = run(cluster, requests([(0.0, 100, 5), (0.0, 100, 5), (0.0, 100, 5)]), actor)
    assert [seen[1] for seen in actor.seen] == [0, 1, 2]
    assert done.rows.outcome.tolist() == [REJECTED_LATE, COMPLETED, REJECTED_LATE]
    assert done.rows.prefill_end_s == pytest.approx([0.3] * 3)
    assert done.rows.transfer_end_s[1] == pytest.approx(0.3)
    check_end(done.worlds)


def test_a_hand_over_that_runs_behind_the_prefill_is_cancelled():
    """200 MB in two layers of 100 MB: the first is computed at 0.1 s, half of it is sent at 0.2 s over 0.5 GB/s."""
    slow = {"network__handover": "last_chunk", "network__layers": 2, "network__nic_gbytes_per_s": 0.5, **ONE_BY_ONE}
    done = run(tiny(**slow), requests([(0.0, 200, 5)]), Asked([0]))
    assert done.rows.outcome.tolist() == [REJECTED_LATE]
    assert done.result.instances.bytes_out[0] == pytest.approx(50e6)
    assert done.result.instances.bytes_in[1] == pytest.approx(50e6)
    check_end(done.worlds)


def test_one_token_is_nothing_to_decode_and_no_question():
    actor = Asked([])
    done = run(tiny(**ONE_BY_ONE), requests([(0.0, 100, 1)]), actor)
    assert done.rows.outcome.tolist() == [COMPLETED] and not actor.seen


@pytest.mark.parametrize("changes", [{"admission.after_prefill": False}, {"admission.allow_reject": False}])
def test_nobody_is_asked_where_the_scenario_says_no(changes):
    actor = Asked([])
    done = run(tiny(**{**ONE_BY_ONE, **changes}), requests([(0.0, 100, 5)]), actor)
    assert done.rows.outcome.tolist() == [COMPLETED] and not actor.seen


def test_an_answer_that_is_none_is_counted_and_accepts():
    done = run(tiny(**ONE_BY_ONE), requests([(0.0, 100, 5)]), Asked([7]))
    assert done.rows.outcome.tolist() == [COMPLETED]
    assert done.result.invalid_decisions == 1


def test_a_compiled_policy_is_asked():
    """Steps of 10 ms and 10 ms a request: the third and fourth would make 40 ms of a tail SLO of 35 ms.

    The fifth would wait 0.5 s for its first token at an SLO of 0.45 s, and is refused at its arrival.
    """
    cluster = tiny(**{**ONE_BY_ONE, "slo.tbt_tail_s": 0.035, "slo.ttft_s": 0.45})
    rows = requests([(0.0, 100, 101)] * 5)
    done = run(cluster, rows, "round_robin+late_reject", decode_e_s=0.01)
    assert done.rows.outcome.tolist() == [COMPLETED, COMPLETED, REJECTED_LATE, REJECTED_LATE, REJECTED]
    state = done.world.state[0]
    assert (state.met, state.violated, state.rejected) == (2, 0, 3)
    check_end(done.worlds)


def test_a_late_first_token_counts_once_for_the_reward():
    """It was counted as a violation at its first token, before it was refused."""
    cluster = tiny(**{**ONE_BY_ONE, "slo.ttft_s": 0.05})
    done = run(cluster, requests([(0.0, 100, 5)]), Asked([0]))
    state = done.world.state[0]
    assert (state.met, state.violated, state.rejected) == (0, 1, 0)
