"""The queue of a prefill instance: arrival order, or SGLang's longest-prefix-match order.

Waiting requests hold nothing: no pages, no locks.
"""

from __future__ import annotations

from cacheenv.sim.cache.pages import pages_of, reusable_pages
from cacheenv.sim.cache.radix import forest_of, match
from cacheenv.sim.compute.cost import prefill_seconds
from cacheenv.sim.core.jit import inner
from cacheenv.sim.requests import enter_prefill
from cacheenv.sim.state.codes import QUEUE_LPM
from cacheenv.sim.state.ids import prefill_instance, tree_of


@inner
def enqueue(w, index):
    """Puts a routed request at the end of its prefill instance's queue."""
    request = w.request[index]
    p = request.prefill_instance
    row = w.prefill[p]
    cached = request.hit_predicted_tokens
    request.predicted_new_tokens = request.prompt_tokens - cached
    request.predicted_s = prefill_seconds(w.instance[prefill_instance(w, p)], request.prompt_tokens - cached, cached)
    request.queue_next = -1
    if row.tail >= 0:
        w.request[row.tail].queue_next = index
    else:
        row.head = index
    row.tail = index
    row.queued += 1
    row.queued_tokens += request.predicted_new_tokens
    row.queue_s += request.predicted_s
    enter_prefill(w, index)


@inner
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
    row.queued_tokens -= request.predicted_new_tokens
    row.queue_s -= request.predicted_s
    if row.queued == 0:
        row.queue_s = 0.0


@inner
def order_queue(w, p):
    """Brings the queue into the order of its discipline, before a batch is formed."""
    if w.config[0].queue == QUEUE_LPM:
        _order_lpm(w, p)


@inner
def _order_lpm(w, p):
    """SGLang's longest-prefix-match order: stable sort by match, in-batch duplicates of a cold prefix last.

    Matching refreshes recency, so waiting requests protect their prefixes; above `lpm_fallback` waiting requests the
    order is left as it is.
    """
    config = w.config[0]
    row = w.prefill[p]
    if row.queued > config.lpm_fallback or row.queued < 1:
        return
    forest, tree = forest_of(w), tree_of(w, p)
    probe = pages_of(w, config.lpm_defer_tokens) - 1
    count = 0
    index = row.head
    while index >= 0:
        request = w.request[index]
        start = w.workload[index].block_start
        pages, _ = match(forest, tree, start, reusable_pages(w, index))
        request.match_pages = pages
        request.cold = 0
        if pages * config.page_tokens <= config.lpm_check_tokens and 0 <= probe < pages_of(w, request.prompt_tokens):
            if _cold_one_before(w, w.blocks[start + probe], probe, count):
                request.match_pages = -1
            else:
                request.cold = 1  # a low-match request that others defer to
        w.queue_order[count] = index
        count += 1
        index = request.queue_next
    _sort_by_match(w, count)
    row.head = w.queue_order[0]
    for at in range(count - 1):
        w.request[w.queue_order[at]].queue_next = w.queue_order[at + 1]
    row.tail = w.queue_order[count - 1]
    w.request[row.tail].queue_next = -1


@inner
def _cold_one_before(w, block, probe, count):
    """Whether one of the first `count` requests is cold and has the same page at the probed place."""
    for earlier in range(count):
        other = w.queue_order[earlier]
        if w.request[other].cold and w.blocks[w.workload[other].block_start + probe] == block:
            return True
    return False


@inner
def _sort_by_match(w, count):
    """Stable insertion sort: longest match first, deferred (-1) last."""
    for at in range(1, count):
        moving = w.queue_order[at]
        key = w.request[moving].match_pages
        hole = at
        while hole > 0 and w.request[w.queue_order[hole - 1]].match_pages < key:
            w.queue_order[hole] = w.queue_order[hole - 1]
            hole -= 1
        w.queue_order[hole] = moving
