"""What moves between caches, store and decode instances: pulls, hand-overs, write-through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .live import LiveRequest

if TYPE_CHECKING:
    from .simulator import ReferenceSimulator


class Transfers:
    """The flows of prompts and prefixes."""

    def __init__(self, sim: ReferenceSimulator) -> None:
        """For one simulator."""
        self.sim = sim

    def _end(self, nic: int) -> tuple[float, float, int, int] | None:
        """Of an instance: set-up, bytes of a token's KV, copies among them, GPUs. None for the store."""
        prefills = self.sim.cluster.num_prefill
        if nic < prefills:
            like = self.sim.prefill[nic].cluster
            return like.setup_s, like.kv_bytes_per_token, like.kv_copies, like.tensor_parallel
        if nic - prefills < self.sim.cluster.num_decode:
            like = self.sim.decode[nic - prefills].cluster
            return like.setup_s, like.decode_kv_bytes_per_token, like.kv_copies, like.tensor_parallel
        return None

    def setup_s(self, source: int, sink: int) -> float:
        """The longer set-up of two NICs."""
        return max(end[0] for end in (self._end(source), self._end(sink)) if end is not None)

    def token_bytes(self, source: int, sink: int) -> float:
        """Bytes sent for a token: all copies that the sender has, or one where the receiver has other shards."""
        sender, receiver = self._end(source), self._end(sink)
        if sender is None or receiver is None:
            return (sender or receiver)[1]  # type: ignore[index]
        return sender[1] if sender[3] == receiver[3] else sender[1] / sender[2]

    def latency_s(self, source: int, sink: int, pages: int) -> float:
        """Fixed time of a transfer of so many pages, after its last byte."""
        return self.setup_s(source, sink) + pages * self.sim.cluster.per_block_s

    def _between(self, live: LiveRequest) -> tuple[int, int]:
        """NICs of a request's hand-over."""
        return live.record.prefill_instance, self.sim.cluster.num_prefill + live.record.decode_instance

    def pull_source(self, live: LiveRequest, prefill: int) -> tuple[int, int]:
        """The holder with the longest prefix that `prefill` could pull, as the index has it.

        Returns:
            Its number (the number of prefill instances stands for the store; -1: none) and its hit length in pages,
            which is more than `prefill` itself has.
        """
        sim = self.sim
        sources = [sim.cluster.num_prefill] if sim.cluster.store_tokens > 0 else []  # the store wins ties
        if sim.cluster.peer_pulls:
            sources += [index for index in range(sim.cluster.num_prefill) if index != prefill]
        best, best_pages = -1, sim.index_hit(live, prefill)
        for source in sources:
            if sim.pullable_pages(live, source) > best_pages:
                best, best_pages = source, sim.pullable_pages(live, source)
        return best, best_pages

    def start_pull(self, live: LiveRequest, prefill: int, source: int, now: float) -> None:
        """Starts fetching the longest prefix, unless it turns out to be useless or not to fit."""
        sim, page_tokens = self.sim, self.sim.cluster.page_tokens
        here, there = sim.caches[prefill], sim.caches[source]
        source_pages = there.match(live.blocks, live.matchable)
        local_pages = here.match(live.blocks, live.matchable)
        pulled = source_pages - local_pages
        source_host = sim.prefill[source].host if source < sim.cluster.num_prefill else None
        if source_host is not None:  # it may come from there
            on_host = source_host.match(live.blocks, live.matchable)
            if on_host > source_pages:
                there, source_pages = source_host, on_host
                pulled = source_pages - local_pages
        host = sim.prefill[prefill].host
        if host is not None:  # it arrives there
            here, on_gpu = host, local_pages
            local_pages = here.match(live.blocks, live.matchable)
            pulled = source_pages - max(local_pages, on_gpu)
        if pulled <= 0:
            return
        local_path, path = live.blocks[:local_pages], live.blocks[:source_pages]
        here.lock(local_path)
        if not here.reserve(source_pages - local_pages):
            here.unlock(local_path)
            return
        there.lock(path)
        live.pulling = True
        live.pulled_path = tuple(path)

        def end(now: float) -> None:
            here.insert(path, local_pages)
            if host is not None:
                here.lock(path)
                live.held_on_host = tuple(path)
            else:
                sim.prefill[prefill].hold(live, path)
            here.unlock(local_path)
            there.unlock(path)
            live.pulling = False
            live.pulled_path = ()
            live.record.pulled_tokens = pulled * page_tokens
            sim.wake_prefill(prefill, now)
            if source < sim.cluster.num_prefill:
                sim.wake_prefill(source, now)

        wait_s = live.record.routed_s - now + sim.cluster.schedule_s
        sim.links.start(
            now,
            sim.nic_of_cache(source),
            prefill,
            pulled * page_tokens * self.token_bytes(sim.nic_of_cache(source), prefill),
            self.latency_s(sim.nic_of_cache(source), prefill, pulled),
            end,
            begin_s=now + wait_s if wait_s > 0.0 else None,
        )

    def schedule(self, live: LiveRequest, prefill: int, now: float) -> None:
        """A routed request may be batched some time later; a pull starts then too, and is waited for anyway."""
        seconds = live.record.routed_s - now + self.sim.cluster.schedule_s
        if seconds == 0.0 or live.pulling:
            return
        live.pulling = True

        def end(now: float) -> None:
            live.pulling = False
            self.sim.wake_prefill(prefill, now)

        self.sim.links.start(now, prefill, prefill, 0.0, seconds, end)

    def hand_over(self, live: LiveRequest, now: float) -> None:
        """Sends a computed prompt's KV to its decode instance."""
        self._start_handover(live, live.prompt_tokens, now)

    def hand_over_piece(self, live: LiveRequest, tokens: int, now: float) -> None:
        """A piece of `tokens` tokens has ended, and is sent; the first one with what was cached before it."""
        if live.handover is None:
            self._start_handover(live, live.present_tokens, now, gate_open=False)
        else:
            self.sim.links.add(live.handover, tokens * self.token_bytes(*self._between(live)), now)

    def hand_over_layers(self, live: LiveRequest, tokens: int, now: float, prefill_s: float) -> None:
        """The last batch of a prompt, with `tokens` of its tokens, starts and takes `prefill_s`."""
        cluster, links = self.sim.cluster, self.sim.links
        layers, flow = cluster.layers, live.handover
        token_bytes = self.token_bytes(*self._between(live))
        if flow is None:
            self._start_handover(live, live.prompt_tokens, now, gate_open=False, begin_s=now + prefill_s / layers)
            assert live.handover is not None
            live.handover.main_bytes = live.prompt_tokens * token_bytes * (layers - 1) / layers
            live.handover.last_bytes = live.prompt_tokens * token_bytes / layers
            return
        flow.last_bytes = tokens * token_bytes / layers
        flow.latency_s = self._handover_latency_s(live, tokens)
        if layers > 1:
            prefill = live.record.prefill_instance
            rest = tokens * token_bytes * (layers - 1) / layers
            links.start(now, prefill, prefill, 0.0, prefill_s / layers, lambda now: links.add(flow, rest, now))

    def _handover_latency_s(self, live: LiveRequest, last_tokens: int) -> float:
        """What passes after the last byte, when `last_tokens` tokens were sent last."""
        cluster = self.sim.cluster
        fixed_s = self.setup_s(*self._between(live)) if cluster.handover_fixed_s is None else cluster.handover_fixed_s
        load_s = live.prompt_tokens * self.token_bytes(*self._between(live)) / cluster.handover_load_bytes_per_s
        return fixed_s + cluster.pages(last_tokens) * cluster.per_block_s + load_s

    def _start_handover(
        self, live: LiveRequest, tokens: int, now: float, *, gate_open: bool = True, begin_s: float | None = None
    ) -> None:
        sim, cluster = self.sim, self.sim.cluster
        prefill, decode = live.record.prefill_instance, live.record.decode_instance

        def end(now: float) -> None:
            live.record.transfer_end_s = now
            sim.prefill[prefill].release_prompt(live)
            sim.wake_prefill(prefill, now)
            sim.decode[decode].waiting.append(live)
            sim.wake_decode(sim.decode[decode], now)

        live.handover = sim.links.start(
            now,
            prefill,
            cluster.num_prefill + decode,
            tokens * self.token_bytes(*self._between(live)),
            self._handover_latency_s(live, tokens),
            end,
            begin_s=begin_s,
            gate_open=gate_open,
        )

    def write_through(self, live: LiveRequest, now: float) -> None:
        """Copies the pages of a computed prompt that the store does not have to the store."""
        sim, cluster = self.sim, self.sim.cluster
        if cluster.store_tokens == 0 or not cluster.write_through:
            return
        prefill, path = live.record.prefill_instance, live.full_path
        here, store = sim.caches[prefill], sim.caches[cluster.num_prefill]
        missing = len(path) - store.peek(path, len(path))
        if missing == 0:
            return
        here.lock(path)

        def end(now: float) -> None:
            store.insert_what_fits(path)
            here.unlock(path)
            sim.wake_prefill(prefill, now)

        store_nic = sim.nic_of_cache(cluster.num_prefill)
        sim.links.start(
            now,
            prefill,
            store_nic,
            missing * cluster.page_tokens * self.token_bytes(prefill, store_nic),
            self.latency_s(prefill, store_nic, missing),
            end,
        )

    def return_answer(self, live: LiveRequest, decode: int, now: float) -> None:
        """Sends the full pages of a complete answer that the prefill cache lacks there, unless the prompt is gone."""
        sim, cluster = self.sim, self.sim.cluster
        prefill, path = live.record.prefill_instance, live.path_with_answer
        cache, prompt_pages = sim.caches[prefill], len(live.full_path)
        if not cluster.cache_outputs or len(path) <= prompt_pages:
            return
        if cache.match(live.full_path, prompt_pages) < prompt_pages:
            return
        there = cache.peek(path, len(path))
        if there == len(path):
            return

        def end(now: float) -> None:
            cache.match(live.full_path, prompt_pages)
            if cache.peek(path, len(path)) < prompt_pages:
                return
            if cache.match(path, len(path)) >= there:  # else what was there is gone: the rest has nothing to stand on
                there_now = cache.insert_what_fits(path)
                host = sim.prefill[prefill].host
                if host is not None and cluster.host_write == "write_through" and there_now > prompt_pages:
                    if host.match(live.full_path, prompt_pages) == prompt_pages:
                        host.insert_what_fits(path[:there_now])

        tokens = (len(path) - there) * cluster.page_tokens
        sim.links.start(
            now,
            cluster.num_prefill + decode,
            prefill,
            tokens * self.token_bytes(cluster.num_prefill + decode, prefill),
            self.latency_s(cluster.num_prefill + decode, prefill, len(path) - there),
            end,
        )
