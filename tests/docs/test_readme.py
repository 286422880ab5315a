"""The tables that the README shows are what the commands print, and its Stable-Baselines3 lines run."""

import re

import pytest
from doc_tables import ROOT

from cacheenv.cli import main

README = (ROOT / "README.md").read_text(encoding="utf-8")


def cells(output):
    """Policy -> means of the columns of a bench table."""
    rows = {}
    for line in output.split("\n"):
        name, *columns = re.split(r"\s{2,}", line.strip())
        if len(columns) >= 9 and re.match(r"[\d,.]+( ±|$)", columns[0]):
            means = [cell.split(" ±")[0].replace(",", "") for cell in columns]
            rows[name] = [0.0 if mean == "-" else float(mean) for mean in means]
    return rows


def shown(command):
    """The output below a command in the README."""
    return re.search(rf"{re.escape(command)}.*?```text\n(.*?)```", README, re.DOTALL)[1]


def compare(printed, written):
    assert printed.split("\n")[0] == written.split("\n")[0]
    now, then = cells(printed), cells(written)
    assert list(now) == list(then)
    for policy in now:
        assert now[policy] == pytest.approx(then[policy], rel=0.05, abs=0.01), policy


@pytest.mark.slow
def test_table_of_the_default_scenario(capsys):
    assert main(["bench"]) == 0
    compare(capsys.readouterr().out, shown("cacheenv bench --jobs N --out bench-out"))


@pytest.mark.slow
def test_table_of_the_trace(capsys, conversation_trace):
    assert main(["bench", "--trace", str(conversation_trace)]) == 0
    compare(capsys.readouterr().out, shown("cacheenv bench --trace PATH/conversation_trace.jsonl"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_stable_baselines_lines(tmp_path, monkeypatch):
    pytest.importorskip("sb3_contrib")
    pytest.importorskip("cacheenv.sb3")
    monkeypatch.chdir(tmp_path)
    lines = re.search(r"```python\n(from sb3_contrib.*?)```", README, re.DOTALL)[1]
    exec(compile(lines.replace("100_000", "4_096").replace("progress_bar=True", ""), "README.md", "exec"), {})
    assert (tmp_path / "router.zip").is_file()
