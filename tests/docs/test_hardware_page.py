"""docs/hardware.md: its YAML loads, and its commands say what it shows."""

import re
import shlex
from pathlib import Path

import pytest

from cacheenv.cli import main
from cacheenv.files.yaml_text import parse_yaml
from cacheenv.scenario import load_scenario

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")
SHOWN = [
    (command, output.rstrip())
    for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    for command, output in re.findall(r"^\$ cacheenv (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


def test_the_examples_load():
    documents = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(documents) == 3
    for document in documents:
        load_scenario(parse_yaml(document))


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_commands_say_what_the_page_shows(command, output, tmp_path, monkeypatch, capsys):
    (tmp_path / "own.csv").write_text(re.search(r"```csv\n(.*?)```", PAGE, re.DOTALL)[1])
    (tmp_path / "bad.csv").write_text("prompt,ttft\n4096,0.31\n8192,0.66s\n")
    monkeypatch.chdir(tmp_path)
    main(shlex.split(command))
    said = capsys.readouterr()
    assert (said.out + said.err).rstrip() == output


def test_the_lists_are_those_of_the_command(capsys):
    main(["presets", "list"])
    for part in capsys.readouterr().out.rstrip().split("\n\n")[1:]:
        assert part in PAGE
