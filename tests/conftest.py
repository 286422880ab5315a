"""Fixtures for all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that a merge is not held up by chance; CACHEENV_SEARCH=N looks at new ones
# (and at N times as many where a test says so).
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("search" if os.environ.get("CACHEENV_SEARCH") else "repeatable")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with traces and calibration data that are not part of the repository.

    `CACHEENV_SHARED` names it; without the variable it is `shared` beside the repository. Tests that need it are
    skipped where it is absent.
    """
    named = os.environ.get("CACHEENV_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if named and not folder.is_dir():
        pytest.fail(f"CACHEENV_SHARED names no folder: {named}")
    if not folder.is_dir():
        pytest.skip("needs the shared traces and calibration data (set CACHEENV_SHARED to their folder)")
    return folder


@pytest.fixture(scope="session")
def conversation_trace(shared: Path) -> Path:
    """Mooncake's conversation trace: 12,031 requests of an hour."""
    path = shared / "traces" / "mooncake-fast25" / "conversation_trace.jsonl"
    if not path.is_file():
        pytest.skip("needs traces/mooncake-fast25/conversation_trace.jsonl in the shared folder")
    return path
