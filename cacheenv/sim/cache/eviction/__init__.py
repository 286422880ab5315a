"""What goes when a cache is full: a file a kind.

A kind has `evict(forest, tree_index, wanted)`: takes pages off one unlocked leaf with
:func:`cacheenv.sim.cache.radix.trim` and returns how many, 0 where nothing may be evicted; it is called until `wanted`
pages have gone. What went stands in the tree's `run_start` and `run_pages`.
"""

from __future__ import annotations

from cacheenv.sim.cache.eviction import lru
from cacheenv.sim.core.jit import jit
from cacheenv.sim.core.kinds import by_code

#: Value of `cluster.prefill.eviction` -> the kind. New ones go to the end: the place is the code.
EVICTIONS = {"lru": lru}

_evict = by_code([kind.evict for kind in EVICTIONS.values()])


@jit
def evict_run(forest, tree_index, wanted):
    """Evicts pages of one leaf by the tree's kind of eviction; returns how many (0: nothing may be evicted)."""
    return _evict(forest.tree[tree_index].eviction, forest, tree_index, wanted)
