"""A prefill instance: its queue (fcfs or lpm), its batches and chunks, and its part of the prefix cache.

Waiting requests hold nothing; at admission a request locks its cached prefix and reserves pages for the rest of its
prompt; at the end of its prefill its full pages enter the tree, locked until the hand-over has ended.
"""

from __future__ import annotations

from cacheenv.sim.heap import clear_timer, set_timer
from cacheenv.sim.index import add_pages, make_room
from cacheenv.sim.jit import inner, jit
from cacheenv.sim.links import new_flow, open_gate, start_flow, start_flow_at
from cacheenv.sim.metering import first_token, request_done
from cacheenv.sim.radix import free_pages, lock, match, obtainable_pages, peek, unlock
from cacheenv.sim.tables import (
    EVENT_PREFILL_END,
    EVENT_PREFILL_START,
    FLOW_HANDOVER,
    FLOW_PULL,
    FLOW_STORE_WRITE,
    HANDOVER,
    KIND_SHIFT,
    PREFILLING,
    QUEUE_LPM,
    QUEUED,
)


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
def _dequeue(w, instance, previous, index):
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
def start_pull(w, index, instance, source):
    """Fetches the prefix that `source` (an instance or the store) holds beyond the local one.

    Nothing is pulled when the source turns out to hold no more than `instance` does, or when the pages do not fit.
    """
    request = w.request[index]
    start = w.load[index].block_start
    count = reusable_pages(w, index)
    there, source_node = match(w.state, w.tree, w.node, w.table, w.blocks, source, start, count)
    here, node = match(w.state, w.tree, w.node, w.table, w.blocks, instance, start, count)
    pages = there - here
    if pages <= 0:
        return
    lock(w.tree, w.node, instance, node)
    if not make_room(w, instance, pages):
        unlock(w.tree, w.node, instance, node)
        return
    w.tree[instance].private += pages
    lock(w.tree, w.node, source, source_node)
    nic = source if source < w.config[0].num_prefill else w.config[0].num_prefill + w.config[0].num_decode
    tokens = pages * w.config[0].page_tokens
    flow = new_flow(w, FLOW_PULL, nic, instance, index, tokens, tokens * w.config[0].prefill_kv_bytes, pages)
    w.flow[flow].source_node = source_node
    w.flow[flow].sink_node = node
    w.flow[flow].start = there
    w.flow[flow].reserved_pages = pages
    request.pulling = 1
    start_flow(w, flow)


@inner
def pull_arrived(w, flow_index):
    """A pulled prefix is complete: it enters the tree (the copy stays), and the request may be batched."""
    flow = w.flow[flow_index]
    index = flow.request
    instance = flow.sink
    config = w.config[0]
    source = flow.source if flow.source < config.num_prefill else config.num_prefill
    start = w.load[index].block_start
    w.tree[instance].private -= flow.reserved_pages
    add_pages(w, instance, start, flow.start)
    unlock(w.tree, w.node, instance, flow.sink_node)
    unlock(w.tree, w.node, source, flow.source_node)
    w.request[index].pulled_tokens += flow.tokens
    w.request[index].pulling = 0
    wake(w, instance)
    if source < config.num_prefill:
        wake(w, source)


@inner
def _order_lpm(w, instance):
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
def _admit(w, index, instance, pages, node):
    """Locks the cached prefix and reserves the rest of the prompt; False when the memory is not there."""
    request = w.request[index]
    lock(w.tree, w.node, instance, node)
    need = pages_of(w, request.prompt_tokens) - pages
    if not make_room(w, instance, need):
        unlock(w.tree, w.node, instance, node)
        return False
    w.tree[instance].private += need
    request.private_pages = need
    request.lock_node = node
    request.hit_pages = pages
    request.hit_tokens = pages * w.config[0].page_tokens
    request.computed_tokens = 0
    request.prefill_start_s = w.state[0].now_s
    request.state = PREFILLING
    return True


@inner
def _add_piece(w, index, instance, tokens):
    """Puts `tokens` new tokens of a request into the batch; returns its term of the batch time's quadratic part."""
    request = w.request[index]
    row = w.prefill[instance]
    cached = request.hit_tokens + request.computed_tokens
    request.piece_tokens = tokens
    request.batch_next = row.batch_head
    row.batch_head = index
    row.batch_size += 1
    return float(tokens) * tokens + 2.0 * max(float(tokens), row.n_tile) * cached


