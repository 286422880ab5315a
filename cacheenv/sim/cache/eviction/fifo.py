"""`fifo`: single pages, those of the leaf that was cached first; use does not count (SGLang's `fifo`).

SGLang gives the upper part of a split edge the time of the split; here both parts keep theirs. Each eviction looks at
all unlocked leaves.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import trim
from cacheenv.sim.core.jit import jit


@jit
def evict(forest, tree_index, wanted):
    """Evicts up to `wanted` pages of one leaf; returns how many, 0 where nothing may be evicted."""
    node = forest.node
    best = -1
    index = forest.tree[tree_index].oldest
    while index >= 0:
        if node[index].children == 0 and (best < 0 or node[index].number < node[best].number):
            best = index
        index = node[index].newer
    return trim(forest, best, wanted) if best >= 0 else 0
