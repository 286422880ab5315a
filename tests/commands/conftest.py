"""Fixtures of the command-line tests."""

import pytest
from cli_tools import TRACE_LINES, FakeRuns

from cacheenv.commands import execute


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "small.jsonl"
    path.write_text("\n".join(TRACE_LINES) + "\n")
    return path


@pytest.fixture
def fake(monkeypatch):
    runs = FakeRuns()
    monkeypatch.setattr(execute, "simulate_summary", runs)
    monkeypatch.setattr("cacheenv.commands.bench.warm_up", lambda tasks: None)
    monkeypatch.setattr("cacheenv.commands.goodput.warm_up", lambda tasks: None)
    return runs
