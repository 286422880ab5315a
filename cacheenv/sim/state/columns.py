"""The columns of the simulator's tables: type, unit, start value, and the one room that writes each.

A table is written as lines `type name name ...  # remark` under headings `[room]`. The room is the module below
`cacheenv.sim` that may write the columns that follow; everybody may read them. `[constant]` columns are filled before
an episode from the scenario. `name=-1` gives the value at the start of an episode, 0 where there is none. Names end in
their unit (`_s`, `_tokens`, `_pages`, `_bytes`); a name without one counts requests, or is a row number or a code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CONSTANT = "constant"


def record(fields: list[tuple[str, str]]) -> np.dtype:
    """A record dtype whose rows have attribute access in NumPy as well as in Numba."""
    return np.dtype((np.record, fields))


@dataclass(frozen=True)
class Table:
    """Columns of one table.

    Attributes:
        dtype: Record dtype of a row.
        owners: Column -> room that writes it.
        start: One row with the values at the start of an episode, shape (1,).
    """

    dtype: np.dtype
    owners: dict[str, str]
    start: np.ndarray


def columns(text: str) -> Table:
    """A table from its description; see the module's docstring."""
    fields: list[tuple[str, str]] = []
    owners: dict[str, str] = {}
    starts: dict[str, float] = {}
    room = ""
    for line in text.strip().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0].startswith("["):
            room = words[0].strip("[]")
            continue
        for word in words[1:]:
            name, _, value = word.partition("=")
            fields.append((name, words[0]))
            owners[name] = room
            starts[name] = float(value or 0)
    dtype = record(fields)
    start = np.zeros(1, dtype)
    for column, number in starts.items():
        start[column] = number
    return Table(dtype, owners, start)


WORKLOAD = columns(
    """
    [constant]
    f8 arrival_s
    i8 prompt_tokens output_tokens
    i8 block_start                       # offset of its first page id in `blocks`
    f8 think_s                           # from the last token of the turn before to this one
    i8 session
    i8 answer_start answer_pages         # offset of the ids of what its output fills, and how many; 0: not known
    i8 next_turn=-1                      # row of the session's next turn
    i4 turn                              # of its session in this workload, 0 for the first
    i4 namespace priority
    """
)

CONFIG = columns(
    """
    [constant]
    i8 num_prefill num_decode num_requests page_tokens layers
    i8 holder_words                      # int64 words of a holder bit set
    i8 sharing handover first_token      # codes of their kinds
    i8 peer_pulls store_enabled write_through memory_enabled allow_reject  # 0 or 1
    i8 index_learns                      # when the index counts a prompt as cached
    i8 index_late                        # 1: news reach it after a while
    i8 index_shards index_high_water     # that take in events at a bounded rate, 0: at once; waiting events of each
    i8 router_works                      # 1: a decision takes the router time
    i8 backlog                           # when a waiting request is priced
    i8 memory_expires                    # 1: the router forgets after `memory_ttl_s`
    i8 candidates candidate_order
    i8 equal_decode                      # 1: all decode instances have one KV capacity
    i8 prediction prediction_seed warmup_requests
    i8 all_candidates                    # 1: whoever runs is a candidate, by number
    i8 host_enabled host_write_back host_blocking  # 0 or 1
    i8 host_after_hits                   # hits of a page before it is copied to the host
    i8 closed                            # 1: a later turn comes `think_s` after the last token of the one before
    i8 users_wait                        # 1: who leaves makes somebody come: closed, retries, or max_in_flight
    i8 max_retries max_in_flight         # 0: none; no bound
    i8 ticks                             # 1: rescheduling ticks are decisions
    i8 after_prefill                     # 1: admission is asked again at the end of a prefill
    i8 needs_running                     # 1: list the running requests in the view at arrivals too
    i8 batch_margin flow_margin          # tree nodes (an eighth) and flows that one event may take
    i8 matches_all                       # 1: a look at the queue may take a node for each request in the system too
    i8 protect_queued cache_outputs      # 0 or 1
    i8 replication_hits                  # of a page in a window, above which it is copied; 0: nothing is copied
    i8 replicas                          # prefill instances that may have a page after a copy
    f8 handover_fixed_s                  # below 0: as the set-up of a transfer between the two
    f8 handover_load_bytes_per_s schedule_s
    f8 per_block_s index_delay_s response_overhead_s period_s stall_s
    f8 retry_s replication_window_s
    f8 index_event_s                     # of a shard, for an event
    f8 memory_ttl_s
    f8 decide_s decide_s_per_block        # of the router's time
    f8 prediction_a0 prediction_tau prediction_s0 prediction_s_inf
    f8 slo_ttft_s slo_tpot_s slo_tbt_tail_s slo_e2e_s horizon_s
    """
)

