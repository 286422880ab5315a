"""The disk cache of compiled code: an edit anywhere in a package makes what was compiled from it stale."""

import os
import subprocess
import sys
import textwrap

import pytest

from cacheenv.sim.core.jit import COMPILED_FOLDERS, PACKAGE_DIRECTORY, disabled, folder_stamp

OUTER = """
from cacheenv.sim.core.jit import jit
from rules.deep.inside.constants import answer

@jit
def ask():
    return answer()
"""
INNER = """
from cacheenv.sim.core.jit import jit

@jit
def answer():
    return {value}
"""


def ask(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    code = "from rules.asking import ask; print(ask(), sum(ask.stats.cache_hits.values()))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    value, hits = map(int, done.stdout.split())
    return value, hits


@pytest.mark.skipif(disabled(), reason="nothing is compiled under NUMBA_DISABLE_JIT=1")
def test_an_edit_in_a_sub_folder_is_seen(tmp_path):
    inside = tmp_path / "rules" / "deep" / "inside"
    inside.mkdir(parents=True)
    for folder in (tmp_path / "rules", tmp_path / "rules" / "deep", inside):
        (folder / "__init__.py").touch()
    (tmp_path / "rules" / "asking.py").write_text(textwrap.dedent(OUTER))
    (inside / "constants.py").write_text(textwrap.dedent(INNER.format(value=1)))
    assert ask(tmp_path) == (1, 0)
    assert ask(tmp_path) == (1, 1)  # loaded from disk
    (inside / "constants.py").write_text(textwrap.dedent(INNER.format(value=22)))
    assert ask(tmp_path) == (22, 0)


def test_the_stamp_looks_into_sub_folders(tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "code.py").write_text("x = 1\n")
    before = folder_stamp(str(tmp_path))
    (below / "code.py").write_text("x = 10\n")
    assert folder_stamp(str(tmp_path)) != before
    assert folder_stamp(str(tmp_path), deep=False) == (0.0, 0)


def test_all_compiled_code_of_the_package_stands_in_stamped_folders():
    marks = ("core.jit import", "import numba")
    found = {
        path.relative_to(PACKAGE_DIRECTORY).parts[0]
        for path in PACKAGE_DIRECTORY.rglob("*.py")
        if any(mark in path.read_text(encoding="utf-8") for mark in marks)
    }
    assert found <= set(COMPILED_FOLDERS)
