"""`lru`: single pages, exactly as many as are needed (vLLM's block pool, Mooncake).

The least recently used unlocked page that has no cached page behind it goes first, so a path goes from its tail.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import oldest_leaf, trim
from cacheenv.sim.core.jit import jit


@jit
def evict(forest, tree_index, wanted):
    """Evicts up to `wanted` pages of one leaf; returns how many, 0 where nothing may be evicted."""
    leaf = oldest_leaf(forest, tree_index)
    return trim(forest, leaf, wanted) if leaf >= 0 else 0
