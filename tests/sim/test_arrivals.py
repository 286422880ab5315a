"""Users who wait: for the answer, to be let in, to try again. Prefill 1 ms a token, steps 10 ms, see `tiny_cluster`."""

from __future__ import annotations

import numpy as np
import pytest
from engine_invariants import check_end, check_world
from tiny_cluster import Script, requests, run, tiny

from cacheenv.run.worlds import Worlds
from cacheenv.scenario import load_scenario
from cacheenv.sim.state.codes import ABANDONED, COMPLETED, REJECTED, TOO_LARGE, UNFINISHED

CLOSED = {"workload.arrivals": "closed"}


def dialogue(**columns):
    """Three turns of one session and a stranger; 100 ms of prefill and 11 tokens, so 0.2 s each where nobody waits."""
    rows = [(0.0, 100, 11), (0.05, 100, 11), (0.06, 100, 11), (5.0, 100, 11)]
    return requests(rows, session=[7, 7, 7, -1], **{"think_s": [0.0, 0.5, 0.25, 0.0], **columns})


def test_a_turn_comes_think_s_after_the_answer_before():
    # 0.0 + 0.1 + 10 steps of 0.01 = 0.2; + 0.5 = 0.7, ends at 0.9; + 0.25 = 1.15, ends at 1.35; the stranger at 5.
    done = run(tiny(**CLOSED), dialogue())
    assert done.rows.arrival_s == pytest.approx([0.0, 0.7, 1.15, 5.0])
    assert done.rows.finish_s == pytest.approx([0.2, 0.9, 1.35, 5.2])
    assert done.rows.ttft_s == pytest.approx([0.1] * 4)
    check_end(done.worlds)


def test_open_arrivals_wait_for_nobody():
    # Two turns wait for the first one's prefill and share a batch: 0.1 + 0.2 - 0.05 = 0.25 s to the first token.
    done = run(tiny(**{"workload.arrivals": "open"}), dialogue())
    assert done.rows.arrival_s.tolist() == [0.0, 0.05, 0.06, 5.0]
    assert done.rows.ttft_s[1] == pytest.approx(0.25)


def test_left_to_the_workload_arrays_are_open_and_chats_are_closed():
    assert run(tiny(), dialogue()).rows.arrival_s[1] == 0.05
    assert load_scenario("kimi-chat").make_workload(0).arrivals == "closed"
    assert load_scenario("long-context").make_workload(0).arrivals == "closed"
    assert load_scenario("reasoning").make_workload(0).arrivals == "open"


def test_think_times_count_from_a_late_answer():
    # A stranger's prompt of 1,000 tokens keeps the only prefill instance until 1.0: the first turn ends at 1.2.
    rows = [(0.0, 1000, 2), (0.0, 100, 11), (0.01, 100, 11)]
    done = run(tiny(prefill__batch_tokens=1, **CLOSED), requests(rows, session=[-1, 0, 0], think_s=[0.0, 0.0, 0.5]))
    assert done.rows.finish_s[1] == pytest.approx(1.2)
    assert done.rows.arrival_s[2] == pytest.approx(1.7)


def test_answers_of_one_moment_call_the_smaller_row_first():
    # Two sessions whose first turns run side by side; both second turns come at the same time, in the order of rows.
    rows = [(0.0, 50, 11), (0.0, 50, 11), (0.1, 100, 2), (0.1, 100, 2)]
    done = run(
        tiny(prefill__batch_tokens=1000, **CLOSED), requests(rows, session=[0, 1, 1, 0], think_s=[0, 0, 0.5, 0.5])
    )
    assert done.rows.finish_s[0] == done.rows.finish_s[1]
    assert done.rows.arrival_s[2] == done.rows.arrival_s[3]
    order = [int(row) for row in np.argsort(done.rows.routed_s, kind="stable")]
    assert order == [0, 1, 2, 3]


def test_a_refused_turn_ends_its_session():
    done = run(tiny(**CLOSED), dialogue(), Script([(0, 0), "reject", (0, 0)]))
    assert done.rows.outcome.tolist() == [COMPLETED, REJECTED, ABANDONED, COMPLETED]
    assert np.isnan(done.rows.arrival_s[2])
    summary = done.result.summary
    assert [summary[name] for name in ("requests", "completed", "rejected", "abandoned", "retries")] == [3, 2, 1, 1, 0]
    assert summary["slo_attainment"] == pytest.approx(2 / 3)
    check_end(done.worlds)


def test_a_turn_that_is_too_large_ends_its_session_even_where_users_try_again():
    rows = [(0.0, 100, 11), (0.1, 2_000_000, 11), (0.2, 100, 11)]
    workload = requests(rows, session=[0, 0, 0], think_s=[0.0, 0.1, 0.1])
    done = run(tiny(**CLOSED, **{"workload.on_reject": "retry"}), workload)
    assert done.rows.outcome.tolist() == [COMPLETED, TOO_LARGE, ABANDONED]


def test_in_an_open_loop_refusals_end_nothing():
    done = run(tiny(), dialogue(), Script(["reject", (0, 0)]))
    assert done.rows.outcome.tolist() == [REJECTED, COMPLETED, COMPLETED, COMPLETED]


