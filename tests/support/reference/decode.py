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
        self.steps = 0
        # After a preemption: share of the outputs to come for which room is kept, and the step at which it was set.
        self.share, self.share_step = 0.0, 0
        self.full = False  # somebody was refused for it, and nobody has left since

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

    def lets_in(self, live: LiveRequest, joined: list[tuple[LiveRequest, bool]]) -> bool:
        """Whether a request may join the batch, which some have joined at this boundary."""
        if self.full or not self.fits(live.kv_tokens()):
            return False
        self.full = not self._room_for_growth(live, [other for other, _ in joined])
        return not self.full

    def _room_for_growth(self, live: LiveRequest, joined: list[LiveRequest]) -> bool:
        """SGLang's care after a preemption: room for what is still to be generated, for a share of it of the others."""
        share = self.share - (0.7 - 0.14 * 0.7) / 600 * max(0, self.steps - self.share_step - 1)
        if self.cluster.damping == "none" or share <= 0.14 * 0.7 or not self.batch:
            return True

        def growth(one: LiveRequest, part: float) -> int:
            to_come = min(one.output_tokens - one.generated, 4096)
            return max(self.cluster.reserve_tokens, math.floor(part * to_come))

        needed = self.kv_tokens() + self.reserved_tokens() + live.kv_tokens() + growth(live, 1.0)
        needed += sum(growth(other, 1.0 if other in joined else share) for other in self.batch)
        return needed <= self.cluster.kv_tokens

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
        before = len(self.batch)
        # the last one stays, unless it would grow into what an incoming migration was promised
        while len(self.batch) > (0 if self.incoming else 1) and self._short_of_room():
            self._preempt(sim, now)
        if len(self.batch) < before:
            generated = sum(live.generated for live in self.batch)
            outputs = sum(live.output_tokens for live in self.batch)
            self.share = min(1.0, (generated + 20 * len(self.batch)) / (outputs + 1))
            self.share_step = self.steps
            if not self.batch:
                sim.wake_decode(self, now)
        # 5 the next step
        if self.batch:
            self._start_step(sim, joined, now)

    def _end_step(self, sim: ReferenceSimulator, now: float) -> None:
        self.stepping = False
        self.steps += 1
        self.busy_s += self.step_s
        self.generated_tokens += len(self.batch)
        for live in self.batch:
            live.next_token(now)
        # 1 finished requests leave
        finished = [live for live in self.batch if live.generated == live.output_tokens]
        for live in finished:
            self.batch.remove(live)
            self.full = False
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
        while self.preempted and self.lets_in(self.preempted[0], joined):
            joined.append((self.preempted[0], True))
            self.batch.append(self.preempted.pop(0))
        while not self.preempted and self.waiting and self.lets_in(self.waiting[0], joined):
            joined.append((self.waiting[0], False))
            self.batch.append(self.waiting.pop(0))
        return joined

    def _short_of_room(self) -> bool:
        """Whether the next step's tokens would not fit."""
        return self.kv_tokens() + len(self.batch) > self.cluster.kv_tokens - self.reserved_tokens()

    def _preempt(self, sim: ReferenceSimulator, now: float) -> None:
        victim = min(self.batch, key=lambda live: (live.generated, -live.prompt_tokens, -live.index))
        self.batch.remove(victim)
        self.full = False
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