STATE = columns(
    """
    [events]
    f8 now_s
    f8 integral_s                        # integral over time of the counted requests in the system
    [arrivals]
    i8 next_arrival                      # rows before it that come at a fixed time have come
    i8 coming                            # requests in the heap of those that somebody's answer has called
    i8 gate_head=-1 gate_tail=-1         # queue outside a full system
    [decisions]
    i8 deciding=-1                       # request whose route is being decided
    i8 tick_open tick_number             # a tick's decisions repeat until `stay`
    i8 decisions invalid
    [requests]
    i8 unfinished in_system counted_in_system
    i8 met violated rejected             # reward counters
    f8 decode_sum_s decode_squares_s2    # from the first decode step to the last token, of those that have decoded
    i8 decoded
    [core.timers]
    i8 heap_size
    [network.links]
    i8 flow_number free_flow free_flows  # next number; head and size of the free list
    [network.sharing]
    i8 share_number                      # times that rates were shared anew
    [cache.radix]
    i8 free_node free_nodes
    [decode.batch]
    i8 free_slot
    [prefill.replication]
    i8 replicated_to=-1                  # prefill part that was last sent a copy
    [prefill.second_check]
    i8 check_head=-1 check_tail=-1       # computed prompts about which admission is to be asked again
    [index.router_time]
    f8 router_free_s                     # when the router has decided on all that have come
    [index.shards]
    i8 news_lost                         # events
    [index.central]
    i8 news_head news_count              # ring of news on their way
    [decode.load]
    f8 load_at_s                         # sums of the instances' lines (see decode/load.py) stand for this moment:
    f8 load_sum load_rise load_square load_cross load_rise_square  # x, its rise a second r, x^2, x r, r^2
    f8 load_time_s load_sum_area load_square_area load_sum_squared_area  # integrals up to it
    i8 load_parts                        # instances with a line
    [index.backlog]
    i8 lined_up                          # requests that have joined a prefill queue
    [decode.gaps]
    i8 low_bin top_bin                   # range of gap bins in use
    """
)

INSTANCE = columns(
    """
    [constant]
    i8 role
    i8 prefill=-1 decode=-1              # its parts: rows in the tables of that name
    i8 nic
    i8 tree=-1 memory_tree=-1            # prefix cache; the router's memory of what it sent here
    i8 host_tree=-1                      # what its host memory holds
    f8 host_setup_s host_token_s         # loading from there: fixed time a batch, seconds a token
    f8 prefill_a_s prefill_b_s prefill_c_s prefill_floor_s n_tile  # see compute/cost.py
    f8 decode_d_s decode_e_s decode_f_s
    i8 kv_capacity_tokens                # of its decode batch
    """
)