def test_a_refused_user_comes_again_as_the_same_request():
    # Refused at 0 and at 0.3, taken at 0.6: first token at 0.7, which is late by the two refusals; next turn 0.8 + 0.5.
    scenario = tiny(**CLOSED, **{"workload.on_reject": "retry", "workload.retry_s": 0.3})
    done = run(scenario, dialogue(), Script(["reject", "reject", (0, 0)]))
    assert done.rows.outcome.tolist() == [COMPLETED] * 4
    assert done.rows.retries.tolist() == [2, 0, 0, 0]
    assert (done.rows.arrival_s[0], done.rows.routed_s[0]) == pytest.approx((0.0, 0.6))
    assert done.rows.ttft_s[0] == pytest.approx(0.7)
    assert done.rows.arrival_s[1] == pytest.approx(1.3)
    assert done.result.decisions == 6
    summary = done.result.summary
    assert [summary[name] for name in ("requests", "completed", "rejected", "retries")] == [4, 4, 0, 2]
    # request-seconds in the system: 0.2 each, the time between attempts is outside
    assert done.world.state[0].integral_s == pytest.approx(0.8)
    check_end(done.worlds)


def test_users_give_up_after_max_retries():
    scenario = tiny(**CLOSED, **{"workload.on_reject": "retry", "workload.retry_s": 1.0, "workload.max_retries": 2})
    done = run(scenario, dialogue(), Script(["reject"]))
    assert done.rows.outcome.tolist() == [REJECTED, ABANDONED, ABANDONED, REJECTED]
    assert done.rows.retries.tolist() == [2, 0, 0, 2]
    assert done.result.summary["rejected"] == 2 and done.world.state[0].rejected == 2
    assert done.result.decisions == 6


def test_a_full_system_lets_the_next_one_in_when_one_leaves():
    # One at a time: 0.2 s each. The first three come at 0, 0.05, 0.06 and enter at 0, 0.2, 0.4; TTFT counts from there.
    done = run(tiny(**{"workload.max_in_flight": 1}), dialogue())
    assert done.rows.arrival_s == pytest.approx([0.0, 0.2, 0.4, 5.0])
    assert done.rows.outside_s == pytest.approx([0.0, 0.15, 0.34, 0.0])
    assert done.rows.ttft_s == pytest.approx([0.1] * 4)
    check_end(done.worlds)


def test_a_refusal_makes_room_at_once():
    done = run(tiny(**{"workload.max_in_flight": 1}), dialogue(), Script([(0, 0), "reject", (0, 0)]))
    assert done.rows.arrival_s == pytest.approx([0.0, 0.2, 0.2, 5.0])
    assert done.rows.outcome.tolist() == [COMPLETED, REJECTED, COMPLETED, COMPLETED]


def test_what_has_not_come_at_the_horizon_is_left_out():
    # At 0.8 the second turn is under way and the third is nowhere; the stranger's time is known.
    done = run(tiny(**CLOSED, horizon_s=0.8), dialogue())
    assert done.rows.outcome.tolist() == [COMPLETED, UNFINISHED, UNFINISHED, UNFINISHED]
    assert done.rows.arrival_s[1] == pytest.approx(0.7)
    assert np.isnan(done.rows.arrival_s[2]) and done.rows.arrival_s[3] == 5.0
    assert done.result.summary["requests"] == 2


def test_who_is_outside_at_the_horizon_has_waited_until_then():
    done = run(tiny(**{"workload.max_in_flight": 1}, horizon_s=0.3), dialogue())
    assert done.rows.outside_s == pytest.approx([0.0, 0.15, 0.24, 0.0])
    assert done.result.summary["requests"] == 2


def test_warm_up_counts_rows():
    # The stranger in row 1 comes last; warm-up leaves out rows 0 and 1, whoever comes when.
    rows = [(0.0, 100, 11), (0.02, 100, 11), (0.3, 100, 11)]
    workload = requests(rows, session=[0, -1, 0], think_s=[0.0, 0.0, 3.0])
    done = run(tiny(**CLOSED, warmup_requests=2), workload)
    assert done.rows.counted.tolist() == [0, 0, 1]
    assert done.result.summary["requests"] == 1


def test_tables_agree_at_every_decision_of_a_busy_loop():
    draws = np.random.default_rng(5)
    rows = [(float(at), int(draws.integers(20, 300)), int(draws.integers(1, 30))) for at in np.sort(draws.random(80))]
    workload = requests(rows, session=draws.integers(-1, 20, 80), think_s=draws.random(80))
    scenario = tiny(
        **CLOSED,
        **{
            "workload.max_in_flight": 5,
            "workload.on_reject": "retry",
            "workload.retry_s": 0.2,
            "workload.max_retries": 1,
        },
        prefill__count=2,
        decode__count=2,
    )
    routes = [(0, 0), (1, 1), "reject", (0, 1), "reject", "reject", (1, 0)] * 40
    done = run(scenario, workload, Script(routes), watch=check_world)
    assert {COMPLETED, REJECTED, ABANDONED} <= set(done.rows.outcome.tolist())
    assert done.rows.retries.max() == 1 and done.rows.outside_s.max() > 0.0
    check_end(done.worlds)


def test_an_episode_starts_afresh_in_the_same_tables():
    scenario = tiny(**CLOSED, **{"workload.max_in_flight": 1})
    first = run(scenario, dialogue())
    worlds = Worlds(scenario, spec=first.worlds.spec)
    workload = dialogue()
    for _ in range(2):
        worlds.reset(0, 0, workload)
        assert worlds.world(0).state[0].heap_size == 1
        assert not worlds.world(0).request["outside_s"].any()
