"""Which pages go from a full cache, by the name of the kind of eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cache import PageCache


def pages_to_evict(cache: PageCache, count: int) -> int:
    """Pages that shall go before `count` pages are taken."""
    missing = count - cache.free()
    after = len(cache.pages) + cache.private + count
    if cache.eviction == "watermark" and count > 0 and 10 * after > 9 * cache.capacity:
        return after - cache.capacity * 85 // 100
    return missing


def next_victims(cache: PageCache) -> list[int]:
    """The pages that go next, together, tail first; empty where no page may go.

    Only pages that nobody holds and on which no cached page stands may go. `lru_node` takes the last one's whole edge.
    """
    parents = {page.parent for page in cache.pages.values()}
    leaves = [block for block, page in cache.pages.items() if page.locks == 0 and block not in parents]
    if not leaves:
        return []

    def order(block: int) -> tuple[int, ...]:
        page = cache.pages[block]
        if cache.eviction == "lfu":
            return page.uses, page.touch
        if cache.eviction == "length_aware":
            return page.uses, -page.depth, page.touch
        if cache.eviction == "fifo":
            return (page.inserted,)
        return (page.touch,)

    ordered = sorted(leaves, key=order)
    assert len(ordered) == 1 or order(ordered[0]) < order(ordered[1]), "a tie"
    victims = ordered[:1]
    while cache.eviction == "lru_node" and not cache.pages[victims[-1]].begins_edge:
        parent = cache.pages[victims[-1]].parent
        assert parent is not None
        victims.append(parent)
    return victims
