"""The event loop: runs a world to its next decision, and carries decisions out.

`advance` stops with DECISION_ROUTE (then comes `apply_route`), with DECISION_MIGRATE (then `apply_move`), or with a
STOP_* code.
"""

from __future__ import annotations

import math

from cacheenv.sim.actions import (
    fallback_route,
    move_is_legal,
    move_parts,
    reject_number,
    route_is_legal,
    route_parts,
    stay_number,
)
from cacheenv.sim.cache.radix import peek
from cacheenv.sim.core.jit import inner
from cacheenv.sim.decode.migration import copy_arrived, delta_arrived, leave_source, start_migration
from cacheenv.sim.decode.steps import begin_steps, end_steps, enter_waiting
from cacheenv.sim.index.central import deliver_next, remember
from cacheenv.sim.network.links import flow_event, release_flow
from cacheenv.sim.prefill.batch import end_batch, release_prompt, start_batch
from cacheenv.sim.prefill.queue import enqueue, pages_of, reusable_pages
from cacheenv.sim.prefill.transfers import pull_arrived, start_pull, store_written
from cacheenv.sim.requests import leave_system, request_rejected
from cacheenv.sim.state.world import (
    EVENT_ARRIVAL,
    EVENT_DECODE,
    EVENT_FLOW,
    EVENT_INDEX,
    EVENT_PREFILL_END,
    EVENT_PREFILL_START,
    EVENT_TICK,
    FLOW_DELTA,
    FLOW_HANDOVER,
    FLOW_MIGRATE,
    FLOW_PULL,
    KIND_SHIFT,
    NONE,
    STOP_DONE,
    STOP_GROW,
    STOP_HORIZON,
    TOO_LARGE,
)
from cacheenv.sim.view.columns import DECISION_MIGRATE, DECISION_ROUTE
from cacheenv.sim.view.fill import fill_migrate_view, fill_route_view


@inner
def _needs_growth(w):
    """Whether the next event could run out of flows, tree nodes or index events."""
    state = w.state[0]
    margin = w.config[0].batch_margin
    if state.free_flows < margin or state.free_nodes < 8 * margin:
        return True
    most_news = w.node.shape[0] - state.free_nodes + 2 * margin  # every node may be evicted, and some be added
    return w.config[0].index_delay_s > 0.0 and w.event.shape[0] - state.event_count < most_news


@inner
def advance(w, view):
    """Processes events up to the next decision, filling the view for it."""
    config = w.config[0]
    state = w.state[0]
    while True:
        if _needs_growth(w):  # before each move of a tick too: each one takes a flow
            return STOP_GROW
        if state.tick_open:
            if fill_migrate_view(w, view):
                return DECISION_MIGRATE
            state.tick_open = 0
        time_s = math.inf
        kind = NONE
        timer = NONE
        if state.heap_size > 0:
            time_s = w.heap[0].time_s
            kind = w.heap[0].order // KIND_SHIFT
            timer = w.heap[0].timer
        if state.event_count > 0:
            due_s = w.event[state.event_head].time_s
            if due_s < time_s or (due_s == time_s and kind > EVENT_INDEX):
                time_s, kind = due_s, EVENT_INDEX
        if state.next_arrival < config.num_requests:
            due_s = w.load[state.next_arrival].arrival_s
            if due_s < time_s or (due_s == time_s and kind > EVENT_ARRIVAL):
                time_s, kind = due_s, EVENT_ARRIVAL
        if config.ticks and kind != NONE and state.unfinished > 0 and state.next_tick_s < time_s:
            time_s, kind = state.next_tick_s, EVENT_TICK
        if kind == NONE:
            return STOP_DONE
        if time_s > config.horizon_s:
            if state.unfinished == 0:  # what is left are writes to the store and news for the index
                return STOP_DONE
            state.integral_s += state.counted_in_system * (config.horizon_s - state.now_s)
            state.now_s = config.horizon_s
            return STOP_HORIZON
        state.integral_s += state.counted_in_system * (time_s - state.now_s)
        state.now_s = time_s
        if kind == EVENT_FLOW:
            flow = timer - config.num_prefill - config.num_decode
            if flow_event(w, flow):
                _flow_complete(w, flow)
        elif kind == EVENT_PREFILL_END:
            end_batch(w, timer)
        elif kind == EVENT_DECODE:
            instance = timer - config.num_prefill
            end_steps(w, instance)
            leave_source(w, instance)
            begin_steps(w, instance)
        elif kind == EVENT_INDEX:
            deliver_next(w)
        elif kind == EVENT_ARRIVAL:
            if _arrive(w):
                fill_route_view(w, view, state.deciding)
                return DECISION_ROUTE
        elif kind == EVENT_PREFILL_START:
            start_batch(w, timer)
        else:
            state.tick_number += 1
            state.next_tick_s = (state.tick_number + 1) * config.period_s
            state.tick_open = 1


