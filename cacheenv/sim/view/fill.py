"""Fills the view: what policies and observations see at a decision."""

from __future__ import annotations

from cacheenv.sim.core.jit import inner, jit
from cacheenv.sim.decode.migration import can_receive, fill_candidates
from cacheenv.sim.decode.steps import resident_tokens, steps_done
from cacheenv.sim.index.central import find_hits, recall
from cacheenv.sim.network.links import transfer_seconds
from cacheenv.sim.prediction import predicted_remaining
from cacheenv.sim.prefill.batch import cached_pages
from cacheenv.sim.prefill.queue import backlog_seconds, prefill_seconds
from cacheenv.sim.state.world import MOVE_NONE, NONE
from cacheenv.sim.view.columns import DECISION_MIGRATE, DECISION_NONE, DECISION_ROUTE


@jit
def fill_constants(w, view):
    """Columns that do not change during an episode."""
    config = w.config[0]
    cluster = view.cluster[0]
    cluster.num_prefill = config.num_prefill
    cluster.num_decode = config.num_decode
    cluster.num_candidates = config.candidates
    cluster.page_tokens = config.page_tokens
    cluster.kv_bytes_per_token = config.prefill_kv_bytes
    cluster.setup_s = config.setup_s
    cluster.per_block_s = config.per_block_s
    cluster.stall_s = config.stall_s
    cluster.reserve_tokens = config.reserve_tokens
    cluster.period_s = config.period_s
    cluster.slo_ttft_s = config.slo_ttft_s
    cluster.slo_tpot_s = config.slo_tpot_s
    cluster.slo_tbt_tail_s = config.slo_tbt_tail_s
    cluster.slo_e2e_s = config.slo_e2e_s
    cluster.allow_reject = config.allow_reject
    cluster.store_enabled = config.store_enabled
    for i in range(config.num_prefill):
        entry = view.prefill[i]
        row = w.prefill[i]
        entry.role = row.role
        entry.cache_capacity_tokens = w.tree[i].capacity * config.page_tokens
        entry.nic_gbytes_per_s = w.nic[i].bytes_per_s / 1e9
        entry.prefill_a_s = row.a
        entry.prefill_b_s = row.b
        entry.prefill_c_s = row.c
        entry.min_prefill_s = row.floor_s
        entry.n_tile = row.n_tile
    for d in range(config.num_decode):
        goal = view.decode[d]
        source = w.decode[d]
        goal.capacity_tokens = source.capacity
        goal.max_batch = config.max_batch
        goal.nic_gbytes_per_s = w.nic[config.num_prefill + d].bytes_per_s / 1e9
        goal.decode_d_s = source.d
        goal.decode_e_s = source.e
        goal.decode_f_s = source.f
    for c in range(view.candidate.shape[0]):
        view.candidate[c].valid = 0
        view.candidate[c].source = c // config.candidates


@inner
def _fill_prefill(w, view, routing, prompt_tokens):
    config = w.config[0]
    state = w.state[0]
    page = config.page_tokens
    source_nic = state.best_holder
    if source_nic >= config.num_prefill:
        source_nic = config.num_prefill + config.num_decode
    for i in range(config.num_prefill):
        entry = view.prefill[i]
        row = w.prefill[i]
        running, backlog = backlog_seconds(w, i)
        entry.queued_requests = row.queued
        entry.queued_tokens = row.queued_tokens
        entry.running_requests = row.batch_size
        entry.inflight_requests = row.inflight
        entry.inflight_tokens = row.inflight_tokens
        entry.inflight_new_tokens = row.inflight_new_tokens
        entry.dispatched_requests = row.dispatched
        entry.queue_s = row.queue_s
        entry.running_left_s = running
        entry.backlog_s = backlog
        entry.cache_used_tokens = cached_pages(w, i) * page
        entry.outgoing_flows = w.nic[i].out
        entry.incoming_flows = w.nic[i].in_
        entry.pull_tokens = 0
        entry.transfer_s = 0.0
        if not routing:
            entry.hit_tokens = 0
            entry.memory_hit_tokens = 0
            entry.prefill_s = 0.0
            entry.prefill_pull_s = 0.0
            continue
        hit = row.hit_pages * page
        entry.hit_tokens = hit
        entry.memory_hit_tokens = row.memory_hit_pages * page
        entry.prefill_s = prefill_seconds(row, prompt_tokens - hit, hit)
        entry.prefill_pull_s = entry.prefill_s
        extra = (state.best_hit_pages - row.hit_pages) * page
        if extra > 0:
            entry.pull_tokens = extra
            entry.transfer_s = transfer_seconds(w, source_nic, i, extra)
            entry.prefill_pull_s = prefill_seconds(row, prompt_tokens - hit - extra, hit + extra)


