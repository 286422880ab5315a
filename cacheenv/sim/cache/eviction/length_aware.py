"""`length_aware`: as `lfu`, but of equally often used pages the one that stands latest in its prompt goes first.

This is the LengthAwareCache of Mooncake's cache study (arXiv 2407.00079, section 4.2). Of equal ones the least recently
used goes. Each eviction looks at all unlocked leaves.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import end_depth, trim
from cacheenv.sim.core.jit import jit


@jit
def evict(forest, tree_index, wanted):
    """Evicts up to `wanted` pages of one leaf; returns how many, 0 where nothing may be evicted.

    The deepest leaf of the least used ones is cut back to where the next one of them ends, by one page at least.
    """
    node = forest.node
    best, depth, next_depth = -1, 0, 0
    index = forest.tree[tree_index].oldest
    while index >= 0:
        if node[index].children == 0:
            end = end_depth(forest, index)
            if best < 0 or node[index].hits < node[best].hits:
                best, depth, next_depth = index, end, 0
            elif node[index].hits == node[best].hits:
                if end > depth:
                    best, depth, next_depth = index, end, depth
                else:
                    next_depth = max(next_depth, end)
        index = node[index].newer
    return trim(forest, best, min(wanted, max(1, depth - next_depth))) if best >= 0 else 0
