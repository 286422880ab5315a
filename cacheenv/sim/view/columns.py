"""The view: the read-only tables, in physical units, that every policy and observation is computed from.

Each table is a NumPy record array, so `view.prefill[i].hit_tokens` reads the same in compiled and in plain code.
True output lengths never enter a view: policies see predictions only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from cacheenv.sim.core.handles import TablesType, leads_to_argument, reader, write_handle
from cacheenv.sim.core.jit import disabled
from cacheenv.sim.state.codes import (
    DECISION_ADMIT,
    DECISION_MIGRATE,
    DECISION_NONE,
    DECISION_ROUTE,
    ROLE_PRE_PREFILL,
    ROLE_PREFILL,
)
from cacheenv.sim.state.columns import record
from cacheenv.sim.state.handle import WORLD_TYPE, make_handles
from cacheenv.sim.state.world import World

__all__ = [
    "CANDIDATE_VIEW",
    "CLUSTER_VIEW",
    "DECISION_ADMIT",
    "DECISION_MIGRATE",
    "DECISION_NONE",
    "DECISION_ROUTE",
    "DECODE_VIEW",
    "PREFILL_VIEW",
    "REQUEST_VIEW",
    "ROLE_PREFILL",
    "ROLE_PRE_PREFILL",
    "RUNNING_VIEW",
    "View",
    "allocate_view",
    "handles_of",
    "record",
    "view_at",
    "view_rows",
]

CLUSTER_VIEW = record(
    [
        ("now_s", "f8"),
        (
            "decision",
            "i8",
        ),  # DECISION_ROUTE, DECISION_ADMIT, DECISION_MIGRATE, or DECISION_NONE when the episode is over
        ("proposed", "i8"),  # route action proposed so far (for decode choices and admission policies)
        ("num_prefill", "i8"),
        ("num_decode", "i8"),
        ("num_candidates", "i8"),  # K, candidate slots per decode instance
        ("num_running", "i8"),  # valid rows of `running` (0 where the table was not asked for)
        ("mean_output_tokens", "f8"),  # of the population that the requests come from
        ("page_tokens", "i8"),
        ("kv_bytes_per_token", "f8"),  # bytes moved for one token, kv_copies included, of the first prefill instance
        ("setup_s", "f8"),  # fixed time of a transfer, of the first prefill instance
        ("per_block_s", "f8"),  # fixed time of each page moved
        ("schedule_s", "f8"),  # from a request's routing until it may be batched or pull
        ("stall_s", "f8"),  # downtime of a migrated request
        ("reserve_tokens", "i8"),  # of the first decode instance
        ("accepting_prefill", "i8"),  # instances that accept this request
        ("accepting_decode", "i8"),  # the same of decode instances
        ("period_s", "f8"),  # rescheduling period
        ("slo_ttft_s", "f8"),  # inf where not set, as the other SLOs
        ("slo_tpot_s", "f8"),
        ("slo_tbt_tail_s", "f8"),
        ("slo_e2e_s", "f8"),
        ("allow_reject", "i8"),
        ("store_enabled", "i8"),
        ("requests_in_system", "i8"),
        ("decode_time_s", "f8"),  # decode time of those found decoding: sum of squares / sum, of the ended
        ("decoded_requests", "i8"),  # those that have made their last token at a decode instance
    ]
)

REQUEST_VIEW = record(
    [
        ("index", "i8"),
        ("session", "i8"),
        ("namespace", "i8"),
        ("priority", "i8"),
        ("arrival_s", "f8"),
        ("prompt_tokens", "i8"),
        ("predicted_output_tokens", "f8"),
        ("best_hit_tokens", "i8"),  # longest predicted prefix hit over all pull sources
        ("best_holder", "i8"),  # prefill instance, num_prefill for the store, -1 for none
        ("store_hit_tokens", "i8"),
        ("memory_hit_tokens", "i8"),  # longest prefix the router remembers having sent anywhere
        ("memory_instance", "i8"),  # prefill instance that owns that prefix in the memory, -1 for none
        ("first_block", "i8"),  # id of the first full page, -1 for a prompt shorter than a page
    ]
)

PREFILL_VIEW = record(
    [
        ("role", "i8"),  # ROLE_PREFILL or ROLE_PRE_PREFILL
        ("accepts", "i8"),  # this request may be routed here: it is small enough (1 where none is routed)
        ("queued_requests", "i8"),  # waiting for a batch
        ("queued_tokens", "i8"),  # predicted new (uncached) tokens of the waiting requests, as they stand now
        ("running_requests", "i8"),  # in the running batch
        ("inflight_requests", "i8"),  # routed here, hand-over not ended
        ("inflight_tokens", "i8"),  # their prompt tokens
        ("inflight_new_tokens", "i8"),  # new tokens, as predicted at dispatch, of requests whose prefill has not ended
        ("dispatched_requests", "i8"),  # since the start
        ("unfinished_requests", "i8"),  # routed here and not finished: until their last token is out
        ("queue_s", "f8"),  # predicted prefill seconds of the waiting requests, as they stand now
        ("running_left_s", "f8"),  # until the running batch ends
        ("backlog_s", "f8"),  # queue_s + running_left_s + what is left of a chunked prompt
        ("hit_tokens", "i8"),  # predicted local prefix hit of this request (index)
        ("pull_tokens", "i8"),  # further tokens that the longest source could send (0: nothing to pull)
        ("transfer_s", "f8"),  # estimate of pulling them now, with the links' present flows
        ("prefill_s", "f8"),  # predicted prefill time with the local hit
        ("prefill_pull_s", "f8"),  # predicted prefill time after the pull
        ("delivery_s", "f8"),  # estimate of what passes from the prefill's end to the first token (0: none)
        ("memory_hit_tokens", "i8"),  # prefix that the router remembers having sent here
        ("cache_used_tokens", "i8"),
        ("cache_capacity_tokens", "i8"),
        ("outgoing_flows", "i8"),
        ("incoming_flows", "i8"),
        ("nic_gbytes_per_s", "f8"),
        ("prefill_a_s", "f8"),
        ("prefill_b_s", "f8"),
        ("prefill_c_s", "f8"),
        ("min_prefill_s", "f8"),
        ("n_tile", "f8"),
        ("kv_bytes_per_token", "f8"),  # as it holds them, kv_copies included
    ]
)

DECODE_VIEW = record(
    [
        ("accepts", "i8"),  # this request may be routed here: it fits when it is whole (1 where none is routed)
        ("running_requests", "i8"),  # B
        ("waiting_requests", "i8"),  # KV arrived, waiting for admission
        ("preempted_requests", "i8"),
        ("waiting_tokens", "i8"),  # KV tokens of the waiting requests
        ("pending_requests", "i8"),  # assigned here, still in prefill or hand-over
        ("pending_tokens", "i8"),  # prompt tokens of the pending and waiting requests
        ("preempted_tokens", "i8"),  # KV tokens that the preempted requests had and will need
        (
            "first_waiting_tokens",
            "i8",
        ),  # KV tokens of the next one to be admitted, a preempted one first
        ("inflight_requests", "i8"),  # assigned here and not finished
        ("dispatched_requests", "i8"),
        ("kv_tokens", "i8"),  # C, resident tokens of the batch at the last step boundary
        ("reserved_tokens", "i8"),  # held for incoming migrations
        ("capacity_tokens", "i8"),
        ("max_batch", "i8"),
        ("reserve_tokens", "i8"),  # head-room for each request at admission
        ("room_tokens", "i8"),  # largest kv_tokens of a request that could be migrated here now (may be < 0)
        ("can_send", "i8"),  # no outgoing migration
        ("can_receive", "i8"),  # no incoming migration and a batch slot free
        ("step_s", "f8"),  # step time of the present batch (0 when idle)
        ("step_after_s", "f8"),  # step time with this request's prompt added
        ("preemptions", "i8"),
        ("outgoing_flows", "i8"),
        ("incoming_flows", "i8"),
        ("nic_gbytes_per_s", "f8"),
        ("decode_d_s", "f8"),
        ("decode_e_s", "f8"),
        ("decode_f_s", "f8"),
        ("kv_bytes_per_token", "f8"),  # as it holds them, kv_copies included
    ]
)

CANDIDATE_VIEW = record(
    [
        ("valid", "i8"),
        ("source", "i8"),  # decode instance
        ("request", "i8"),
        ("kv_tokens", "i8"),
        ("prompt_tokens", "i8"),
        ("generated_tokens", "i8"),
        ("predicted_remaining_tokens", "f8"),
        ("needed_tokens", "i8"),  # smallest KV capacity of an instance that holds it when it is whole
        ("migrate_s", "f8"),  # estimate of copying its KV out with the source's present flows
        ("since_move_s", "f8"),  # since its last migration ended, inf if never moved
        ("migrations", "i8"),
    ]
)

RUNNING_VIEW = record(
    [
        ("request", "i8"),
        ("instance", "i8"),
        ("kv_tokens", "i8"),
        ("prompt_tokens", "i8"),
        ("generated_tokens", "i8"),
        ("predicted_remaining_tokens", "f8"),
        ("elapsed_s", "f8"),  # since its first decode step started
        ("migrating", "i8"),
    ]
)


class View(NamedTuple):
    """Read-only tables in physical units: seconds, tokens, gigabytes a second.

    `cluster` and `request` have one row; `prefill` P rows; `decode` D rows; `candidate` D*K rows (slot `s*K + k`);
    `running` has its first `cluster[0].num_running` rows valid, ordered by instance and request.
    """

    cluster: np.recarray
    request: np.recarray
    prefill: np.recarray
    decode: np.recarray
    candidate: np.recarray
    running: np.recarray


def allocate_view(worlds: int, num_prefill: int, num_decode: int, num_candidates: int, max_running: int) -> View:
    """Views of `worlds` worlds, stacked: every table has shape `(worlds, rows)`."""

    def table(rows: int, dtype: np.dtype) -> np.recarray:
        return np.zeros((worlds, rows), dtype).view(np.recarray)

    return View(
        table(1, CLUSTER_VIEW),
        table(1, REQUEST_VIEW),
        table(num_prefill, PREFILL_VIEW),
        table(num_decode, DECODE_VIEW),
        table(num_decode * num_candidates, CANDIDATE_VIEW),
        table(max_running, RUNNING_VIEW),
    )


def view_rows(views: View, index: int) -> View:
    """View `index` of the stacked tables, without copying."""
    rows: list[Any] = [table[index] for table in views]
    return View(*rows)


#: The tables of a view in the handle of a world, behind those of the world.
VIEW_ROW_TYPE = TablesType(__name__, "VIEW_ROW_TYPE", view_rows(allocate_view(1, 1, 1, 1, 1), 0), WORLD_TYPE.words)


def handles_of(tables: World, workload_of: np.ndarray, views: View) -> Any:
    """Handles of stacked worlds with their views; see :func:`cacheenv.sim.state.handle.make_handles`."""
    handles = make_handles(tables, workload_of, views, VIEW_ROW_TYPE.words)
    if not disabled():
        for name, table in zip(View._fields, views, strict=True):
            write_handle(handles, VIEW_ROW_TYPE, name, table, np.arange(len(workload_of)))
    return handles


def view_at(handles, index):
    """The view of world `index`."""
    return view_rows(handles.views, index)


leads_to_argument(view_at)
_read_view = reader(VIEW_ROW_TYPE)


@overload(view_at)
def _view_at(handles, index):
    tables = ", ".join(f"row.{name}" for name in View._fields)
    scope = {"View": View, "read": _read_view}
    exec(f"def one_view(handles, index):\n    row = read(handles, index)\n    return View({tables})\n", scope)
    return scope["one_view"]
