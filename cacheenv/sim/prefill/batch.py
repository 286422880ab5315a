"""The batches of a prefill instance: who is admitted, long prompts in chunks, and what happens at a batch's end."""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import reusable_pages
from cacheenv.sim.cache.radix import forest_of, match
from cacheenv.sim.compute.cost import attention_work, batch_seconds, prefill_seconds
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import clear_timer, set_timer
from cacheenv.sim.prefill.discipline import order_queue
from cacheenv.sim.prefill.handover import announce_handover, release_prompt, send_piece, start_handover
from cacheenv.sim.prefill.host import count_load, match_host, with_load, write_to_host
from cacheenv.sim.prefill.pages import cache_prompt, hold_pages, hold_with_host
from cacheenv.sim.prefill.queue import dequeue
from cacheenv.sim.prefill.replication import count_delivered
from cacheenv.sim.prefill.second_check import ask_later
from cacheenv.sim.prefill.transfers import write_through
from cacheenv.sim.prefill.wake import wake
from cacheenv.sim.requests import complete, end_prefill, skip_decode, start_prefill
from cacheenv.sim.state.codes import BACKLOG_NOW, EVENT_PREFILL_END, NONE
from cacheenv.sim.state.ids import has_host, prefill_instance, tree_of


@inner
def _left_tokens(w, index):
    """Tokens of an admitted prompt that are still to be computed."""
    request = w.request[index]
    return request.prompt_tokens - request.hit_tokens - request.computed_tokens


@inner
def _add_piece(w, index, p, tokens):
    """Puts `tokens` new tokens of a request into the batch; returns its attention work."""
    request = w.request[index]
    row = w.prefill[p]
    cached = request.hit_tokens + request.computed_tokens
    request.piece_tokens = tokens
    request.batch_next = row.batch_head
    row.batch_head = index
    row.batch_size += 1
    return attention_work(w.instance[prefill_instance(w, p)], tokens, cached)


@inner
def start_batch(w, p):
    """Forms a batch and starts it: the chunked prompt goes on first, then waiting requests in their order."""
    row = w.prefill[p]
    clear_timer(w, prefill_instance(w, p))
    order_queue(w, p)
    row.batch_head = -1
    row.batch_size = 0
    total, attention = _continue_chunked(w, p)
    total, attention = _admit_waiting(w, p, total, attention)
    if row.batch_size > 0:
        compute_s = batch_seconds(w.instance[prefill_instance(w, p)], total, attention)
        _run_batch(w, p, with_load(w, p, compute_s) if row.load_tokens > 0 else compute_s)


