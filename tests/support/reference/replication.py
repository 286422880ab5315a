"""Copies of what is hit often on one prefill instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cache import PageCache
from .live import LiveRequest

if TYPE_CHECKING:
    from .simulator import ReferenceSimulator


class Replication:
    """Counts the hits of each cached page, in windows that begin with a hit, and sends hot paths to others."""

    def __init__(self, sim: ReferenceSimulator) -> None:
        """Nothing has been hit, nothing is on its way."""
        self.sim = sim
        self.under_way: dict[int, tuple[int, ...]] = {}  # instance -> path that is being sent to it
        self.last_target: int | None = None
        self.copies = [0] * sim.cluster.num_prefill
        self.copied_tokens = [0] * sim.cluster.num_prefill
        self.unplaced = 0  # copies that did not fit where they should have gone

    def delivered(self, live: LiveRequest, prefill: int, now: float) -> None:
        """A prompt has got its hit on an instance."""
        cluster = self.sim.cluster
        if cluster.replication_hits is None:
            return
        pages, path = self.sim.caches[prefill].pages, live.blocks[: live.hit_pages]
        deepest = 0
        for depth, block in enumerate(path):
            page = pages[block]
            page.hit_times_s = [time for time in page.hit_times_s if now - page.hit_times_s[0] <= cluster.window_s]
            page.hit_times_s.append(now)
            if len(page.hit_times_s) > cluster.replication_hits:
                deepest = depth + 1
        if deepest == 0:
            return
        for block in path[:deepest]:
            pages[block].hit_times_s = []
        self._copy(path[:deepest], prefill, now)

    def _copy(self, path: tuple[int, ...], prefill: int, now: float) -> None:
        """Sends a path to the instance with the least to do that lacks it, if there may be one more."""
        sim, cluster = self.sim, self.sim.cluster
        others = [index for index in range(cluster.num_prefill) if index != prefill]
        without = [index for index in others if not self._holds(index, path)]
        lacking = [index for index in without if self.under_way.get(index, ())[: len(path)] != path]
        idle = [index for index in lacking if index not in self.under_way]
        free = [index for index in idle if self._room(index) >= len(path)]
        self.unplaced += bool(idle and not free)
        if not free or cluster.num_prefill - len(lacking) >= cluster.replicas:
            return
        last = prefill if self.last_target is None else self.last_target

        def rank(index: int) -> tuple[int, int]:
            instance = sim.prefill[index]
            return len(instance.queue) + len(instance.running), (index - last - 1) % cluster.num_prefill

        target = min(free, key=rank)
        self._start(path, prefill, target, now)
        self.last_target = target

    def _room(self, index: int) -> int:
        sink = self._landing(index)
        return sink.free() + sink.evictable()

    def _landing(self, index: int) -> PageCache:
        """Where a copy arrives."""
        host = self.sim.prefill[index].host
        return self.sim.caches[index] if host is None else host

    def _holds(self, index: int, path: tuple[int, ...]) -> bool:
        tiers = [self.sim.caches[index], *self.sim.hosts[index : index + 1]]
        return any(tier.peek(path, len(path)) == len(path) for tier in tiers)

    def _start(self, path: tuple[int, ...], prefill: int, target: int, now: float) -> None:
        sim, cluster = self.sim, self.sim.cluster
        source = sim.caches[prefill]
        sink = self._landing(target)
        present = sink.match(path, len(path))
        on_gpu = sim.caches[target].peek(path, len(path))
        sent = len(path) - max(present, on_gpu)
        sink.lock(path[:present])
        assert sink.reserve(len(path) - present)
        source.lock(path)
        self.under_way[target] = path

        def end(now: float) -> None:
            sink.insert(path, present)
            sink.unlock(path[:present])
            source.unlock(path)
            del self.under_way[target]
            self.copies[target] += 1
            self.copied_tokens[target] += sent * cluster.page_tokens
            sim.wake_prefill(target, now)
            sim.wake_prefill(prefill, now)

        byte_count = sent * cluster.page_tokens * sim.transfers.token_bytes(prefill, target)
        sim.links.start(now, prefill, target, byte_count, sim.transfers.latency_s(prefill, target, sent), end)
