"""The compiled engine against the reference simulator: every time, every counter, every fact a policy sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from oracle_cases import Case, Limits, cases, random_case
from oracle_digest import digests
from oracle_tools import TiedError, check_case

SEARCH = settings(
    deadline=None,
    max_examples=150 * int(os.environ.get("CACHEENV_SEARCH", 1)),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

CASES = 250  # a group
LARGE = Limits(requests=120, pages=20, output_tokens=60)


@SEARCH
@given(cases())
def test_engine_agrees_with_reference(case: Case) -> None:
    try:
        check_case(case)
    except TiedError:
        assume(False)


@pytest.mark.parametrize("group", range(4))
def test_engine_agrees_on_fixed_cases(group: int) -> None:
    # Cheaper than the search above, but they do not shrink. Together they must exercise every mechanism.
    happened: Counter[str] = Counter()
    for number in range(CASES * group, CASES * (group + 1)):
        try:
            engine, reference = check_case(random_case(number))
        except TiedError:
            happened["tied"] += 1
            continue
        for record in reference.records:
            happened["preempted"] += record.preemptions
            happened["moved"] += record.migrations
            happened["pulled"] += record.pulled_tokens > 0
            happened["rejected"] += record.outcome == 2
            happened["too large"] += record.outcome == 3
            happened["hit"] += record.hit_tokens > 0
            happened["stale"] += record.hit_predicted_tokens != record.hit_tokens
            happened["rework"] += record.rework_tokens > 0
            happened["missed"] += record.outcome == 1 and not record.slo_met
        happened["stored"] += reference.sim.instance_records()[-1].bytes_in > 0
        happened["ticked"] += reference.sim.move_decisions > 0
        happened["replicated"] += sum(reference.sim.replication.copies)
        happened["not replicated"] += reference.sim.replication.unplaced
        assert engine.result.decisions == len(reference.decisions)
    expected = "preempted moved pulled rejected hit stale rework missed stored ticked replicated".split()
    expected += ["too large", "not replicated"]
    assert [name for name in expected if not happened[name]] == []
    assert happened["tied"] <= 2


def test_engine_agrees_on_larger_cases() -> None:
    tied = 0
    for number in range(30):
        try:
            check_case(random_case(number, LARGE))
        except TiedError:
            tied += 1
    assert tied <= 2


def test_plain_python_gives_the_same_bytes() -> None:
    # The same source without Numba: what is compiled is what is written.
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    plain = run_digests(environment, 16, 0, 10)
    assert plain == digests(Limits(requests=16), 0, 10)


def run_digests(environment: dict[str, str], size: int, first: int, last: int) -> dict[str, str]:
    """Digests from a new process; warnings are errors there."""
    folder = Path(__file__).resolve().parents[1] / "support"
    script = [sys.executable, "-W", "error", str(folder / "oracle_digest.py"), str(size), str(first), str(last)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    digest_of: dict[str, str] = json.loads(done.stdout)
    return digest_of


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_processes_agree(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    assert run_digests(environment, 24, 200, 240) == digests(Limits(requests=24), 200, 240)
