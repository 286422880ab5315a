"""Turns of sessions and the think times between them, from arrays, traces and generators."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cacheenv.errors import InputError
from cacheenv.workload import Workload, generate
from cacheenv.workload.think import answer_seconds


def table(**columns):
    rows = {
        "arrival_s": [0.0, 1.0, 10.0, 12.0], "prompt_tokens": [5] * 4, "output_tokens": [101, 1, 1, 1],
        "session": [3, -1, 3, 3], "page_tokens": 4,
    }  # fmt: skip
    return Workload.from_arrays(**{**rows, **columns})


def test_turns_follow_the_sessions():
    rows = table().requests
    assert rows["turn"].tolist() == [0, 0, 1, 2]
    assert rows["next_turn"].tolist() == [2, -1, 3, -1]
    assert table(session=None).requests["next_turn"].tolist() == [-1] * 4


def test_without_think_times_they_are_the_gaps_less_an_estimate_of_the_answer():
    # 10 s less 1 s and 100 gaps of 30 ms = 6 s; 2 s less 1 s.
    assert table().requests["think_s"] == pytest.approx([0.0, 0.0, 6.0, 1.0])
    assert answer_seconds(np.array([1, 101])) == pytest.approx([1.0, 4.0])
    soon = table(arrival_s=[0.0, 1.0, 2.0, 2.5]).requests["think_s"]
    assert soon.tolist() == [0.0] * 4  # never below 0


def test_given_think_times_are_kept_and_checked():
    assert table(think_s=[0, 0, 2.5, 0.0]).requests["think_s"].tolist() == [0.0, 0.0, 2.5, 0.0]
    with pytest.raises(InputError, match="think_s: expected 4 numbers, one a request"):
        table(think_s=[0.0])
    with pytest.raises(InputError, match="request 2: expected a finite think_s >= 0, got -1"):
        table(think_s=[0, 0, -1.0, 0])


def lines(*delays):
    rows = [{"timestamp": 4000 * n, "input_length": 5, "output_length": 34, "hash_ids": [n], "session_id": "a"}
            for n in range(len(delays))]  # fmt: skip
    return "\n".join(json.dumps(row if d is None else {**row, "delay": d}) for row, d in zip(rows, delays, strict=True))


def test_a_trace_says_its_delays_or_they_are_estimated(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text(lines(None, 1500, None))
    # 34 tokens: 1 + 33 * 0.03 = 1.99 s of the gap of 4 s
    rows = Workload.from_mooncake(file).requests
    assert rows["think_s"] == pytest.approx([0.0, 1.5, 2.01])
    # a faster trace has more users, not hastier ones
    assert Workload.from_mooncake(file, rate_scale=2.0).requests["think_s"] == pytest.approx([0.0, 1.5, 2.01])


@pytest.mark.parametrize("delay", ['"soon"', "-1", "true"])
def test_a_delay_that_is_none_is_refused(tmp_path, delay):
    file = tmp_path / "trace.jsonl"
    file.write_text(lines(None) + "\n" + lines(7).replace("7}", f"{delay}}}"))
    with pytest.raises(InputError, match="line 2: delay: expected milliseconds from 0 to 1e15"):
        Workload.from_mooncake(file)


def test_a_window_is_a_workload_of_its_own():
    whole = generate("chat", requests=300, rate_rps=4.0, page_tokens=512, seed=2)
    part = whole.window(100, 120)
    part.validate()
    assert len(part) == 120 and part.arrivals == "closed"
    assert part.requests["arrival_s"][0] == 0.0
    rows = whole.requests[100:220]
    for name in ("prompt_tokens", "output_tokens", "session", "think_s"):
        assert np.array_equal(part.requests[name], rows[name])
    # pages are shared as they were
    for one, other in ((0, 50), (3, 119)):
        before = np.isin(whole.blocks_of(100 + one), whole.blocks_of(100 + other))
        assert np.array_equal(np.isin(part.blocks_of(one), part.blocks_of(other)), before)
    assert part.blocks.max() == part.num_blocks - 1
    for first, count in ((-1, 5), (0, 0), (290, 20)):
        with pytest.raises(InputError, match="expected a window within 300 requests"):
            whole.window(first, count)


@pytest.mark.parametrize(("kind", "mean_s"), [("chat", 100.0), ("coding_agent", 5.0)])
def test_generators_draw_think_times_with_the_mean_asked_for(kind, mean_s):
    rows = generate(kind, requests=12_000, rate_rps=4.0, page_tokens=512, seed=1).requests
    later = rows["turn"] > 0
    assert later.mean() > 0.3 and not rows["think_s"][~later].any()
    assert rows["think_s"][later].mean() == pytest.approx(mean_s, rel=0.06)
    longer = generate(kind, requests=12_000, rate_rps=4.0, page_tokens=512, seed=1, params={"think_s": 20.0}).requests
    assert longer["think_s"][longer["turn"] > 0].mean() == pytest.approx(20.0, rel=0.06)


@pytest.mark.parametrize("kind", ["chat", "coding_agent"])
@pytest.mark.parametrize("rate_rps", [0.8, 6.0])
def test_the_mean_rate_is_the_one_asked_for_where_nobody_is_slowed_down(kind, rate_rps):
    """Answers take what the generator expects: later turns follow them, first turns have their times."""
    rows = generate(kind, requests=8000, rate_rps=rate_rps, page_tokens=512, seed=4).requests
    come = rows["arrival_s"].copy()
    answer_s = answer_seconds(rows["output_tokens"])
    for row, following in enumerate(rows["next_turn"].tolist()):
        if following >= 0:
            come[following] = come[row] + answer_s[row] + rows["think_s"][following]
    come.sort()
    for part in (come[:2000], come[2000:4000], come[4000:6000]):
        assert 1999 / (part[-1] - part[0]) == pytest.approx(rate_rps, rel=0.1)


def test_gaps_in_requests_may_be_given_in_place_of_think_times():
    rows = generate("chat", requests=4000, rate_rps=2.0, page_tokens=512, params={"turn_gap_requests": 100.0}).requests
    before = np.flatnonzero(rows["next_turn"] >= 0)
    gaps = rows["next_turn"][before] - before
    assert np.median(gaps) == pytest.approx(100.0, rel=0.1)
    expected = np.maximum(0.0, gaps / 2.0 - answer_seconds(rows["output_tokens"][before]))
    # a turn is at times delayed by others that are due: think times come from the gap that was drawn
    assert np.median(rows["think_s"][rows["next_turn"][before]]) == pytest.approx(np.median(expected), rel=0.05)
