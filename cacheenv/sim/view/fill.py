"""Fills the view: what policies and observations see at a decision. It reads the world and writes the view only."""

from __future__ import annotations

import math

import numpy as np

from cacheenv.sim.cache.radix import forest_of, used_pages
from cacheenv.sim.compute.cost import step_seconds
from cacheenv.sim.compute.prediction import predicted_remaining
from cacheenv.sim.core.jit import inner, jit, once
from cacheenv.sim.decode.batch import held_tokens
from cacheenv.sim.decode.migration import can_receive, capacity_tokens
from cacheenv.sim.decode.run import resident_tokens
from cacheenv.sim.network.links import pull_seconds
from cacheenv.sim.prefill.batch import backlog_seconds
from cacheenv.sim.prefill.handover import visible_seconds
from cacheenv.sim.prefill.host import expected_seconds, gpu_hit_tokens
from cacheenv.sim.prefill.pages import holds_prompt
from cacheenv.sim.state.codes import (
    DECISION_ADMIT,
    DECISION_MIGRATE,
    DECISION_NONE,
    DECISION_ROUTE,
    FIRST_TOKEN_DECODE,
    NONE,
)
from cacheenv.sim.state.ids import (
    decode_instance,
    decode_nic,
    has_host,
    prefill_instance,
    prefill_nic,
    store_holder,
    tree_of,
)
from cacheenv.sim.view.candidates import fill_candidates, fill_running


@jit
def fill_constants(w, view):
    """Columns that do not change during an episode."""
    config = w.config[0]
    cluster = view.cluster[0]
    cluster.num_prefill = config.num_prefill
    cluster.num_decode = config.num_decode
    cluster.num_candidates = config.candidates
    cluster.mean_output_tokens = w.mean_residual_tokens[0]
    cluster.page_tokens = config.page_tokens
    cluster.kv_bytes_per_token = w.nic[0].kv_bytes
    cluster.setup_s = w.nic[0].setup_s
    cluster.per_block_s = config.per_block_s
    cluster.schedule_s = config.schedule_s
    cluster.stall_s = config.stall_s
    cluster.reserve_tokens = w.decode[0].reserve_tokens
    cluster.period_s = config.period_s
    cluster.slo_ttft_s = config.slo_ttft_s
    cluster.slo_tpot_s = config.slo_tpot_s
    cluster.slo_tbt_tail_s = config.slo_tbt_tail_s
    cluster.slo_e2e_s = config.slo_e2e_s
    cluster.allow_reject = config.allow_reject
    cluster.store_enabled = config.store_enabled
    for p in range(config.num_prefill):
        entry = view.prefill[p]
        spec = w.instance[prefill_instance(w, p)]
        entry.role = spec.role
        entry.kv_bytes_per_token = w.nic[spec.nic].kv_bytes
        entry.cache_capacity_tokens = w.tree[spec.tree].capacity_pages * config.page_tokens
        entry.nic_gbytes_per_s = w.nic[spec.nic].bytes_per_s / 1e9
        entry.prefill_a_s = spec.prefill_a_s
        entry.prefill_b_s = spec.prefill_b_s
        entry.prefill_c_s = spec.prefill_c_s
        entry.min_prefill_s = spec.prefill_floor_s
        entry.n_tile = spec.n_tile
    for d in range(config.num_decode):
        goal = view.decode[d]
        spec = w.instance[decode_instance(w, d)]
        goal.capacity_tokens = spec.kv_capacity_tokens
        goal.max_batch = w.decode[d].max_batch
        goal.reserve_tokens = w.decode[d].reserve_tokens
        goal.kv_bytes_per_token = w.nic[spec.nic].kv_bytes
        goal.nic_gbytes_per_s = w.nic[spec.nic].bytes_per_s / 1e9
        goal.decode_d_s = spec.decode_d_s
        goal.decode_e_s = spec.decode_e_s
        goal.decode_f_s = spec.decode_f_s
    for c in range(view.candidate.shape[0]):
        view.candidate[c].valid = 0
        view.candidate[c].source = c // config.candidates


