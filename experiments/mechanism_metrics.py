"""What `mechanisms.py` measures of a run or of the requests that arrive in a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mooncake_fig5 import BLOCKS, block_of

from cacheenv.run.simulate import Result
from cacheenv.sim.state.codes import KIND_DECODE, REJECTED, REJECTED_LATE, TOO_LARGE

LONG_PROMPT_TOKENS = 65_536

#: Name -> (unit, meaning); the order is that of :func:`of_requests` and :func:`of_run`.
METRICS = {
    "SLO met": ("fraction", "requests that meet all objectives / requests"),
    "TTFT mean": ("s", "mean time to the first token of completed requests"),
    "TTFT p50": ("s", "its median"),
    "hit rate": ("fraction", "delivered hit tokens / prompt tokens"),
    "hand-over": ("s", "mean time from the end of the prefill to the end of the hand-over"),
    "long hand-over": ("s", f"the same of prompts of at least {LONG_PROMPT_TOKENS:,} tokens"),
    "early turns": ("fraction", "later turns that arrive before the answer before has ended / later turns"),
    "refused": ("fraction", "requests refused at arrival or after the prefill / requests"),
    "TPOT missed": ("fraction", "completed requests above `slo.tpot_s` / completed requests"),
    "preemptions": ("count", "preemptions of a run"),
    "preempted twice": ("count", "requests of a run that were preempted more than once"),
    "rework": ("tokens", "tokens computed again after preemptions, of a run"),
    "pulls lost": ("fraction", "pulled tokens that were computed again / pulled tokens"),
    "KV spread": (
        "ratio",
        "standard deviation / mean of the KV tokens of the decode instances, mean over the second half of the arrivals",
    ),
    "capacity": ("requests/s", "highest rate at which the median TTFT stays within 1 s"),
}


def of_requests(requests: np.ndarray) -> dict[str, float]:
    """Metrics of a set of records; NaN where nothing was measured."""
    asked = requests[(requests["counted"] == 1) & (requests["outcome"] != TOO_LARGE)]
    asked = asked[np.isfinite(asked["arrival_s"])]
    ttft = asked["ttft_s"][np.isfinite(asked["ttft_s"])]
    batched = asked[np.isfinite(asked["prefill_start_s"])]
    handover = asked["transfer_end_s"] - asked["prefill_end_s"]
    moved = np.isfinite(handover)
    refused = (asked["outcome"] == REJECTED) | (asked["outcome"] == REJECTED_LATE)
    return {
        "SLO met": _mean(asked["slo_met"]),
        "TTFT mean": _mean(ttft),
        "TTFT p50": float(np.median(ttft)) if len(ttft) else np.nan,
        "hit rate": float(batched["hit_tokens"].sum() / max(1, batched["prompt_tokens"].sum())),
        "hand-over": _mean(handover[moved]),
        "long hand-over": _mean(handover[moved & (asked["prompt_tokens"] >= LONG_PROMPT_TOKENS)]),
        "refused": _mean(refused),
    }


def of_run(result: Result) -> dict[str, float]:
    """Metrics of a whole run, those of its requests among them."""
    requests = result.requests
    found = of_requests(requests)
    found["early turns"] = early_turns(requests)
    tpot = requests["tpot_s"][np.isfinite(requests["tpot_s"])]
    objective = result.scenario.slo.tpot_s
    found["TPOT missed"] = np.nan if objective is None else _mean(tpot > objective)
    found["preemptions"] = float(result.summary["preemptions"])
    found["preempted twice"] = float(np.count_nonzero(requests["preemptions"] > 1))
    found["rework"] = float(result.summary["rework_tokens"])
    pulled = requests["pulled_tokens"]
    lost = np.minimum(pulled, np.maximum(0, requests["hit_predicted_tokens"] - requests["hit_tokens"]))
    found["pulls lost"] = float(lost.sum() / pulled.sum()) if pulled.any() else np.nan
    found["KV spread"] = np.nan if result.timeline is None else kv_spread(result)
    return found


def early_turns(requests: np.ndarray) -> float:
    """Share of later turns that arrive before the last token of the turn before."""
    of_session = requests[(requests["session"] >= 0) & np.isfinite(requests["arrival_s"])]
    ordered = of_session[np.argsort(of_session["session"], kind="stable")]
    before, later = ordered[:-1], ordered[1:]
    same = later["session"] == before["session"]
    return _mean((later["arrival_s"] < before["finish_s"])[same & np.isfinite(before["finish_s"])])


def kv_spread(result: Result) -> float:
    """Coefficient of variation over the decode instances, averaged over the second half of the arrivals."""
    timeline, arrival_s = result.timeline, result.requests["arrival_s"]
    assert timeline is not None
    rows = timeline[timeline["kind"] == KIND_DECODE]
    last_s = np.nanmax(arrival_s)
    rows = rows[(rows["time_s"] > last_s / 2) & (rows["time_s"] <= last_s)]
    load = rows["kv_tokens"].reshape(-1, int(rows["index"].max()) + 1)
    mean = load.mean(axis=1)
    return _mean(load.std(axis=1)[mean > 0] / mean[mean > 0])


def of_blocks(requests: np.ndarray) -> list[dict[str, float]]:
    """Metrics of the requests that arrive in each block of time of a trace."""
    block = block_of(requests)
    return [of_requests(requests[block == number]) for number in range(BLOCKS)]


def capacity(median_ttft_s: Callable[[float], float], rates: tuple[float, ...], limit_s: float) -> float:
    """Where the median TTFT first passes `limit_s` on a ladder of rates, interpolated in its logarithm.

    The lowest rate where it is above from the start, the highest where it never is.
    """
    below, seconds = rates[0], np.nan
    for rate in rates:
        now_s = median_ttft_s(rate)
        if now_s > limit_s:
            if rate == rates[0]:
                return rate
            share = np.log(limit_s / seconds) / np.log(now_s / seconds)
            return float(below + share * (rate - below))
        below, seconds = rate, now_s
    return rates[-1]


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else np.nan