REQUEST = columns(
    """
    [requests]
    f8 arrival_s=-1                      # below 0 until it enters the system
    f8 routed_s prefill_start_s prefill_end_s transfer_end_s decode_start_s finish_s
    f8 first_token_s ttft_s tpot_s tbt_p99_s tbt_tail_s e2e_s
    i8 prompt_tokens output_tokens hit_tokens hit_predicted_tokens hit_available_tokens
    i8 hit_gpu_tokens hit_host_tokens    # hit_tokens by tier
    i8 pulled_tokens migrated_tokens rework_tokens
    i8 needed_tokens                     # smallest KV capacity of a decode instance that holds it when it is whole
    i8 prefill_instance=-1 decode_instance=-1
    i4 preemptions migrations outcome slo_met counted
    i4 settled                           # has been counted for the reward
    i4 retries                           # times it was refused and came again
    i4 state
    [arrivals]
    f8 due_s                             # when a request that was called comes
    f8 outside_s                         # waiting for room in the system
    i4 gate_next=-1                      # the request behind it outside
    [prefill.queue]
    i8 predicted_new_tokens              # prompt less the hit that the router expected
    i8 joined_round                      # rounds of its instance before it joined the queue
    i4 queue_next=-1                     # the request behind it in the queue
    i4 queue_rank queue_cold             # what the discipline found out in its last round
    i4 queue_node                        # the same: where its cached prefix ends
    [index.backlog]
    f8 price_s                           # predicted prefill time, see index/backlog.py
    i8 price_tokens                      # of its prompt, that are priced
    i8 wait_number                       # requests that had joined a prefill queue when it did
    i8 ready_pages host_pages            # leading pages that cost it nothing, and that are in host memory
    i8 coming_pages pulled_pages         # leading pages that are there or that it brings: to the GPU, to host memory
    [prefill.batch]
    i8 computed_tokens piece_tokens      # of the prompt: so far, and in the running batch
    i4 batch_next=-1                     # the next one of the batch
    [prefill.pages]
    i4 lock_node=-1 private_pages        # what it holds at its prefill instance, waiting ones the node only
    i4 host_node=-1                      # what a waiting one holds in host memory
    [prefill.transfers]
    i4 pulling                           # a pull, or its schedule, is under way: it cannot be batched
    [prefill.handover]
    i4 handover_flow=-1
    [decode.steps]
    i4 finished_next=-1                  # the next one that finished at the same boundary
    [prefill.second_check]
    i4 check_next=-1                     # the next one about which admission is asked again
    [decode.batch]
    f8 last_token_s
    i8 generated                         # output tokens when it last joined or left a batch
    i4 slot=-1                           # row in the table of slots
    i4 joiner_next=-1                    # the next one that joined at the same boundary
    [decode.queue]
    i4 wait_next=-1                      # the request behind it among the waiting or the preempted
    [decode.migration]
    f8 last_move_s=-inf
    i8 move_kv_tokens move_reserved_tokens  # of the copy, and held at its destination
    i4 move_state move_source move_target move_flow
    """
)

PREFILL = columns(
    """
    [constant]
    i8 instance                          # row in the table of instances
    i8 queue lpm_fallback lpm_check_tokens lpm_defer_tokens lpm_ageing_tokens  # code of its discipline; what lpm needs
    i8 batch_tokens chunk_tokens max_batch_requests
    [requests]
    i8 inflight inflight_tokens inflight_new_tokens dispatched
    i8 unfinished                        # routed here and still in the system, wherever they are
    [index.backlog]
    f8 queue_s                           # predicted seconds of the queue
    i8 queued_tokens                     # predicted new tokens of the queue
    [prefill.queue]
    i8 queued
    i8 rounds                            # times that the queue was put in order, where the discipline counts them
    i8 head=-1 tail=-1
    [prefill.batch]
    f8 chunk_left_s                      # predicted seconds of the chunked prompt's rest
    f8 batch_start_s batch_end_s busy_s
    i8 computed_tokens                   # since the start
    i8 batch_head=-1 batch_size
    i8 chunked=-1                        # request whose prompt is computed in pieces
    i8 busy
    [prefill.host]
    i8 load_tokens                       # that the batch which is being formed loads from host memory
    [prefill.transfers]
    i8 replica_flow=-1                   # the copy on its way to it, at most one
    i8 replicas replicated_tokens        # copies that have come, and the tokens sent for them
    """
)

DECODE = columns(
    """
    [constant]
    i8 instance                          # row in the table of instances
    i8 max_batch reserve_tokens
    i8 preemption damping                # codes of their kinds
    f8 join_stall_s swap_bytes_per_s
    [requests]
    i8 pending pending_tokens            # routed here and not arrived; prompt tokens of these and of the waiting
    i8 inflight dispatched
    [decode.steps]
    i8 finished_head=-1                  # who finished at the present boundary, by number
    [decode.run]
    f8 start_s stall_s base_s slope_s    # present run of steps: T(k), see decode/run.py
    f8 pending_stall_s busy_s
    i8 planned                           # steps of the present run
    [decode.batch]
    i8 step                              # steps since the start
    i8 batch kv_tokens                   # requests, and their resident tokens when the run began
    i8 made_tokens                       # since the start
    i8 joined_head=-1                    # who joined at the present boundary
    i8 departures                        # requests that have left the batch
    [decode.queue]
    i8 waiting preempted preemptions
    i8 waiting_tokens preempted_tokens   # their KV tokens
    i8 head=-1 tail=-1 preempted_head=-1 preempted_tail=-1
    [decode.migration]
    i8 reserved_tokens                   # for the incoming migration
    i8 outgoing=-1 incoming=-1           # migrating requests, at most one each way
    i8 arrived=-1                        # the incoming one, complete and waiting for a boundary
    i8 released                          # reservations given back unused
    [decode.damping.sglang]
    f8 damping_share                     # of what the batch may still generate: as the last preemption set it
    i8 damping_step                      # step of the instance at which it did
    [decode.load]
    f8 load_at_s load_tokens load_rise   # its line: start, KV tokens there, tokens a second
    i8 load_on                           # it has one
    [decode.steps]
    i8 refused_at=-1                     # departures and releases when damping last refused somebody
    """
)

