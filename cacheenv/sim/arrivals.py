"""Who comes next: requests with a fixed time, those that an answer has called, and those that wait for room.

A request comes at a fixed time (its row's `arrival_s`), or it is called: the next turn of a session by the last token
of the turn before, a refused request by its refusal. In a system that is full (`max_in_flight`) who comes waits
outside, first come first served. All of them share one timer. At equal times who waits outside goes first, and then
the smaller row.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import clear_timer, set_timer
from cacheenv.sim.state.codes import EVENT_ARRIVAL, NONE
from cacheenv.sim.state.ids import TIMER_ARRIVAL, cluster_timer

# -- the heap of requests that were called ---------------------------------------------------------------------------


@inner
def _sooner(w, left, right):
    """Whether request `left` comes before request `right`."""
    if w.request[left].due_s != w.request[right].due_s:
        return w.request[left].due_s < w.request[right].due_s
    return left < right


@once
def _push(w, index):
    at = w.state[0].coming
    w.state[0].coming += 1
    while at > 0 and _sooner(w, index, w.coming[(at - 1) // 2]):
        w.coming[at] = w.coming[(at - 1) // 2]
        at = (at - 1) // 2
    w.coming[at] = index


@once
def _pop(w):
    """Takes the first request of the heap."""
    first = w.coming[0]
    size = w.state[0].coming - 1
    w.state[0].coming = size
    last = w.coming[size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _sooner(w, w.coming[child + 1], w.coming[child]):
            child += 1
        if not _sooner(w, w.coming[child], last):
            break
        w.coming[at] = w.coming[child]
        at = child
    w.coming[at] = last
    return first


# -- who is next -----------------------------------------------------------------------------------------------------


@inner
def _has_room(w):
    """Whether one more request may enter the system."""
    bound = w.config[0].max_in_flight
    return bound == 0 or w.state[0].in_system < bound


@inner
def _skip_called(w):
    """Moves on to the next row with a fixed time: later turns of a closed loop have none."""
    state = w.state[0]
    while state.next_arrival < w.config[0].num_requests and w.workload[state.next_arrival].turn > 0:
        state.next_arrival += 1


@inner
def _called_first(w):
    """Whether the next to come was called; else it is the next row with a fixed time."""
    state = w.state[0]
    if state.coming == 0:
        return False
    if state.next_arrival >= w.config[0].num_requests:
        return True
    called_s, fixed_s = w.request[w.coming[0]].due_s, w.workload[state.next_arrival].arrival_s
    return called_s < fixed_s or (called_s == fixed_s and w.coming[0] < state.next_arrival)


@inner
def expect_arrival(w):
    """Arms the timer for whoever comes next, if anybody does."""
    state = w.state[0]
    timer = cluster_timer(w, TIMER_ARRIVAL)
    if state.gate_head >= 0 and _has_room(w):
        set_timer(w, timer, state.now_s, EVENT_ARRIVAL, 0)
    elif _called_first(w):
        set_timer(w, timer, w.request[w.coming[0]].due_s, EVENT_ARRIVAL, 0)
    elif state.next_arrival < w.config[0].num_requests:
        set_timer(w, timer, w.workload[state.next_arrival].arrival_s, EVENT_ARRIVAL, 0)
    else:
        clear_timer(w, timer)


@once
def start_arrivals(w):
    """Who comes first."""
    if w.config[0].closed:
        _skip_called(w)
    expect_arrival(w)


@once
def forget_arrivals(w, first):
    """Nobody comes any more but the requests from row `first` on, and who waits outside already."""
    state = w.state[0]
    state.coming = 0
    state.next_arrival = first
    expect_arrival(w)


@inner
def call(w, index, time_s):
    """A request comes at `time_s`; :func:`expect_arrival` has to follow."""
    w.request[index].due_s = time_s
    _push(w, index)


# -- the door --------------------------------------------------------------------------------------------------------


@once
def _leave_gate(w):
    state = w.state[0]
    index = state.gate_head
    state.gate_head = w.request[index].gate_next
    if state.gate_head < 0:
        state.gate_tail = NONE
    w.request[index].outside_s += state.now_s
    return index


@once
def _join_gate(w, index):
    state = w.state[0]
    w.request[index].outside_s -= state.now_s
    w.request[index].gate_next = NONE
    if state.gate_tail >= 0:
        w.request[state.gate_tail].gate_next = index
    else:
        state.gate_head = index
    state.gate_tail = index


@once
def next_to_enter(w):
    """The request that the timer was armed for; -1 where it has to wait outside."""
    state = w.state[0]
    if state.gate_head >= 0 and _has_room(w):
        return _leave_gate(w)
    if _called_first(w):
        index = _pop(w)
    else:
        index = state.next_arrival
        state.next_arrival += 1
        if w.config[0].closed:
            _skip_called(w)
    if _has_room(w):
        return index
    _join_gate(w, index)
    expect_arrival(w)
    return NONE
