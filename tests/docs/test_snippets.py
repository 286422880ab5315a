"""The Python blocks of the README and of the docs run, one after the other, in one namespace a page.

`<!-- no-run -->` in the line above a block skips it.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?P<skip><!-- no-run -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


def python_blocks(text):
    """(number of its first line, code) of every block that is to be run."""
    return [
        (text.count("\n", 0, found.start("code")) + 1, found["code"])
        for found in BLOCK.finditer(text)
        if found["skip"] is None
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__docs__"}
    for line, code in python_blocks(page.read_text(encoding="utf-8")):
        # Empty lines in front keep the line numbers of the page in a traceback.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_fences_are_closed():
    for page in PAGES:
        assert page.read_text(encoding="utf-8").count("```") % 2 == 0, page.name
