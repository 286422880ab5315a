"""Making room in a holder's cache and filling it; the index, and the prices of what waits, are fed with both.

With `host_write: write_back` what leaves a GPU is copied to host memory, with what stands before it where that is not
there: each tier holds whole prefixes.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.eviction import evict_run, wanted_pages
from cacheenv.sim.cache.radix import forest_of, insert_below, lock, match_below, obtainable_pages, unlock
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.backlog import price_evicted, price_stored
from cacheenv.sim.index.central import publish
from cacheenv.sim.state.codes import REMOVED, STORED
from cacheenv.sim.state.ids import has_host, host_tree_of


@inner
def make_room(w, tree_index, pages):
    """Evicts until `pages` pages are free in the tree; False (and nothing evicted) when that cannot be.

    More go where the tree's kind of eviction works in batches or in whole leaves.
    """
    forest = forest_of(w)
    if obtainable_pages(forest, tree_index) < pages:
        return False
    wanted = wanted_pages(forest, tree_index, pages)
    if w.config[0].host_write_back and tree_index < w.prefill.shape[0] and has_host(w, tree_index):
        _move_to_host(w, tree_index, wanted)
    else:
        _drop(w, tree_index, wanted)
    return True


@inner
def _drop(w, tree_index, wanted):
    """Evicts at least `wanted` pages, or all that no lock protects."""
    forest, row = forest_of(w), w.tree[tree_index]
    while wanted > 0:
        taken = evict_run(forest, tree_index, wanted)
        if taken == 0:  # the rest of a batch is locked
            return
        publish(w, row.holder, row.run_start, taken, REMOVED)
        price_evicted(w, row.holder, row.run_start, taken)
        wanted -= taken


@once
def _move_to_host(w, tree_index, wanted):
    """The same from a GPU whose host memory takes what goes, as far as it fits there."""
    forest, row = forest_of(w), w.tree[tree_index]
    host = host_tree_of(w, row.holder)
    while wanted > 0:
        taken = evict_run(forest, tree_index, wanted)
        if taken == 0:
            return
        publish(w, row.holder, row.run_start, taken, REMOVED)
        price_evicted(w, row.holder, row.run_start, taken)
        _keep(w, tree_index, host, taken)
        wanted -= taken


@inner
def _keep(w, tree_index, host, taken):
    """The `taken` pages that have just left a GPU's tree go to its host's, with the path before them, root first.

    The path is told by its nodes: the ids of an answer do not stand behind those of its prompt in `blocks`.
    """
    forest, row = forest_of(w), w.tree[tree_index]
    node, before = forest.node, row.run_before
    length, index = 0, before
    while index != row.root:
        length += 1
        index = node[index].parent
    end = w.tree[host].root
    for level in range(length - 1, -1, -1):
        index = before
        for _ in range(level):
            index = node[index].parent
        pages = np.int64(node[index].length)
        there, end = add_what_fits(w, host, end, node[index].start, pages)
        if there < pages:
            return
    add_what_fits(w, host, end, row.run_start, taken)


@inner
def add_pages(w, tree_index, start, count):
    """Inserts a path of full pages and tells the index: (pages already present, deepest node)."""
    return add_below(w, tree_index, w.tree[tree_index].root, start, count)


@inner
def add_below(w, tree_index, index, start, count):
    """The same for pages that follow the path to node `index`."""
    present, leaf = insert_below(forest_of(w), tree_index, index, start, count)
    publish(w, w.tree[tree_index].holder, start + present, count - present, STORED)
    price_stored(w, w.tree[tree_index].holder, start + present, count - present)
    return present, leaf


@inner
def add_what_fits(w, tree_index, index, start, count):
    """Inserts pages that follow the path to node `index`, for which nobody has made room, as far as they fit.

    The tail is dropped. Returns (pages that are there now, deepest node).
    """
    forest = forest_of(w)
    present, node = match_below(forest, tree_index, index, start, count)
    lock(forest, tree_index, node)
    added = min(count - present, obtainable_pages(forest, tree_index))
    deepest = node
    if added > 0:
        _drop(w, tree_index, wanted_pages(forest, tree_index, added))
        _, deepest = add_below(w, tree_index, node, start + present, added)
    unlock(forest, tree_index, node)
    return present + added, deepest
