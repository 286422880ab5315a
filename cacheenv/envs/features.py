"""Observation features: names, scales, meanings, and the compiled code that computes them from a view.

A feature with a scale is squashed to `value / (value + scale)`, so it lies in [0, 1) and never clips; one without a
scale is a share or a flag and is clipped to [0, 1].

Each table of features is followed by the function that fills its rows. A row is a record whose columns have the names
of the features, laid over the flat observation, so a value is written under its name and stands where the table says;
a name that no feature has does not compile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cacheenv.envs.record_rows import rows_over
from cacheenv.sim.core.jit import inner, jit, once
from cacheenv.sim.view.columns import DECISION_MIGRATE, DECISION_ROUTE, ROLE_PRE_PREFILL, record

DEFAULT_TTFT_SLO_S = 10.0  # stands for a TTFT objective that is not set
DEFAULT_TBT_SLO_S = 0.1  # stands for an objective of the token gap that is not set


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


def row_of(features: tuple[Feature, ...]) -> np.dtype:
    """A row of a table as a record: one float32 column for each feature, in order."""
    return record([(feature.name, "f4") for feature in features])


CLUSTER_FEATURES = (
    Feature("is_route", 0, "1 at an arrival"),
    Feature("is_migrate", 0, "1 at a rescheduling tick"),
    Feature("requests_in_system", 64, "requests that have arrived and not ended"),
)
CLUSTER_ROW = row_of(CLUSTER_FEATURES)


@once
def _fill_cluster(view, rows):
    for i in range(rows.shape[0]):
        row, out = view.cluster[i], rows[i]
        out.is_route = 1.0 if row.decision == DECISION_ROUTE else 0.0
        out.is_migrate = 1.0 if row.decision == DECISION_MIGRATE else 0.0
        out.requests_in_system = row.requests_in_system


REQUEST_FEATURES = (
    Feature("prompt_tokens", 8192, "prompt length, tokens"),
    Feature("predicted_output_tokens", 512, "predicted output length, tokens"),
    Feature("best_hit_share", 0, "longest predicted prefix hit of all pull sources over the prompt"),
    Feature("store_hit_share", 0, "predicted hit in the cluster store over the prompt"),
    Feature("memory_hit_share", 0, "longest prefix that the router remembers having sent, over the prompt"),
    Feature("reject_allowed", 0, "1 where rejecting is a legal action"),
)
REQUEST_ROW = row_of(REQUEST_FEATURES)


@once
def _fill_request(view, rows):
    arriving = view.cluster[0].decision == DECISION_ROUTE
    for i in range(rows.shape[0]):
        row, out = view.request[i], rows[i]
        tokens = max(1, row.prompt_tokens)
        out.prompt_tokens = row.prompt_tokens
        out.predicted_output_tokens = row.predicted_output_tokens
        out.best_hit_share = row.best_hit_tokens / tokens
        out.store_hit_share = row.store_hit_tokens / tokens
        out.memory_hit_share = row.memory_hit_tokens / tokens
        out.reject_allowed = view.cluster[0].allow_reject if arriving else 0


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
    Feature(
        "ttft_over_slo", 1, "(backlog_s or, if longer, schedule_s, + prefill_s + delivery_s) over the TTFT objective"
    ),
    Feature("cache_used_share", 0, "cached and running pages over the capacity"),
    Feature("is_pre_prefill", 0, "1 for the pre-prefill role"),
    Feature("outgoing_flows", 4, "flows that share the NIC outwards"),
)
PREFILL_ROW = row_of(PREFILL_FEATURES)


@once
def _fill_prefill(view, rows):
    tokens = max(1, view.request[0].prompt_tokens)
    slo_s, schedule_s = view.cluster[0].slo_ttft_s, view.cluster[0].schedule_s
    if math.isinf(slo_s):
        slo_s = DEFAULT_TTFT_SLO_S
    for i in range(rows.shape[0]):
        row, out = view.prefill[i], rows[i]
        out.backlog_s = row.backlog_s
        out.running_left_s = row.running_left_s
        out.queued_requests = row.queued_requests
        out.queued_tokens = row.queued_tokens
        out.inflight_requests = row.inflight_requests
        out.hit_share = row.hit_tokens / tokens
        out.pull_share = row.pull_tokens / tokens
        out.prefill_s = row.prefill_s
        out.prefill_pull_s = row.prefill_pull_s
        out.transfer_s = row.transfer_s
        out.ttft_over_slo = (max(row.backlog_s, schedule_s) + row.prefill_s + row.delivery_s) / slo_s
        out.cache_used_share = row.cache_used_tokens / max(1, row.cache_capacity_tokens)
        out.is_pre_prefill = 1.0 if row.role == ROLE_PRE_PREFILL else 0.0
        out.outgoing_flows = row.outgoing_flows


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
DECODE_ROW = row_of(DECODE_FEATURES)


@once
def _fill_decode(view, rows):
    slo_s = min(view.cluster[0].slo_tbt_tail_s, view.cluster[0].slo_tpot_s)
    if math.isinf(slo_s):
        slo_s = DEFAULT_TBT_SLO_S
    for d in range(rows.shape[0]):
        row, out = view.decode[d], rows[d]
        capacity = float(row.capacity_tokens)
        out.batch_share = row.running_requests / row.max_batch
        out.running_requests = row.running_requests
        out.waiting_requests = row.waiting_requests
        out.pending_requests = row.pending_requests
        out.preempted_requests = row.preempted_requests
        out.kv_share = row.kv_tokens / capacity
        out.pending_share = row.pending_tokens / capacity
        out.reserved_share = row.reserved_tokens / capacity
        out.step_over_slo = row.step_s / slo_s
        out.step_after_over_slo = row.step_after_s / slo_s
        out.can_send = row.can_send
        out.can_receive = row.can_receive


CANDIDATE_FEATURES = (
    Feature("valid", 0, "1 where the slot holds a request"),
    Feature("kv_share", 0, "its resident tokens over the source's capacity"),
    Feature("kv_tokens", 8192, "its resident tokens"),
    Feature("generated_tokens", 1024, "tokens generated so far"),
    Feature("predicted_remaining_tokens", 1024, "predicted tokens still to come"),
    Feature("migrate_s", 0.1, "estimate of copying its KV"),
    Feature("migrations", 1, "times it has been moved"),
)
CANDIDATE_ROW = row_of(CANDIDATE_FEATURES)


@once
def _fill_candidate(view, rows):
    """Fills the rows of the slots that hold a request; `rows` is all zeros."""
    for c in range(rows.shape[0]):
        row, out = view.candidate[c], rows[c]
        if row.valid == 1:
            out.valid = 1.0
            out.kv_share = row.kv_tokens / max(1, view.decode[row.source].capacity_tokens)
            out.kv_tokens = row.kv_tokens
            out.generated_tokens = row.generated_tokens
            out.predicted_remaining_tokens = row.predicted_remaining_tokens
            out.migrate_s = row.migrate_s
            out.migrations = row.migrations


#: Tables of an observation, in order.
TABLES = {
    "cluster": CLUSTER_FEATURES,
    "request": REQUEST_FEATURES,
    "prefill": PREFILL_FEATURES,
    "decode": DECODE_FEATURES,
    "candidate": CANDIDATE_FEATURES,
}
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@once
def _squash(out, scales):
    """Turns raw values in place into features in [0, 1]; without branches, so that it vectorises."""
    for k in range(out.shape[0]):
        value = max(out[k], _ZERO)
        size = scales[k]
        out[k] = value / (value + size if size > 0.0 else max(value, _ONE))


@inner
def fill_observation(view, edges, scales, out):
    """Writes the flat observation of a view.

    Args:
        view: A filled view.
        edges: Table k of :data:`TABLES` stands at `out[edges[k] : edges[k + 1]]`; int64, one more than tables.
        scales: Scale of each feature, float32.
        out: The observation, float32, as long as `scales`.
    """
    _fill_cluster(view, rows_over(out[edges[0] : edges[1]], CLUSTER_ROW))
    _fill_request(view, rows_over(out[edges[1] : edges[2]], REQUEST_ROW))
    _fill_prefill(view, rows_over(out[edges[2] : edges[3]], PREFILL_ROW))
    _fill_decode(view, rows_over(out[edges[3] : edges[4]], DECODE_ROW))
    candidates = out[edges[4] : edges[5]]
    for k in range(candidates.shape[0]):
        candidates[k] = 0.0
    if view.cluster[0].decision == DECISION_MIGRATE:  # at an arrival the view holds the candidates of the last tick
        _fill_candidate(view, rows_over(candidates, CANDIDATE_ROW))
    _squash(out, scales)


@jit
def observe(view, edges, scales, out):
    """Entry from Python to :func:`fill_observation`."""
    fill_observation(view, edges, scales, out)
