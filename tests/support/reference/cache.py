"""The prefix cache of one instance, page by page, and the index that the router has of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .eviction import next_victims, pages_to_evict


@dataclass
class Page:
    """A cached page: when it was last touched, how many hold it, what stands before it.

    `uses` counts the inserts of paths with it, `inserted` numbers the insert that brought it. It begins an edge of the
    compressed tree where an insert began to add pages, or where a look-up ended before it.
    """

    touch: int
    locks: int
    depth: int
    parent: int | None
    inserted: int
    begins_edge: bool
    uses: int = 0
    hit_times_s: list[float] = field(default_factory=list)  # hits in its present window, where hot pages are copied


def ignore(block: int, stored: bool) -> None:
    """A listener that does not listen."""


class PageCache:
    """Cached pages (prefix-closed) and pages private to running requests, together at most `capacity` pages.

    `listener(block, stored)` hears of every page that enters or leaves.
    """

    def __init__(self, capacity: int, listener: Callable[[int, bool], None] = ignore, eviction: str = "lru") -> None:
        """An empty cache of `capacity` pages."""
        self.capacity = capacity
        self.eviction = eviction
        self.listener = listener
        self.pages: dict[int, Page] = {}
        self.private = 0
        self.clock = 0
        self.inserts = 0
        self.keep: Callable[[list[int]], None] | None = None  # is given the path of each page that goes

    def free(self) -> int:
        """Pages that nobody uses."""
        return self.capacity - len(self.pages) - self.private

    def evictable(self) -> int:
        """Unlocked pages. A page under a locked one may go, one above it never: all unlocked pages are evictable."""
        return sum(page.locks == 0 for page in self.pages.values())

    def touch(self, path: Sequence[int]) -> None:
        """Gives all pages of a path the same new touch number."""
        self.clock += 1
        for block in path:
            self.pages[block].touch = self.clock

    def peek(self, blocks: Sequence[int], limit: int) -> int:
        """Cached leading pages of a prompt, at most `limit`; touches nothing."""
        count = 0
        while count < limit and blocks[count] in self.pages:
            count += 1
        return count

    def match(self, blocks: Sequence[int], limit: int) -> int:
        """As `peek`, and touches the matched path."""
        count = self.peek(blocks, limit)
        self.part(blocks[:count])
        self.touch(blocks[:count])
        return count

    def part(self, path: Sequence[int]) -> None:
        """A look-up ended behind a path: what follows begins an edge."""
        for page in self.pages.values():
            if path and page.parent == path[-1]:
                page.begins_edge = True

    def lock(self, path: Sequence[int]) -> None:
        """Holds every page of a path."""
        for block in path:
            self.pages[block].locks += 1

    def unlock(self, path: Sequence[int]) -> None:
        """Lets a path go; pages that nobody holds any more count as used just now."""
        for block in path:
            self.pages[block].locks -= 1
            assert self.pages[block].locks >= 0, "unlocked more often than locked"
        self.touch([block for block in path if self.pages[block].locks == 0])

    def evict(self) -> int:
        """Removes what goes first.

        Returns:
            How many pages that were.
        """
        victims = next_victims(self)
        for block in victims:
            path = [block]
            while (parent := self.pages[path[0]].parent) is not None:
                path.insert(0, parent)
            del self.pages[block]
            self.listener(block, False)
            if self.keep is not None:
                self.keep(path)
        return len(victims)

    def reserve(self, count: int) -> bool:
        """Makes `count` pages private, evicting for them; changes nothing where they cannot fit."""
        if count > self.free() + self.evictable():
            return False
        wanted = pages_to_evict(self, count)
        while wanted > 0 and self.evictable() > 0:
            wanted -= self.evict()
        self.private += count
        return True

    def release(self, count: int) -> None:
        """Frees private pages."""
        self.private -= count
        assert self.private >= 0

    def insert(self, path: Sequence[int], first_private: int) -> None:
        """Puts a path in the cache; its pages from `first_private` on are the inserter's private pages.

        A private page becomes a cached one, or is freed where the cache has that page already.
        """
        self.release(len(path) - first_private)
        present = self.peek(path, len(path))
        self.part(path[:present])
        self.inserts += 1
        for depth, block in enumerate(path):
            parent = path[depth - 1] if depth else None
            if block not in self.pages:
                assert depth >= first_private, "a page of a locked path is gone"
                self.pages[block] = Page(0, 0, depth, parent, self.inserts, depth == present)
                self.listener(block, True)
            self.pages[block].uses += 1
            assert self.pages[block].parent == parent, "a block id must name all tokens before it"
        self.touch(path)
        self.check()

    def insert_what_fits(self, path: Sequence[int]) -> int:
        """Inserts a path that nobody has paid for: evicts what it can, drops the tail that does not fit.

        Where nothing of it is added, it is looked up only.

        Returns:
            Pages of the path that are cached now.
        """
        present = self.match(path, len(path))
        self.lock(path[:present])
        count = min(len(path) - present, self.free() + self.evictable())
        assert self.reserve(count)
        self.unlock(path[:present])
        if count > 0:
            self.insert(path[: present + count], present)
        return present + count

    def check(self) -> None:
        """The accounting rules that hold at all times."""
        assert self.private >= 0
        assert self.free() >= 0
        for page in self.pages.values():
            assert page.locks >= 0
            if page.parent is not None:
                above = self.pages[page.parent]
                assert above.depth == page.depth - 1
                assert above.locks >= page.locks


class PrefixIndex:
    """What the router believes: for every block, the instances that hold it, and those that were sent it."""

    def __init__(self) -> None:
        """An index that knows nothing."""
        self.holders: dict[int, set[int]] = {}
        self.sent: dict[int, set[int]] = {}  # and no event of it has come from there since

    def apply(self, instance: int, block: int, stored: bool) -> None:
        """Takes in one stored or removed event."""
        self.sent.get(block, set()).discard(instance)
        holders = self.holders.setdefault(block, set())
        if stored:
            holders.add(instance)
        else:
            holders.discard(instance)

    def assign(self, instance: int, path: Sequence[int]) -> None:
        """Takes in that a prompt is sent to an instance."""
        for block in path:
            self.sent.setdefault(block, set()).add(instance)

    def stored_pages(self, blocks: Sequence[int], limit: int, instance: int) -> int:
        """Leading pages of a prompt that are stored on `instance` by the events, at most `limit`."""
        count = 0
        while count < limit and instance in self.holders.get(blocks[count], ()):
            count += 1
        return count

    def hit_pages(self, blocks: Sequence[int], limit: int, instance: int) -> int:
        """The same with what is believed to come there."""
        count = 0
        while count < limit and any(instance in table.get(blocks[count], ()) for table in (self.holders, self.sent)):
            count += 1
        return count
