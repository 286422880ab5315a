"""The experiment about mechanisms: its rules, its rows and what it refuses."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import mechanism_metrics
import mechanisms
import numpy as np
import pytest
from mechanism_claims import AT_MOST, LESS, MORE, SAME, Claim, Side, all_claims, burst
from mechanism_metrics import METRICS, capacity, early_turns

from cacheenv import load_scenario
from cacheenv.run.records import RECORD_DTYPE

CLAIM = Claim("row", "text", "ours", "kimi-chat", Side("random"), Side("least_requests"), "TTFT mean", LESS)


@pytest.mark.parametrize(
    ("expected", "difference", "half_width", "verdict"),
    [
        (MORE, 0.3, 0.2, "holds"),
        (MORE, 0.3, 0.3, "not shown"),
        (MORE, -0.3, 0.2, "does not hold"),
        (LESS, -0.3, 0.2, "holds"),
        (LESS, 0.1, 0.2, "not shown"),
        (LESS, 0.3, 0.2, "does not hold"),
        (SAME, 0.02, 0.08, "holds"),  # within 0.1
        (SAME, 0.02, 0.09, "not shown"),
        (SAME, -0.3, 0.1, "does not hold"),
        (AT_MOST, 0.15, 0.04, "holds"),  # of a mean of 2, a tenth is 0.2
        (AT_MOST, 0.15, 0.06, "not shown"),
        (AT_MOST, 0.25, 0.04, "does not hold"),
    ],
)
def test_verdict(expected, difference, half_width, verdict):
    assert mechanisms.verdict(replace(CLAIM, expected=expected, margin=0.1), 2.0, difference, half_width) == verdict


@pytest.mark.parametrize(
    ("stated", "relative", "difference", "size"),
    [
        (None, False, 1.0, ""),
        ((-0.4, -0.2), False, -0.3, "as stated"),
        ((-0.4, -0.2), False, -0.47, "as stated"),  # -0.46 is inside of -0.44, a tenth beyond
        ((-0.4, -0.2), False, -0.1, "smaller"),
        ((-0.4, -0.2), False, -0.6, "larger"),
        ((-0.4, -0.2), False, 0.3, "other sign"),
        ((0.3, 0.4), True, 0.7, "as stated"),  # 35 % of 2
        ((0.3, 0.4), True, 0.35, "smaller"),
    ],
)
def test_size(stated, relative, difference, size):
    assert mechanisms.size(replace(CLAIM, stated=stated, relative=relative), 2.0, difference, 0.03) == size


def test_capacity_is_where_the_median_passes_the_limit():
    # 0.25 s at 1/s and 4 s at 2/s: 1 s lies halfway in the logarithm.
    assert capacity({1.0: 0.25, 2.0: 4.0}.get, (1.0, 2.0), 1.0) == pytest.approx(1.5)
    assert capacity(lambda rate: 2.0, (1.0, 2.0), 1.0) == 1.0
    assert capacity(lambda rate: 0.5, (1.0, 2.0), 1.0) == 2.0


def test_early_turns_are_those_before_the_answer_before():
    rows = np.zeros(5, RECORD_DTYPE)
    rows["session"] = [1, 2, 1, 2, -1]
    rows["arrival_s"] = [0.0, 0.0, 5.0, 5.0, 6.0]
    rows["finish_s"] = [4.0, 7.0, 9.0, 9.0, 9.0]  # session 2 goes on at 5 s while its first answer runs until 7 s
    assert early_turns(rows) == 0.5


def test_burst_shares_six_pages_of_eight_in_each_group():
    work = burst(0)
    assert len(work) == 128 * 32 and set(work.requests["prompt_tokens"]) == {8 * 512}
    assert work.num_blocks == 128 * 6 + 128 * 32 * 2


def test_every_row_can_be_run():
    for claim in all_claims().values():
        assert claim.metric in METRICS and claim.expected in (MORE, LESS, SAME, AT_MOST)
        for side in (claim.off, claim.on):
            if side.constant is None:
                load_scenario(claim.scenario, {**claim.changes, **side.changes})
                for policy in [side.policy] if isinstance(side.policy, str) else side.policy:
                    assert mechanisms.bundle(policy, side.changes).parts()


def test_what_a_policy_sets_itself_follows_the_side():
    assert mechanisms.bundle("mooncake", {"cluster.index.learns": "stored"}).brings() == {
        "cluster.index.learns": "stored"
    }
    assert mechanisms.bundle("mooncake", {}).brings() == {"cluster.index.learns": "assigned"}


def test_committed_rows_are_those_of_the_code():
    with mechanisms.RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == list(all_claims())
    for row, claim in zip(rows, all_claims().values(), strict=True):
        said = mechanisms.described(claim)
        assert {name: row[name] for name in said} == said


def test_committed_verdicts_follow_from_the_committed_numbers():
    with mechanisms.RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            numbers = [float(row[name]) for name in ("off_mean", "difference", "half_width")]
            claim = all_claims()[row["name"]]
            assert (row["verdict"], row["size"]) == (
                mechanisms.verdict(claim, *numbers),
                mechanisms.size(claim, *numbers),
            )


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["mechanisms.py", *map(str, arguments)])
    return mechanisms.main()


def test_a_row_is_measured_and_the_others_stay(monkeypatch, tmp_path, capsys):
    small = replace(CLAIM, changes={"workload.requests": 12, "cluster.prefill.count": 2, "cluster.decode.count": 2})
    monkeypatch.setattr(mechanisms, "all_claims", lambda: {"row": small, "other": replace(small, name="other")})
    out = tmp_path / "rows.csv"
    assert call(monkeypatch, "--seeds", 2, "--out", out) == 0
    first = out.read_text()
    assert call(monkeypatch, "--seeds", 2, "--out", out, "--only", "other") == 0
    assert out.read_text() == first
    rows = mechanisms.read_rows(out)
    assert list(rows) == ["row", "other"] and rows["row"]["pairs"] == "2 seeds"
    runs = [
        [mechanism_metrics.of_run(mechanisms.run(small, side, side.policy, seed))["TTFT mean"] for seed in (0, 1)]
        for side in (small.off, small.on)
    ]
    assert float(rows["row"]["difference"]) == pytest.approx(np.mean(runs[1]) - np.mean(runs[0]), abs=1e-5)
    assert "1/2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "indx-8-closed"], "unknown row 'indx-8-closed' (did you mean 'index-8-closed'?)"),
        (["--seeds", "1"], "--seeds: expected at least 2, got 1"),
        (["--only", "max-min-24-trace"], "max-min-24-trace needs "),
    ],
)
def test_bad_input_ends_in_one_line(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(mechanisms, "SHARED", Path("/nowhere"))
    assert call(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
