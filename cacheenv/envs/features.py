"""Observation features: names, scales and the compiled code that computes them from a view.

A feature with a scale is squashed to `value / (value + scale)`, so it lies in [0, 1) and never clips; one without a
scale is a share or a flag and is clipped to [0, 1]. The tables below are what the spaces, the dict observation and the
documentation are made from; the compiled functions fill the raw values in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cacheenv.sim.core.jit import inner
from cacheenv.sim.view.columns import DECISION_MIGRATE, DECISION_ROUTE

DEFAULT_TTFT_SLO_S = 10.0
DEFAULT_TBT_SLO_S = 0.1


@dataclass(frozen=True)
class Feature:
    """One number of an observation row.

    Attributes:
        name: Column name.
        scale: Value at which the feature is 0.5; 0 for shares and flags, which are used as they are.
        text: Meaning and unit.
    """

    name: str
    scale: float
    text: str


CLUSTER_FEATURES = (
    Feature("is_route", 0, "1 at an arrival"),
    Feature("is_migrate", 0, "1 at a rescheduling tick"),
    Feature("requests_in_system", 64, "requests that have arrived and not ended"),
)
REQUEST_FEATURES = (
    Feature("prompt_tokens", 8192, "prompt length, tokens"),
    Feature("predicted_output_tokens", 512, "predicted output length, tokens"),
    Feature("best_hit_share", 0, "longest predicted prefix hit of all pull sources over the prompt"),
    Feature("store_hit_share", 0, "predicted hit in the cluster store over the prompt"),
    Feature("memory_hit_share", 0, "longest prefix that the router remembers having sent, over the prompt"),
    Feature("reject_allowed", 0, "1 where rejecting is a legal action"),
)
PREFILL_FEATURES = (
    Feature("backlog_s", 2, "predicted seconds until everything routed here is computed"),
    Feature("running_left_s", 1, "seconds until the running batch ends"),
    Feature("queued_requests", 4, "requests waiting for a batch"),
    Feature("queued_tokens", 16384, "predicted new tokens waiting"),
    Feature("inflight_requests", 8, "requests routed here whose hand-over has not ended"),
    Feature("hit_share", 0, "predicted local prefix hit over the prompt"),
    Feature("pull_share", 0, "further tokens that could be pulled, over the prompt"),
    Feature("prefill_s", 1, "predicted prefill time with the local hit"),
    Feature("prefill_pull_s", 1, "predicted prefill time after a pull"),
    Feature("transfer_s", 0.1, "predicted time of the pull"),
    Feature("ttft_over_slo", 1, "(backlog_s + prefill_s) over the TTFT objective"),
    Feature("cache_used_share", 0, "cached and running pages over the capacity"),
    Feature("is_pre_prefill", 0, "1 for the pre-prefill role"),
    Feature("outgoing_flows", 4, "flows that share the NIC outwards"),
)
DECODE_FEATURES = (
    Feature("batch_share", 0, "running requests over the largest batch"),
    Feature("running_requests", 16, "running requests"),
    Feature("waiting_requests", 4, "requests whose KV has arrived, waiting for admission"),
    Feature("pending_requests", 8, "requests assigned here that are still in prefill or hand-over"),
    Feature("preempted_requests", 4, "preempted requests"),
    Feature("kv_share", 0, "resident tokens over the capacity"),
    Feature("pending_share", 0, "prompt tokens on their way here over the capacity"),
    Feature("reserved_share", 0, "tokens reserved for incoming migrations over the capacity"),
    Feature("step_over_slo", 1, "step time of the present batch over the objective of the token gap"),
    Feature("step_after_over_slo", 1, "step time with this request added over that objective"),
    Feature("can_send", 0, "1 where a migration may start from here"),
    Feature("can_receive", 0, "1 where a migration may come here"),
)
CANDIDATE_FEATURES = (
    Feature("valid", 0, "1 where the slot holds a request"),
    Feature("kv_share", 0, "its resident tokens over the source's capacity"),
    Feature("kv_tokens", 8192, "its resident tokens"),
    Feature("generated_tokens", 1024, "tokens generated so far"),
    Feature("predicted_remaining_tokens", 1024, "predicted tokens still to come"),
    Feature("migrate_s", 0.1, "estimate of copying its KV"),
    Feature("migrations", 1, "times it has been moved"),
)
NEVER_MOVED_S = 1e9

TABLES = {
    "cluster": CLUSTER_FEATURES,
    "request": REQUEST_FEATURES,
    "prefill": PREFILL_FEATURES,
    "decode": DECODE_FEATURES,
    "candidate": CANDIDATE_FEATURES,
}


def flat_scales(features: Sequence[Feature]) -> np.ndarray:
    """Float32 scales of the features of a flat observation, in order (0 for shares and flags)."""
    return np.array([feature.scale for feature in features], np.float32)


_CLUSTER, _REQUEST, _PREFILL, _DECODE, _CANDIDATE = (len(table) for table in TABLES.values())
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@inner
def _squash(out, scale):
    """Turns raw values in place into features in [0, 1]; without branches, so that it vectorises."""
    for k in range(out.shape[0]):
        value = max(out[k], _ZERO)
        size = scale[k]
        out[k] = value / (value + size if size > 0.0 else max(value, _ONE))


@inner
def _cluster(view, out, at):
    cluster = view.cluster[0]
    out[at] = 1.0 if cluster.decision == DECISION_ROUTE else 0.0
    out[at + 1] = 1.0 if cluster.decision == DECISION_MIGRATE else 0.0
    out[at + 2] = cluster.requests_in_system


@inner
def _request(view, out, at):
    request = view.request[0]
    tokens = max(1, request.prompt_tokens)
    out[at] = request.prompt_tokens
    out[at + 1] = request.predicted_output_tokens
    out[at + 2] = request.best_hit_tokens / tokens
    out[at + 3] = request.store_hit_tokens / tokens
    out[at + 4] = request.memory_hit_tokens / tokens
    out[at + 5] = view.cluster[0].allow_reject if view.cluster[0].decision == DECISION_ROUTE else 0


@inner
def _prefill(view, i, out, at, slo_s):
    row = view.prefill[i]
    tokens = max(1, view.request[0].prompt_tokens)
    out[at] = row.backlog_s
    out[at + 1] = row.running_left_s
    out[at + 2] = row.queued_requests
    out[at + 3] = row.queued_tokens
    out[at + 4] = row.inflight_requests
    out[at + 5] = row.hit_tokens / tokens
    out[at + 6] = row.pull_tokens / tokens
    out[at + 7] = row.prefill_s
    out[at + 8] = row.prefill_pull_s
    out[at + 9] = row.transfer_s
    out[at + 10] = (row.backlog_s + row.prefill_s) / slo_s
    out[at + 11] = row.cache_used_tokens / max(1, row.cache_capacity_tokens)
    out[at + 12] = row.role
    out[at + 13] = row.outgoing_flows


@inner
def _decode(view, d, out, at, slo_s):
    row = view.decode[d]
    capacity = float(row.capacity_tokens)
    out[at] = row.running_requests / row.max_batch
    out[at + 1] = row.running_requests
    out[at + 2] = row.waiting_requests
    out[at + 3] = row.pending_requests
    out[at + 4] = row.preempted_requests
    out[at + 5] = row.kv_tokens / capacity
    out[at + 6] = row.pending_tokens / capacity
    out[at + 7] = row.reserved_tokens / capacity
    out[at + 8] = row.step_s / slo_s
    out[at + 9] = row.step_after_s / slo_s
    out[at + 10] = row.can_send
    out[at + 11] = row.can_receive


@inner
def _candidate(view, c, out, at):
    row = view.candidate[c]
    if row.valid == 0:
        for k in range(_CANDIDATE):
            out[at + k] = 0.0
        return
    out[at] = 1.0
    out[at + 1] = row.kv_tokens / max(1, view.decode[row.source].capacity_tokens)
    out[at + 2] = row.kv_tokens
    out[at + 3] = row.generated_tokens
    out[at + 4] = row.predicted_remaining_tokens
    out[at + 5] = row.migrate_s
    out[at + 6] = row.migrations


@inner
def fill_observation(view, scale, tables, out):
    """Writes the flat observation of a view.

    `scale` is :func:`flat_scales` of the whole row; `tables` has bits 1 request, 2 prefill, 4 decode, 8 candidates.
    """
    ttft_slo_s = view.cluster[0].slo_ttft_s
    if math.isinf(ttft_slo_s):
        ttft_slo_s = DEFAULT_TTFT_SLO_S
    tbt_slo_s = min(view.cluster[0].slo_tbt_tail_s, view.cluster[0].slo_tpot_s)
    if math.isinf(tbt_slo_s):
        tbt_slo_s = DEFAULT_TBT_SLO_S
    _cluster(view, out, 0)
    at = _CLUSTER
    if tables & 1:
        _request(view, out, at)
        at += _REQUEST
    if tables & 2:
        for i in range(view.prefill.shape[0]):
            _prefill(view, i, out, at, ttft_slo_s)
            at += _PREFILL
    if tables & 4:
        for d in range(view.decode.shape[0]):
            _decode(view, d, out, at, tbt_slo_s)
            at += _DECODE
    if tables & 8:
        migrating = view.cluster[0].decision == DECISION_MIGRATE
        for c in range(view.candidate.shape[0]):
            if migrating:
                _candidate(view, c, out, at)
            else:
                for k in range(_CANDIDATE):
                    out[at + k] = 0.0
            at += _CANDIDATE
    _squash(out, scale)
