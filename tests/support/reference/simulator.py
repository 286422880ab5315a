"""The event loop: arrivals, batches, flows, decode steps and ticks in the order (time, kind, id)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from .cache import PageCache, PrefixIndex
from .cluster import ReferenceCluster, ReferenceRequest
from .decode import DecodeInstance
from .links import Links
from .live import LiveRequest
from .migration import Migrations, Move
from .predictor import Noise
from .prefill import Piece, PrefillInstance, batch_seconds, seconds_with_load
from .queues import Draw
from .records import REJECTED, REJECTED_LATE, TOO_LARGE, InstanceRecord, RequestRecord, complete
from .replication import Replication
from .shards import Event, Shards
from .transfers import Transfers
from .users import Users

FLOW, PREFILL_END, DECODE, INDEX, ARRIVAL, PREFILL_START, TICK = range(7)

NEAR = 1e-10  # of the time: accumulated rounding is smaller

RouteDecision = Callable[["ReferenceSimulator", LiveRequest], "tuple[int, int, bool] | str"]
AdmitDecision = Callable[["ReferenceSimulator", LiveRequest], bool]
MoveDecision = Callable[["ReferenceSimulator", float, list[Move]], "tuple[int, int] | None"]


class ReferenceSimulator:
    """Runs one workload on one cluster.

    `decide_route(sim, request)` gives `(prefill, decode, pull)` or `"reject"`. `decide_migration(sim, time, legal)`
    gives `(request index, destination)` or None for stay; without it there are no ticks. `decide_admit(sim, request)`
    says whether a request whose prefill has ended may go on, where the cluster has that question.
    `draw(instance, round, place)` gives the random numbers of the discipline `random`.
    """

    def __init__(
        self,
        cluster: ReferenceCluster,
        requests: Sequence[ReferenceRequest],
        decide_route: RouteDecision,
        decide_migration: MoveDecision | None = None,
        noise: Noise | None = None,
        decide_admit: AdmitDecision | None = None,
        draw: Draw | None = None,
    ) -> None:
        """A cluster at time 0, with empty caches."""
        self.cluster = cluster
        self.decide_route = decide_route
        self.decide_migration = decide_migration
        self.noise = noise
        self.decide_admit = decide_admit
        self.live = [LiveRequest(index, request, cluster) for index, request in enumerate(requests)]
        self.index = PrefixIndex()
        self.shards = Shards(cluster, self.index, requests, lambda time, shard: self._push(time, INDEX, shard))
        self.now = 0.0
        self.before_s = -1.0  # time of the event before
        # cache number i is prefill instance i, the last one is the store
        prefill_like = [cluster.of_prefill(i) for i in range(cluster.num_prefill)]
        decode_like = [cluster.of_decode(i) for i in range(cluster.num_decode)]
        holders = [(like.cache_pages(), like.eviction) for like in prefill_like]
        holders.append((cluster.store_pages(), cluster.store_eviction))
        self.caches = [
            PageCache(
                capacity,
                lambda block, stored, i=number: self._tell_index(i, block, stored),  # type: ignore[misc]
                eviction,
            )
            for number, (capacity, eviction) in enumerate(holders)
        ]
        memory_pages = cluster.memory_tokens // cluster.page_tokens
        self.memories = [PageCache(memory_pages) for _ in range(cluster.num_prefill)]
        self.sent_s: list[dict[int, float]] = [{} for _ in range(cluster.num_prefill)]  # page -> when it was last sent
        # for the index, host memory of instance i stands behind the store
        self.hosts = [
            PageCache(
                prefill_like[number].host_pages(),
                lambda block, stored, i=cluster.num_prefill + 1 + number: self._tell_index(i, block, stored),  # type: ignore[misc]
            )
            for number in range(cluster.num_prefill if any(like.host_cache_tokens for like in prefill_like) else 0)
        ]
        if cluster.host_write == "write_back":
            for cache, host, like in zip(self.caches, self.hosts, prefill_like, strict=False):
                if like.host_cache_tokens > 0:
                    cache.keep = host.insert_what_fits
        self.prefill = [
            PrefillInstance(i, like, self.caches[i], self.hosts[i] if like.host_cache_tokens > 0 else None, draw)
            for i, like in enumerate(prefill_like)
        ]
        self.decode = [DecodeInstance(i, like) for i, like in enumerate(decode_like)]
        nics = [like.nic_bytes_per_s for like in (*prefill_like, *decode_like)] + [cluster.store_nic_bytes_per_s]
        self.links = Links(nics, cluster.sharing)
        self.transfers = Transfers(self)
        self.replication = Replication(self)
        self.migrations = Migrations(self)
        self.users = Users(self)
        self.unfinished = len(requests)
        self.ticks = 0
        self.move_decisions = 0
        self.lined_up = 0
        self.router_busy_until_s = 0.0
        # Events so close together that rounding decides which is first, and ends of steps that coincide with others.
        self.ties = 0
        self.events: list[tuple[float, int, int, int, Event | None]] = []
        self.pushed = 0

    # the event loop

    def run(self) -> list[RequestRecord]:
        """Serves the whole workload, and what is under way then: writes to the store, news for the index.

        Returns:
            One record a request, in arrival order; totals are in `instance_records`.
        """
        self.users.start()
        if self.decide_migration is not None:
            self._push(self.cluster.period_s, TICK, 0)
        while self.unfinished or self.links.flows or any(event[1] != TICK for event in self.events):
            self._next_event()
        return [live.record for live in self.live]

    def _push(self, time: float, kind: int, number: int, what: Event | None = None) -> None:
        heapq.heappush(self.events, (time, kind, number, self.pushed, what))
        self.pushed += 1

    def _next_event(self) -> None:
        flow_s, flow = self.links.next_event()
        if flow_s == math.inf and (not self.events or (len(self.events) == 1 and self.events[0][1] == TICK)):
            raise RuntimeError(f"stuck at {self.now} s with {self.unfinished} requests unfinished")
        if not self.events or (flow_s, FLOW) <= self.events[0][:2]:
            self._pass_time(flow_s)
            self.links.handle(flow, flow_s)
            return
        time, kind, number, _, what = heapq.heappop(self.events)
        self._pass_time(time)
        if kind == PREFILL_END:
            self._prefill_end(self.prefill[number], time)
        elif kind == DECODE:
            self.ties += self.decode[number].stepping and time == self.before_s
            self.decode[number].boundary(self, time)
        elif kind == INDEX:
            if what is None:
                self.shards.take_in(number)
            else:
                self.shards.arrive(what, time)
        elif kind == ARRIVAL:
            self.users.come(number, time)
        elif kind == PREFILL_START:
            self._prefill_start(self.prefill[number], time)
        else:
            self._tick(time)

    def _pass_time(self, time: float) -> None:
        assert time >= self.now
        self.ties += 0.0 < time - self.now <= NEAR * time
        self.before_s, self.now = self.now, time

    # arrival

    def push_arrival(self, time: float, number: int) -> None:
        """Something happens at the door at `time`; see :meth:`Users.come`."""
        self._push(time, ARRIVAL, number)

    def arrive(self, live: LiveRequest, now: float) -> None:
        """A request enters the system."""
        cluster, record = self.cluster, live.record
        live.arrived = True
        if not (any(self.prefill_accepts(live)) and any(self.decode_accepts(live))):
            record.outcome = TOO_LARGE
            self.unfinished -= 1
            self.users.gave_up(live, now)
            return
        available = max(cache.peek(live.blocks, live.matchable) for cache in [*self.caches, *self.hosts])
        record.hit_available_tokens = available * cluster.page_tokens
        self._forget_old(now)
        decision = self.decide_route(self, live)
        decided_s = self._router_works(live, now)
        if isinstance(decision, str):
            assert decision == "reject"
            if self.users.refused(live, now):
                record.outcome = REJECTED
                self.unfinished -= 1
            return
        prefill, decode, pull = decision
        record.routed_s = decided_s
        record.prefill_instance, record.decode_instance = prefill, decode
        predicted = self.index_hit(live, prefill)
        if pull:
            source, source_pages = self.transfers.pull_source(live, prefill)
            if source >= 0:
                predicted = source_pages
        live.predicted_s = self.expected_prefill_s(live, prefill, predicted * cluster.page_tokens)
        if pull and source >= 0:
            self.transfers.start_pull(live, prefill, source, now)
        self.transfers.schedule(live, prefill, now)
        record.hit_predicted_tokens = predicted * cluster.page_tokens
        if cluster.index_learns == "assigned":  # believed from now on, until news of the page say otherwise
            self.index.assign(prefill, live.full_path)
        if cluster.memory_tokens > 0:
            kept = self.memories[prefill].insert_what_fits(live.full_path)
            self.sent_s[prefill].update(dict.fromkeys(live.full_path[:kept], now))
        self.lined_up += 1
        live.lined_up = self.lined_up
        self.prefill[prefill].queue.append(live)
        if cluster.protect_queued and not live.pulling:
            self.prefill[prefill].hold_match(live)
        self.wake_prefill(prefill, now)

    def prefill_accepts(self, live: LiveRequest) -> list[bool]:
        """Which prefill instances are large enough for a prompt."""
        return [len(live.blocks) <= instance.cluster.cache_pages() for instance in self.prefill]

    def decode_accepts(self, live: LiveRequest) -> list[bool]:
        """Which decode instances hold a request with all its output."""
        tokens = live.prompt_tokens + live.output_tokens
        return [tokens <= instance.cluster.kv_tokens for instance in self.decode]

    def _forget_old(self, now: float) -> None:
        """The router's memory loses what has not been sent for too long."""
        if self.cluster.memory_policy != "ttl":
            return
        for memory, sent_s in zip(self.memories, self.sent_s, strict=True):
            for block in [block for block in memory.pages if now - sent_s[block] >= self.cluster.memory_ttl_s]:
                del memory.pages[block]

    def _router_works(self, live: LiveRequest, now: float) -> float:
        """The router takes its time for a decision, after those before it; returns when it is out."""
        cluster = self.cluster
        seconds = cluster.decide_s + len(live.blocks) * cluster.decide_s_per_block
        if seconds == 0.0:
            return now
        begins_s = now if self.router_busy_until_s < now else self.router_busy_until_s
        self.router_busy_until_s = begins_s + seconds
        return self.router_busy_until_s

    def index_hit(self, live: LiveRequest, instance: int) -> int:
        """Pages that the router believes `instance` (or the store) could deliver."""
        return max(self.index_hit_by_tier(live, instance))

    def pullable_pages(self, live: LiveRequest, instance: int) -> int:
        """Pages that `instance` (or the store) could send, as the router knows."""
        tiers = [instance]
        if self.hosts and instance < self.cluster.num_prefill:
            tiers.append(self.cluster.num_prefill + 1 + instance)
        return max(self.index.stored_pages(live.blocks, live.matchable, tier) for tier in tiers)

    def index_hit_by_tier(self, live: LiveRequest, instance: int) -> tuple[int, int]:
        """The same on the GPUs, and in host memory."""
        here = self.index.hit_pages(live.blocks, live.matchable, instance)
        if not self.hosts or instance >= self.cluster.num_prefill:
            return here, 0
        return here, self.index.hit_pages(live.blocks, live.matchable, self.cluster.num_prefill + 1 + instance)

    def expected_prefill_s(self, live: LiveRequest, prefill: int, cached: int) -> float:
        """Seconds of a batch of one prompt of which `cached` tokens are there; what no GPU holds is loaded."""
        on_gpu = self.index_hit_by_tier(live, prefill)[0] * self.cluster.page_tokens
        return self.prompt_s(live, self.prefill[prefill], cached, on_gpu)

    def prompt_s(self, live: LiveRequest, instance: PrefillInstance, cached: int, on_gpu: int) -> float:
        """The same with `on_gpu` of these tokens on the GPU."""
        like, loaded = instance.cluster, cached - on_gpu if instance.host is not None else 0
        return seconds_with_load(like, batch_seconds(like, [Piece(live, live.prompt_tokens - cached, cached)]), loaded)

    def price_s(self, live: LiveRequest, cached: int, on_gpu: int) -> float:
        """Predicted seconds of a waiting request."""
        if self.cluster.backlog == "dispatch":
            return live.predicted_s
        return self.prompt_s(live, self.prefill[live.record.prefill_instance], cached, on_gpu)

    def memory_hit(self, live: LiveRequest, prefill: int) -> int:
        """Pages that the router remembers having sent to `prefill`."""
        return self.memories[prefill].peek(live.full_path, len(live.full_path))

    def _tell_index(self, instance: int, block: int, stored: bool) -> None:
        if self.cluster.index_delay_s == 0.0:
            self.shards.arrive((instance, block, stored), self.now)
        else:
            self._push(self.now + self.cluster.index_delay_s, INDEX, 0, (instance, block, stored))

    # prefill

    def nic_of_cache(self, number: int) -> int:
        """NIC of a prefill instance or, for the number after the last one, of the store."""
        return number if number < self.cluster.num_prefill else number + self.cluster.num_decode

    def wake_prefill(self, number: int, now: float) -> None:
        """An idle instance with something to do looks at its queue, after all else at this moment."""
        instance = self.prefill[number]
        if not instance.batch and not instance.start_pending and (instance.queue or instance.chunked):
            instance.start_pending = True
            self._push(now, PREFILL_START, number)

    def _prefill_start(self, instance: PrefillInstance, now: float) -> None:
        instance.start_pending = False
        instance.batch = instance.form_batch()
        if not instance.batch:
            return
        loaded = sum(piece.loaded for piece in instance.batch)
        like = instance.cluster
        instance.batch_s = seconds_with_load(like, batch_seconds(like, instance.batch), loaded)
        instance.batch_end_s = now + instance.batch_s
        self._push(instance.batch_end_s, PREFILL_END, instance.index)
        for piece in instance.batch:
            if math.isnan(piece.live.record.prefill_start_s):
                piece.live.record.prefill_start_s = now
                self.replication.delivered(piece.live, instance.index, now)
        for piece in instance.batch:
            if self.cluster.handover != "blocking" and piece.completes() and piece.live.output_tokens > 1:
                self.transfers.hand_over_layers(piece.live, piece.tokens, now, instance.batch_s)

    def _prefill_end(self, instance: PrefillInstance, now: float) -> None:
        pieces, instance.batch = instance.batch, []
        instance.busy_s += instance.batch_s
        in_question: list[LiveRequest] = []
        for piece in pieces:
            live = piece.live
            instance.computed_tokens += piece.tokens
            live.present_tokens += piece.tokens
            if not piece.completes():
                if self.cluster.handover == "chunked" and live.output_tokens > 1:
                    self.transfers.hand_over_piece(live, piece.tokens, now)
                continue
            live.first_token(now)
            instance.insert_prompt(live)
            if live.output_tokens == 1:
                instance.release_prompt(live)
                self.finish(live, now)
            elif self.cluster.after_prefill:
                in_question.append(live)
            else:
                self._hand_over(live, now)
            instance.write_to_host(live)
            self.transfers.write_through(live, now)
        self.wake_prefill(instance.index, now)
        for live in in_question:
            self._ask_again(live, now)

    def _hand_over(self, live: LiveRequest, now: float) -> None:
        """Sends what is left of a computed prompt's KV."""
        if live.handover is not None:
            self.links.open_gate(live.handover, now)
        else:
            self.transfers.hand_over(live, now)

    def _ask_again(self, live: LiveRequest, now: float) -> None:
        """The second question to admission: what is refused has been computed in vain."""
        assert self.decide_admit is not None
        if self.decide_admit(self, live):
            self._hand_over(live, now)
            return
        if live.handover is not None:
            self.links.cancel(live.handover, now)
        self.prefill[live.record.prefill_instance].release_prompt(live)
        live.record.outcome = REJECTED_LATE
        self.unfinished -= 1
        self.users.gave_up(live, now)
        self.wake_prefill(live.record.prefill_instance, now)

    # decode

    def push_decode(self, time: float, number: int) -> None:
        """A step of a decode instance ends at `time`."""
        self._push(time, DECODE, number)

    def wake_decode(self, instance: DecodeInstance, now: float) -> None:
        """An idle instance looks whom it can admit; a busy one does at its next boundary."""
        if not instance.stepping and not instance.wake_pending:
            instance.wake_pending = True
            self._push(now, DECODE, instance.index)

    def finish(self, live: LiveRequest, now: float) -> None:
        """A request has its last token."""
        complete(live.record, self.cluster, now)
        self.unfinished -= 1
        self.users.served(live, now)

    def _tick(self, now: float) -> None:
        assert self.decide_migration is not None
        if not self.unfinished:
            return
        while True:
            legal = self.migrations.legal_moves()
            if not legal:
                break
            self.move_decisions += 1
            choice = self.decide_migration(self, now, legal)
            chosen = [move for move in legal if (move.request, move.destination) == choice]
            if not chosen:
                break
            self.migrations.start(chosen[0], now)
        self.ticks += 1
        self._push((self.ticks + 1) * self.cluster.period_s, TICK, 0)

    # totals

    def instance_records(self) -> list[InstanceRecord]:
        """Totals of the prefill instances, the decode instances and the store."""
        copies = zip(self.replication.copies, self.replication.copied_tokens, strict=True)
        rows = [
            (0, prefill.index, prefill.busy_s, prefill.computed_tokens, *copied)
            for prefill, copied in zip(self.prefill, copies, strict=True)
        ]
        rows += [(1, decode.index, decode.busy_s, decode.generated_tokens, 0, 0) for decode in self.decode]
        rows += [(2, 0, 0.0, 0, 0, 0)]
        return [
            InstanceRecord(*row, self.links.bytes_out[nic], self.links.bytes_in[nic], self.links.nic_bytes_per_s[nic])
            for nic, row in enumerate(rows)
        ]
