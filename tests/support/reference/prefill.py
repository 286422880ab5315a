"""A prefill instance: its queue, how it forms a batch, how long the batch takes."""

from __future__ import annotations

from dataclasses import dataclass

from .cache import PageCache
from .cluster import ReferenceCluster
from .live import LiveRequest
from .queues import Draw, put_in_order


@dataclass
class Piece:
    """New tokens of one request in a batch, behind `before` tokens that are there already."""

    live: LiveRequest
    tokens: int
    before: int
    loaded: int = 0  # tokens that are loaded from host memory for it

    def completes(self) -> bool:
        """Whether the prompt is done with it."""
        return self.before + self.tokens == self.live.prompt_tokens


def batch_seconds(cluster: ReferenceCluster, pieces: list[Piece]) -> float:
    """max(d, a + b*sum n + c*sum(n^2 + 2*max(n, n_tile)*p))."""
    tokens = sum(piece.tokens for piece in pieces)
    attention = sum(piece.tokens**2 + 2 * max(piece.tokens, cluster.n_tile) * piece.before for piece in pieces)
    seconds = cluster.prefill_a_s + cluster.prefill_b_s * tokens + cluster.prefill_c_s * attention
    return max(cluster.min_prefill_s, seconds)


def seconds_with_load(cluster: ReferenceCluster, compute_s: float, tokens: int) -> float:
    """A batch that needs `tokens` tokens from host memory: layers in two stages, or one thing after the other."""
    if tokens == 0:
        return compute_s
    load_s = tokens * cluster.kv_bytes_per_token / cluster.host_bytes_per_s
    if cluster.load == "blocking":
        return cluster.host_setup_s + load_s + compute_s
    longer, shorter = max(load_s, compute_s), min(load_s, compute_s)
    return cluster.host_setup_s + longer + shorter / cluster.layers


