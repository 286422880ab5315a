"""Schedulers, their tests and the pages for users get everything from `cacheenv.policy` and `cacheenv.testing`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = [*(ROOT / "baselines").rglob("*.py"), *(ROOT / "tests" / "baselines").rglob("*.py")]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
#: Dotted, so that a path of a source file in a text is none.
INSIDE = re.compile(r"\bcacheenv\.sim\b|from cacheenv import sim\b|import_module\(.cacheenv\.sim")
#: Taking a route's number apart, or putting it together.
ARITHMETIC = re.compile(r"// *2 *(//|%)|\* *2 *\+ *pull|\* *num_decode *\+|// *num_decode|% *num_decode\b")


def test_files_are_found():
    assert len(CODE) > 20 and len(PAGES) > 5


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: path.name)
def test_the_simulator_is_nobodys_business(path):
    assert not INSIDE.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_no_action_number_is_written_out(path):
    assert not ARITHMETIC.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", ["a // 2 // d", "(p * num_decode + d)", "x * 2 + pull", "row % num_decode"])
def test_arithmetic_is_recognised(line):
    assert ARITHMETIC.search(line)
    assert INSIDE.search("from cacheenv.sim.core.jit import jit")
