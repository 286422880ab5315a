"""A run of decode steps in closed form: from one change of the batch to the next.

Between two changes of the batch the k-th step ends at

    T(k) = start + stall + k * base + slope * k (k - 1) / 2,   base = d + e B + f C,  slope = f B,

since every step adds B tokens to the C resident ones. An instance therefore wakes only at the step boundary where its
batch may change: somebody finishes, the KV memory is full, or somebody wants to join or leave.
"""

from __future__ import annotations

import math

from cacheenv.sim.compute.cost import step_seconds
from cacheenv.sim.core.jit import inner, jit, once
from cacheenv.sim.core.timers import clear_timer, set_timer
from cacheenv.sim.state.codes import EVENT_DECODE
from cacheenv.sim.state.ids import decode_instance


@inner
def _arm(w, d, time_s):
    instance = decode_instance(w, d)
    set_timer(w, instance, time_s, EVENT_DECODE, instance)


@inner
def boundary_s(row, steps):
    """Time at which the `steps`-th step from now on ends (0: the current boundary)."""
    if steps == 0:
        return row.start_s
    return row.start_s + row.stall_s + steps * row.base_s + row.slope_s * (0.5 * steps * (steps - 1))


@inner
def boundary_from(row, time_s):
    """The first step (1, 2, ...) that ends at or after `time_s`."""
    left = time_s - row.start_s - row.stall_s
    if left <= row.base_s:
        steps = 1
    else:
        half = row.base_s - 0.5 * row.slope_s
        steps = max(1, int(2.0 * left / (half + math.sqrt(half * half + 2.0 * row.slope_s * left))))
    while boundary_s(row, steps) < time_s:
        steps += 1
    while steps > 1 and boundary_s(row, steps - 1) >= time_s:
        steps -= 1
    return steps


@jit
def steps_ended(row, now_s):
    """Steps of the present run that have ended at `now_s`."""
    if row.batch == 0 or row.planned == 0:
        return 0
    steps = boundary_from(row, now_s)
    if boundary_s(row, steps) > now_s:
        steps -= 1
    return min(steps, row.planned)


@inner
def steps_done(w, d):
    """Steps of the present run that have ended by now."""
    return steps_ended(w.decode[d], w.state[0].now_s)


@inner
def resident_tokens(w, d):
    """KV tokens of the batch at the last step boundary."""
    row = w.decode[d]
    return row.kv_tokens + steps_done(w, d) * row.batch


@inner
def add_stall(w, d, seconds):
    """Delays the first step of the next run."""
    w.decode[d].pending_stall_s += seconds


@once
def start_run(w, d, steps):
    """Starts a run of `steps` steps at this boundary."""
    row = w.decode[d]
    row.start_s = w.state[0].now_s
    row.stall_s = row.pending_stall_s
    row.pending_stall_s = 0.0
    row.base_s = step_seconds(w.instance[decode_instance(w, d)], row.batch, row.kv_tokens)
    row.slope_s = w.instance[decode_instance(w, d)].decode_f_s * row.batch
    row.planned = steps
    _arm(w, d, boundary_s(row, steps))


@once
def end_run(w, d):
    """The run ends at this boundary: returns how many steps it had."""
    row = w.decode[d]
    clear_timer(w, decode_instance(w, d))
    if row.batch == 0 or row.planned == 0:
        return 0
    steps = row.planned
    row.busy_s += w.state[0].now_s - row.start_s
    row.planned = 0
    return steps


@inner
def wake_at_boundary(w, d):
    """Makes the instance look at its queues at the next step boundary, or at once when it is idle."""
    row = w.decode[d]
    now_s = w.state[0].now_s
    if row.batch == 0:
        _arm(w, d, now_s)
        return
    _shorten(w, d, boundary_from(row, now_s))


@once
def end_run_when_full(w, d, room_tokens):
    """Room for the batch has shrunk to `room_tokens` while steps run: the run may have to end earlier."""
    row = w.decode[d]
    if row.batch == 0:
        return
    _shorten(w, d, max(steps_done(w, d) + 1, (room_tokens - row.kv_tokens) // row.batch))


@inner
def _shorten(w, d, steps):
    row = w.decode[d]
    if steps < row.planned:
        row.planned = steps
        _arm(w, d, boundary_s(row, steps))
