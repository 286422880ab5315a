"""The shards of the index: each takes in one event after the other, and loses those that would wait too long a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .cache import PrefixIndex
from .cluster import ReferenceCluster, ReferenceRequest

Event = tuple[int, int, bool]  # instance, block, stored


def mixed(number: int) -> int:
    """The 32-bit integer hash with the constant 0x45D9F3B."""
    for _ in range(2):
        number = ((number >> 16) ^ number) * 0x45D9F3B % 2**32
    return (number >> 16) ^ number


class Shards:
    """Where the news of the caches go, before the index has them.

    `promise(time, shard)` sees to it that :meth:`take_in` is called at a time.
    """

    def __init__(
        self,
        cluster: ReferenceCluster,
        index: PrefixIndex,
        requests: Sequence[ReferenceRequest],
        promise: Callable[[float, int], None],
    ) -> None:
        """Shards at which nothing waits."""
        self.cluster, self.index, self.promise = cluster, index, promise
        self.lines: list[list[Event]] = [[] for _ in range(cluster.shards)]
        self.free_s = [0.0] * cluster.shards
        self.lost = 0
        self.number_of: dict[int, int] = {}  # pages by their first appearance, those of answers behind
        for path in [*(request.blocks for request in requests), *(request.answer_blocks for request in requests)]:
            for block in path:
                self.number_of.setdefault(block, len(self.number_of))

    def arrive(self, event: Event, now: float) -> None:
        """An event arrives."""
        if self.cluster.events_per_s is None:
            self.index.apply(*event)
            return
        shard = mixed(self.number_of[event[1]]) % self.cluster.shards
        if len(self.lines[shard]) >= self.cluster.high_water:
            self.lost += 1
            return
        self.lines[shard].append(event)
        self.free_s[shard] = max(now, self.free_s[shard]) + 1.0 / self.cluster.events_per_s
        self.promise(self.free_s[shard], shard)

    def take_in(self, shard: int) -> None:
        """The first event of a line has been taken in."""
        self.index.apply(*self.lines[shard].pop(0))
