"""What the requests that wait for a prefill instance would cost now, as a router counts it.

The price of a waiting request is the prefill time of its own prompt alone, behind the leading pages that need not be
computed. With `backlog: dispatch` these are the hit that the index promised when it was routed. With `backlog: now`
they are the pages of its prompt that are

* ready: on its instance's GPU, on their way there, or in the prompt of a request that waits there longer and will have
  computed them;
* or in the instance's host memory, from which they are loaded.

As each of these holds whole prefixes, so do they together.

So of the requests that wait on an instance and share a page, the one that waits longest pays for it, and only while the
page is not ready; nobody else's price depends on it. Each page has a list of its carriers, the requests in the
instances' queues and batches that have it: first those that bring it to a GPU, then the waiting ones in the order of
their wait. When the state of a page changes, the first carrier on the instance is the only request whose price may
change. The list is one for all instances, so that it needs no memory for each of them: finding the first carrier on an
instance steps over those of others. An event costs a step or more for each page that it stores, evicts, takes up or
lines up, however long the queue is.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import full_pages, reusable_pages
from cacheenv.sim.cache.radix import forest_of, peek
from cacheenv.sim.compute.cost import prompt_seconds
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.central import index_is_exact
from cacheenv.sim.state.codes import BACKLOG_NOW, NONE
from cacheenv.sim.state.ids import has_host, host_holder, host_tree_of, tree_of

# -- prices ----------------------------------------------------------------------------------------------------------


@inner
def _set_price(w, index, tokens, seconds):
    """A waiting request would compute this many tokens of its prompt, in this time."""
    request = w.request[index]
    row = w.prefill[request.prefill_instance]
    row.queue_s += seconds - request.price_s
    row.queued_tokens += tokens - request.price_tokens
    request.price_s = seconds
    request.price_tokens = tokens


@inner
def _price(w, index, ready_pages):
    """The first `ready_pages` pages of a waiting request's prompt cost it nothing, the next one does."""
    request = w.request[index]
    request.ready_pages = ready_pages
    page = w.config[0].page_tokens
    ready = ready_pages * page
    cached = max(ready_pages, request.host_pages) * page
    spec = w.instance[w.prefill[request.prefill_instance].instance]
    seconds = prompt_seconds(w.config[0], spec, request.prompt_tokens, cached, ready)
    _set_price(w, index, request.prompt_tokens - cached, seconds)


@once
def start_waiting(w, index, expected_s):
    """A routed request lines up: it is priced, and counts in its instance's queue.

    `expected_s` is its price with the hit that the index promised.
    """
    request = w.request[index]
    request.price_s = 0.0
    request.price_tokens = 0
    if w.config[0].backlog == BACKLOG_NOW:
        _line_up(w, index)
    else:
        _set_price(w, index, request.prompt_tokens - request.hit_predicted_tokens, expected_s)


@once
def stop_waiting(w, index, was_last):
    """A waiting request is taken up: what it computes is on its way from now on. `was_last`: nobody else waits."""
    request = w.request[index]
    row = w.prefill[request.prefill_instance]
    row.queued_tokens -= request.price_tokens
    row.queue_s = 0.0 if was_last else row.queue_s - request.price_s
    if w.config[0].backlog == BACKLOG_NOW:
        _take_up(w, index)


# -- the lists of carriers, a circle for each page -------------------------------------------------------------------


@inner
def _insert(w, index, depth, behind):
    """Puts a request among the carriers of the page at `depth` of its prompt, behind another one (NONE: alone)."""
    here = w.workload[index].block_start + depth
    if behind < 0:
        w.carrier_next[here] = index
        w.carrier_before[here] = index
        w.first_carrier[w.blocks[here]] = index
        return
    there = w.workload[behind].block_start + depth
    following = np.int64(w.carrier_next[there])
    w.carrier_next[here] = following
    w.carrier_before[here] = behind
    w.carrier_next[there] = index
    w.carrier_before[w.workload[following].block_start + depth] = index


@inner
def _remove(w, index, depth):
    """Takes a request out of the carriers of the page at `depth` of its prompt."""
    here = w.workload[index].block_start + depth
    block = w.blocks[here]
    following = np.int64(w.carrier_next[here])
    if following == index:
        w.first_carrier[block] = NONE
        return
    before = np.int64(w.carrier_before[here])
    w.carrier_next[w.workload[before].block_start + depth] = following
    w.carrier_before[w.workload[following].block_start + depth] = before
    if w.first_carrier[block] == index:
        w.first_carrier[block] = following