NIC = columns(
    """
    [constant]
    f8 bytes_per_s setup_s               # rate each way; fixed time of a transfer
    f8 kv_bytes kv_copy_bytes            # of a token's KV on the instance: all copies, and one of them
    i8 tensor_parallel=-1                # ranks that hold it; -1 for the store, which keeps what it is sent
    [network.sharing]
    f8 bytes_out bytes_in
    i8 flows_out flows_in                # in transmission
    i8 first_out=-1 first_in=-1          # lists of them
    f8 left_out left_in                  # bytes/s that the flows without a rate may still share
    i8 open_out open_in                  # those flows
    i8 shared_out shared_in              # number of the last sharing that concerned this end
    """
)

FLOW = columns(
    """
    [network.links]
    f8 main_bytes last_bytes latency_s
    i8 number                            # order of creation
    i8 tokens
    i8 kind phase gate_open source sink request  # source and sink are NICs
    i8 next_free
    [network.sharing]
    f8 remaining_bytes rate_bytes_per_s updated_s
    f8 share_bytes_per_s                 # what its ends could give it in this round
    i8 next_out prev_out next_in prev_in
    i8 next_shared shared                # list of competitors; number of the last sharing that concerned it
    [prefill.transfers]
    i8 path_pages                        # pages of the path that arrives
    i8 source_tree source_node sink_node reserved_pages  # locked at the ends, private at the sink
    """
)

TIMER = columns(
    """
    [core.timers]
    f8 time_s
    i8 order timer                       # kind and id; owner
    """
)

TREE = columns(
    """
    [constant]
    i8 capacity_pages
    i8 eviction                          # code of its kind
    i8 holder=-1                         # its bit in the index, -1 for none
    [cache.radix]
    i8 pages private_pages locked_pages
    i8 run_start                         # offset in `blocks` of what the last eviction took
    i8 run_before                        # the node with which the path before it ends
    i8 root oldest newest nodes
    i8 leaves_made                       # since the start
    """
)

NODE = columns(
    """
    [cache.radix]
    i8 start                             # offset of the edge's first page id in `blocks`
    i4 length tree parent locks children
    i4 older newer                       # recency list of unlocked nodes; free list
    i4 used
    i4 hits                              # inserts of paths through it
    i4 window_hits                       # hits in its present window, where hot pages are copied
    f8 window_start_s
    i8 depth                             # pages of the path before its edge
    i8 number                            # when it entered: leaves that had been made before
    [index.router_memory]
    f8 sent_s                            # when the router last sent a prompt with it
    [prefill.discipline.dfs_weight]
    i4 weight                            # waiting requests that match it, in the queue that was last put in order
    """
)

LOOKUP = columns(
    """
    [index.hits]
    i8 best_pages best_holder=-1         # the longest hit that may be pulled, and where it is
    i8 stored_pages                      # the longest one anywhere, by what the news say
    [index.router_memory]
    i8 memory_pages memory_instance=-1   # the longest remembered prefix, and who owns it
    """
)

HIT = columns(
    """
    [index.hits]
    i8 pages                             # that the index says the holder has of the prompt looked up, on any tier
    i8 gpu_pages                         # the same without host memory, where there is one
    [index.router_memory]
    i8 memory_pages                      # that the router remembers having sent there
    """
)

NEWS = columns(
    """
    [index.central]
    f8 time_s
    i8 start stored
    i8 count holder
    """
)

SHARD = columns(
    """
    [index.shards]
    f8 next_s                            # when the first waiting event has been taken in
    i8 head waiting                      # ring of events
    """
)

SHARD_EVENT = columns(
    """
    [index.shards]
    i8 at                                # offset of the page's id in `blocks`
    i4 holder stored
    """
)

SLOT = columns(
    """
    [decode.batch]
    i8 finish_step join_step             # in steps of the instance
    i8 next_free
    i8 request=-1 position               # position in the batch heap
    """
)