@inner
def _fill_prefill(w, view):
    """The prefill instances, as far as no request is needed for it."""
    page = w.config[0].page_tokens
    forest = forest_of(w)
    for p in range(w.prefill.shape[0]):
        entry = view.prefill[p]
        row = w.prefill[p]
        nic = w.nic[prefill_nic(w, p)]
        running_s, backlog_s = backlog_seconds(w, p)
        entry.accepts = 1
        entry.queued_requests = row.queued
        entry.queued_tokens = row.queued_tokens
        entry.running_requests = row.batch_size
        entry.inflight_requests = row.inflight
        entry.inflight_tokens = row.inflight_tokens
        entry.inflight_new_tokens = row.inflight_new_tokens
        entry.dispatched_requests = row.dispatched
        entry.unfinished_requests = row.unfinished
        entry.queue_s = row.queue_s
        entry.running_left_s = running_s
        entry.backlog_s = backlog_s
        entry.cache_used_tokens = used_pages(forest, tree_of(w, p)) * page
        entry.outgoing_flows = nic.flows_out
        entry.incoming_flows = nic.flows_in
        entry.hit_tokens = 0
        entry.memory_hit_tokens = 0
        entry.pull_tokens = 0
        entry.transfer_s = 0.0
        entry.prefill_s = 0.0
        entry.prefill_pull_s = 0.0
        entry.delivery_s = 0.0


@once
def _fill_hits(w, view, prompt_tokens):
    """What the prefill instances have of the prompt that was looked up, and what computing the rest would take."""
    page = w.config[0].page_tokens
    lookup = w.lookup[0]
    for p in range(w.prefill.shape[0]):
        entry = view.prefill[p]
        hit = w.hit[p].pages * page
        on_gpu = gpu_hit_tokens(w, p, hit)
        entry.hit_tokens = hit
        entry.memory_hit_tokens = w.hit[p].memory_pages * page
        entry.prefill_s = expected_seconds(w, p, prompt_tokens, hit, on_gpu)
        entry.prefill_pull_s = entry.prefill_s
        extra = (lookup.best_pages - w.hit[p].pages) * page
        if extra > 0:
            entry.pull_tokens = extra
            entry.transfer_s = pull_seconds(w, lookup.best_holder, p, extra)
            landed = on_gpu if has_host(w, p) else hit + extra
            entry.prefill_pull_s = expected_seconds(w, p, prompt_tokens, hit + extra, landed)


@inner
def _fill_decode(w, view, prompt_tokens):
    """The decode instances, and a step with a prompt of that length added."""
    for d in range(w.decode.shape[0]):
        entry = view.decode[d]
        row = w.decode[d]
        spec = w.instance[decode_instance(w, d)]
        nic = w.nic[decode_nic(w, d)]
        resident = resident_tokens(w, d)
        entry.accepts = 1
        entry.running_requests = row.batch
        entry.waiting_requests = row.waiting
        entry.preempted_requests = row.preempted
        entry.waiting_tokens = row.waiting_tokens
        entry.pending_requests = row.pending
        entry.pending_tokens = row.pending_tokens
        entry.preempted_tokens = row.preempted_tokens
        first = row.preempted_head if row.preempted_head >= 0 else row.head
        entry.first_waiting_tokens = held_tokens(w, first) if first >= 0 else 0
        entry.inflight_requests = row.inflight
        entry.dispatched_requests = row.dispatched
        entry.kv_tokens = resident
        entry.reserved_tokens = row.reserved_tokens
        entry.preemptions = row.preemptions
        entry.outgoing_flows = nic.flows_out
        entry.incoming_flows = nic.flows_in
        entry.step_s = step_seconds(spec, row.batch, resident) if row.batch > 0 else 0.0
        entry.step_after_s = step_seconds(spec, row.batch + 1, resident + prompt_tokens + 1)
        entry.can_send = 1 if row.outgoing < 0 else 0
        entry.can_receive = 1 if can_receive(w, d) else 0
        entry.room_tokens = capacity_tokens(w, d) - resident - row.reserve_tokens * (row.batch + 1)


@once
def _fill_accepts(w, view, index):
    """Where instances differ in size, some are too small for a request."""
    prompt_tokens, needed_tokens = w.request[index].prompt_tokens, w.request[index].needed_tokens
    cluster = view.cluster[0]
    for p in range(w.prefill.shape[0]):
        if not holds_prompt(w, p, prompt_tokens):
            view.prefill[p].accepts = 0
            cluster.accepting_prefill -= 1
    for d in range(w.decode.shape[0]):
        if view.decode[d].capacity_tokens < needed_tokens:
            view.decode[d].accepts = 0
            cluster.accepting_decode -= 1


