"""Token gaps in logarithmic histograms: tail TBT without visiting every step.

All requests of a batch share its step times, so a decode instance keeps one running histogram of its steps. A request
subtracts it when it joins and adds it when it leaves; gaps of its own (hand-over, preemption, migration) go in one by
one. Bin k covers [1e-4 * 1.05^k, 1e-4 * 1.05^(k+1)) seconds and stands for its geometric middle (+-2.5 %).
"""

from __future__ import annotations

import math

from cacheenv.sim.core.jit import jit

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
