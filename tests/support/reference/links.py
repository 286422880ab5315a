"""Network flows. Every instance has a full-duplex NIC; the flows that transmit share it max-min fairly, or equally."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

# Phases of a flow, in order. SCHEDULED, GATED and LATENCY use no bandwidth.
SCHEDULED = "scheduled"
MAIN = "main"
GATED = "gated"  # the main part is sent, the last part is not there yet (its layer is still being computed)
LAST = "last"
LATENCY = "latency"

ROUNDING = 1e-13  # of the present time: seconds that mean nothing, so that equal flows end together


@dataclass
class Flow:
    """Bytes on their way from one NIC to another: a main part, and a last part behind a gate (mostly empty)."""

    number: int
    source: int
    sink: int
    main_bytes: float
    last_bytes: float
    latency_s: float
    on_end: Callable[[float], None]
    gate_open: bool = True
    phase: str = SCHEDULED
    remaining_bytes: float = 0.0
    rate: float = 0.0
    since_s: float = 0.0
    event_s: float = math.inf

    def transmits(self) -> bool:
        """Whether it uses bandwidth."""
        return self.phase in (MAIN, LAST)


class Links:
    """All flows of the cluster and the NICs that they share."""

    def __init__(self, nic_bytes_per_s: list[float], sharing: str = "max_min") -> None:
        """No flows; one NIC an instance (prefill, decode, store)."""
        self.nic_bytes_per_s = nic_bytes_per_s
        self.sharing = sharing
        self.flows: dict[int, Flow] = {}
        self.created = 0
        self.bytes_out = [0.0] * len(nic_bytes_per_s)
        self.bytes_in = [0.0] * len(nic_bytes_per_s)

    def start(
        self,
        now: float,
        source: int,
        sink: int,
        main_bytes: float,
        latency_s: float,
        on_end: Callable[[float], None],
        *,
        begin_s: float | None = None,
        last_bytes: float = 0.0,
        gate_open: bool = True,
    ) -> Flow:
        """A new flow, which transmits from `begin_s` on (None: from now on)."""
        flow = Flow(self.created, source, sink, main_bytes, last_bytes, latency_s, on_end, gate_open)
        self.created += 1
        self.flows[flow.number] = flow
        if begin_s is None:
            self._enter(flow, MAIN, now)
        else:
            flow.event_s = begin_s
        return flow

    def next_event(self) -> tuple[float, int]:
        """Time and number of the flow to which something happens next (infinity, -1 for none)."""
        return min(((flow.event_s, flow.number) for flow in self.flows.values()), default=(math.inf, -1))

    def handle(self, number: int, now: float) -> None:
        """The event of a flow: its phase ends."""
        flow = self.flows[number]
        if flow.phase == SCHEDULED:
            self._enter(flow, MAIN, now)
        elif flow.phase == MAIN:
            self._book(flow, flow.main_bytes)
            self._enter(flow, self._after_main(flow), now)
        elif flow.phase == LAST:
            self._book(flow, flow.last_bytes)
            self._enter(flow, LATENCY, now)
        else:
            assert flow.phase == LATENCY
            del self.flows[number]
            flow.on_end(now)

    def open_gate(self, flow: Flow, now: float) -> None:
        """The last part is there to be sent."""
        flow.gate_open = True
        if flow.phase == GATED:
            self._enter(flow, LAST, now)

    def add(self, flow: Flow, added_bytes: float, now: float) -> None:
        """A flow with a closed gate has more to send."""
        assert not flow.gate_open
        if flow.phase == GATED:
            flow.main_bytes = added_bytes
            self._enter(flow, MAIN, now)
            return
        assert flow.phase == MAIN
        left = max(0.0, flow.remaining_bytes - flow.rate * (now - flow.since_s))
        flow.main_bytes += added_bytes
        flow.remaining_bytes = left + added_bytes
        flow.since_s = now
        flow.event_s = now + flow.remaining_bytes / flow.rate

    def cancel(self, flow: Flow, now: float) -> None:
        """Stops a flow for good, if it is still there; what was sent was sent."""
        if self.flows.pop(flow.number, None) is None:
            return
        if flow.transmits():
            left = max(0.0, flow.remaining_bytes - flow.rate * (now - flow.since_s))
            self._book(flow, (flow.main_bytes if flow.phase == MAIN else flow.last_bytes) - left)
        self._share(now)

    def out_flows(self, instance: int) -> int:
        """Flows that transmit from an instance."""
        return sum(flow.transmits() and flow.source == instance for flow in self.flows.values())

    def in_flows(self, instance: int) -> int:
        """Flows that transmit to an instance."""
        return sum(flow.transmits() and flow.sink == instance for flow in self.flows.values())

    def _after_main(self, flow: Flow) -> str:
        if not flow.gate_open:
            return GATED
        return LATENCY if flow.last_bytes == 0.0 else LAST

    def _enter(self, flow: Flow, phase: str, now: float) -> None:
        """Moves a flow to a phase and shares the NICs anew."""
        if phase == MAIN and flow.main_bytes == 0.0:
            phase = self._after_main(flow)
        flow.phase = phase
        flow.event_s = math.inf
        flow.since_s = now
        flow.rate = 0.0
        if phase == MAIN:
            flow.remaining_bytes = flow.main_bytes
        elif phase == LAST:
            flow.remaining_bytes = flow.last_bytes
        elif phase == LATENCY:
            flow.event_s = now + flow.latency_s
        self._share(now)

    def _share(self, now: float) -> None:
        """Rates of all flows. A flow whose rate stays the same keeps its end; the others are counted on from here."""
        sending = [flow for flow in self.flows.values() if flow.transmits()]
        rates = fair_rates(sending, self.nic_bytes_per_s)
        for flow in sending:
            if self.sharing == "equal_split":
                rate = min(
                    self.nic_bytes_per_s[flow.source] / self.out_flows(flow.source),
                    self.nic_bytes_per_s[flow.sink] / self.in_flows(flow.sink),
                )
            else:
                rate = float(rates[flow.number])
            if rate != flow.rate:
                flow.remaining_bytes = max(0.0, flow.remaining_bytes - flow.rate * (now - flow.since_s))
                flow.since_s = now
                flow.rate = rate
                left_s = flow.remaining_bytes / rate
                flow.event_s = now + (left_s if left_s >= ROUNDING * now else 0.0)

    def _book(self, flow: Flow, sent_bytes: float) -> None:
        self.bytes_out[flow.source] += sent_bytes
        self.bytes_in[flow.sink] += sent_bytes


def fair_rates(flows: list[Flow], nic_bytes_per_s: list[float]) -> dict[int, Fraction]:
    """Max-min fair rates by number of flow, without rounding: the water rises in all ends of NICs at once.

    In each round the end that is full first (in the least time, if all flows that still grow through it grow at 1
    byte/s a second) stops its flows.
    """
    growing = {flow.number: flow for flow in flows}
    rates = dict.fromkeys(growing, Fraction(0))
    while growing:
        rises = []
        for side in ("source", "sink"):
            for nic, bandwidth in enumerate(nic_bytes_per_s):
                through = [flow.number for flow in flows if getattr(flow, side) == nic]
                count = sum(number in growing for number in through)
                if count:
                    room = Fraction(bandwidth) - sum(rates[number] for number in through)
                    rises.append((room / count, [number for number in through if number in growing]))
        rise = min(room for room, _ in rises)
        for number in growing:
            rates[number] += rise
        for room, through in rises:
            if room == rise:
                for number in through:
                    growing.pop(number, None)
    return rates
