"""Every YAML block of the page about fleets is a scenario, and is what the page says."""

import re
from pathlib import Path

import pytest

from cacheenv.cli import main
from cacheenv.files.yaml_text import parse_yaml
from cacheenv.scenario import load_scenario, resolve
from cacheenv.scenario.sections import GROUP_KEYS, GROUP_LINK_KEYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleets.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
FLEETS = {scenario.name: scenario for scenario in (load_scenario(parse_yaml(block)) for block in BLOCKS[2:])}


def test_the_short_form_and_the_long_one_are_the_same():
    short, long = (load_scenario(parse_yaml(block)) for block in BLOCKS[:2])
    assert resolve(short) == resolve(long)


@pytest.mark.parametrize(("name", "size"), [("two-generations", (6, 6)), ("two-zones", (4, 6)), ("mixed-bag", (9, 8))])
def test_fleets(name, size, tmp_path, capsys):
    assert len(FLEETS) == 3
    spec = resolve(FLEETS[name])
    assert (len(spec.prefill), len(spec.decode)) == size
    path = tmp_path / f"{name}.yaml"
    path.write_text(next(block for block in BLOCKS if f"name: {name}" in block), encoding="utf-8")
    assert main(["scenarios", "validate", str(path), "--set", "workload.requests=50"]) == 0
    out = capsys.readouterr().out
    assert f"valid; {name}, {size[0]}P+{size[1]}D, 50 requests" in out
    assert all(group["name"] in out for group in FLEETS[name].cluster.instances if "name" in group)
    assert "full at about" in out


def test_the_pictures_numbers():
    assert len({row.tensor_parallel for row in resolve(FLEETS["two-zones"]).decode}) == 2
    assert resolve(FLEETS["mixed-bag"]).decode[-1].kv_tokens == 41_408
    assert [row.host_cache_tokens for row in resolve(FLEETS["two-generations"]).prefill] == [0, 0] + [2_000_000] * 4


def test_the_page_lists_the_keys_of_groups():
    text = PAGE.read_text(encoding="utf-8")
    lists = text.split("Keys of a group:")[1].split("Everything else")[0]
    for key in {*GROUP_KEYS["prefill"], *GROUP_KEYS["decode"], *GROUP_LINK_KEYS}:
        assert f"`{key}`" in lists, key
