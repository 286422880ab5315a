"""`lru_node`: the least recently used leaf as a whole, as SGLang's `RadixCache` evicts.

A leaf is what follows the last place where paths part, or where a look-up ended. More may go than is needed.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import oldest_leaf, trim
from cacheenv.sim.core.jit import jit


@jit
def evict(forest, tree_index, wanted):
    """Evicts the least recently used leaf; returns its pages, 0 where nothing may be evicted."""
    leaf = oldest_leaf(forest, tree_index)
    return trim(forest, leaf, forest.node[leaf].length) if leaf >= 0 else 0
