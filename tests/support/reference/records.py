"""What comes out: a record a request, totals an instance, and the statistics of token gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .cluster import ReferenceCluster

NAN = float("nan")

UNFINISHED = 0
COMPLETED = 1
REJECTED = 2
TOO_LARGE = 3
REJECTED_LATE = 4
ABANDONED = 5

FIRST_EDGE_S = 1e-4
EDGE_RATIO = 1.05
LAST_BIN = 419


@dataclass
class RequestRecord:
    """One row of the result; times in seconds, NaN where not reached."""

    request: int
    session: int
    namespace: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    routed_s: float = NAN
    prefill_start_s: float = NAN
    prefill_end_s: float = NAN
    transfer_end_s: float = NAN
    decode_start_s: float = NAN
    finish_s: float = NAN
    ttft_s: float = NAN
    tpot_s: float = NAN
    tbt_p99_s: float = NAN
    tbt_tail_s: float = NAN
    e2e_s: float = NAN
    first_token_s: float = NAN
    hit_tokens: int = 0
    hit_gpu_tokens: int = 0
    hit_host_tokens: int = 0
    hit_predicted_tokens: int = 0
    hit_available_tokens: int = 0
    pulled_tokens: int = 0
    migrated_tokens: int = 0
    rework_tokens: int = 0
    preemptions: int = 0
    migrations: int = 0
    prefill_instance: int = -1
    decode_instance: int = -1
    outcome: int = UNFINISHED
    slo_met: int = 0
    counted: int = 0
    retries: int = 0
    outside_s: float = 0.0
    # beyond the engine's record: the exact gaps, and their statistics without binning
    entered_s: float = NAN  # the last time
    gaps_s: list[float] = field(default_factory=list)
    tbt_p99_exact_s: float = NAN
    tbt_tail_exact_s: float = NAN


@dataclass
class InstanceRecord:
    """Totals of one instance. `kind`: 0 prefill, 1 decode, 2 store."""

    kind: int
    index: int
    busy_s: float
    tokens: int
    replicas: int
    replicated_tokens: int
    bytes_out: float
    bytes_in: float
    nic_bytes_per_s: float


def gap_bin(gap_s: float) -> int:
    """Bin of a token gap: bin k holds [1e-4 * 1.05^k, 1e-4 * 1.05^(k+1)) seconds; bins 0 and 419 take the rest."""
    if gap_s <= FIRST_EDGE_S:
        return 0
    return min(max(0, math.floor(math.log(gap_s / FIRST_EDGE_S) / math.log(EDGE_RATIO))), LAST_BIN)


def bin_value_s(index: int) -> float:
    """The geometric middle of a bin."""
    return FIRST_EDGE_S * EDGE_RATIO ** (index + 0.5)


def tail_mean_s(gaps_s: list[float]) -> float:
    """Mean of the worst ceil(N/10) of N gaps; 0 where there are none."""
    if not gaps_s:
        return 0.0
    worst = sorted(gaps_s, reverse=True)[: -(-len(gaps_s) // 10)]
    return sum(worst) / len(worst)


def percentile_99_s(gaps_s: list[float]) -> float:
    """The gap of rank ceil(99 N / 100), counted from the shortest; 0 where there are none."""
    if not gaps_s:
        return 0.0
    return sorted(gaps_s)[-(-99 * len(gaps_s) // 100) - 1]


def complete(record: RequestRecord, cluster: ReferenceCluster, now: float) -> None:
    """Fills in what is known when a request has its last token."""
    record.outcome = COMPLETED
    record.finish_s = now
    steps = record.output_tokens - 1
    assert len(record.gaps_s) == steps
    binned = [bin_value_s(gap_bin(gap)) for gap in record.gaps_s]
    record.ttft_s = record.first_token_s + cluster.response_overhead_s - record.arrival_s
    record.e2e_s = record.finish_s + cluster.response_overhead_s - record.arrival_s
    record.tpot_s = (record.finish_s - record.first_token_s) / steps if steps else 0.0
    record.tbt_tail_s = tail_mean_s(binned)
    record.tbt_p99_s = percentile_99_s(binned)
    record.tbt_tail_exact_s = tail_mean_s(record.gaps_s)
    record.tbt_p99_exact_s = percentile_99_s(record.gaps_s)
    checks = [
        (record.ttft_s, cluster.slo_ttft_s),
        (record.tpot_s, cluster.slo_tpot_s),
        (record.tbt_tail_s, cluster.slo_tbt_tail_s),
        (record.e2e_s, cluster.slo_e2e_s),
    ]
    record.slo_met = int(all(limit is None or value <= limit for value, limit in checks))
