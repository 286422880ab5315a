"""Making room in a holder's cache and filling it; the index is fed with both."""

from __future__ import annotations

from cacheenv.sim.cache.eviction import evict_run, wanted_pages
from cacheenv.sim.cache.radix import forest_of, insert_below, obtainable_pages
from cacheenv.sim.core.jit import inner
from cacheenv.sim.index.central import publish
from cacheenv.sim.state.codes import REMOVED, STORED


@inner
def make_room(w, tree_index, pages):
    """Evicts until `pages` pages are free in the tree; False (and nothing evicted) when that cannot be.

    More go where the tree's kind of eviction works in batches or in whole leaves.
    """
    forest = forest_of(w)
    if obtainable_pages(forest, tree_index) < pages:
        return False
    wanted = wanted_pages(forest, tree_index, pages)
    row = w.tree[tree_index]
    while wanted > 0:
        taken = evict_run(forest, tree_index, wanted)
        if taken == 0:  # the rest of a batch is locked
            return True
        publish(w, row.holder, row.run_start, taken, REMOVED)
        wanted -= taken
    return True


@inner
def add_pages(w, tree_index, start, count):
    """Inserts a path of full pages and tells the index: (pages already present, deepest node)."""
    return add_below(w, tree_index, w.tree[tree_index].root, start, count)


@inner
def add_below(w, tree_index, index, start, count):
    """The same for pages that follow the path to node `index`."""
    present, leaf = insert_below(forest_of(w), tree_index, index, start, count)
    publish(w, w.tree[tree_index].holder, start + present, count - present, STORED)
    return present, leaf
