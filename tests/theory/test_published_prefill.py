"""Published prefill times of prompts that are cached in host memory: the table of experiments/mooncake_fig14.py."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "experiments" / "mooncake_fig14.py"


@pytest.fixture(scope="module")
def figure():
    spec = importlib.util.spec_from_file_location("mooncake_fig14", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_prefill_with_and_without_a_cached_prefix_is_as_published(figure):
    rows = figure.table()
    assert [row["prompt_tokens"] for row in rows] == 2 * [8192, 16384, 32768, 65536, 131072]
    assert all(abs(row["difference"]) <= 0.06 for row in rows), rows
    cached = [row for row in rows if row["cached"] == "95 %"]
    assert all(row["layerwise_s"] < 0.9 * row["published_s"] for row in cached), "without the load it would not be"


def test_the_committed_table_is_what_comes_out(figure):
    with (FILE.parent / "results" / "mooncake_fig14.csv").open(newline="") as file:
        committed = list(csv.DictReader(file))
    last = committed[-1]
    tokens = int(last["prompt_tokens"])
    assert (tokens, last["cached"]) == (131072, "95 %")
    assert float(last["simulated_s"]) == pytest.approx(figure.prefill_seconds(tokens, True, "blocking"), abs=1e-4)


def test_the_published_numbers_are_those_of_the_figure(figure, shared):
    for share, name in enumerate(("prefix0", "prefix95")):
        path = shared / "calibration" / "mooncake_fast25" / f"fig14_breakdown_{name}.csv"
        if not path.is_file():
            pytest.skip("needs the calibration data in the shared folder")
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                published = figure.PAPER_S[int(row["prompt_tokens"])][share]
                assert published == pytest.approx(float(row["prefill_s"]), rel=1e-3)
