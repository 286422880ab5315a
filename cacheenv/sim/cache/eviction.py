"""What goes when a tree is full: single pages from the end of the least recently used leaf (vLLM, Mooncake)."""

from __future__ import annotations

from cacheenv.sim.cache.radix import trim
from cacheenv.sim.core.jit import jit


@jit
def victim(forest, tree_index):
    """The unlocked leaf that goes next, -1 where there is none."""
    return forest.tree[tree_index].oldest


@jit
def evict_run(forest, tree_index, wanted):
    """Evicts up to `wanted` pages of one leaf; returns how many (0: nothing may be evicted).

    The pages that went are `blocks[run_start : run_start + run_pages]` of the tree's row.
    """
    index = victim(forest, tree_index)
    if index < 0:
        return 0
    return trim(forest, index, wanted)
