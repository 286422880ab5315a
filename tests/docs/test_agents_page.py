"""The table of docs/agents.md says what the committed results say."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "experiments" / "results"


def rows_of_page() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "agents.md").read_text()
    table = text.split("<!-- agents-table -->")[1].split("<!-- end -->")[0].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {name: rest for name, *rest in cells}


def rows_of(name: str) -> dict[str, dict[str, str]]:
    with (RESULTS / f"{name}_table.csv").open(newline="") as file:
        return {row["policy"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize(("label", "file", "policy"), [
    ("agent, `ppo.yaml`", "ppo", "agent"),
    ("agent, `maskable_ppo.yaml`", "maskable_ppo", "agent"),
    *((f"`{name}`", "ppo", name) for name in (
        "random", "round_robin", "least_requests", "least_requests+early_reject", "mooncake", "mooncake+early_reject"
    )),
])  # fmt: skip
def test_row_is_that_of_the_results(label: str, file: str, policy: str) -> None:
    goodput, met, ttft, rejected, *ahead = rows_of_page()[label]
    found = rows_of(file)[policy]
    assert goodput == f"{float(found['goodput_rps']):.2f} ± {float(found['goodput_rps_std']):.2f}"
    assert float(met) == pytest.approx(100 * float(found["slo_attainment"]), abs=0.051)
    assert float(ttft) == pytest.approx(float(found["ttft_mean_s"]), abs=0.051)
    assert float(rejected) == pytest.approx(float(found["rejected"]), abs=0.51)
    if policy != "agent":
        for cell, row in zip(ahead, (found, rows_of("maskable_ppo")[policy]), strict=True):
            assert cell == f"{float(row['agent_ahead_rps']):+.2f} ± {float(row['half_width_rps']):.2f}"


@pytest.mark.parametrize("file", ["ppo", "maskable_ppo"])
def test_agent_beats_the_simple_routers(file: str) -> None:
    found = rows_of(file)
    best = max(float(found[name]["goodput_rps"]) for name in ("random", "round_robin", "least_requests"))
    assert float(found["agent"]["goodput_rps"]) > best
