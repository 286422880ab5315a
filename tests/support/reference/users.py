"""The users: when they send a request, what they do when it is refused, and how they wait at a full system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .records import ABANDONED

if TYPE_CHECKING:
    from .live import LiveRequest
    from .simulator import ReferenceSimulator

NAN = float("nan")
NEXT_OUTSIDE = -1  # number of the event at which the first of those outside may enter; comes before all requests


class Users:
    """Everybody who is not in the system: thinking, about to try again, or outside the door."""

    def __init__(self, sim: ReferenceSimulator) -> None:
        """The users of a simulator's requests; nobody has come."""
        self.sim = sim
        self.closed = sim.cluster.arrivals == "closed"
        self.outside: list[LiveRequest] = []
        self.in_system = 0

    def start(self) -> None:
        """Everybody whose time is fixed will come at it; in a closed loop that is the first turn of each session."""
        seen = set()
        for live in self.sim.live:
            session = live.record.session
            if self.closed and session >= 0 and session in seen:
                live.record.arrival_s = NAN
            else:
                self.sim.push_arrival(live.record.arrival_s, live.index)
            seen.add(session)

    def come(self, number: int, now: float) -> None:
        """A request is sent, or somebody outside looks whether there is room."""
        limit = self.sim.cluster.max_in_flight
        room = limit is None or self.in_system < limit
        if number == NEXT_OUTSIDE:
            if room and self.outside:
                live = self.outside.pop(0)
                live.record.outside_s += now - live.came_s
                self._enter(live, now)
            return
        live = self.sim.live[number]
        if room and not self.outside:
            self._enter(live, now)
        else:
            live.came_s = now
            self.outside.append(live)

    def _enter(self, live: LiveRequest, now: float) -> None:
        if live.record.retries == 0:
            live.record.arrival_s = now
        live.record.entered_s = now
        self.in_system += 1
        self.sim.arrive(live, now)

    def _left(self, now: float) -> None:
        self.in_system -= 1
        self.sim.push_arrival(now, NEXT_OUTSIDE)

    def served(self, live: LiveRequest, now: float) -> None:
        """A request has its last token: its session's next turn follows."""
        turns = self._turns_after(live)
        if self.closed and turns:
            self.sim.push_arrival(now + turns[0].think_s, turns[0].index)
        self._left(now)

    def refused(self, live: LiveRequest, now: float) -> bool:
        """A policy has refused a request; False when its user tries again."""
        cluster = self.sim.cluster
        if cluster.on_reject == "retry" and live.record.retries < cluster.max_retries:
            live.record.retries += 1
            live.arrived = False
            self.sim.push_arrival(now + cluster.retry_s, live.index)
            self._left(now)
            return False
        self.gave_up(live, now)
        return True

    def gave_up(self, live: LiveRequest, now: float) -> None:
        """A request will never be served; in a closed loop its session ends."""
        for later in self._turns_after(live) if self.closed else []:
            later.record.outcome = ABANDONED
            self.sim.unfinished -= 1
        self._left(now)

    def _turns_after(self, live: LiveRequest) -> list[LiveRequest]:
        session = live.record.session
        return [other for other in self.sim.live[live.index + 1 :] if session >= 0 and other.record.session == session]
