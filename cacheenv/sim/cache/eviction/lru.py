"""`lru`: single pages, from the end of the least recently used leaf (vLLM's block pool, Mooncake)."""

from __future__ import annotations

from cacheenv.sim.cache.radix import oldest_leaf, trim
from cacheenv.sim.core.jit import jit


@jit
def evict(forest, tree_index, wanted):
    """Evicts up to `wanted` pages of one leaf; returns how many, 0 where nothing may be evicted."""
    leaf = oldest_leaf(forest, tree_index)
    return trim(forest, leaf, wanted) if leaf >= 0 else 0
