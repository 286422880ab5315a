"""A decode instance: continuous batching, one iteration after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .cluster import ReferenceCluster
from .live import LiveRequest

if TYPE_CHECKING:
    from .migration import Migration
    from .simulator import ReferenceSimulator


class DecodeInstance:
    """State of one decode instance. It is idle when no step runs."""

    def __init__(self, index: int, cluster: ReferenceCluster) -> None:
        """Idle and empty."""
        self.index = index
        self.cluster = cluster
        self.batch: list[LiveRequest] = []
        self.waiting: list[LiveRequest] = []
        self.preempted: list[LiveRequest] = []
        self.incoming: Migration | None = None  # reserves room here until it is admitted
        self.outgoing: Migration | None = None
        self.stepping = False
        self.step_s = 0.0
        self.wake_pending = False
        self.busy_s = 0.0
        self.generated_tokens = 0
        self.preemptions = 0

    def kv_tokens(self) -> int:
        """C: resident tokens of the batch at the last step boundary."""
        return sum(live.kv_tokens() for live in self.batch)

    def reserved_tokens(self) -> int:
        """Room held for the incoming migration."""
        return self.incoming.reserved_tokens if self.incoming else 0

    def fits(self, kv_tokens: int) -> bool:
        """The admission rule."""
        cluster, count, incoming = self.cluster, len(self.batch), int(self.incoming is not None)
        if count == 0 and incoming == 0:
            return True
        needed = self.kv_tokens() + self.reserved_tokens() + kv_tokens + cluster.reserve_tokens * (count + 1)
        return count + incoming + 1 <= cluster.max_batch and needed <= cluster.kv_tokens

    def boundary(self, sim: ReferenceSimulator, now: float) -> None:
        """A step ends (or the instance wakes up), the batch changes, the next step starts."""
        self.wake_pending = False
        if self.stepping:
            self._end_step(sim, now)
        # 2 a migration whose copy has arrived leaves
        if self.outgoing is not None and self.outgoing.copied and not self.outgoing.left:
            sim.migrations.leave(self.outgoing, now)
        # 3 admissions
        joined = self._admit(sim)
        # 4 preemptions
        while len(self.batch) > 1 and self._short_of_room():
            self._preempt(sim, now)
        # 5 the next step
        if self.batch:
            self._start_step(sim, joined, now)

    def _end_step(self, sim: ReferenceSimulator, now: float) -> None:
        self.stepping = False
        self.busy_s += self.step_s
        self.generated_tokens += len(self.batch)
        for live in self.batch:
            live.next_token(now)
        # 1 finished requests leave
        finished = [live for live in self.batch if live.generated == live.output_tokens]
        for live in finished:
            self.batch.remove(live)
            if live.migration is not None:
                sim.migrations.cancel(live.migration, now)
            sim.finish(live, now)
        for live in sorted(finished, key=lambda live: live.index):
            sim.transfers.return_answer(live, self.index, now)

    def _admit(self, sim: ReferenceSimulator) -> list[tuple[LiveRequest, bool]]:
        """Fills the batch.

        Returns:
            Who joined, and whether after a preemption.
        """
        joined: list[tuple[LiveRequest, bool]] = []
        if self.incoming is not None and self.incoming.arrived:
            live = self.incoming.live
            sim.migrations.admitted(self.incoming)
            joined.append((live, False))
            self.batch.append(live)
        while self.preempted and self.fits(self.preempted[0].kv_tokens()):
            joined.append((self.preempted[0], True))
            self.batch.append(self.preempted.pop(0))
        while not self.preempted and self.waiting and self.fits(self.waiting[0].kv_tokens()):
            joined.append((self.waiting[0], False))
            self.batch.append(self.waiting.pop(0))
        return joined

    def _short_of_room(self) -> bool:
        """Whether the next step's tokens would not fit."""
        return self.kv_tokens() + len(self.batch) > self.cluster.kv_tokens - self.reserved_tokens()

    def _preempt(self, sim: ReferenceSimulator, now: float) -> None:
        victim = min(self.batch, key=lambda live: (live.generated, -live.prompt_tokens, -live.index))
        self.batch.remove(victim)
        self.preempted.append(victim)
        victim.record.preemptions += 1
        self.preemptions += 1
        if victim.migration is not None:
            sim.migrations.cancel(victim.migration, now)

    def _start_step(self, sim: ReferenceSimulator, joined: list[tuple[LiveRequest, bool]], now: float) -> None:
        cluster = self.cluster
        seconds = cluster.decode_d_s + cluster.decode_e_s * len(self.batch) + cluster.decode_f_s * self.kv_tokens()
        for live, resumed in joined:
            if live not in self.batch:
                continue  # preempted again before it ran
            seconds += cluster.join_stall_s
            if resumed:
                seconds += self._resume_stall_s(live)
            if math.isnan(live.record.decode_start_s):
                live.record.decode_start_s = now
        self.stepping = True
        self.step_s = seconds
        sim.push_decode(now + seconds, self.index)

    def _resume_stall_s(self, live: LiveRequest) -> float:
        """Time to bring a preempted request's KV back."""
        cluster, tokens = self.cluster, live.kv_tokens()
        if cluster.preemption == "swap":
            return tokens * cluster.decode_kv_bytes_per_token / cluster.swap_bytes_per_s
        live.record.rework_tokens += tokens
        return max(
            cluster.decode_min_prefill_s,
            cluster.decode_prefill_a_s + cluster.decode_prefill_b_s * tokens + cluster.decode_prefill_c_s * tokens**2,
        )