@once
def _continue_chunked(w, p):
    """The next piece of the prompt that is computed in pieces: (tokens, attention work) of the batch so far."""
    config = w.config[0]
    row = w.prefill[p]
    index = row.chunked
    if index < 0:
        return 0, 0.0
    left = _left_tokens(w, index)
    tokens = min(row.chunk_tokens, row.batch_tokens)
    if left <= tokens:
        tokens = left
    else:
        page = config.page_tokens
        tokens = min(left, max(page, tokens // page * page))
    attention = _add_piece(w, index, p, tokens)
    if tokens == left:
        row.chunked = -1
        row.chunk_left_s = 0.0
    return tokens, attention


@once
def _admit_waiting(w, p, total, attention):
    """Fills the batch from the queue: (tokens, attention work) of the whole batch."""
    config = w.config[0]
    row = w.prefill[p]
    forest, tree = forest_of(w), tree_of(w, p)
    with_host = has_host(w, p)
    budget = row.batch_tokens - total
    previous = NONE
    index = row.head
    cut = False  # a prompt was cut: nothing is admitted behind it
    while index >= 0 and not cut and budget > 0 and row.batch_size < row.max_batch_requests:
        request = w.request[index]
        following = request.queue_next
        if request.pulling:
            previous = index
            index = following
            continue
        pages, node = match(forest, tree, w.workload[index].block_start, reusable_pages(w, index))
        on_gpu = pages * config.page_tokens
        host_pages, host_node = match_host(w, index, p) if with_host else (pages, node)
        cached = max(on_gpu, host_pages * config.page_tokens)
        new = request.prompt_tokens - cached
        tokens = _piece(w, p, new, budget)
        if tokens == 0:
            break
        if not with_host:
            held = hold_pages(w, index, p, pages, node)
        else:
            held = hold_with_host(w, index, p, pages, node, host_pages, host_node)
        if not held:
            break
        request.computed_tokens = 0
        start_prefill(w, index, on_gpu, cached - on_gpu)
        if cached > on_gpu:
            count_load(w, p, cached - on_gpu)
        if config.replication_hits > 0:
            count_delivered(w, index, p)
        dequeue(w, p, previous, index)
        attention += _add_piece(w, index, p, tokens)
        total += tokens
        budget -= tokens
        if tokens < new:
            cut = True
            row.chunked = index
            row.chunk_left_s = request.price_s
            if config.backlog == BACKLOG_NOW:  # what it found is known, and may not be what it was priced with
                row.chunk_left_s = prefill_seconds(w.instance[prefill_instance(w, p)], new, cached)
        index = following
    return total, attention


@once
def _piece(w, p, new, budget):
    """How many of a prompt's `new` tokens the batch takes; 0 where it has to wait."""
    config = w.config[0]
    row = w.prefill[p]
    if row.chunk_tokens == 0:
        return 0 if row.batch_size > 0 and new > budget else new
    limit = min(row.chunk_tokens, budget)
    if new <= limit:
        return new
    if row.chunked >= 0:
        return 0  # one chunked prompt at a time
    tokens = limit // config.page_tokens * config.page_tokens
    if tokens == 0 and row.batch_size == 0:
        return min(new, config.page_tokens)
    return tokens


@once
def _run_batch(w, p, duration_s):
    """Starts the formed batch: its end, and the hand-overs that overlap with it."""
    row = w.prefill[p]
    instance = prefill_instance(w, p)
    now_s = w.state[0].now_s
    _reverse_batch(w, p)
    row.busy = 1
    row.batch_start_s = now_s
    row.batch_end_s = now_s + duration_s
    if row.chunked >= 0:
        request = w.request[row.chunked]
        cached = request.hit_tokens + request.computed_tokens
        piece_s = prefill_seconds(w.instance[instance], request.piece_tokens, cached)
        row.chunk_left_s = max(0.0, row.chunk_left_s - piece_s)
    set_timer(w, instance, row.batch_end_s, EVENT_PREFILL_END, instance)
    index = row.batch_head
    while index >= 0:
        if _left_tokens(w, index) == w.request[index].piece_tokens:
            announce_handover(w, index, duration_s)
        index = w.request[index].batch_next


@once
def _reverse_batch(w, p):
    """The batch list was built by pushing in front; the first admitted shall be handled first."""
    row = w.prefill[p]
    behind = -1
    index = row.batch_head
    while index >= 0:
        following = w.request[index].batch_next
        w.request[index].batch_next = behind
        behind = index
        index = following
    row.batch_head = behind


@inner
def end_batch(w, p):
    """The running batch has ended."""
    row = w.prefill[p]
    clear_timer(w, prefill_instance(w, p))
    row.busy = 0
    row.busy_s += w.state[0].now_s - row.batch_start_s
    index = row.batch_head
    while index >= 0:
        request = w.request[index]
        following = request.batch_next
        request.computed_tokens += request.piece_tokens
        row.computed_tokens += request.piece_tokens
        if _left_tokens(w, index) == 0:
            _finish_prompt(w, index)
        else:
            send_piece(w, index)
        index = following
    row.batch_head = -1
    row.batch_size = 0
    wake(w, p)


@once
def _finish_prompt(w, index):
    """A prompt is computed: its pages enter the tree, the first token is out, the hand-over may end."""
    request = w.request[index]
    cache_prompt(w, index)
    node = np.int64(request.lock_node)
    end_prefill(w, index)
    if request.output_tokens <= 1:
        complete(w, index, 0.0, 0.0)
        release_prompt(w, index)
        skip_decode(w, index)
    elif w.config[0].after_prefill:
        ask_later(w, index)
    else:
        start_handover(w, index)
    write_to_host(w, index, node)
    write_through(w, index, node)


@once
def backlog_seconds(w, p):
    """(running_left_s, backlog_s): until the running batch ends, and until everything routed here is computed."""
    row = w.prefill[p]
    running = max(0.0, row.batch_end_s - w.state[0].now_s) if row.busy else 0.0
    return running, running + row.queue_s + row.chunk_left_s