@inner
def _last(w, block, depth):
    """The last carrier of a page, NONE where it has none."""
    first = np.int64(w.first_carrier[block])
    return np.int64(w.carrier_before[w.workload[first].block_start + depth]) if first >= 0 else NONE


@inner
def _put_first(w, index, depth):
    """The request brings the page: it comes before all who wait."""
    block = w.blocks[w.workload[index].block_start + depth]
    _insert(w, index, depth, _last(w, block, depth))
    w.first_carrier[block] = index


@once
def _put_in_order(w, index, depth):
    """The request waits, as it did before: it comes behind all who bring the page, or wait longer."""
    block = w.blocks[w.workload[index].block_start + depth]
    first, last = np.int64(w.first_carrier[block]), _last(w, block, depth)
    number = w.request[index].wait_number
    while last >= 0 and depth >= w.request[last].coming_pages and w.request[last].wait_number > number:
        if last == first:
            _put_first(w, index, depth)
            return
        last = np.int64(w.carrier_before[w.workload[last].block_start + depth])
    _insert(w, index, depth, last)


@inner
def _first_on(w, p, block, depth):
    """The first carrier of a page on an instance, NONE where it has none; `depth` is the page's place in prompts."""
    first = np.int64(w.first_carrier[block])
    index = first
    while index >= 0:
        if w.request[index].prefill_instance == p:
            return index
        index = np.int64(w.carrier_next[w.workload[index].block_start + depth])
        if index == first:
            return NONE
    return NONE


# -- requests on their way -------------------------------------------------------------------------------------------


@inner
def _page_ready(w, p, block, depth):
    """A page is on the GPU, or on its way there, from now on: whoever paid for it does not any more."""
    index = _first_on(w, p, block, depth)
    if index < 0:
        return
    request = w.request[index]
    if depth >= request.coming_pages and request.ready_pages == depth and depth < reusable_pages(w, index):
        _price(w, index, depth + 1)


@inner
def _pages_on_host(w, index):
    """Leading pages of a waiting request's prompt that are in host memory, or will be pulled there for it."""
    if not has_host(w, w.request[index].prefill_instance):
        return 0
    host = host_tree_of(w, w.request[index].prefill_instance)
    there = peek(forest_of(w), host, w.workload[index].block_start, reusable_pages(w, index))
    return max(there, w.request[index].pulled_pages)


@once
def _pages_there(w, index):
    """Leading pages of the prompt of a request that lines up, on its instance's GPU and in its host memory.

    A look-up has just said so, unless it is not exact or a pull has changed it.
    """
    request = w.request[index]
    p = request.prefill_instance
    if index_is_exact(w) and request.coming_pages == 0 and request.pulled_pages == 0:
        if w.config[0].host_enabled:
            return w.hit[p].gpu_pages, w.hit[host_holder(w, p)].pages
        return w.hit[p].pages, 0
    cached = peek(forest_of(w), tree_of(w, p), w.workload[index].block_start, full_pages(w, index))
    return cached, _pages_on_host(w, index)


@once
def _line_up(w, index):
    """Prices a request behind those that are there, and enters it among the carriers of its pages."""
    request = w.request[index]
    p = request.prefill_instance
    start, full, most = w.workload[index].block_start, full_pages(w, index), reusable_pages(w, index)
    w.state[0].lined_up += 1
    request.wait_number = w.state[0].lined_up
    cached, request.host_pages = _pages_there(w, index)
    ready = min(most, max(cached, np.int64(request.coming_pages)))
    for depth in range(full):
        block = w.blocks[start + depth]
        if cached <= depth < request.coming_pages:
            _page_ready(w, p, block, depth)
            _put_first(w, index, depth)
            continue
        if depth == ready and depth < most and _first_on(w, p, block, depth) >= 0:
            ready += 1
        _insert(w, index, depth, _last(w, block, depth))
    _price(w, index, ready)


@once
def _take_up(w, index):
    """A request leaves the queue: it brings the pages that it did not find."""
    request = w.request[index]
    p = request.prefill_instance
    start, full = w.workload[index].block_start, full_pages(w, index)
    found = request.hit_tokens // w.config[0].page_tokens
    for depth in range(full):
        if depth >= found and w.carrier_next[start + depth] == index:
            continue  # nobody else has the page
        _remove(w, index, depth)
        if depth >= found:
            _page_ready(w, p, w.blocks[start + depth], depth)
            _put_first(w, index, depth)
    request.coming_pages = full


