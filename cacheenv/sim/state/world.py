"""The simulator's whole state: a handful of tables (NumPy record arrays), and the constants that name their codes.

Copying the tables is copying the simulator. Every table of a :class:`World` has a leading axis over worlds in its
stacked form (`N` independent worlds side by side); :func:`world_at` takes one world out without copying.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cacheenv.sim.core.jit import inner
from cacheenv.sim.view.columns import record

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

BITS = 62  # holder bits in one int64 word of the index
NONE = -1


def columns(text: str) -> np.dtype:
    """A record dtype from lines `type name name ...  # remark`."""
    fields = []
    for line in text.strip().splitlines():
        kind, *names = line.split("#")[0].split()
        fields += [(name, kind) for name in names]
    return record(fields)


WORKLOAD = columns(
    """
    f8 arrival_s
    i8 prompt_tokens output_tokens
    i8 block_start                       # offset of its first page id in `blocks`
    i8 session
    i4 namespace priority
    """
)

CONFIG = columns(
    """
    i8 num_prefill num_decode num_requests page_tokens layers
    i8 words                             # int64 words of a holder bit set
    i8 overlap peer_pulls store_enabled write_through memory_enabled allow_reject
    i8 candidates candidate_order max_batch reserve_tokens preemption
    i8 prediction prediction_seed warmup_requests
    i8 ticks                             # rescheduling ticks are decisions
    i8 needs_running                     # list the running requests in the view at arrivals too
    i8 batch_margin                      # pool rows that one event may take
    i8 queue lpm_fallback lpm_check_tokens lpm_defer_tokens batch_tokens chunk_tokens max_batch_requests
    f8 prefill_kv_bytes decode_kv_bytes  # a token, kv_copies included
    f8 setup_s per_block_s index_delay_s response_overhead_s period_s stall_s join_stall_s swap_bytes_per_s
    f8 prediction_a0 prediction_tau prediction_s0 prediction_s_inf
    f8 slo_ttft_s slo_tpot_s slo_tbt_tail_s slo_e2e_s horizon_s
    """
)

STATE = columns(
    """
    f8 now_s next_tick_s
    f8 integral_s                        # integral over time of the counted requests in the system
    i8 next_arrival                      # rows before it have arrived
    i8 deciding                          # request whose route is being decided
    i8 unfinished in_system counted_in_system
    i8 tick_open tick_number             # a tick's decisions repeat until `stay`
    i8 heap_size flow_number
    i8 free_flow free_flows free_node free_nodes free_slot  # heads and sizes of the free lists
    i8 event_head event_count            # ring of index events on their way
    i8 store_hit_pages best_hit_pages best_holder  # of the request being decided
    i8 met violated rejected             # reward counters
    i8 routed decisions invalid moves
    i8 low_bin top_bin                   # range of gap bins in use
    """
)

REQUEST = columns(
    """
    f8 arrival_s routed_s prefill_start_s prefill_end_s transfer_end_s decode_start_s finish_s
    f8 ttft_s tpot_s tbt_p99_s tbt_tail_s e2e_s
    f8 predicted_s                       # prefill time that the router expected
    f8 last_token_s last_move_s
    i8 prompt_tokens output_tokens hit_tokens hit_predicted_tokens hit_available_tokens
    i8 pulled_tokens migrated_tokens rework_tokens
    i8 predicted_new_tokens              # prompt less the hit that the router expected
    i8 computed_tokens piece_tokens      # of the prompt: so far, and in the running batch
    i8 generated                         # output tokens when it last joined or left a batch
    i8 move_kv move_reserved             # tokens of the copy, and held at its destination
    i4 preemptions migrations prefill_instance decode_instance outcome slo_met counted
    i4 settled                           # has been counted for the reward
    i4 state
    i4 next batch_next                   # queue of an instance; batch, or joiners of a step
    i4 lock_node hit_pages private_pages # at its prefill instance
    i4 pulling handover slot             # pull under way; hand-over flow; row in the decode tables
    i4 move_state move_target move_flow
    i4 match_pages cold                  # of the present lpm round
    """
)

PREFILL = columns(
    """
    f8 a b c floor_s n_tile              # batch time
    f8 queue_s chunk_left_s              # predicted seconds of the queue, and of the chunked prompt's rest
    f8 batch_start_s batch_end_s busy_s
    i8 role
    i8 hit_pages memory_hit_pages        # of the request being decided
    i8 queued queued_tokens inflight inflight_tokens inflight_new_tokens dispatched tokens
    i4 head tail                         # queue
    i4 batch_head batch_size
    i4 chunked                           # request whose prompt is computed in pieces
    i4 busy
    """
)

DECODE = columns(
    """
    f8 d e f                             # step time
    f8 prefill_a prefill_b prefill_c     # recomputation after a preemption
    f8 start_s stall_s base_s slope_s    # present run of steps: T(k), see decode.py
    f8 pending_stall_s busy_s
    i8 step                              # steps since the start
    i8 planned                           # steps of the present run
    i8 batch kv                          # requests, and their resident tokens when the run began
    i8 capacity reserved
    i8 pending pending_tokens waiting preempted inflight dispatched preemptions tokens
    i4 head tail preempted_head preempted_tail
    i4 outgoing incoming                 # migrating requests, at most one each way
    i4 arrived                           # the incoming one, complete and waiting for a boundary
    i4 joined_head                       # who joined at the present boundary
    """
)

NIC = columns(
    """
    f8 bytes_per_s bytes_out bytes_in
    i4 out in_                           # flows in transmission
    i4 first_out first_in                # lists of them
    """
)

FLOW = columns(
    """
    f8 remaining rate updated_s main_bytes last_bytes latency_s
    i8 number                            # order of creation
    i8 start                             # pages of the path that arrives (pulls, store writes)
    i8 tokens
    i4 kind phase gate_open source sink request
    i4 source_node sink_node             # locked at the ends
    i4 pages reserved_pages
    i4 next_out prev_out next_in prev_in
    i4 next                              # free list
    """
)

HEAP = columns(
    """
    f8 time_s
    i8 order timer                       # kind and id; owner
    """
)

TREE = columns(
    """
    i8 capacity pages private locked     # in pages
    i8 run_start run                     # pages that the last eviction took
    i4 root oldest newest nodes
    """
)

NODE = columns(
    """
    i8 start                             # offset of the edge's first page id in `blocks`
    i4 length tree parent locks children
    i4 older newer                       # recency list of unlocked nodes; free list
    i4 used
    """
)

INDEX_EVENT = columns(
    """
    f8 time_s
    i8 start stored
    i4 count holder
    """
)

SLOT = columns(
    """
    i8 finish_step join_step             # in steps of the instance
    i8 next                              # free list
    i4 request position                  # position in the batch heap
    """
)


class World(NamedTuple):
    """All tables of one world (or of N stacked worlds, with a leading axis).

    Workload (read only): `load` requests, `blocks` page ids, `residual` mean residual output length by progress.
    """

    config: np.ndarray
    state: np.ndarray
    load: np.ndarray
    blocks: np.ndarray
    residual: np.ndarray
    request: np.ndarray
    prefill: np.ndarray
    decode: np.ndarray
    nic: np.ndarray
    flow: np.ndarray
    heap: np.ndarray
    heap_position: np.ndarray
    tree: np.ndarray
    node: np.ndarray
    table: np.ndarray
    holders: np.ndarray
    memory: np.ndarray
    owner: np.ndarray
    mask: np.ndarray
    event: np.ndarray
    slot: np.ndarray
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
