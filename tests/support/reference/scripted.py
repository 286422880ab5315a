"""A recorded or invented list of actions as a policy; any list of integers is a valid script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .live import LiveRequest
    from .migration import Move
    from .simulator import ReferenceSimulator


class ScriptedActions:
    """Replays route actions and move actions in the order in which decisions come.

    * Route: the action modulo 2PD + 1; 2PD is reject, else `((p * D) + d) * 2 + pull`. A pull without anything to pull
      is no pull. After the last action the list starts again; an empty one stands for action 0.
    * Move: the action modulo DKD + 1; DKD is stay, else `((s * K) + k) * D + d`. An illegal move means stay. After the
      last action: stay.
    """

    def __init__(self, route_actions: Sequence[int], move_actions: Sequence[int] = ()) -> None:
        """From two lists of integers."""
        self.route_actions = route_actions
        self.move_actions = move_actions
        self.routes = 0
        self.moves = 0

    def route(self, sim: ReferenceSimulator, request: LiveRequest) -> tuple[int, int, bool] | str:
        """The next route action."""
        num_decode = sim.cluster.num_decode
        count = 2 * sim.cluster.num_prefill * num_decode
        action = self.route_actions[self.routes % len(self.route_actions)] % (count + 1) if self.route_actions else 0
        self.routes += 1
        if action == count:
            return "reject"
        return action // 2 // num_decode, action // 2 % num_decode, action % 2 == 1

    def migrate(self, sim: ReferenceSimulator, now: float, legal: list[Move]) -> tuple[int, int] | None:
        """The next move action, or None to stay."""
        num_decode, slots = sim.cluster.num_decode, sim.cluster.candidates
        count = num_decode * slots * num_decode
        if self.moves >= len(self.move_actions):
            return None
        action = self.move_actions[self.moves] % (count + 1)
        self.moves += 1
        for move in legal:
            if (move.source * slots + move.slot) * num_decode + move.destination == action:
                return move.request, move.destination
        return None
