"""The event queue: an indexed binary heap of timers, ordered by (time, kind, id).

Each flow, each instance and each stream of the cluster owns one timer, so an event that moves is updated in place and
none goes stale. Ties are broken by the data (kind, then id), never by insertion history.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.core.jit import inner, once

KIND_SHIFT = np.int64(1 << 48)  # heap order = kind * KIND_SHIFT + id (which may be an int32)


@once
def kind_of(order):
    """Event kind of a heap order."""
    return order // KIND_SHIFT


@inner
def _before(heap, left, right):
    if heap[left].time_s != heap[right].time_s:
        return heap[left].time_s < heap[right].time_s
    return heap[left].order < heap[right].order


@inner
def _swap(heap, position, left, right):
    time_s, order, timer = heap[left].time_s, heap[left].order, heap[left].timer
    heap[left].time_s = heap[right].time_s
    heap[left].order = heap[right].order
    heap[left].timer = heap[right].timer
    heap[right].time_s = time_s
    heap[right].order = order
    heap[right].timer = timer
    position[heap[left].timer] = left
    position[heap[right].timer] = right


@inner
def _sift(heap, position, size, at):
    """Moves entry `at` up or down to its place."""
    while at > 0 and _before(heap, at, (at - 1) // 2):
        _swap(heap, position, at, (at - 1) // 2)
        at = (at - 1) // 2
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _before(heap, child + 1, child):
            child += 1
        if not _before(heap, child, at):
            return
        _swap(heap, position, at, child)
        at = child


@inner
def set_timer(w, timer, time_s, kind, number):
    """Arms `timer` at `time_s`, or moves it there; `number` orders events of a kind at the same time."""
    at = w.heap_position[timer]
    if at < 0:
        at = w.state[0].heap_size
        w.state[0].heap_size += 1
        w.heap[at].timer = timer
        w.heap_position[timer] = at
    w.heap[at].time_s = time_s
    w.heap[at].order = kind * KIND_SHIFT + number
    _sift(w.heap, w.heap_position, w.state[0].heap_size, at)


@inner
def clear_timer(w, timer):
    """Disarms `timer`; nothing happens when it is not armed."""
    at = w.heap_position[timer]
    if at < 0:
        return
    last = w.state[0].heap_size - 1
    if at != last:
        _swap(w.heap, w.heap_position, at, last)
    w.state[0].heap_size = last
    w.heap_position[timer] = -1
    if at != last:
        _sift(w.heap, w.heap_position, last, at)


@inner
def is_armed(w, timer):
    """Whether `timer` waits for its time."""
    return w.heap_position[timer] >= 0
