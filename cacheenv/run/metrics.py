"""Metrics of a run: pure functions of its records.

Only rows with `counted == 1` (at or after the warm-up) enter, and of these not the requests that had not arrived when
the run was cut off at its horizon. Percentiles are over requests, linearly interpolated between ranks.
`METRICS` lists every name with its unit and formula.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cacheenv.sim.state.codes import (
    ABANDONED,
    COMPLETED,
    KIND_DECODE,
    KIND_PREFILL,
    KIND_STORE,
    REJECTED,
    REJECTED_LATE,
    TOO_LARGE,
    UNFINISHED,
)

# Kinds of a row of the table of instances.

#: Latencies in the records; each gives `_mean_s`, `_p50_s`, `_p90_s`, `_p99_s` over the requests that have it.
LATENCIES = {
    "ttft": "time to the first token (end of the prefill or, by `cluster.first_token`, of the first decode step)",
    "tpot": "mean gap between tokens: (last token - first token) / (output_tokens - 1)",
    "e2e": "time to the last token: finish_s + response overhead - arrival_s",
    "tbt_tail": "mean of the worst tenth of a request's token gaps",
}
PERCENTILES = (50, 90, 99)

#: Name -> (unit, meaning), in the order of the summary.
METRICS: dict[str, tuple[str, str]] = {
    **{
        f"{latency}_{statistic}_s": ("s", f"{statistic} over completed requests of: {meaning}")
        for latency, meaning in LATENCIES.items()
        for statistic in ("mean", *(f"p{percent}" for percent in PERCENTILES))
    },
    "slo_attainment": ("fraction", "requests that meet all SLOs / requests but the too large (rejected: not met)"),
    "goodput_rps": ("requests/s", "requests that meet all SLOs / makespan_s"),
    "throughput_rps": ("requests/s", "completed / makespan_s"),
    "hit_rate": ("fraction", "delivered hit tokens / prompt tokens, over requests admitted to a prefill batch"),
    "hit_rate_gpu": ("fraction", "the part of it that was on the GPU"),
    "hit_rate_host": ("fraction", "the part of it that was loaded from host memory"),
    "hit_rate_predicted": ("fraction", "the same for the hit that the index promised on the chosen instance"),
    "hit_rate_available": ("fraction", "the same for the longest hit that was anywhere in the cluster at arrival"),
    "hit_rate_missed": ("fraction", "the same for what was promised and not delivered, request by request"),
    "index_events_lost": ("count", "pages stored or removed that the index lost, for more events than it takes in"),
    "decide_mean_s": ("s", "mean of routed_s - arrival_s over requests routed when they first came: the router's time"),
    "load_imbalance_prefill": ("ratio", "max / mean of the busy time of the prefill instances"),
    "load_cv_prefill": ("ratio", "standard deviation / mean of the busy time of the prefill instances"),
    "load_imbalance_decode": ("ratio", "max / mean of the busy time of the decode instances"),
    "load_variance_decode": (
        "tokens^2",
        "variance over the decode instances of the KV tokens of their batches at a moment, averaged over the time in "
        "which any of them runs one",
    ),
    "load_cv_decode": ("ratio", "square root of load_variance_decode / mean of these KV tokens"),
    "pulled_gbytes": ("GB", "KV pulled to prefill instances before computing"),
    "migrated_gbytes": ("GB", "KV moved between decode instances"),
    "replicas": ("count", "copies of hot prefixes that came to another prefill instance"),
    "replicated_tokens": ("tokens", "KV tokens sent for them"),
    "link_utilisation": (
        "fraction",
        "mean over NICs (no idle store) of (bytes out + bytes in) / (2 x bandwidth x length of the run)",
    ),
    "requests": ("count", "requests counted"),
    "completed": ("count", "requests with all their tokens"),
    "rejected": ("count", "requests refused at arrival by the policy, for good"),
    "rejected_late": ("count", "requests refused by the policy after their prefill"),
    "too_large": ("count", "requests that fit on no instance"),
    "unfinished": ("count", "requests under way when the run was cut off"),
    "retries": ("count", "times a refused request came again"),
    "abandoned": ("count", "turns that never came: the session ended at a refused or too large one before"),
    "wasted_prefill_tokens": ("tokens", "tokens computed for the requests that were refused after their prefill"),
    "preemptions": ("count", "requests thrown out of a decode batch for lack of KV room"),
    "migrations": ("count", "migrations that ended in a join"),
    "rework_tokens": ("tokens", "tokens recomputed after preemptions"),
    "makespan_s": ("s", "first arrival to last event (finish, or arrival of a rejected request)"),
}

_PROGRESS = ("routed_s", "prefill_start_s", "prefill_end_s", "transfer_end_s", "decode_start_s", "finish_s")


def summarize(
    requests: np.ndarray,
    instances: np.ndarray,
    *,
    kv_bytes_per_token: float | np.ndarray,
    decode_kv_bytes_per_token: float | np.ndarray,
    decode_load: tuple[float, float] = (math.nan, math.nan),
    index_events_lost: int = 0,
) -> dict[str, float | int]:
    """The flat summary of a run.

    Args:
        requests: Records, one row a request.
        instances: Totals of each instance over the whole run: `kind, replicas, replicated_tokens, busy_s, bytes_out,
            bytes_in, nic_bytes_per_s`.
        kv_bytes_per_token: Bytes of a token's KV on a prefill instance (copies included): of all, or of each.
        decode_kv_bytes_per_token: The same for decode instances.
        index_events_lost: Pages stored or removed of which the index was told in vain.
        decode_load: Mean and variance of the KV tokens of the decode instances over time.

    Returns:
        The names of `METRICS` with Python numbers; NaN where a value has nothing to be computed from.
    """
    requests, instances = np.asarray(requests), np.asarray(instances)  # plain arrays: columns of a recarray are slow
    came = (requests["outcome"] != UNFINISHED) | np.isfinite(requests["routed_s"]) | (requests["retries"] > 0)
    abandoned = requests["outcome"] == ABANDONED
    arrived, counted = came & ~abandoned, requests["counted"] == 1
    rows = _only(requests, arrived & counted)
    outcome = rows["outcome"]
    completed = _only(rows, outcome == COMPLETED)
    met = int(np.count_nonzero(rows["slo_met"] == 1))
    eligible = int(np.count_nonzero(outcome != TOO_LARGE))
    makespan_s = _span_s(rows)
    whole_run_s = makespan_s if rows is requests else _span_s(_only(requests, arrived))
    summary: dict[str, float | int] = {}
    for latency in LATENCIES:
        summary.update(_distribution(latency, completed[f"{latency}_s"]))
    summary["slo_attainment"] = _ratio(met, eligible)
    summary["goodput_rps"] = _ratio(met, makespan_s)
    summary["throughput_rps"] = _ratio(len(completed), makespan_s)
    admitted = _only(rows, np.isfinite(rows["prefill_start_s"]))
    prompt_tokens = int(admitted["prompt_tokens"].sum())
    for name in ("", "_gpu", "_host", "_predicted", "_available"):
        summary[f"hit_rate{name}"] = _ratio(int(admitted[f"hit{name}_tokens"].sum()), prompt_tokens)
    promised = admitted["hit_predicted_tokens"].astype(np.int64)
    missed = int(np.maximum(promised - admitted["hit_tokens"], 0).sum())
    summary["hit_rate_missed"] = _ratio(missed, prompt_tokens)
    summary["index_events_lost"] = index_events_lost
    decided_s = (rows["routed_s"] - rows["arrival_s"])[np.isfinite(rows["routed_s"]) & (rows["retries"] == 0)]
    summary["decide_mean_s"] = float(decided_s.mean()) if len(decided_s) else math.nan
    for role, kind in (("prefill", KIND_PREFILL), ("decode", KIND_DECODE)):
        busy_s = np.asarray(instances["busy_s"][instances["kind"] == kind], np.float64)
        mean_s = float(busy_s.mean()) if len(busy_s) else math.nan
        summary[f"load_imbalance_{role}"] = _ratio(float(busy_s.max(initial=0.0)), mean_s)
        if kind == KIND_PREFILL:
            summary["load_cv_prefill"] = _ratio(float(busy_s.std()) if len(busy_s) else math.nan, mean_s)
    mean_tokens, variance = decode_load
    summary["load_variance_decode"] = variance
    summary["load_cv_decode"] = _ratio(math.sqrt(variance), mean_tokens)
    summary["pulled_gbytes"] = _gbytes(rows, "pulled_tokens", "prefill_instance", kv_bytes_per_token)
    summary["migrated_gbytes"] = _gbytes(rows, "migrated_tokens", "decode_instance", decode_kv_bytes_per_token)
    for name in ("replicas", "replicated_tokens"):
        summary[name] = int(instances[name].sum())
    summary["link_utilisation"] = _link_utilisation(instances, whole_run_s)
    summary["requests"] = len(rows)
    for name, code in (
        ("completed", COMPLETED),
        ("rejected", REJECTED),
        ("rejected_late", REJECTED_LATE),
        ("too_large", TOO_LARGE),
        ("unfinished", UNFINISHED),
    ):
        summary[name] = int(np.count_nonzero(outcome == code))
    summary["retries"] = int(rows["retries"].sum())
    summary["abandoned"] = int(np.count_nonzero(abandoned & counted))
    late = _only(rows, outcome == REJECTED_LATE)
    summary["wasted_prefill_tokens"] = int((late["prompt_tokens"] - late["hit_tokens"]).sum())
    for name in ("preemptions", "migrations", "rework_tokens"):
        summary[name] = int(rows[name].sum())
    summary["makespan_s"] = makespan_s
    return summary


def _only(rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The chosen rows; the table itself where that is all of them, since copying records takes most of a summary."""
    return rows if chosen.all() else rows[chosen]


