"""The event loop: runs a world to its next decision.

`advance` stops with `DECISION_ROUTE` (then comes `apply_route`), with `DECISION_ADMIT` (then `apply_check`), with
`DECISION_MIGRATE` (then `apply_move`), or with a `STOP_*` code.
"""

from __future__ import annotations

from cacheenv.sim.answers import answer_arrived
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import kind_of
from cacheenv.sim.decisions import forget_tick, next_check, next_move, only_tick_left, open_arrival, open_tick
from cacheenv.sim.decode.migration import copy_arrived, delta_arrived
from cacheenv.sim.decode.queue import enter_waiting
from cacheenv.sim.decode.steps import step_boundary
from cacheenv.sim.index.central import deliver_next
from cacheenv.sim.network.links import flow_event, release_flow
from cacheenv.sim.prefill.batch import end_batch, start_batch
from cacheenv.sim.prefill.handover import end_handover, send_layers
from cacheenv.sim.prefill.transfers import end_schedule, pull_arrived, replica_arrived, store_written
from cacheenv.sim.state.codes import (
    DECISION_ADMIT,
    DECISION_MIGRATE,
    DECISION_ROUTE,
    EVENT_ARRIVAL,
    EVENT_DECODE,
    EVENT_FLOW,
    EVENT_INDEX,
    EVENT_PREFILL_END,
    EVENT_PREFILL_START,
    EVENT_TICK,
    FLOW_ANSWER,
    FLOW_DELTA,
    FLOW_HANDOVER,
    FLOW_LAYERS,
    FLOW_MIGRATE,
    FLOW_PULL,
    FLOW_REPLICA,
    FLOW_SCHEDULE,
    STOP_DONE,
    STOP_GROW,
    STOP_HORIZON,
)
from cacheenv.sim.state.ids import decode_of, flow_of_timer, prefill_of


@once
def advance(w, view):
    """Processes events up to the next decision, filling the view for it."""
    state = w.state[0]
    while True:
        if _needs_growth(w):  # before each move of a tick too: each one takes a flow
            return STOP_GROW
        if next_check(w, view):
            return DECISION_ADMIT
        if state.tick_open and next_move(w, view):
            return DECISION_MIGRATE
        if only_tick_left(w):
            forget_tick(w)
            return STOP_DONE
        time_s = w.heap[0].time_s
        kind = kind_of(w.heap[0].order)
        timer = w.heap[0].timer
        if kind == EVENT_TICK and state.unfinished == 0:
            forget_tick(w)
            continue
        if time_s > w.config[0].horizon_s:
            if state.unfinished == 0:  # what is left is on its way to caches, store and index
                return STOP_DONE
            _advance_clock(w, w.config[0].horizon_s)
            return STOP_HORIZON
        _advance_clock(w, time_s)
        if kind == EVENT_FLOW:
            _flow_event(w, flow_of_timer(w, timer))
        elif kind == EVENT_PREFILL_END:
            end_batch(w, prefill_of(w, timer))
        elif kind == EVENT_DECODE:
            step_boundary(w, decode_of(w, timer))
        elif kind == EVENT_INDEX:
            deliver_next(w)
        elif kind == EVENT_ARRIVAL:
            if open_arrival(w, view):
                return DECISION_ROUTE
        elif kind == EVENT_PREFILL_START:
            start_batch(w, prefill_of(w, timer))
        else:
            open_tick(w)


@once
def _needs_growth(w):
    """Whether the next event could run out of flows, tree nodes or news."""
    state = w.state[0]
    margin = w.config[0].batch_margin
    used = w.node.shape[0] - state.free_nodes
    if state.free_flows < w.config[0].flow_margin or state.free_nodes < 8 * margin:
        return True
    if w.config[0].matches_all and state.free_nodes < 8 * margin + state.in_system:
        return True
    most_news = used + 2 * margin  # every node may be evicted, and some be added
    if w.config[0].host_write_back:  # and each that leaves a GPU may add two to the host
        if state.free_nodes < 8 * margin + 2 * used:
            return True
        most_news *= 3
    return w.config[0].index_delay_s > 0.0 and w.news.shape[0] - state.news_count < most_news


@inner
def _advance_clock(w, time_s):
    state = w.state[0]
    state.integral_s += state.counted_in_system * (time_s - state.now_s)
    state.now_s = time_s


@inner
def _flow_event(w, index):
    """A flow's timer; a flow that is complete is acted on and released."""
    if not flow_event(w, index):
        return
    flow = w.flow[index]
    kind = flow.kind
    if kind == FLOW_HANDOVER:
        end_handover(w, flow.request)
        enter_waiting(w, flow.request)
    elif kind == FLOW_PULL:
        pull_arrived(w, index)
    elif kind == FLOW_MIGRATE:
        copy_arrived(w, flow.request)
    elif kind == FLOW_DELTA:
        delta_arrived(w, flow.request)
    elif kind == FLOW_ANSWER:
        answer_arrived(w, index)
    elif kind == FLOW_LAYERS:
        send_layers(w, flow.request)
    elif kind == FLOW_SCHEDULE:
        end_schedule(w, flow.request)
    elif kind == FLOW_REPLICA:
        replica_arrived(w, index)
    else:
        store_written(w, index)
    release_flow(w, index)
