"""The router's own memory of what it sent where: a tree of bounded size for each prefill instance.

Caches do not feed it, so evictions in the engines go unnoticed (SGLang's gateway works this way). Where it forgets
after a time too (Dynamo's approximate index), a page is known until it has not been sent for `memory_ttl_s`.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.eviction import evict_run
from cacheenv.sim.cache.pages import full_pages
from cacheenv.sim.cache.radix import forest_of, free_pages, insert, oldest_leaf
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.central import BITS
from cacheenv.sim.state.codes import NONE
from cacheenv.sim.state.ids import memory_tree


@once
def _is_remembered(w, block):
    for word in range(w.remembered.shape[1]):
        if w.remembered[block, word]:
            return True
    return False


@once
def remember(w, p, index):
    """The request's prompt is sent to prefill part `p`; the oldest tails beyond the limit are forgotten."""
    tree_index = memory_tree(w, p)
    start = w.workload[index].block_start
    word = p // BITS
    bit = 1 << (p % BITS)
    count = min(full_pages(w, index), w.tree[tree_index].capacity_pages)
    forest = forest_of(w)
    present, node = insert(forest, tree_index, start, count)
    for at in range(start + present, start + count):
        block = w.blocks[at]
        if not _is_remembered(w, block):
            w.first_sent[block] = p
        w.remembered[block, word] |= bit
    if w.config[0].memory_expires:
        _stamp(w, node)
    while free_pages(forest, tree_index) < 0:
        _forget(w, p, -free_pages(forest, tree_index))


@inner
def _forget(w, p, pages):
    """Forgets up to `pages` pages of the oldest path that was sent to `p`, from its tail."""
    tree_index = memory_tree(w, p)
    word = p // BITS
    bit = 1 << (p % BITS)
    taken = evict_run(forest_of(w), tree_index, pages)
    first = w.tree[tree_index].run_start
    for at in range(first, first + taken):
        w.remembered[w.blocks[at], word] &= ~bit


@once
def _stamp(w, index):
    """The path to node `index` is sent now; what an insert has cut off its edges is part of that path or older."""
    while w.node[index].parent >= 0:
        w.node[index].sent_s = w.state[0].now_s
        index = np.int64(w.node[index].parent)


@once
def _expire(w, p):
    """Forgets what has not been sent to `p` for too long: the oldest path is the one that was sent the longest ago."""
    tree_index = memory_tree(w, p)
    forest = forest_of(w)
    oldest = oldest_leaf(forest, tree_index)
    while oldest >= 0 and w.state[0].now_s - w.node[oldest].sent_s >= w.config[0].memory_ttl_s:
        _forget(w, p, np.int64(w.node[oldest].length))
        oldest = oldest_leaf(forest, tree_index)


@once
def recall(w, index):
    """What the router remembers of a request's prompt: pages on every instance, the longest and its owner.

    The owner is the instance whose dispatch first created the deepest remembered page, if that instance still
    remembers it, else the lowest that does (the gateway's "last tenant, otherwise the first").
    """
    lookup = w.lookup[0]
    deepest, owner = 0, NONE
    if w.config[0].memory_enabled:
        start, count = w.workload[index].block_start, full_pages(w, index)
        for p in range(w.prefill.shape[0]):
            if w.config[0].memory_expires:
                _expire(w, p)
            word = p // BITS
            bit = 1 << (p % BITS)
            depth = 0
            while depth < count and w.remembered[w.blocks[start + depth], word] & bit:
                depth += 1
            w.hit[p].memory_pages = depth
            if depth > deepest:
                deepest, owner = depth, p
        if deepest > 0:
            creator = w.first_sent[w.blocks[start + deepest - 1]]
            if creator >= 0 and w.hit[creator].memory_pages == deepest:
                owner = creator
    lookup.memory_pages = deepest
    lookup.memory_instance = owner