def _distribution(latency: str, values: np.ndarray) -> dict[str, float]:
    """Mean and percentiles of the finite values."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return {f"{latency}_{name}_s": math.nan for name in ("mean", *(f"p{percent}" for percent in PERCENTILES))}
    ranks = np.percentile(values, PERCENTILES)
    result = {f"{latency}_mean_s": float(values.mean())}
    result.update({f"{latency}_p{percent}_s": float(rank) for percent, rank in zip(PERCENTILES, ranks, strict=True)})
    return result


def _span_s(rows: np.ndarray) -> float:
    """Seconds from the first arrival to the last known event; too large requests have no events."""
    rows = _only(rows, rows["outcome"] != TOO_LARGE)
    if not len(rows):
        return math.nan
    last = [rows["arrival_s"][rows["outcome"] == REJECTED], *(rows[name] for name in _PROGRESS)]
    times = np.concatenate([np.asarray(part, np.float64) for part in last])
    times = times[np.isfinite(times)]
    return float(times.max() - rows["arrival_s"].min()) if len(times) else math.nan


def _link_utilisation(instances: np.ndarray, span_s: float) -> float:
    moved = np.asarray(instances["bytes_out"], np.float64) + np.asarray(instances["bytes_in"], np.float64)
    bandwidth = np.asarray(instances["nic_bytes_per_s"], np.float64)
    present = (instances["kind"] != KIND_STORE) | (moved > 0)
    if not present.any() or not span_s > 0:
        return math.nan
    return float(np.mean(moved[present] / (2.0 * bandwidth[present] * span_s)))


def _gbytes(rows: np.ndarray, tokens: str, receiver: str, bytes_per_token: float | np.ndarray) -> float:
    """KV of tokens that came to an instance each, as that instance holds it."""
    if np.ndim(bytes_per_token) == 0:
        return float(rows[tokens].sum()) * float(bytes_per_token) / 1e9
    held = np.asarray(bytes_per_token)[rows[receiver]]  # nothing came to the instance -1
    return float((rows[tokens] * held).sum()) / 1e9


def _ratio(part: float, whole: Any) -> float:
    """`part / whole`, NaN where `whole` is 0 or NaN."""
    return float(part) / float(whole) if whole and math.isfinite(whole) else math.nan
