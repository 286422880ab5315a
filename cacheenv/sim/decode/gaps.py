"""Token gaps in logarithmic histograms: tail TBT without visiting every step.

All requests of a batch share its step times, so a decode instance keeps one running histogram of its steps. A request
subtracts it when it joins and adds it when it leaves; gaps of its own (hand-over, preemption, migration) go in one by
one. Bin k covers [1e-4 * 1.05^k, 1e-4 * 1.05^(k+1)) seconds and stands for its geometric middle (+-2.5 %).
"""

from __future__ import annotations

import math

from cacheenv.sim.core.jit import inner, jit, once

BINS = 420  # up to 1e-4 * 1.05**420 = 79,000 s
SMALLEST_S = 1e-4
RATIO = 1.05
LOG_RATIO = math.log(RATIO)
LOG_SMALLEST = math.log(SMALLEST_S)


@jit
def gap_bin(gap_s):
    """Bin of a gap; gaps outside the range fall into the first or the last bin."""
    if gap_s <= SMALLEST_S:
        return 0
    return min(int((math.log(gap_s) - LOG_SMALLEST) / LOG_RATIO), BINS - 1)


@jit
def bin_value_s(index):
    """Geometric middle of a bin, seconds."""
    return SMALLEST_S * math.exp((index + 0.5) * LOG_RATIO)


@jit
def add_steps(row, first_s, slope_s, count):
    """Adds `count` steps of first_s, first_s + slope_s, ... to a histogram row; returns the first and the last bin."""
    index = gap_bin(first_s)
    if slope_s <= 0.0:
        row[index] += count
        return index, index
    first = index
    done = 0
    while done < count:
        upper_s = SMALLEST_S * math.exp((index + 1) * LOG_RATIO)
        below = count
        if index < BINS - 1:
            below = min(count, max(done, math.ceil((upper_s - first_s) / slope_s)))
        row[index] += below - done
        done = below
        if done < count:
            index += 1
    return first, index


@jit
def tail_of(row, steps, top, total):
    """(p99, mean of the worst tenth) in seconds of the gaps `row + steps`, `total` gaps, none above bin `top`."""
    if total <= 0:
        return 0.0, 0.0
    worst = (total + 9) // 10  # integers: 0.1 * 70 is a little more than 7 in floating point
    # The gap of rank ceil(0.99 N) in ascending order is the (N - rank + 1)-th from the top.
    from_top = total - (99 * total + 99) // 100 + 1
    seen = 0
    weighted = 0.0
    p99 = 0.0
    for index in range(top, -1, -1):
        here = row[index] + steps[index]
        if here <= 0:
            continue
        value = bin_value_s(index)
        if seen < from_top <= seen + here:
            p99 = value
        if seen < worst:
            weighted += value * min(here, worst - seen)
        seen += here
        if seen >= worst and seen >= from_top:
            break
    return p99, weighted / worst


# -- the histograms of a world ---------------------------------------------------------------------------------------


@once
def start_gaps(w):
    """No bin is in use."""
    w.state[0].low_bin = BINS
    w.state[0].top_bin = -1


@inner
def _widen(w, low, high):
    """Keeps the range of gap bins that have been used; all others are 0 everywhere."""
    state = w.state[0]
    state.low_bin = min(state.low_bin, low)
    state.top_bin = max(state.top_bin, high)


@once
def count_steps(w, d, steps):
    """Books the gaps of the run of `steps` steps that has ended at a decode instance."""
    row = w.decode[d]
    counts = w.step_gaps[d]
    if row.stall_s > 0.0:
        first = gap_bin(row.stall_s + row.base_s)
        counts[first] += 1
        _widen(w, first, first)
        if steps > 1:
            low, high = add_steps(counts, row.base_s + row.slope_s, row.slope_s, steps - 1)
            _widen(w, low, high)
    else:
        low, high = add_steps(counts, row.base_s, row.slope_s, steps)
        _widen(w, low, high)


@once
def follow_steps(w, slot, d):
    """The slot's request shares the steps of an instance from now on."""
    for at in range(w.state[0].low_bin, w.state[0].top_bin + 1):  # all other bins of all rows are 0
        w.slot_gaps[slot, at] -= w.step_gaps[d, at]


@once
def leave_steps(w, slot, d):
    """The slot's request shares the steps of an instance no longer."""
    for at in range(w.state[0].low_bin, w.state[0].top_bin + 1):
        w.slot_gaps[slot, at] += w.step_gaps[d, at]


@once
def replace_gap(w, slot, counted_s, true_s):
    """A gap that will be counted as a step of `counted_s` takes `true_s` for this slot's request."""
    counted, true = gap_bin(counted_s), gap_bin(true_s)
    w.slot_gaps[slot, counted] -= 1
    w.slot_gaps[slot, true] += 1
    _widen(w, counted, true)


@once
def slot_tail(w, slot, d, total):
    """(p99, mean of the worst tenth) in seconds of the `total` gaps of a slot's request that runs on an instance."""
    return tail_of(w.slot_gaps[slot], w.step_gaps[d], w.state[0].top_bin, total)


@once
def clear_gaps(w, slot):
    """The slot is given back."""
    for at in range(w.state[0].low_bin, w.state[0].top_bin + 1):
        w.slot_gaps[slot, at] = 0