@once
def end_computing(w, index):
    """The pages that a request has computed are cached: it brings nothing any more."""
    if w.config[0].backlog != BACKLOG_NOW:
        return
    w.request[index].coming_pages = 0
    for depth in range(w.request[index].hit_tokens // w.config[0].page_tokens, full_pages(w, index)):
        _remove(w, index, depth)


@once
def expect_pull(w, index, pages):
    """The first `pages` pages of a request that is being routed are on its instance, or will be pulled there.

    What is pulled to host memory counts for this request; for others when it has arrived.
    """
    if has_host(w, w.request[index].prefill_instance):
        w.request[index].pulled_pages = pages
    else:
        w.request[index].coming_pages = pages


@once
def end_pull(w, index, first, end):
    """The pages from `first` to `end` have been pulled for a request: it only waits, as it did before."""
    request = w.request[index]
    request.pulled_pages = 0
    if request.coming_pages == 0:
        return
    request.coming_pages = 0
    if w.config[0].backlog == BACKLOG_NOW:
        for depth in range(first, end):
            _remove(w, index, depth)
            _put_in_order(w, index, depth)


# -- caches ----------------------------------------------------------------------------------------------------------


@inner
def _somebody_waits(w, start, count):
    """Whether a run of pages may matter to a price: who waits for a later page of a path has its first one too."""
    return w.config[0].backlog == BACKLOG_NOW and count > 0 and w.first_carrier[w.blocks[start]] >= 0


@inner
def price_stored(w, holder, start, count):
    """The pages `blocks[start : start + count]` of a path have entered a holder's cache."""
    if _somebody_waits(w, start, count):
        _price_stored(w, holder, start, count)


@inner
def _price_stored(w, holder, start, count):
    prefills = w.prefill.shape[0]
    if holder == prefills:  # the store
        return
    depth = _depth_of(w, start)
    for at in range(start, start + count):
        block = w.blocks[at]
        if w.first_carrier[block] < 0:
            return  # whoever waits for a later page of the path has this one
        if holder < prefills:
            _page_ready(w, holder, block, depth)
        else:
            index = _first_on(w, holder - prefills - 1, block, depth)
            if index >= 0 and depth >= w.request[index].coming_pages and depth >= w.request[index].ready_pages:
                if w.request[index].host_pages <= depth:
                    _price_with_host(w, index, _pages_on_host(w, index))
        depth += 1


@inner
def price_evicted(w, holder, start, count):
    """The pages `blocks[start : start + count]` of a path have left a holder's cache."""
    if _somebody_waits(w, start, count):
        _price_evicted(w, holder, start, count)


@inner
def _price_evicted(w, holder, start, count):
    prefills = w.prefill.shape[0]
    if holder == prefills:
        return
    p = holder if holder < prefills else holder - prefills - 1
    depth = _depth_of(w, start)
    for at in range(start, start + count):
        index = _first_on(w, p, w.blocks[at], depth)
        if index < 0:
            return
        request = w.request[index]
        if depth >= request.coming_pages:
            if holder < prefills:
                if request.ready_pages > depth:
                    request.ready_pages = depth
                    _price_with_host(w, index, _pages_on_host(w, index))
            elif depth >= request.ready_pages and request.host_pages > depth:
                _price_with_host(w, index, max(depth, np.int64(request.pulled_pages)))
        depth += 1


@inner
def _price_with_host(w, index, host_pages):
    """So many leading pages of a waiting request's prompt are in host memory."""
    w.request[index].host_pages = host_pages
    _price(w, index, np.int64(w.request[index].ready_pages))


@inner
def _depth_of(w, at):
    """The place in prompts of the page `blocks[at]`: prompts follow one another, and behind them all answers do."""
    low, high = np.int64(0), np.int64(w.config[0].num_requests)
    in_answer = at >= w.workload[0].answer_start
    while high - low > 1:
        middle = (low + high) // 2
        start = w.workload[middle].answer_start if in_answer else w.workload[middle].block_start
        if start <= at:
            low = middle
        else:
            high = middle
    if in_answer:
        return full_pages(w, low) + at - w.workload[low].answer_start
    return at - w.workload[low].block_start
