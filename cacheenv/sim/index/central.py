"""The prefix index: which instances hold a page, as the router believes.

`holders[block]` is a bit set over the prefill instances and (bit P) the cluster store. It is fed by stored/removed
events that arrive `index_delay_s` after the fact; with no delay it is exact. One pass over a request's pages gives the
hit length on every instance at once.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import evict_run, free_pages, insert, obtainable_pages
from cacheenv.sim.core.jit import inner
from cacheenv.sim.state.world import BITS


@inner
def _apply(w, holder, start, count, stored):
    word = holder // BITS
    bit = 1 << (int(holder) % BITS)
    for at in range(start, start + count):
        block = w.blocks[at]
        if stored:
            w.holders[block, word] |= bit
        else:
            w.holders[block, word] &= ~bit


@inner
def publish(w, holder, start, count, stored):
    """A run of pages was stored on, or removed from, a holder: the index learns it now or after its delay."""
    if count <= 0:
        return
    if w.config[0].index_delay_s <= 0.0:
        _apply(w, holder, start, count, stored)
        return
    state = w.state[0]
    at = (state.event_head + state.event_count) % w.event.shape[0]
    w.event[at].time_s = state.now_s + w.config[0].index_delay_s
    w.event[at].start = start
    w.event[at].count = count
    w.event[at].holder = holder
    w.event[at].stored = stored
    state.event_count += 1


@inner
def deliver_next(w):
    """Applies the oldest event that is on its way."""
    state = w.state[0]
    event = w.event[state.event_head]
    _apply(w, event.holder, event.start, event.count, event.stored)
    state.event_head = (state.event_head + 1) % w.event.shape[0]
    state.event_count -= 1


@inner
def make_room(w, tree_index, pages):
    """Evicts until `pages` pages are free in the tree; False (and nothing evicted) when that cannot be."""
    if obtainable_pages(w.tree, tree_index) < pages:
        return False
    missing = pages - free_pages(w.tree, tree_index)
    while missing > 0:
        taken = evict_run(w.state, w.tree, w.node, w.table, w.blocks, tree_index, missing)
        publish(w, tree_index, w.tree[tree_index].run_start, taken, 0)
        missing -= taken
    return True


@inner
def add_pages(w, tree_index, start, count):
    """Inserts a path of full pages and tells the index: (pages already present, deepest node)."""
    present, leaf = insert(w.state, w.tree, w.node, w.table, w.blocks, tree_index, start, count)
    publish(w, tree_index, start + present, count - present, 1)
    return present, leaf


@inner
def find_hits(w, start, count):
    """Predicted hit pages on every holder: fills `prefill.hit_pages`, and the store's and the best hit in the state.

    The best holder is a source to pull from: the longest hit; ties go to the store, then to the lowest index.
    """
    config = w.config[0]
    state = w.state[0]
    holders = config.num_prefill + 1
    for i in range(config.num_prefill):
        w.prefill[i].hit_pages = 0
    state.store_hit_pages = 0
    words = config.words
    for word in range(words):
        w.mask[word] = (1 << min(BITS, holders - word * BITS)) - 1
    depth = 0
    while depth < count:
        block = w.blocks[start + depth]
        left = 0
        for word in range(words):
            kept = w.mask[word] & w.holders[block, word]
            if kept != w.mask[word]:
                _record_hits(w, word, w.mask[word] & ~kept, depth)
                w.mask[word] = kept
            left |= kept
        if left == 0:
            break
        depth += 1
    for word in range(words):
        _record_hits(w, word, w.mask[word], depth)
    best, holder = 0, -1
    if config.peer_pulls:
        for i in range(config.num_prefill):
            if w.prefill[i].hit_pages > best:
                best, holder = w.prefill[i].hit_pages, i
    if config.store_enabled and state.store_hit_pages >= best and state.store_hit_pages > 0:
        best, holder = state.store_hit_pages, config.num_prefill
    state.best_hit_pages = best
    state.best_holder = holder


@inner
def _record_hits(w, word, bits, depth):
    """Holders whose bits are set in `bits` hold exactly the first `depth` pages."""
    if depth == 0:
        return
    holder = word * BITS
    while bits:
        if bits & 1:
            if holder < w.config[0].num_prefill:
                w.prefill[holder].hit_pages = depth
            else:
                w.state[0].store_hit_pages = depth
        bits >>= 1
        holder += 1


@inner
def _remembered(w, block):
    for word in range(w.memory.shape[1]):
        if w.memory[block, word]:
            return True
    return False


@inner
def remember(w, instance, start, count):
    """Router memory: the prompt's pages were dispatched to `instance`; its oldest tails beyond the limit go."""
    tree_index = w.config[0].num_prefill + 1 + instance
    word = instance // BITS
    bit = 1 << (instance % BITS)
    count = min(count, w.tree[tree_index].capacity)
    present, _ = insert(w.state, w.tree, w.node, w.table, w.blocks, tree_index, start, count)
    for at in range(start + present, start + count):
        block = w.blocks[at]
        if not _remembered(w, block):
            w.owner[block] = instance
        w.memory[block, word] |= bit
    while free_pages(w.tree, tree_index) < 0:
        excess = -free_pages(w.tree, tree_index)
        taken = evict_run(w.state, w.tree, w.node, w.table, w.blocks, tree_index, excess)
        first = w.tree[tree_index].run_start
        for at in range(first, first + taken):
            w.memory[w.blocks[at], word] &= ~bit


@inner
def recall(w, start, count):
    """What the router remembers of a prompt: fills `prefill.memory_hit_pages`; returns (deepest pages, owner).

    The owner is the instance whose dispatch first created the deepest remembered page, if that instance still
    remembers it, else the lowest that does (the gateway's "last tenant, otherwise the first").
    """
    config = w.config[0]
    for i in range(config.num_prefill):
        w.prefill[i].memory_hit_pages = 0
    deepest, owner = 0, -1
    for i in range(config.num_prefill):
        word = i // BITS
        bit = 1 << (i % BITS)
        depth = w.prefill[i].memory_hit_pages
        while depth < count and w.memory[w.blocks[start + depth], word] & bit:
            depth += 1
        w.prefill[i].memory_hit_pages = depth
        if depth > deepest:
            deepest, owner = depth, i
    if deepest > 0:
        creator = w.owner[w.blocks[start + deepest - 1]]
        if creator >= 0 and w.prefill[creator].memory_hit_pages == deepest:
            owner = creator
    return deepest, owner
