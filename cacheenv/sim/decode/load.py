"""KV tokens of the decode instances over time: integrals from which the metrics of their balance are made.

Metrics of balance need, at each moment, the variance over the instances. With x the KV tokens of one, S their sum and Q
the sum of their squares that is Q / D - (S / D)^2, so the integrals of S, Q and S^2 over time are enough. In a run of
steps x is taken as a straight line through the middles of its steps: exact for S where steps take equally long, and
without a visit to each step. S and Q follow all instances at once, so that a boundary costs the same for any number of
them. Only KV of running requests counts.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner, jit, once
from cacheenv.sim.decode.run import boundary_s


@jit
def areas_until(state, now_s):
    """Seconds with load up to `now_s`, and the integrals over them: of S in token s, of Q and of S^2 in token^2 s."""
    passed_s = now_s - state.load_at_s
    time_s, sum_area, square_area, sum_squared_area = (
        state.load_time_s,
        state.load_sum_area,
        state.load_square_area,
        state.load_sum_squared_area,
    )
    if state.load_parts > 0 and passed_s > 0.0:
        half, third = passed_s * passed_s / 2.0, passed_s * passed_s * passed_s / 3.0
        total, rise = state.load_sum, state.load_rise
        time_s += passed_s
        sum_area += total * passed_s + rise * half
        square_area += state.load_square * passed_s + 2.0 * state.load_cross * half + state.load_rise_square * third
        sum_squared_area += total * total * passed_s + 2.0 * total * rise * half + rise * rise * third
    return time_s, sum_area, square_area, sum_squared_area


@once
def meter_load(w, d):
    """A boundary of decode part `d`: its line ends, and where a run starts a new one begins."""
    state = w.state[0]
    row = w.decode[d]
    now_s = w.state[0].now_s
    _pass_time(w)
    if row.load_on:
        tokens = row.load_tokens + row.load_rise * (now_s - row.load_at_s)
        _add(w, -1.0, tokens, row.load_rise)
        state.load_parts -= 1
        row.load_on = 0
    if state.load_parts == 0:  # nothing is left but what rounding has left
        state.load_sum = 0.0
        state.load_rise = 0.0
        state.load_square = 0.0
        state.load_cross = 0.0
        state.load_rise_square = 0.0
    if row.batch > 0:
        row.load_on = 1
        row.load_at_s = now_s
        row.load_tokens = row.kv_tokens - 0.5 * row.batch
        run_s = boundary_s(row, row.planned) - row.start_s
        row.load_rise = row.batch * row.planned / run_s if run_s > 0.0 else 0.0
        _add(w, 1.0, row.load_tokens, row.load_rise)
        state.load_parts += 1


@once
def _pass_time(w):
    """Brings all sums and integrals to the present."""
    state = w.state[0]
    now_s = state.now_s
    time_s, sum_area, square_area, sum_squared_area = areas_until(state, now_s)
    state.load_time_s = time_s
    state.load_sum_area = sum_area
    state.load_square_area = square_area
    state.load_sum_squared_area = sum_squared_area
    passed_s = now_s - state.load_at_s
    state.load_sum += state.load_rise * passed_s
    state.load_square += (2.0 * state.load_cross + state.load_rise_square * passed_s) * passed_s
    state.load_cross += state.load_rise_square * passed_s
    state.load_at_s = now_s


@inner
def _add(w, sign, tokens, rise):
    """Adds an instance's line to the sums, or takes it away."""
    state = w.state[0]
    state.load_sum += sign * tokens
    state.load_rise += sign * rise
    state.load_square += sign * tokens * tokens
    state.load_cross += sign * tokens * rise
    state.load_rise_square += sign * rise * rise
