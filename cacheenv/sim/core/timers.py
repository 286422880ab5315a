"""The event queue: an indexed binary heap of timers, ordered by (time, kind, id).

Each flow and each instance owns one timer, so an event that moves is updated in place and none goes stale. Ties are
broken by the data (kind, then id), never by insertion history.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner


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
def set_timer(state, heap, position, timer, time_s, order):
    """Arms `timer` at `time_s`, or moves it there when it is armed already."""
    at = position[timer]
    if at < 0:
        at = state[0].heap_size
        state[0].heap_size += 1
        heap[at].timer = timer
        position[timer] = at
    heap[at].time_s = time_s
    heap[at].order = order
    _sift(heap, position, state[0].heap_size, at)


@inner
def clear_timer(state, heap, position, timer):
    """Disarms `timer`; nothing happens when it is not armed."""
    at = position[timer]
    if at < 0:
        return
    last = state[0].heap_size - 1
    if at != last:
        _swap(heap, position, at, last)
    state[0].heap_size = last
    position[timer] = -1
    if at != last:
        _sift(heap, position, last, at)
