"""How many later turns come before the answer that their prompt contains, in an open and in a closed loop."""

from __future__ import annotations

import numpy as np
import pytest

from cacheenv.run.simulate import simulate
from cacheenv.scenario import load_scenario


def hasty_share(arrivals: str, rate_rps: float, requests: int = 250, **params: float) -> float:
    """Share of the later turns of `kimi-chat` that come before the last token of the turn before."""
    changes = {"workload.arrivals": arrivals, "workload.rate_rps": rate_rps, "workload.requests": requests}
    rows = simulate(load_scenario("kimi-chat", {**changes, "workload.params": params}), "mooncake", seed=0).requests
    finish_s: dict[int, float] = {}
    hasty = []
    for row in np.flatnonzero(np.isfinite(rows.arrival_s)).tolist():
        session = int(rows.session[row])
        if session in finish_s:
            hasty.append(not finish_s[session] <= rows.arrival_s[row])
        finish_s[session] = float(rows.finish_s[row])
    return float(np.mean(hasty))


@pytest.mark.parametrize("rate_rps", [5.0, 8.0])
def test_nobody_answers_what_has_not_been_said(rate_rps: float) -> None:
    assert hasty_share("closed", rate_rps) == 0.0


def test_an_open_loop_does_the_more_the_higher_the_rate() -> None:
    # Turns a number of requests apart come sooner at a higher rate, and the answers later.
    slow, fast = (hasty_share("open", rate_rps, turn_gap_requests=40.0) for rate_rps in (1.0, 8.0))
    assert slow < 0.2 < 0.5 < fast