@once
def _fill_delivery(w, view, prompt_tokens):
    """Where a decode instance delivers the first token: the hand-over, and the shortest first step."""
    if w.config[0].first_token != FIRST_TOKEN_DECODE:
        return
    step_s = math.inf
    for d in range(w.decode.shape[0]):
        if view.decode[d].accepts == 1:
            step_s = min(step_s, view.decode[d].step_after_s)
    for p in range(w.prefill.shape[0]):
        entry = view.prefill[p]
        entry.delivery_s = step_s + visible_seconds(
            w, p, prompt_tokens, prompt_tokens - entry.hit_tokens, entry.prefill_s
        )


@inner
def _fill_cluster(w, view):
    cluster = view.cluster[0]
    cluster.now_s = w.state[0].now_s
    cluster.proposed = NONE
    cluster.accepting_prefill = w.config[0].num_prefill
    cluster.accepting_decode = w.config[0].num_decode
    cluster.num_running = 0
    cluster.requests_in_system = w.state[0].in_system
    cluster.decoded_requests = w.state[0].decoded
    sum_s = w.state[0].decode_sum_s
    cluster.decode_time_s = w.state[0].decode_squares_s2 / sum_s if sum_s > 0.0 else 0.0


@inner
def _fill_request(w, view, index):
    """What a request says of itself, and what is predicted of it."""
    load = w.workload[index]
    request = view.request[0]
    request.index = index
    request.session = load.session
    request.namespace = load.namespace
    request.priority = load.priority
    request.arrival_s = w.request[index].arrival_s
    request.prompt_tokens = load.prompt_tokens
    request.predicted_output_tokens = predicted_remaining(w, index, 0)
    request.first_block = w.blocks[load.block_start] if load.prompt_tokens >= w.config[0].page_tokens else NONE


@inner
def _forget_hits(view):
    """No prompt has been looked up."""
    request = view.request[0]
    request.best_hit_tokens = 0
    request.best_holder = NONE
    request.store_hit_tokens = 0
    request.memory_hit_tokens = 0
    request.memory_instance = NONE


@once
def fill_route_view(w, view, index):
    """The view at the arrival of a request whose prompt has been looked up."""
    config = w.config[0]
    load = w.workload[index]
    lookup = w.lookup[0]
    page = config.page_tokens
    _fill_cluster(w, view)
    view.cluster[0].decision = DECISION_ROUTE
    _fill_request(w, view, index)
    request = view.request[0]
    request.best_hit_tokens = lookup.best_pages * page
    request.best_holder = lookup.best_holder
    request.store_hit_tokens = w.hit[store_holder(w)].pages * page
    request.memory_hit_tokens = lookup.memory_pages * page
    request.memory_instance = lookup.memory_instance
    _fill_prefill(w, view)
    _fill_hits(w, view, load.prompt_tokens)
    _fill_decode(w, view, load.prompt_tokens)
    _fill_accepts(w, view, index)
    _fill_delivery(w, view, load.prompt_tokens)
    if config.needs_running:
        fill_running(w, view)


@once
def fill_check_view(w, view, index):
    """The view at the end of a request's prefill: nothing is left to compute or pull."""
    prompt_tokens = w.workload[index].prompt_tokens
    _fill_cluster(w, view)
    view.cluster[0].decision = DECISION_ADMIT
    _fill_request(w, view, index)
    _forget_hits(view)
    _fill_prefill(w, view)
    _fill_decode(w, view, prompt_tokens)
    if w.config[0].needs_running:
        fill_running(w, view)


@inner
def _fill_without_request(w, view):
    """Everything but the candidates, at a moment at which no request is routed."""
    _fill_cluster(w, view)
    request = view.request[0]
    request.index = NONE
    request.session = NONE
    request.namespace = 0
    request.priority = 0
    request.arrival_s = w.state[0].now_s
    request.prompt_tokens = 0
    request.predicted_output_tokens = 0.0
    request.first_block = NONE
    _forget_hits(view)
    _fill_prefill(w, view)
    _fill_decode(w, view, np.int64(0))
    fill_running(w, view)


@once
def fill_migrate_view(w, view):
    """The view at a rescheduling tick; returns whether any move is legal."""
    if not fill_candidates(w, view):
        return False
    _fill_without_request(w, view)
    view.cluster[0].decision = DECISION_MIGRATE
    return True


@inner
def fill_end_view(w, view):
    """The cluster as it stands, and nothing to decide: an episode is over or cut off, or somebody only looks."""
    fill_candidates(w, view)
    _fill_without_request(w, view)
    view.cluster[0].decision = DECISION_NONE
