"""The bundled scenarios have a steady state: what a run looks like does not depend on how long it is."""

from __future__ import annotations

import os

import numpy as np
import pytest

import cacheenv

pytestmark = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="whole episodes, compiled ones only")

BAND = 0.1


def mean_in_system(requests: np.ndarray, start_s: float, end_s: float) -> float:
    """Requests in the system, averaged over a stretch of time."""
    came = ~np.isnan(requests["arrival_s"])
    arrival_s, finish_s = requests["arrival_s"][came], requests["finish_s"][came]
    stay_s = np.minimum(np.where(np.isnan(finish_s), arrival_s, finish_s), end_s) - np.maximum(arrival_s, start_s)
    return float(np.clip(stay_s, 0.0, None).sum() / (end_s - start_s))


def growth(scenario: cacheenv.Scenario, seeds: int) -> float:
    """Requests in the system in the second half of the arrivals, over those in the third quarter."""
    halves, quarters = [], []
    for seed in range(seeds):
        requests = cacheenv.simulate(scenario, seed=seed).requests
        last_s = float(np.nanmax(requests["arrival_s"]))
        halves.append(mean_in_system(requests, last_s / 2, last_s))
        quarters.append(mean_in_system(requests, last_s / 2, last_s * 0.75))
    return float(np.mean(halves) / np.mean(quarters))


def test_average_is_that_of_the_stretch():
    # One from 0 to 4 s, one from 3 to 9 s; in 2..6 s they stay 2 + 3 s of 4.
    requests = np.array([(0.0, 4.0), (3.0, 9.0), (np.nan, np.nan)], [("arrival_s", "f8"), ("finish_s", "f8")])
    assert mean_in_system(requests, 2.0, 6.0) == 1.25


@pytest.mark.parametrize(("name", "seeds"), [("kimi-chat", 8), ("long-context", 8), ("reasoning", 3)])
def test_second_half_looks_like_the_third_quarter(name: str, seeds: int) -> None:
    assert growth(cacheenv.load_scenario(name), seeds) == pytest.approx(1.0, abs=BAND)


def test_more_than_decode_memory_can_hold_has_none() -> None:
    assert growth(cacheenv.load_scenario("reasoning", {"workload.rate_rps": 2.0}), 2) > 1.0 + BAND
