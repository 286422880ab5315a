"""Migration of a running request from one decode instance to another.

Copy while the source keeps decoding, leave at a step boundary, send what was generated meanwhile, join the batch there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .links import Flow
from .live import LiveRequest
from .predictor import predicted_remaining

if TYPE_CHECKING:
    from .decode import DecodeInstance
    from .simulator import ReferenceSimulator


@dataclass
class Migration:
    """One migration under way."""

    live: LiveRequest
    source: DecodeInstance
    destination: DecodeInstance
    start_tokens: int
    reserved_tokens: int
    flow: Flow | None = None
    copied: bool = False  # the copy is there, the request leaves at the next boundary of the source
    left: bool = False  # out of the source's batch, the delta is under way
    arrived: bool = False  # all is there, it joins at the next boundary of the destination


@dataclass(frozen=True)
class Move:
    """A legal move: candidate `slot` of decode instance `source` goes to `destination`."""

    source: int
    slot: int
    request: int
    destination: int


class Migrations:
    """Which moves are possible, and what becomes of those that are made."""

    def __init__(self, sim: ReferenceSimulator) -> None:
        """For one simulator."""
        self.sim = sim

    def candidates(self, source: DecodeInstance) -> list[LiveRequest]:
        """The K requests of a decode instance that may be offered for a move, best first; all of them by number."""
        cluster = self.sim.cluster

        def key(live: LiveRequest) -> tuple[float, int]:
            if cluster.candidates is None:
                return 0.0, live.index
            if cluster.candidate_order == "shortest_kv":
                return live.kv_tokens(), live.index
            remaining = predicted_remaining(cluster, live.index, live.output_tokens, live.generated, self.sim.noise)
            return -remaining / live.kv_tokens(), live.index

        return sorted((live for live in source.batch if live.migration is None), key=key)[: cluster.candidate_slots()]

    def legal_moves(self) -> list[Move]:
        """All moves that are legal now, by source, slot, destination."""
        return [
            Move(source.index, slot, live.index, destination.index)
            for source in self.sim.decode
            for slot, live in enumerate(self.candidates(source))
            for destination in self.sim.decode
            if self._legal(live, source, destination)
        ]

    def _legal(self, live: LiveRequest, source: DecodeInstance, destination: DecodeInstance) -> bool:
        cluster = destination.cluster
        if live.prompt_tokens + live.output_tokens > cluster.kv_tokens:
            return False
        if source is destination or source.outgoing is not None or destination.incoming is not None:
            return False
        count = len(destination.batch) + 1
        needed = destination.kv_tokens() + live.kv_tokens() + cluster.reserve_tokens * count
        places = count + len(destination.preempted)  # a preempted request keeps its place
        return places <= cluster.max_batch and needed <= cluster.kv_tokens

    def start(self, move: Move, now: float) -> None:
        """Reserves room and starts the copy."""
        live = self.sim.live[move.request]
        source, destination = self.sim.decode[move.source], self.sim.decode[move.destination]
        tokens = live.kv_tokens()
        migration = Migration(live, source, destination, tokens, tokens + destination.cluster.reserve_tokens)
        live.migration = source.outgoing = destination.incoming = migration

        def copied(now: float) -> None:
            migration.copied = True

        migration.flow = self._send(migration, tokens, 0.0, copied, now)

    def leave(self, migration: Migration, now: float) -> None:
        """At a boundary of the source: the request leaves for good, or stays if there is no room any more."""
        tokens = migration.live.kv_tokens()
        destination = migration.destination
        migration.reserved_tokens = tokens + destination.cluster.reserve_tokens
        if destination.kv_tokens() + destination.reserved_tokens() > destination.cluster.kv_tokens:
            self.cancel(migration, now)
            return
        migration.source.batch.remove(migration.live)
        migration.source.full = False
        migration.left = True

        def arrived(now: float) -> None:
            migration.arrived = True
            migration.source.outgoing = None
            self.sim.wake_decode(destination, now)

        delta = tokens - migration.start_tokens
        migration.flow = self._send(migration, delta, self.sim.cluster.stall_s, arrived, now)

    def admitted(self, migration: Migration) -> None:
        """The request joins the destination's batch; its reservation ends."""
        record = migration.live.record
        record.migrations += 1
        record.migrated_tokens += migration.live.kv_tokens()
        record.decode_instance = migration.destination.index
        migration.live.migration = None
        migration.destination.incoming = None

    def cancel(self, migration: Migration, now: float) -> None:
        """The request finished, was preempted or stays: the copy stops, the room is given back."""
        assert not migration.left
        if migration.flow is not None:
            self.sim.links.cancel(migration.flow, now)
        migration.live.migration = None
        migration.source.outgoing = None
        migration.destination.incoming = None
        migration.destination.full = False
        self.sim.wake_decode(migration.destination, now)

    def _send(
        self, migration: Migration, tokens: int, extra_s: float, on_end: Callable[[float], None], now: float
    ) -> Flow:
        cluster, transfers = self.sim.cluster, self.sim.transfers
        ends = cluster.num_prefill + migration.source.index, cluster.num_prefill + migration.destination.index
        return self.sim.links.start(
            now,
            *ends,
            tokens * transfers.token_bytes(*ends),
            transfers.latency_s(*ends, cluster.pages(tokens)) + extra_s,
            on_end,
        )
