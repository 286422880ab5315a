"""Load over time: the timeline, and the balance of KV tokens that the engine integrates."""

import math

import numpy as np
import pytest
from tiny_cluster import Script, requests, run, tiny

from cacheenv import simulate
from cacheenv.errors import InputError


def test_variance_of_one_request_on_two_instances() -> None:
    # 100 tokens in, 11 out: ten steps of 10 ms with 101, 102, ..., 110 resident tokens on one instance, none on the
    # other. Their mean is 105.5 / 2. With x and 0 the variance is x^2 / 4. The line through the middles of the steps
    # goes from 100.5 to 110.5, and the mean of its square is (100.5^2 + 100.5 x 110.5 + 110.5^2) / 3.
    done = run(tiny(decode__count=2), requests([(0.0, 100, 11)]), prefill_b_s=1e-9)
    squares = (100.5**2 + 100.5 * 110.5 + 110.5**2) / 3
    summary = done.result.summary
    assert summary["load_variance_decode"] == pytest.approx(squares / 4, rel=1e-9)
    assert summary["load_cv_decode"] == pytest.approx(math.sqrt(squares / 4) / (105.5 / 2), rel=1e-9)
    exact = np.mean(np.arange(101, 111) ** 2) / 4
    assert summary["load_variance_decode"] == pytest.approx(exact, rel=1e-5)


def test_equal_load_has_no_variance() -> None:
    done = run(tiny(decode__count=2), requests([(0.0, 50, 30)] * 2), Script([(0, 0), (0, 1)]), prefill_b_s=1e-12)
    assert done.result.summary["load_cv_decode"] == pytest.approx(0.0, abs=1e-6)


def test_timeline_is_right_while_a_request_moves() -> None:
    # 10 tokens in, steps of 0.1 s: 11 tokens, and one more after each step. At the tick at 1 s nine steps have ended
    # (the prefill takes a moment); the copy takes no time, so the request leaves after the tenth, with 21. It stands
    # still for 0.5 s and joins instance 1 at 1.5 s.
    def move(view, mask):
        return int(np.flatnonzero(mask)[0]) if view.cluster[0].now_s == 1.0 else len(mask) - 1

    scenario = tiny(decode__count=2, reschedule__period_s=1.0, reschedule__stall_s=0.5)
    done = run(
        scenario, requests([(0.0, 10, 41)]), Script([(0, 0)], move), timeline_s=0.33, decode_d_s=0.1, prefill_b_s=1e-9
    )
    timeline = done.result.timeline
    decode = timeline[timeline.kind == 1]
    by_time = {round(float(time_s), 2): decode.kv_tokens[decode.time_s == time_s].tolist() for time_s in decode.time_s}
    expected = {0.33: [14, 0], 0.66: [17, 0], 0.99: [20, 0], 1.32: [0, 0], 1.65: [0, 22], 1.98: [0, 25]}
    assert {time_s: by_time[time_s] for time_s in expected} == expected
    assert done.rows.migrations[0] == 1 and done.rows.decode_instance[0] == 1


def crowded(timeline_s):
    rng = np.random.default_rng(3)
    count = 60
    rows = [
        (float(time_s), int(prompt), int(output))
        for time_s, prompt, output in zip(
            np.cumsum(rng.exponential(0.05, count)),
            rng.integers(10, 200, count),
            rng.integers(20, 200, count),
            strict=True,
        )
    ]
    routes = [(0, int(d)) for d in rng.integers(0, 3, count)]

    def move(view, mask):
        legal = np.flatnonzero(mask[:-1])
        return int(legal[0]) if len(legal) and int(view.cluster[0].now_s) % 2 == 0 else len(mask) - 1

    scenario = tiny(decode__count=3, decode__kv_tokens=2500, reschedule__period_s=0.25)
    return run(scenario, requests(rows), Script(routes, move), timeline_s=timeline_s, decode_f_s=1e-5, prefill_b_s=1e-6)


def test_metrics_are_those_of_a_fine_timeline() -> None:
    done = crowded(0.011)
    timeline, summary = done.result.timeline, done.result.summary
    tokens = timeline[timeline.kind == 1].kv_tokens.reshape(-1, 3)
    tokens = tokens[tokens.sum(axis=1) > 0]
    assert summary["preemptions"] > 0 and summary["migrations"] > 0
    assert summary["load_variance_decode"] == pytest.approx(tokens.var(axis=1).mean(), rel=0.02)
    spread = math.sqrt(tokens.var(axis=1).mean()) / tokens.mean()
    assert summary["load_cv_decode"] == pytest.approx(spread, rel=0.02)


def test_looking_changes_nothing() -> None:
    plain, looked_at = crowded(None), crowded(0.5)
    assert plain.result.timeline is None
    assert plain.rows.tobytes() == looked_at.rows.tobytes()
    assert plain.result.instances.tobytes() == looked_at.result.instances.tobytes()
    assert plain.result.summary == pytest.approx(looked_at.result.summary, nan_ok=True, rel=1e-15)


@pytest.mark.parametrize("timeline_s", [0, -1.0, math.nan, math.inf, True, "1"])
def test_a_timeline_needs_seconds(timeline_s) -> None:
    with pytest.raises(InputError, match="timeline_s: expected a number of seconds > 0"):
        simulate({"workload": {"requests": 2}}, "random", timeline_s=timeline_s)
