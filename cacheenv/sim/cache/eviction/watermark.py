"""`watermark`: pages as `lru`, but in batches: what would fill the cache beyond 90 % makes it go down to 85 %.

This is Mooncake Store's rule (`mooncake-store/src/master_service.cpp`): above the high watermark of 90 %, or where an
allocation fails, a batch goes, of 5 % of the capacity and what the fill is above the mark. It evicts objects by the age
of their lease, here pages by their last use. Locked pages stay, so the batch may be smaller.
"""

from __future__ import annotations

from cacheenv.sim.cache.eviction import lru
from cacheenv.sim.cache.radix import free_pages, used_pages
from cacheenv.sim.core.jit import jit

HIGH_PERCENT = 90  # fill above which a batch goes
BATCH_PERCENT = 5

evict = lru.evict


@jit
def wanted(forest, tree_index, pages):
    """Pages to evict before `pages` pages are taken: those that are missing, and those of a batch if it is due."""
    capacity = forest.tree[tree_index].capacity_pages
    used = used_pages(forest, tree_index) + pages
    if pages > 0 and 100 * used > HIGH_PERCENT * capacity:
        return used - (HIGH_PERCENT - BATCH_PERCENT) * capacity // 100
    return pages - free_pages(forest, tree_index)
