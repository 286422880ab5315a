"""What goes when a cache is full: a file a kind.

A kind has `evict(forest, tree_index, wanted)`: takes pages off one unlocked leaf with
:func:`cacheenv.sim.cache.radix.trim` and returns how many, which may be more than `wanted`, and 0 where nothing may be
evicted. It is called again until at least as many have gone as are needed. :func:`cacheenv.sim.cache.radix.oldest_leaf`
is the least recently used leaf; from it the row's `newer` leads over all unlocked nodes. What went begins at the tree's
`run_start`. A kind that evicts before the cache is full has `wanted(forest, tree_index, pages)` too: how many pages
shall go before `pages` pages are taken; fewer than are missing only if more cannot be had. The first line of a kind's
docstring is its line in `docs/simulator.md`.
"""

from __future__ import annotations

from cacheenv.sim.cache.eviction import fifo, length_aware, lfu, lru, lru_node, watermark
from cacheenv.sim.cache.radix import free_pages
from cacheenv.sim.core.jit import jit
from cacheenv.sim.core.kinds import by_code

#: Value of `cluster.prefill.eviction` -> the kind. New ones go to the end: the place is the code, and the first one
#: serves the router's memory.
EVICTIONS = {
    "lru": lru,
    "lru_node": lru_node,
    "lfu": lfu,
    "fifo": fifo,
    "length_aware": length_aware,
    "watermark": watermark,
}


@jit
def _missing(forest, tree_index, pages):
    """Pages to evict before `pages` pages are taken, for kinds that evict when the cache is full."""
    return pages - free_pages(forest, tree_index)


_evict = by_code([kind.evict for kind in EVICTIONS.values()])
_wanted = by_code([getattr(kind, "wanted", _missing) for kind in EVICTIONS.values()])


@jit
def wanted_pages(forest, tree_index, pages):
    """How many pages shall be evicted before `pages` pages are taken; all that are missing must, the rest if it can."""
    return _wanted(forest.tree[tree_index].eviction, forest, tree_index, pages)


@jit
def evict_run(forest, tree_index, wanted):
    """Evicts pages of one leaf by the tree's kind of eviction; returns how many (0: nothing may be evicted)."""
    return _evict(forest.tree[tree_index].eviction, forest, tree_index, wanted)