class PrefillInstance:
    """State of one prefill instance."""

    def __init__(
        self,
        index: int,
        cluster: ReferenceCluster,
        cache: PageCache,
        host: PageCache | None,
        draw: Draw | None = None,
    ) -> None:
        """Idle and empty."""
        self.host = host
        self.index = index
        self.cluster = cluster
        self.cache = cache
        self.queue: list[LiveRequest] = []
        self.batch: list[Piece] = []
        self.batch_s = 0.0
        self.batch_end_s = 0.0
        self.chunked: LiveRequest | None = None  # prompt of which a part is computed
        self.running: list[LiveRequest] = []  # from their admission to the end of their hand-over
        self.start_pending = False
        self.draw = draw
        self.rounds = 0
        self.busy_s = 0.0
        self.computed_tokens = 0

    def form_batch(self) -> list[Piece]:
        """Takes the next batch from the queue; empty if nothing waits or the head does not fit in the cache."""
        cluster = self.cluster
        put_in_order(self)
        pieces: list[Piece] = []
        budget = cluster.batch_tokens
        if self.chunked is not None:
            piece = self._next_chunk(self.chunked, budget)
            pieces.append(piece)
            budget -= piece.tokens
            if piece.completes():
                self.chunked = None
        for live in list(self.queue):
            if live.pulling:
                continue
            if len(pieces) >= cluster.max_batch_requests or budget <= 0:
                break
            admitted = self._admit(live, budget, batch_is_empty=not pieces)
            if admitted is None:
                break
            self.queue.remove(live)
            pieces.append(admitted)
            budget -= admitted.tokens
            if not admitted.completes():
                self.chunked = live
                break
        return pieces

    def _next_chunk(self, live: LiveRequest, budget: int) -> Piece:
        """The next piece of the chunked prompt."""
        page = self.cluster.page_tokens
        left = live.prompt_tokens - live.present_tokens
        limit = min(self.cluster.chunk_tokens, budget)
        tokens = left if left <= limit else min(left, max(page, limit // page * page))
        return Piece(live, tokens, live.present_tokens)

    def _admit(self, live: LiveRequest, budget: int, batch_is_empty: bool) -> Piece | None:
        """Says how much of a prompt this batch computes; locks what is cached and makes room for the rest.

        None, and nothing locked or evicted, where the prompt cannot be part of this batch.
        """
        cluster, page = self.cluster, self.cluster.page_tokens
        gpu_pages = self.cache.match(live.blocks, live.matchable)
        hit_pages = gpu_pages
        if self.host is not None:
            hit_pages = max(gpu_pages, self.host.match(live.blocks, live.matchable))
        new = live.prompt_tokens - hit_pages * page
        if not batch_is_empty and cluster.chunk_tokens == 0 and new > budget:
            return None
        limit = min(cluster.chunk_tokens, budget) if cluster.chunk_tokens > 0 else new
        tokens = new
        if new > limit:
            if self.chunked is not None:  # one prompt at a time is in chunks
                return None
            tokens = limit // page * page
            if tokens == 0 and batch_is_empty:
                tokens = min(new, page)
            if tokens == 0:
                return None
        path, gpu_path = live.blocks[:hit_pages], live.blocks[:gpu_pages]
        in_host = path[: self.host.peek(path, hit_pages)] if self.host is not None else ()
        if self.host is not None:
            self.host.lock(in_host)
        self.cache.lock(gpu_path)
        needed = len(live.blocks) - gpu_pages
        if batch_is_empty and not self.running:
            # Nobody who runs will make room. From the end of the queue, the others give up what they hold.
            for other in reversed(self.queue):
                if needed <= self.cache.free() + self.cache.evictable():
                    break
                if other is not live:
                    self.hold(other, ())
        fits = self.cache.reserve(needed)
        if self.host is not None:
            self.host.unlock(in_host)
        if not fits:
            self.cache.unlock(gpu_path)
            return None
        self.hold(live, ())
        self.running.append(live)
        if hit_pages > gpu_pages:  # the pages from the host are on the GPU from now on
            self.cache.insert(path, gpu_pages)
            self.cache.lock(path)
            self.cache.unlock(gpu_path)
        if self.host is not None:
            self.host.unlock(live.held_on_host)
            live.held_on_host = ()
        private_pages = len(live.blocks) - hit_pages
        live.record.hit_gpu_tokens = gpu_pages * page
        live.record.hit_host_tokens = (hit_pages - gpu_pages) * page
        live.hit_pages = hit_pages
        live.present_tokens = hit_pages * page
        live.private_pages = private_pages
        live.record.hit_tokens = hit_pages * page
        return Piece(live, tokens, live.present_tokens, live.record.hit_host_tokens)

    def hold(self, live: LiveRequest, path: tuple[int, ...]) -> None:
        """A waiting request holds a cached path, in place of what it held before."""
        self.cache.lock(path)
        self.cache.unlock(live.held)
        live.held = path

    def hold_match(self, live: LiveRequest) -> None:
        """The same with what it finds cached."""
        self.hold(live, live.blocks[: self.cache.match(live.blocks, live.matchable)])

    def prices(self) -> list[tuple[LiveRequest, int, int]]:
        """The waiting requests in the order in which they joined the queue, and what is predicted of each.

        Tokens that are there, and how many of them on the GPU; with `backlog: now`, when those that wait longer, are
        being computed, or pull have brought their pages. What is pulled to host memory counts for the puller.
        """
        queue = sorted(self.queue, key=lambda live: live.lined_up)
        if self.cluster.backlog == "dispatch":
            return [(live, live.record.hit_predicted_tokens, 0) for live in queue]
        page = self.cluster.page_tokens
        there = set(self.cache.pages)
        for piece in self.batch:
            there.update(piece.live.full_path)
        if self.chunked is not None:
            there.update(self.chunked.full_path)
        if self.host is None:
            for live in queue:
                there.update(live.pulled_path)
        prices = []
        for live in queue:
            ready = 0
            while ready < live.matchable and live.blocks[ready] in there:
                ready += 1
            cached = ready
            if self.host is not None:
                cached = max(ready, self.host.peek(live.blocks, live.matchable), len(live.pulled_path))
            prices.append((live, cached * page, ready * page))
            there.update(live.full_path)
        return prices

    def insert_prompt(self, live: LiveRequest) -> None:
        """Caches a computed prompt and holds it; what is left private is the partial last page."""
        self.cache.insert(live.full_path, live.hit_pages)
        live.private_pages -= len(live.full_path) - live.hit_pages
        self.cache.lock(live.full_path)
        self.cache.unlock(live.full_path[: live.hit_pages])

    def write_to_host(self, live: LiveRequest) -> None:
        """Copies the computed prompt to host memory, or as much of its head as has been delivered often enough."""
        cluster = self.cluster
        if self.host is None or cluster.host_write == "write_back":
            return
        path = list(live.full_path)
        if cluster.host_write == "write_through_selective":
            while path and self.cache.pages[path[-1]].uses <= cluster.host_write_after_hits:
                path.pop()
        self.host.insert_what_fits(path)

    def release_prompt(self, live: LiveRequest) -> None:
        """Lets go of what `insert_prompt` holds."""
        self.cache.unlock(live.full_path)
        self.cache.release(live.private_pages)
        live.private_pages = 0
        self.running.remove(live)
