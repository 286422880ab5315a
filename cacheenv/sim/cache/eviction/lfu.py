"""`lfu`: single pages, those of the least used leaf first (SGLang's `lfu`, the LFU of Mooncake's cache study).

A page is used each time that a prompt, a pulled prefix or an answer that contains it is inserted. Equally often used
leaves go least recently used first. Each eviction looks at all unlocked leaves.
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
        if node[index].children == 0 and (best < 0 or node[index].hits < node[best].hits):
            best = index
        index = node[index].newer
    return trim(forest, best, wanted) if best >= 0 else 0
