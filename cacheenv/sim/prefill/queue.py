"""The queue of a prefill instance, a linked list of requests. Its order is a discipline's (`discipline/`).

Waiting requests have no pages of their own; which cached ones they hold is in `pages.py`.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.backlog import start_waiting, stop_waiting
from cacheenv.sim.prefill.host import expected_seconds, gpu_hit_tokens
from cacheenv.sim.requests import enter_prefill


@once
def enqueue(w, index):
    """Puts a routed request at the end of its prefill instance's queue."""
    request = w.request[index]
    p = request.prefill_instance
    row = w.prefill[p]
    cached = request.hit_predicted_tokens
    request.predicted_new_tokens = request.prompt_tokens - cached
    request.queue_next = -1
    request.joined_round = row.rounds
    if row.tail >= 0:
        w.request[row.tail].queue_next = index
    else:
        row.head = index
    row.tail = index
    row.queued += 1
    start_waiting(w, index, expected_seconds(w, p, request.prompt_tokens, cached, gpu_hit_tokens(w, p, cached)))
    enter_prefill(w, index)


@once
def dequeue(w, p, previous, index):
    """Takes a request out of the queue; `previous` is the one before it, -1 for none."""
    request = w.request[index]
    row = w.prefill[p]
    if previous >= 0:
        w.request[previous].queue_next = request.queue_next
    else:
        row.head = request.queue_next
    if row.tail == index:
        row.tail = previous
    row.queued -= 1
    stop_waiting(w, index, row.queued == 0)


@inner
def list_queue(w, p):
    """Writes the waiting requests of an instance to `queue_order`, as they stand; returns how many."""
    count = 0
    index = w.prefill[p].head
    while index >= 0:
        w.queue_order[count] = index
        count += 1
        index = w.request[index].queue_next
    return count


@inner
def list_by_arrival(w, p):
    """The same in the order of their arrival."""
    count = list_queue(w, p)
    order = w.queue_order
    for at in range(1, count):
        moving = order[at]
        hole = at
        while hole > 0 and order[hole - 1] > moving:
            order[hole] = order[hole - 1]
            hole -= 1
        order[hole] = moving
    return count


@inner
def swap_listed(w, left, right):
    """Two places of `queue_order` change what they have."""
    index = w.queue_order[left]
    w.queue_order[left] = w.queue_order[right]
    w.queue_order[right] = index


@inner
def count_round(w, p):
    """An instance's queue is put in order once more."""
    w.prefill[p].rounds += 1


@inner
def rounds_waited(w, index):
    """Rounds of its instance that a waiting request has been through, without the present one."""
    request = w.request[index]
    return w.prefill[request.prefill_instance].rounds - request.joined_round - 1


@once
def note_match(w, index, node):
    """Notes where the cached prefix of a waiting request ends."""
    w.request[index].queue_node = node


@inner
def rank(w, index, number, cold):
    """Notes what a discipline found out about a waiting request: its rank, and whether it is cold."""
    w.request[index].queue_rank = number
    w.request[index].queue_cold = 1 if cold else 0


@inner
def sort_queue(w, p, count):
    """Makes the `count` requests in `queue_order` the queue, by falling rank, equal ones as they are listed."""
    order, request = w.queue_order, w.request
    for at in range(1, count):
        moving = order[at]
        hole = at
        while hole > 0 and request[order[hole - 1]].queue_rank < request[moving].queue_rank:
            order[hole] = order[hole - 1]
            hole -= 1
        order[hole] = moving
    link_queue(w, p, count)


@inner
def link_queue(w, p, count):
    """Makes the `count` requests in `queue_order` the queue, as they are listed."""
    if count == 0:
        return
    order, request = w.queue_order, w.request
    row = w.prefill[p]
    row.head = order[0]
    for at in range(count - 1):
        request[order[at]].queue_next = order[at + 1]
    row.tail = order[count - 1]
    request[row.tail].queue_next = -1