@inner
def _flow_complete(w, index):
    flow = w.flow[index]
    kind = flow.kind
    if kind == FLOW_HANDOVER:
        request = w.request[flow.request]
        request.transfer_end_s = w.state[0].now_s
        request.handover = NONE
        release_prompt(w, flow.request)
        enter_waiting(w, flow.request)
    elif kind == FLOW_PULL:
        pull_arrived(w, index)
    elif kind == FLOW_MIGRATE:
        copy_arrived(w, index)
    elif kind == FLOW_DELTA:
        delta_arrived(w, index)
    else:
        store_written(w, index)
    release_flow(w, index)


@inner
def _arrive(w):
    """The next request arrives; False when it is too large for every instance and needs no decision."""
    config = w.config[0]
    state = w.state[0]
    index = state.next_arrival
    load = w.load[index]
    request = w.request[index]
    state.next_arrival += 1
    state.deciding = index
    state.in_system += 1
    request.arrival_s = load.arrival_s
    request.prompt_tokens = load.prompt_tokens
    request.output_tokens = load.output_tokens
    request.counted = 1 if index >= config.warmup_requests else 0
    if request.counted:
        state.counted_in_system += 1
    request.slot = NONE
    request.handover = NONE
    request.lock_node = NONE
    request.prefill_instance = NONE
    request.decode_instance = NONE
    request.last_move_s = -math.inf
    request.next = NONE
    if _prefill_fits(w, index) and _decode_fits(w, index):
        return True
    leave_system(w, index, TOO_LARGE)
    return False


@inner
def _prefill_fits(w, index):
    for i in range(w.config[0].num_prefill):
        if pages_of(w, w.request[index].prompt_tokens) <= w.tree[i].capacity:
            return True
    return False


@inner
def _decode_fits(w, index):
    for d in range(w.config[0].num_decode):
        if w.request[index].prompt_tokens + w.request[index].output_tokens <= w.decode[d].capacity:
            return True
    return False


@inner
def _available_tokens(w, index):
    """Longest prefix that is really cached anywhere at this moment."""
    config = w.config[0]
    if config.index_delay_s <= 0.0:
        longest = w.state[0].store_hit_pages
        for i in range(config.num_prefill):
            longest = max(longest, w.prefill[i].hit_pages)
        return longest * config.page_tokens
    longest = 0
    for tree_index in range(config.num_prefill + config.store_enabled):
        start = w.load[index].block_start
        found = peek(w.tree, w.node, w.table, w.blocks, tree_index, start, reusable_pages(w, index))
        longest = max(longest, found)
    return longest * config.page_tokens


@inner
def apply_route(w, view, action):
    """Routes or rejects the request that arrived. Returns False when the action was illegal and fell back."""
    config = w.config[0]
    state = w.state[0]
    index = state.deciding
    request = w.request[index]
    state.decisions += 1
    legal = route_is_legal(view, action)
    if not legal:
        state.invalid += 1
        action = fallback_route(view)
    request.routed_s = state.now_s
    request.hit_available_tokens = _available_tokens(w, index)
    if action == reject_number(config.num_prefill, config.num_decode):
        request_rejected(w, index)
        return legal
    prefill, decode, pull = route_parts(action, config.num_decode)
    state.routed += 1
    request.decode_instance = decode
    row = w.decode[decode]
    row.pending += 1
    row.pending_tokens += request.prompt_tokens
    row.inflight += 1
    row.dispatched += 1
    hit = w.prefill[prefill].hit_pages
    request.prefill_instance = prefill
    if config.memory_enabled:
        remember(w, prefill, w.load[index].block_start, request.prompt_tokens // config.page_tokens)
    if pull:
        hit = state.best_hit_pages
        start_pull(w, index, prefill, state.best_holder)
    request.hit_predicted_tokens = hit * config.page_tokens
    enqueue(w, index, prefill, hit)
    return legal


@inner
def apply_move(w, view, action):
    """Starts a migration, or ends the tick's decisions (stay). Returns False when the action was illegal."""
    config = w.config[0]
    state = w.state[0]
    state.decisions += 1
    stay = stay_number(config.num_decode, config.candidates)
    if action < 0 or action >= stay:
        state.tick_open = 0
        if action != stay:
            state.invalid += 1
            return False
        return True
    row, target = move_parts(action, config.num_decode)
    if not move_is_legal(view, row, target):
        state.tick_open = 0
        state.invalid += 1
        return False
    start_migration(w, view.candidate[row].request, target)
    return True
