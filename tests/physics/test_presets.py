"""The packaged coefficients: complete, equal to the calibration they came from, and clear about unknown names."""

import dataclasses
import math
import subprocess
import sys

import pytest
import yaml

from cacheenv.errors import InputError
from cacheenv.physics import (
    list_block_costs,
    list_links,
    list_presets,
    load_block_cost,
    load_link,
    load_preset,
)

SAME_NAME = ["n_tile", "kv_bytes_per_token", "kv_copies", "weight_bytes", "capacity_tokens", "min_load_gbytes_per_s"]


@pytest.fixture(scope="module")
def calibration(shared):
    path = shared / "calibration" / "presets.yaml"
    if not path.is_file():
        pytest.skip("needs calibration/presets.yaml in the shared folder")
    return yaml.safe_load(path.read_text())


def test_presets_equal_the_calibration_number_by_number(calibration):
    assert list_presets() == list(calibration["presets"])
    assert len(list_presets()) == 13
    for name, entry in calibration["presets"].items():
        preset = load_preset(name)
        assert (preset.prefill_a_s, preset.prefill_b_s, preset.prefill_c_s) == (
            entry["prefill"]["a"], float(entry["prefill"]["b"]), float(entry["prefill"]["c"]),
        ), name  # fmt: skip
        assert (preset.decode_d_s, preset.decode_e_s, preset.decode_f_s) == (
            entry["decode"]["d"], float(entry["decode"]["e"]), float(entry["decode"]["f"]),
        ), name  # fmt: skip
        assert preset.min_prefill_s == entry["decode"]["d"], name
        assert [getattr(preset, field) for field in SAME_NAME] == [entry[field] for field in SAME_NAME], name
        assert (preset.model, preset.gpu, preset.tensor_parallel) == (
            entry["model"], entry["gpu"], entry["tensor_parallel"],
        ), name  # fmt: skip


def test_links_and_block_costs_equal_the_calibration(calibration):
    assert list_links() == list(calibration["links"])
    for name, entry in calibration["links"].items():
        link = load_link(name)
        assert link.gbytes_per_s * 1e9 == pytest.approx(float(entry["bandwidth"]), rel=1e-12), name
        assert link.setup_s == float(entry["setup"]), name
    assert list_block_costs() == list(calibration["blocks"])
    for name, entry in calibration["blocks"].items():
        cost = load_block_cost(name)
        assert cost.gbytes_per_s * 1e9 == pytest.approx(float(entry["bandwidth"]), rel=1e-12), name
        assert cost.per_block_s == float(entry["per_block"]), name


@pytest.mark.parametrize(
    ("names", "load"),
    [(list_presets, load_preset), (list_links, load_link), (list_block_costs, load_block_cost)],
)
def test_every_entry_is_positive_and_says_where_it_comes_from(names, load):
    assert names()
    for name in names():
        entry = dataclasses.asdict(load(name))
        assert entry.pop("name") == name
        for key, value in entry.items():
            if isinstance(value, str):
                assert value.strip(), f"{name}.{key}"
            else:
                assert math.isfinite(value) and value > 0, f"{name}.{key}"
        for key in ("source", "error", "confidence"):
            assert isinstance(entry[key], str), f"{name}.{key}"


def test_integers_are_integers():
    for name in list_presets():
        preset = load_preset(name)
        for field in (
            "tensor_parallel",
            "n_tile",
            "kv_bytes_per_token",
            "kv_copies",
            "weight_bytes",
            "capacity_tokens",
        ):
            assert type(getattr(preset, field)) is int, f"{name}.{field}"


def test_unknown_names_get_a_suggestion():
    with pytest.raises(InputError, match=r"unknown physics preset 'llama3-8b_1xH10' \(did you mean 'llama3-8b_1xH100'"):
        load_preset("llama3-8b_1xH10")
    with pytest.raises(InputError, match=r"unknown link 'rdma_4x200_te' \(did you mean 'rdma_4x200g_te'"):
        load_link("rdma_4x200_te")
    with pytest.raises(InputError, match="unknown block cost 'zzz'; known: h2d_dma_pcie5"):
        load_block_cost("zzz")


def test_the_file_is_only_read_when_a_preset_is_asked_for():
    code = (
        "from cacheenv.physics import load_link, presets\n"
        "assert presets._tables.cache_info().currsize == 0\n"
        "load_link('rdma_1x100g'), load_link('rdma_1x200g')\n"
        "assert presets._tables.cache_info().misses == 1\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
