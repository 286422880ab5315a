"""A prefill instance: its batches and chunks, and its part of the prefix cache.

At admission a request locks its cached prefix and reserves pages for the rest of its prompt; at the end of its prefill
its full pages enter the tree, locked until the hand-over has ended.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import free_pages, lock, match, unlock
from cacheenv.sim.core.jit import inner, jit
from cacheenv.sim.core.timers import clear_timer, set_timer
from cacheenv.sim.index.central import add_pages, make_room
from cacheenv.sim.network.links import new_flow, open_gate, start_flow, start_flow_at
from cacheenv.sim.prefill.queue import dequeue, order_lpm, pages_of, prefill_seconds, reusable_pages, wake
from cacheenv.sim.prefill.transfers import write_through
from cacheenv.sim.requests import first_token, request_done
from cacheenv.sim.state.world import EVENT_PREFILL_END, FLOW_HANDOVER, HANDOVER, KIND_SHIFT, PREFILLING, QUEUE_LPM


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
        order_lpm(w, instance)
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
        dequeue(w, instance, previous, index)
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
        row.tokens += request.piece_tokens
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
        write_through(w, index, instance, full, node)


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
