"""The simulator's whole state: a handful of tables (NumPy record arrays), and the constants that name their codes.

Copying the tables is copying the simulator. Every table of a :class:`World` has a leading axis over worlds in its
stacked form (`N` independent worlds side by side); :func:`world_at` takes one world out without copying.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cacheenv.sim.jit import inner
from cacheenv.sim.view_types import record

# Event kinds: at equal times the smaller kind comes first, then the smaller id.
EVENT_FLOW = 0
EVENT_PREFILL_END = 1
EVENT_DECODE = 2
EVENT_INDEX = 3
EVENT_ARRIVAL = 4
EVENT_PREFILL_START = 5
EVENT_TICK = 6
KIND_SHIFT = np.int64(1 << 48)  # heap order = kind * KIND_SHIFT + id (which may be an int32)

# Request states.
FUTURE, QUEUED, PREFILLING, HANDOVER, WAITING, RUNNING, PREEMPTED, MOVING, DONE = range(9)

# Outcomes.
UNFINISHED, COMPLETED, REJECTED, TOO_LARGE = range(4)

# Migration progress of a request.
MOVE_NONE, MOVE_COPYING, MOVE_COPIED, MOVE_DELTA, MOVE_ARRIVED = range(5)

# Flow kinds and phases.
FLOW_PULL, FLOW_HANDOVER, FLOW_STORE_WRITE, FLOW_MIGRATE, FLOW_DELTA = range(5)
PHASE_FREE, PHASE_WAIT, PHASE_MAIN, PHASE_GATED, PHASE_LAST, PHASE_LATENCY = range(6)

QUEUE_FCFS, QUEUE_LPM = 0, 1
PREEMPT_RECOMPUTE, PREEMPT_SWAP = 0, 1
PREDICT_ORACLE, PREDICT_NOISY, PREDICT_NONE = 0, 1, 2
ORDER_REMAINING_PER_KV, ORDER_SHORTEST_KV = 0, 1

# What `advance` stopped for (DECISION_ROUTE = 1 and DECISION_MIGRATE = 2 come from the view).
STOP_DONE = 0
STOP_HORIZON = 3
STOP_GROW = 4

POLICY_PARTS = 4  # router, decode choice, admission, rescheduler
BITS = 62  # holder bits in one int64 word of the index
NONE = -1

WORKLOAD = record(
    [
        ("arrival_s", "f8"),
        ("prompt_tokens", "i8"),
        ("output_tokens", "i8"),
        ("block_start", "i8"),
        ("session", "i8"),
        ("namespace", "i4"),
        ("priority", "i4"),
    ]
)

CONFIG = record(
    [
        (name, "i8")
        for name in (
            "num_prefill num_decode num_requests page_tokens words layers overlap peer_pulls store_enabled "
            "write_through memory_enabled candidates candidate_order max_batch reserve_tokens preemption prediction "
            "prediction_seed warmup_requests allow_reject ticks needs_running batch_margin queue lpm_fallback "
            "lpm_check_tokens lpm_defer_tokens batch_tokens chunk_tokens max_batch_requests"
        ).split()
    ]
    + [
        (name, "f8")
        for name in (
            "prefill_kv_bytes decode_kv_bytes setup_s per_block_s index_delay_s response_overhead_s period_s stall_s "
            "join_stall_s swap_bytes_per_s prediction_a0 prediction_tau prediction_s0 prediction_s_inf slo_ttft_s "
            "slo_tpot_s slo_tbt_tail_s slo_e2e_s horizon_s"
        ).split()
    ]
)

STATE = record(
    [
        ("now_s", "f8"),
        ("next_tick_s", "f8"),
        ("integral_s", "f8"),  # integral of counted requests in system
        ("last_event_s", "f8"),
    ]
    + [
        (name, "i8")
        for name in (
            "next_arrival deciding unfinished in_system counted_in_system stop tick_open tick_number heap_size "
            "flow_number free_flow free_flows free_node free_nodes table_size event_head event_count free_slot "
            "store_hit_pages best_hit_pages best_holder met violated rejected routed decisions invalid actions moves "
            "low_bin top_bin"
        ).split()
    ]
)

REQUEST = record(
    [
        (name, "f8")
        for name in (
            "arrival_s routed_s prefill_start_s prefill_end_s transfer_end_s decode_start_s finish_s ttft_s tpot_s "
            "tbt_p99_s tbt_tail_s e2e_s predicted_s left_s last_token_s last_move_s"
        ).split()
    ]
    + [
        (name, "i8")
        for name in (
            "prompt_tokens output_tokens hit_tokens hit_predicted_tokens hit_available_tokens pulled_tokens "
            "migrated_tokens rework_tokens predicted_new_tokens computed_tokens piece_tokens generated move_kv "
            "move_reserved"
        ).split()
    ]
    + [
        (name, "i4")
        for name in (
            "preemptions migrations prefill_instance decode_instance outcome slo_met counted settled state next "
            "batch_next lock_node hit_pages private_pages pulling handover slot move_state move_target move_flow "
            "resumed match_pages cold"
        ).split()
    ]
)

PREFILL = record(
    [
        (name, "f8")
        for name in ("a b c floor_s n_tile queue_s chunk_left_s batch_start_s batch_end_s busy_s").split()
    ]
    + [
        (name, "i8")
        for name in (
            "role capacity_tokens hit_pages memory_hit_pages queued queued_tokens inflight inflight_tokens "
            "inflight_new_tokens dispatched tokens"
        ).split()
    ]
    + [("head", "i4"), ("tail", "i4"), ("batch_head", "i4"), ("batch_size", "i4"), ("chunked", "i4"), ("busy", "i4")]
)

DECODE = record(
    [
        (name, "f8")
        for name in (
            "d e f prefill_a prefill_b prefill_c start_s stall_s base_s slope_s pending_stall_s busy_s"
        ).split()
    ]
    + [
        (name, "i8")
        for name in (
            "step planned batch kv capacity reserved pending pending_tokens waiting preempted inflight dispatched "
            "preemptions tokens"
        ).split()
    ]
    + [
        (name, "i4")
        for name in (
            "head tail preempted_head preempted_tail outgoing incoming arrived joined_head"
        ).split()
    ]
)

NIC = record(
    [("bytes_per_s", "f8"), ("bytes_out", "f8"), ("bytes_in", "f8")]
    + [(name, "i4") for name in ("out", "in_", "first_out", "first_in")]
)

FLOW = record(
    [
        (name, "f8")
        for name in ("remaining rate updated_s main_bytes last_bytes latency_s").split()
    ]
    + [("number", "i8"), ("start", "i8"), ("tokens", "i8")]
    + [
        (name, "i4")
        for name in (
            "kind phase gate_open source sink request source_node sink_node pages reserved_pages next_out prev_out "
            "next_in prev_in next"
        ).split()
    ]
)

HEAP = record([("time_s", "f8"), ("order", "i8"), ("timer", "i8")])

TREE = record(
    [("capacity", "i8"), ("pages", "i8"), ("private", "i8"), ("locked", "i8"), ("run_start", "i8"), ("run", "i8")]
    + [("root", "i4"), ("oldest", "i4"), ("newest", "i4"), ("nodes", "i4")]
)

NODE = record(
    [("start", "i8")]
    + [(name, "i4") for name in ("length", "tree", "parent", "locks", "children", "older", "newer", "used")]
)

INDEX_EVENT = record([("time_s", "f8"), ("start", "i8"), ("count", "i4"), ("holder", "i4"), ("stored", "i8")])

SLOT = record([("finish_step", "i8"), ("join_step", "i8"), ("request", "i4"), ("position", "i4"), ("next", "i8")])


class World(NamedTuple):
    """All tables of one world (or of N stacked worlds, with a leading axis).

    Workload (read only): `load` requests, `blocks` page ids, `residual` mean residual output length by progress.
    """

    config: np.recarray
    state: np.recarray
    load: np.recarray
    blocks: np.ndarray
    residual: np.ndarray
    request: np.recarray
    prefill: np.recarray
    decode: np.recarray
    nic: np.recarray
    flow: np.recarray
    heap: np.recarray
    heap_position: np.ndarray
    tree: np.recarray
    node: np.recarray
    table: np.ndarray
    holders: np.ndarray
    memory: np.ndarray
    owner: np.ndarray
    mask: np.ndarray
    event: np.recarray
    slot: np.recarray
    batch: np.ndarray
    gaps: np.ndarray
    step_gaps: np.ndarray
    scratch: np.ndarray
    policy_rng: np.ndarray
    policy_params: np.ndarray


@inner
def world_at(worlds, workload_of, index):
    """World `index` of the stacked tables, as views; `workload_of[index]` is its row in the workload tables."""
    which = workload_of[index]
    return World(
        worlds.config[index],
        worlds.state[index],
        worlds.load[which],
        worlds.blocks[which],
        worlds.residual[which],
        worlds.request[index],
        worlds.prefill[index],
        worlds.decode[index],
        worlds.nic[index],
        worlds.flow[index],
        worlds.heap[index],
        worlds.heap_position[index],
        worlds.tree[index],
        worlds.node[index],
        worlds.table[index],
        worlds.holders[index],
        worlds.memory[index],
        worlds.owner[index],
        worlds.mask[index],
        worlds.event[index],
        worlds.slot[index],
        worlds.batch[index],
        worlds.gaps[index],
        worlds.step_gaps[index],
        worlds.scratch[index],
        worlds.policy_rng[index],
        worlds.policy_params[index],
    )