@inner
def start_batch(w, instance):
    """Forms the next batch of an idle instance and starts it; nothing happens when nothing can run."""
    config = w.config[0]
    row = w.prefill[instance]
    clear_timer(w.state, w.heap, w.heap_position, instance)
    if config.queue == QUEUE_LPM:
        _order_lpm(w, instance)
    page = config.page_tokens
    budget = config.batch_tokens
    row.batch_head = -1
    row.batch_size = 0
    total = 0
    quadratic = 0.0
    if row.chunked >= 0:
        request = w.request[row.chunked]
        left = request.prompt_tokens - request.hit_tokens - request.computed_tokens
        tokens = min(config.chunk_tokens, budget)
        if left <= tokens:
            tokens = left
        else:
            tokens = min(left, max(page, tokens // page * page))
        quadratic += _add_piece(w, row.chunked, instance, tokens)
        total += tokens
        budget -= tokens
        if tokens == left:
            row.chunked = -1
            row.chunk_left_s = 0.0
    previous = -1
    index = row.head
    cut = False  # a prompt was cut: nothing is admitted behind it
    while index >= 0 and not cut and budget > 0 and row.batch_size < config.max_batch_requests:
        request = w.request[index]
        following = request.next
        if request.pulling:
            previous = index
            index = following
            continue
        pages, node = match(
            w.state, w.tree, w.node, w.table, w.blocks, instance, w.load[index].block_start, reusable_pages(w, index)
        )
        new = request.prompt_tokens - pages * page
        tokens = new
        if config.chunk_tokens > 0:
            limit = min(config.chunk_tokens, budget)
            if new > limit:
                if row.chunked >= 0:
                    break  # one chunked prompt at a time
                tokens = limit // page * page
                if tokens == 0:
                    if row.batch_size > 0:
                        break
                    tokens = min(new, page)
        elif row.batch_size > 0 and new > budget:
            break
        if not _admit(w, index, instance, pages, node):
            break
        _dequeue(w, instance, previous, index)
        quadratic += _add_piece(w, index, instance, tokens)
        total += tokens
        budget -= tokens
        if tokens < new:
            cut = True
            row.chunked = index
            row.chunk_left_s = request.predicted_s
        index = following
    if row.batch_size > 0:
        _run_batch(w, instance, total, quadratic)


@inner
def _run_batch(w, instance, total, quadratic):
    """Starts the formed batch: its end, and the hand-overs that overlap with it."""
    config = w.config[0]
    row = w.prefill[instance]
    now_s = w.state[0].now_s
    _reverse_batch(w, instance)
    duration_s = max(row.floor_s, row.a + row.b * total + row.c * quadratic)
    row.busy = 1
    row.batch_start_s = now_s
    row.batch_end_s = now_s + duration_s
    row.tokens += total
    if row.chunked >= 0:
        request = w.request[row.chunked]
        cached = request.hit_tokens + request.computed_tokens
        row.chunk_left_s = max(0.0, row.chunk_left_s - prefill_seconds(row, request.piece_tokens, cached))
    order = EVENT_PREFILL_END * KIND_SHIFT + instance
    set_timer(w.state, w.heap, w.heap_position, instance, row.batch_end_s, order)
    if not config.overlap:
        return
    index = row.batch_head
    while index >= 0:
        request = w.request[index]
        left = request.prompt_tokens - request.hit_tokens - request.computed_tokens - request.piece_tokens
        if left == 0 and request.output_tokens > 1:
            flow = _new_handover(w, index, instance)
            byte_count = w.flow[flow].main_bytes
            w.flow[flow].main_bytes = byte_count * (config.layers - 1) / config.layers
            w.flow[flow].last_bytes = byte_count / config.layers
            w.flow[flow].gate_open = 0
            start_flow_at(w, flow, now_s + duration_s / config.layers)
        index = request.batch_next


@inner
def _new_handover(w, index, instance):
    request = w.request[index]
    sink = w.config[0].num_prefill + request.decode_instance
    tokens = request.prompt_tokens
    byte_count = tokens * w.config[0].prefill_kv_bytes
    flow = new_flow(w, FLOW_HANDOVER, instance, sink, index, tokens, byte_count, pages_of(w, tokens))
    request.handover = flow
    return flow


@inner
def end_batch(w, instance):
    """The running batch has ended."""
    row = w.prefill[instance]
    state = w.state[0]
    clear_timer(w.state, w.heap, w.heap_position, instance)
    row.busy = 0
    row.busy_s += state.now_s - row.batch_start_s
    index = row.batch_head
    while index >= 0:
        request = w.request[index]
        following = request.batch_next
        request.computed_tokens += request.piece_tokens
        if request.hit_tokens + request.computed_tokens == request.prompt_tokens:
            _end_prefill(w, index, instance)
        index = following
    row.batch_head = -1
    row.batch_size = 0
    wake(w, instance)


@inner
def _reverse_batch(w, instance):
    """The batch list was built by pushing in front; the first admitted shall be handled first."""
    row = w.prefill[instance]
    behind = -1
    index = row.batch_head
    while index >= 0:
        following = w.request[index].batch_next
        w.request[index].batch_next = behind
        behind = index
        index = following
    row.batch_head = behind


@inner
def _end_prefill(w, index, instance):
    """A prompt is computed: the first token is out, its pages enter the tree, the hand-over may end."""
    config = w.config[0]
    request = w.request[index]
    row = w.prefill[instance]
    start = w.load[index].block_start
    full = request.prompt_tokens // config.page_tokens
    row.inflight_new_tokens -= request.predicted_new_tokens
    # The computed pages turn from private into cached; duplicates of what is cached by now are freed.
    tail = pages_of(w, request.prompt_tokens) - full
    w.tree[instance].private -= request.private_pages - tail
    request.private_pages = tail
    _, node = add_pages(w, instance, start, full)
    lock(w.tree, w.node, instance, node)
    unlock(w.tree, w.node, instance, request.lock_node)
    request.lock_node = node
    first_token(w, index)
    if request.output_tokens <= 1:
        request_done(w, index)
        release_prompt(w, index)
        decode = w.decode[request.decode_instance]
        decode.pending -= 1
        decode.pending_tokens -= request.prompt_tokens
        decode.inflight -= 1
    else:
        request.state = HANDOVER
        if config.overlap:
            open_gate(w, request.handover)
        else:
            start_flow(w, _new_handover(w, index, instance))
    if config.store_enabled and config.write_through and full > 0:
        _write_through(w, index, instance, full, node)


@inner
def _write_through(w, index, instance, full, node):
    """Copies the pages that the store lacks to it; the source path stays locked meanwhile."""
    config = w.config[0]
    start = w.load[index].block_start
    present = peek(w.tree, w.node, w.table, w.blocks, config.num_prefill, start, full)
    pages = full - present
    if pages <= 0:
        return
    lock(w.tree, w.node, instance, node)
    tokens = pages * config.page_tokens
    sink = config.num_prefill + config.num_decode
    flow = new_flow(w, FLOW_STORE_WRITE, instance, sink, index, tokens, tokens * config.prefill_kv_bytes, pages)
    w.flow[flow].source_node = node
    w.flow[flow].start = full
    start_flow(w, flow)


@inner
def store_written(w, flow_index):
    """A write to the store is complete: the path enters its tree as far as it fits."""
    flow = w.flow[flow_index]
    store = w.config[0].num_prefill
    start = w.load[flow.request].block_start
    full = flow.start
    present, node = match(w.state, w.tree, w.node, w.table, w.blocks, store, start, full)
    lock(w.tree, w.node, store, node)
    added = min(full - present, obtainable_pages(w.tree, store))
    if added > 0:
        make_room(w, store, added)
        add_pages(w, store, start, present + added)
    unlock(w.tree, w.node, store, node)
    unlock(w.tree, w.node, flow.source, flow.source_node)
    wake(w, flow.source)


@inner
def release_prompt(w, index):
    """The prefill instance is done with a request: its path is unlocked, its last page freed."""
    request = w.request[index]
    instance = request.prefill_instance
    row = w.prefill[instance]
    unlock(w.tree, w.node, instance, request.lock_node)
    w.tree[instance].private -= request.private_pages
    request.private_pages = 0
    request.lock_node = -1
    row.inflight -= 1
    row.inflight_tokens -= request.prompt_tokens
    wake(w, instance)


@inner
def backlog_seconds(w, instance):
    """(running_left_s, backlog_s): until the running batch ends, and until everything routed here is computed."""
    row = w.prefill[instance]
    running = max(0.0, row.batch_end_s - w.state[0].now_s) if row.busy else 0.0
    return running, running + row.queue_s + row.chunk_left_s


@inner
def cached_pages(w, instance):
    """Pages in use on an instance: cached and private."""
    return w.tree[instance].capacity - free_pages(w.tree, instance)


@jit
def check_memory(w, tree_index):
    """Whether the page accounting of a tree adds up (a debugging aid and a test's invariant)."""
    tree = w.tree[tree_index]
    listed = 0
    index = tree.oldest
    while index >= 0:
        listed += w.node[index].length
        index = w.node[index].newer
    fits = tree.pages + tree.private <= tree.capacity
    return fits and tree.private >= 0 and tree.locked >= 0 and listed == tree.pages - tree.locked
