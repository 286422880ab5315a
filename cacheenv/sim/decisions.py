"""Decisions: what leads to one, and what becomes of it."""

from __future__ import annotations

from cacheenv.sim.actions import (
    fallback_route,
    move_is_legal,
    move_parts,
    reject_number,
    route_is_legal,
    route_number,
    route_parts,
    stay_number,
)
from cacheenv.sim.arrivals import expect_arrival, next_to_enter, start_arrivals
from cacheenv.sim.cache.pages import full_pages
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import clear_timer, is_armed, set_timer
from cacheenv.sim.decode.migration import start_migration
from cacheenv.sim.index.central import expect_stored
from cacheenv.sim.index.hits import available_pages, look_up
from cacheenv.sim.index.router_memory import recall, remember
from cacheenv.sim.index.router_time import decided_at
from cacheenv.sim.prefill.pages import hold_match, holds_prompt
from cacheenv.sim.prefill.queue import enqueue
from cacheenv.sim.prefill.second_check import settle_check
from cacheenv.sim.prefill.transfers import start_pull, start_schedule
from cacheenv.sim.prefill.wake import wake
from cacheenv.sim.requests import arrive, assign_decode, assign_prefill, decide, need_room, reject, turn_away
from cacheenv.sim.state.codes import EVENT_TICK, LEARNS_ASSIGNED, NONE, REJECTED
from cacheenv.sim.state.ids import TIMER_TICK, cluster_timer, decode_instance
from cacheenv.sim.view.fill import fill_check_view, fill_migrate_view, fill_route_view

# -- arrivals --------------------------------------------------------------------------------------------------------


@inner
def open_arrival(w, view):
    """The next request arrives: fills the view for its route; False when there is nothing to decide.

    That is when it has to wait outside, or fits nowhere.
    """
    index = next_to_enter(w)
    if index < 0:
        return False
    w.state[0].deciding = index
    arrive(w, index)
    expect_arrival(w)
    if not (_some_prefill_fits(w, index) and _some_decode_fits(w, index)):
        turn_away(w, index)
        return False
    look_up(w, index)
    recall(w, index)
    fill_route_view(w, view, index)
    return True


@once
def _some_prefill_fits(w, index):
    for p in range(w.prefill.shape[0]):
        if holds_prompt(w, p, w.request[index].prompt_tokens):
            return True
    return False


@once
def _some_decode_fits(w, index):
    """Whether a decode instance holds the request when it is whole; notes the smallest capacity that does."""
    request = w.request[index]
    tokens = request.prompt_tokens + request.output_tokens
    needed_tokens = NONE
    for d in range(w.decode.shape[0]):
        capacity_tokens = w.instance[decode_instance(w, d)].kv_capacity_tokens
        if tokens <= capacity_tokens and (needed_tokens < 0 or capacity_tokens < needed_tokens):
            needed_tokens = capacity_tokens
    need_room(w, index, needed_tokens)
    return needed_tokens >= 0


@inner
def apply_route(w, view, action):
    """Routes or rejects the request that arrived. Returns False when the action was illegal and fell back.

    What the index said of the prompt still stands in `lookup` and `hit`.
    """
    config = w.config[0]
    state = w.state[0]
    index = state.deciding
    state.decisions += 1
    legal = route_is_legal(view, action)
    if not legal:
        state.invalid += 1
        action = fallback_route(view)
    decide(w, index, decided_at(w, index), available_pages(w, index) * config.page_tokens)
    if action == reject_number(config.num_prefill, config.num_decode):
        reject(w, index, REJECTED)
        return legal
    p, d, pull = route_parts(action, config.num_decode)
    hit_pages = w.lookup[0].best_pages if pull else w.hit[p].pages
    assign_decode(w, index, d)
    assign_prefill(w, index, p, hit_pages * config.page_tokens)
    if config.index_learns == LEARNS_ASSIGNED:
        expect_stored(w, p, w.workload[index].block_start, full_pages(w, index))
    if config.memory_enabled:
        remember(w, p, index)
    if pull:
        start_pull(w, index, w.lookup[0].best_holder)
    start_schedule(w, index)
    enqueue(w, index)
    if config.protect_queued and not w.request[index].pulling:
        hold_match(w, index)
    wake(w, p)
    return legal


# -- the second question to admission --------------------------------------------------------------------------------


@once
def next_check(w, view):
    """Fills the view for the question about a prompt that has been computed; False where there is none.

    What is proposed is the request's own route.
    """
    index = w.state[0].check_head
    if index < 0:
        return False
    fill_check_view(w, view, index)
    request = w.request[index]
    view.cluster[0].proposed = route_number(
        request.prefill_instance, request.decode_instance, 0, w.config[0].num_decode
    )
    return True


@inner
def apply_check(w, answer):
    """Carries out the answer of an admission policy: 0 refuses. Returns False when it was neither 0 nor 1."""
    state = w.state[0]
    state.decisions += 1
    settle_check(w, answer != 0)
    if answer == 0 or answer == 1:
        return True
    state.invalid += 1
    return False


# -- rescheduling ticks ----------------------------------------------------------------------------------------------


@inner
def expect_tick(w):
    """Arms the timer for the next rescheduling tick, where ticks are decisions."""
    if w.config[0].ticks:
        next_s = (w.state[0].tick_number + 1) * w.config[0].period_s
        set_timer(w, cluster_timer(w, TIMER_TICK), next_s, EVENT_TICK, 0)


@inner
def forget_tick(w):
    """No tick comes any more: nothing is left that could be moved."""
    clear_timer(w, cluster_timer(w, TIMER_TICK))


@once
def only_tick_left(w):
    """Whether no event but a tick is to come."""
    return w.state[0].heap_size == (1 if is_armed(w, cluster_timer(w, TIMER_TICK)) else 0)


@once
def open_tick(w):
    """A tick has come; its decisions repeat until one of them stays."""
    w.state[0].tick_number += 1
    w.state[0].tick_open = 1
    expect_tick(w)


@inner
def next_move(w, view):
    """Fills the view for the open tick's next decision; False, and the tick is over, when no move is legal."""
    if fill_migrate_view(w, view):
        return True
    w.state[0].tick_open = 0
    return False


@inner
def apply_move(w, view, action):
    """Starts a migration, or ends the tick's decisions (stay). Returns False when the action was illegal."""
    config = w.config[0]
    state = w.state[0]
    state.decisions += 1
    stay = stay_number(config.num_decode, config.candidates)
    if 0 <= action < stay:
        row, target = move_parts(action, config.num_decode)
        if move_is_legal(view, row, target):
            start_migration(w, view.candidate[row].request, target)
            return True
    state.tick_open = 0
    if action == stay:
        return True
    state.invalid += 1
    return False


# -- an episode ------------------------------------------------------------------------------------------------------


@once
def expect_first(w):
    """The timers that an episode starts with."""
    w.state[0].deciding = NONE
    start_arrivals(w)
    expect_tick(w)
