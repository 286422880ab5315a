"""What goes when a cache is full: a file a kind.

A kind has `evict(forest, tree_index, wanted)`: takes pages off one unlocked leaf with
:func:`cacheenv.sim.cache.radix.trim` and returns how many, which may be more than `wanted`, and 0 where nothing may be
evicted. It is called again until at least as many have gone as are needed. :func:`cacheenv.sim.cache.radix.oldest_leaf`
is the least recently used leaf. What went begins at the tree's `run_start`. The first line of a kind's
docstring is its line in `docs/simulator.md`.
"""

from __future__ import annotations

from cacheenv.sim.cache.eviction import lru
from cacheenv.sim.core.jit import jit
from cacheenv.sim.core.kinds import by_code

#: Value of `cluster.prefill.eviction` -> the kind. New ones go to the end: the place is the code, and the first one
#: serves the store and the router's memory.
EVICTIONS = {"lru": lru}

_evict = by_code([kind.evict for kind in EVICTIONS.values()])


@jit
def evict_run(forest, tree_index, wanted):
    """Evicts pages of one leaf by the tree's kind of eviction; returns how many (0: nothing may be evicted)."""
    return _evict(forest.tree[tree_index].eviction, forest, tree_index, wanted)