@inner
def _fill_decode(w, view, prompt_tokens):
    config = w.config[0]
    for d in range(config.num_decode):
        entry = view.decode[d]
        row = w.decode[d]
        resident = resident_tokens(w, d)
        entry.running_requests = row.batch
        entry.waiting_requests = row.waiting
        entry.preempted_requests = row.preempted
        entry.pending_requests = row.pending
        entry.pending_tokens = row.pending_tokens
        entry.inflight_requests = row.inflight
        entry.dispatched_requests = row.dispatched
        entry.kv_tokens = resident
        entry.reserved_tokens = row.reserved
        entry.preemptions = row.preemptions
        entry.outgoing_flows = w.nic[config.num_prefill + d].out
        entry.incoming_flows = w.nic[config.num_prefill + d].in_
        entry.step_s = row.d + row.e * row.batch + row.f * resident if row.batch > 0 else 0.0
        entry.step_after_s = row.d + row.e * (row.batch + 1) + row.f * (resident + prompt_tokens + 1)
        entry.can_send = 1 if row.outgoing < 0 else 0
        entry.can_receive = 1 if can_receive(w, d) else 0
        entry.room_tokens = row.capacity - row.reserved - resident - config.reserve_tokens * (row.batch + 1)


@inner
def _sort_by_request(table, first, last):
    """Sorts the column `request` of rows `first` to `last` (exclusive): Shell's method."""
    gap = (last - first) // 2
    while gap > 0:
        for at in range(first + gap, last):
            request = table[at].request
            place = at
            while place - gap >= first and table[place - gap].request > request:
                table[place].request = table[place - gap].request
                place -= gap
            table[place].request = request
        gap //= 2


@inner
def fill_running(w, view):
    """One row for each request in a decode batch, by instance and then by request.

    The batches themselves are heaps by finishing time; their order would tell which request ends first.
    """
    config = w.config[0]
    count = 0
    for d in range(config.num_decode):
        row = w.decode[d]
        steps = steps_done(w, d)
        first = count
        for at in range(row.batch):
            slot = w.slot[w.batch[d, at]]
            request = w.request[slot.request]
            if request.generated + row.step + steps - slot.join_step < request.output_tokens:
                view.running[count].request = slot.request
                count += 1
        _sort_by_request(view.running, first, count)
        for at in range(first, count):
            entry = view.running[at]
            request = w.request[entry.request]
            generated = request.generated + row.step + steps - w.slot[request.slot].join_step
            entry.instance = d
            entry.kv_tokens = request.prompt_tokens + generated
            entry.prompt_tokens = request.prompt_tokens
            entry.generated_tokens = generated
            entry.predicted_remaining_tokens = predicted_remaining(w, entry.request, generated)
            entry.elapsed_s = w.state[0].now_s - request.decode_start_s
            entry.migrating = 1 if request.move_state != MOVE_NONE else 0
    view.cluster[0].num_running = count


@inner
def fill_route_view(w, view, index):
    """The view at an arrival."""
    config = w.config[0]
    state = w.state[0]
    load = w.load[index]
    page = config.page_tokens
    usable = (load.prompt_tokens - 1) // page
    find_hits(w, load.block_start, usable)
    cluster = view.cluster[0]
    cluster.now_s = state.now_s
    cluster.decision = DECISION_ROUTE
    cluster.proposed = NONE
    cluster.num_running = 0
    cluster.requests_in_system = state.in_system
    request = view.request[0]
    request.index = index
    request.session = load.session
    request.namespace = load.namespace
    request.priority = load.priority
    request.arrival_s = load.arrival_s
    request.prompt_tokens = load.prompt_tokens
    request.predicted_output_tokens = predicted_remaining(w, index, 0)
    request.best_hit_tokens = state.best_hit_pages * page
    request.best_holder = state.best_holder
    request.store_hit_tokens = state.store_hit_pages * page
    request.first_block = w.blocks[load.block_start] if load.prompt_tokens >= page else NONE
    request.memory_hit_tokens = 0
    request.memory_instance = NONE
    if config.memory_enabled:
        deepest, owner = recall(w, load.block_start, load.prompt_tokens // page)
        request.memory_hit_tokens = deepest * page
        request.memory_instance = owner
    else:
        for i in range(config.num_prefill):
            w.prefill[i].memory_hit_pages = 0
    _fill_prefill(w, view, True, load.prompt_tokens)
    _fill_decode(w, view, load.prompt_tokens)
    if config.needs_running:
        fill_running(w, view)


@inner
def _fill_without_request(w, view, decision):
    """Everything but the candidates, at a moment at which no request is routed."""
    state = w.state[0]
    cluster = view.cluster[0]
    cluster.now_s = state.now_s
    cluster.decision = decision
    cluster.proposed = NONE
    cluster.requests_in_system = state.in_system
    request = view.request[0]
    request.index = NONE
    request.session = NONE
    request.namespace = 0
    request.priority = 0
    request.arrival_s = state.now_s
    request.prompt_tokens = 0
    request.predicted_output_tokens = 0.0
    request.best_hit_tokens = 0
    request.best_holder = NONE
    request.store_hit_tokens = 0
    request.memory_hit_tokens = 0
    request.memory_instance = NONE
    request.first_block = NONE
    _fill_prefill(w, view, False, 0)
    _fill_decode(w, view, 0)
    fill_running(w, view)


@inner
def fill_migrate_view(w, view):
    """The view at a rescheduling tick; returns whether any move is legal."""
    if not fill_candidates(w, view):
        return False
    _fill_without_request(w, view, DECISION_MIGRATE)
    return True


@inner
def fill_end_view(w, view):
    """The view when an episode is over, or cut off: the cluster as it stands, and nothing to decide."""
    fill_candidates(w, view)
    _fill_without_request(w, view, DECISION_NONE)
