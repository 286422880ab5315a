"""The queue of a prefill instance: arrival order, or SGLang's longest-prefix-match order.

Waiting requests hold nothing: no pages, no locks.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import match
from cacheenv.sim.core.jit import inner
from cacheenv.sim.core.timers import set_timer
from cacheenv.sim.state.world import EVENT_PREFILL_START, KIND_SHIFT, QUEUED


@inner
def prefill_seconds(row, new, cached):
    """Time of a batch of one prompt: max(d, a + b n + c (n^2 + 2 max(n, n_tile) p)), seconds."""
    quadratic = float(new) * new + 2.0 * max(float(new), row.n_tile) * cached
    return max(row.floor_s, row.a + row.b * new + row.c * quadratic)


@inner
def wake(w, instance):
    """An idle instance with something to do forms a batch at this instant, after all arrivals of the instant."""
    row = w.prefill[instance]
    if row.busy == 0 and (row.head >= 0 or row.chunked >= 0) and w.heap_position[instance] < 0:
        order = EVENT_PREFILL_START * KIND_SHIFT + instance
        set_timer(w.state, w.heap, w.heap_position, instance, w.state[0].now_s, order)


@inner
def pages_of(w, tokens):
    """Pages that `tokens` tokens occupy, the last one perhaps in part."""
    return (tokens + w.config[0].page_tokens - 1) // w.config[0].page_tokens


@inner
def reusable_pages(w, index):
    """Full pages of a prompt that a cache may serve: at least one token is always computed."""
    return (w.request[index].prompt_tokens - 1) // w.config[0].page_tokens


@inner
def enqueue(w, index, instance, hit_pages):
    """Puts a routed request at the end of the queue; `hit_pages` is what the router expects to be cached."""
    request = w.request[index]
    row = w.prefill[instance]
    cached = hit_pages * w.config[0].page_tokens
    request.state = QUEUED
    request.prefill_instance = instance
    request.predicted_new_tokens = request.prompt_tokens - cached
    request.predicted_s = prefill_seconds(row, request.prompt_tokens - cached, cached)
    request.next = -1
    if row.tail >= 0:
        w.request[row.tail].next = index
    else:
        row.head = index
    row.tail = index
    row.queued += 1
    row.queued_tokens += request.predicted_new_tokens
    row.queue_s += request.predicted_s
    row.inflight += 1
    row.inflight_tokens += request.prompt_tokens
    row.inflight_new_tokens += request.predicted_new_tokens
    row.dispatched += 1
    wake(w, instance)


@inner
def dequeue(w, instance, previous, index):
    """Takes a request out of the queue; `previous` is the one before it, -1 for none."""
    request = w.request[index]
    row = w.prefill[instance]
    if previous >= 0:
        w.request[previous].next = request.next
    else:
        row.head = request.next
    if row.tail == index:
        row.tail = previous
    row.queued -= 1
    row.queued_tokens -= request.predicted_new_tokens
    row.queue_s -= request.predicted_s
    if row.queued == 0:
        row.queue_s = 0.0


@inner
def order_lpm(w, instance):
    """SGLang's longest-prefix-match order: stable sort by match, in-batch duplicates of a cold prefix last.

    Matching refreshes recency, so waiting requests protect their prefixes; above `lpm_fallback` waiting requests the
    order is left as it is.
    """
    config = w.config[0]
    row = w.prefill[instance]
    if row.queued > config.lpm_fallback or row.queued < 1:
        return
    probe = (config.lpm_defer_tokens + config.page_tokens - 1) // config.page_tokens - 1
    count = 0
    index = row.head
    while index >= 0:
        request = w.request[index]
        start = w.load[index].block_start
        usable = reusable_pages(w, index)
        pages, _ = match(w.state, w.tree, w.node, w.table, w.blocks, instance, start, usable)
        request.match_pages = pages
        if pages * config.page_tokens <= config.lpm_check_tokens and 0 <= probe < pages_of(w, request.prompt_tokens):
            block = w.blocks[start + probe]
            for earlier in range(count):
                other = w.scratch[earlier]
                if w.request[other].cold and (w.blocks[w.load[other].block_start + probe] == block):
                    request.match_pages = -1
                    break
            request.cold = 1 if request.match_pages >= 0 else 0  # a low-match request that others defer to
        else:
            request.cold = 0
        w.scratch[count] = index
        count += 1
        index = request.next
    for at in range(1, count):  # stable insertion sort, longest match first, deferred (-1) last
        moving = w.scratch[at]
        key = w.request[moving].match_pages
        hole = at
        while hole > 0 and w.request[w.scratch[hole - 1]].match_pages < key:
            w.scratch[hole] = w.scratch[hole - 1]
            hole -= 1
        w.scratch[hole] = moving
    row.head = w.scratch[0]
    for at in range(count - 1):
        w.request[w.scratch[at]].next = w.scratch[at + 1]
    row.tail = w.scratch[count - 1]
    w.request[row.tail].next = -1


@inner
def backlog_seconds(w, instance):
    """(running_left_s, backlog_s): until the running batch ends, and until everything routed here is computed."""
    row = w.prefill[instance]
    running = max(0.0, row.batch_end_s - w.state[0].now_s) if row.busy else 0.0
    return running, running + row.queue_s + row.chunk_left_s
