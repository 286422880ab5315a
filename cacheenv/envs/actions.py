"""Action spaces: one joint number, or the same parts as a MultiDiscrete, and the translation between them.

Joint numbers: routing `((p * D) + d) * 2 + pull` and then `reject`; migration `((s * K) + k) * D + d` and then `stay`;
Cluster-v0 has the routing block first and the migration block behind it.

Factored parts: routing `(reject, p, d, pull)`; migration `(stay, s, k, d)`; Cluster-v0 has both, and each decision
reads only its own four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from cacheenv.sim.view_types import DECISION_MIGRATE, DECISION_ROUTE

ROUTE_PARTS = ("reject", "prefill", "decode", "pull")
MOVE_PARTS = ("stay", "source", "candidate", "destination")


@dataclass(frozen=True)
class ActionCodec:
    """Numbers of the action space of one environment.

    Attributes:
        num_prefill: P.
        num_decode: D.
        candidates: K.
        routes: Whether arrivals are decided.
        moves: Whether rescheduling ticks are decided.
        factored: Whether the space is MultiDiscrete.
    """

    num_prefill: int
    num_decode: int
    candidates: int
    routes: bool
    moves: bool
    factored: bool

    @property
    def route_count(self) -> int:
        """Entries of the routing block, `reject` included (0 where arrivals are not decided)."""
        return self.num_prefill * self.num_decode * 2 + 1 if self.routes else 0

    @property
    def move_count(self) -> int:
        """Entries of the migration block, `stay` included (0 where ticks are not decided)."""
        return self.num_decode * self.candidates * self.num_decode + 1 if self.moves else 0

    @property
    def joint_count(self) -> int:
        """Size of the joint Discrete space."""
        return self.route_count + self.move_count

    @property
    def part_sizes(self) -> list[int]:
        """`nvec` of the factored space."""
        sizes = [2, self.num_prefill, self.num_decode, 2] if self.routes else []
        return sizes + ([2, self.num_decode, self.candidates, self.num_decode] if self.moves else [])

    def space(self) -> gym.Space[Any]:
        """The action space."""
        if self.factored:
            return gym.spaces.MultiDiscrete(np.array(self.part_sizes, np.int64))
        return gym.spaces.Discrete(self.joint_count)

    def encode(
        self,
        *,
        prefill: int = 0,
        decode: int = 0,
        pull: bool = False,
        reject: bool = False,
        source: int = 0,
        candidate: int = 0,
        destination: int = 0,
        stay: bool = False,
        migrate: bool | None = None,
    ) -> Any:
        """An element of the action space.

        Args:
            prefill: Prefill instance p of a route.
            decode: Decode instance d of a route.
            pull: Whether p fetches the longest remote match first.
            reject: Refuse the request.
            source: Decode instance s that a move leaves.
            candidate: Candidate slot k of s.
            destination: Decode instance that a move goes to.
            stay: Move nothing.
            migrate: Encode a migration decision; default: where only ticks are decided, or `stay` is given.
        """
        if migrate is None:
            migrate = not self.routes or stay
        if self.factored:
            route = [int(reject), prefill, decode, int(pull)] if self.routes else []
            move = [int(stay), source, candidate, destination] if self.moves else []
            return np.array(route + move, np.int64)
        if migrate:
            if stay:
                return self.joint_count - 1
            return self.route_count + ((source * self.candidates) + candidate) * self.num_decode + destination
        if reject:
            return self.route_count - 1
        return ((prefill * self.num_decode) + decode) * 2 + int(pull)

    def decode(self, action: Any, decision: int | None = None) -> dict[str, Any]:
        """The parts of an element of the action space, as :meth:`encode` takes them.

        Args:
            action: Element of the space.
            decision: `DECISION_ROUTE` or `DECISION_MIGRATE`: which part of a factored action of Cluster-v0 counts.
        """
        if self.factored:
            parts = [int(part) for part in np.asarray(action).reshape(-1)]
            if self.routes and decision != DECISION_MIGRATE:
                return {"reject": bool(parts[0]), "prefill": parts[1], "decode": parts[2], "pull": bool(parts[3])}
            stay, source, candidate, destination = parts[-4:]
            return {"stay": bool(stay), "source": source, "candidate": candidate, "destination": destination}
        number = int(action)
        if number < self.route_count:
            if number == self.route_count - 1:
                return {"reject": True}
            pair, pull = divmod(number, 2)
            prefill, decode = divmod(pair, self.num_decode)
            return {"prefill": prefill, "decode": decode, "pull": bool(pull)}
        number -= self.route_count
        if number == self.move_count - 1:
            return {"stay": True}
        row, destination = divmod(number, self.num_decode)
        source, candidate = divmod(row, self.candidates)
        return {"source": source, "candidate": candidate, "destination": destination}

    def joint(self, action: Any, decision: int) -> int:
        """The joint number of an action of either format at a decision of the given kind."""
        if not self.factored:
            return int(action)
        parts = np.asarray(action).reshape(-1)
        if decision == DECISION_ROUTE and self.routes:
            if parts[0]:
                return self.route_count - 1
            return int(((parts[1] * self.num_decode) + parts[2]) * 2 + parts[3])
        if parts[-4]:
            return self.joint_count - 1
        row = parts[-3] * self.candidates + parts[-2]
        return self.route_count + int(row * self.num_decode + parts[-1])

    def joint_rows(self, actions: np.ndarray, decisions: np.ndarray) -> np.ndarray:
        """:meth:`joint` for a batch: int64 array of joint numbers."""
        if not self.factored:
            return np.ascontiguousarray(actions, np.int64)
        return np.array([self.joint(a, int(d)) for a, d in zip(actions, decisions, strict=True)], np.int64)

    def factored_mask(self, mask: np.ndarray, decision: int) -> np.ndarray:
        """The joint mask as a flat mask over the parts (length `sum(nvec)`): a part is legal if some action has it.

        A pull to an instance that has nothing to pull cannot be forbidden in this form; it counts as illegal then.
        """
        flat = np.zeros(sum(self.part_sizes), np.bool_)
        at = 0
        if self.routes:
            flat[at : at + 2 + self.num_prefill + self.num_decode + 2] = self._route_parts(mask, decision)
            at += 2 + self.num_prefill + self.num_decode + 2
        if self.moves:
            flat[at:] = self._move_parts(mask, decision)
        return flat

    def _route_parts(self, mask: np.ndarray, decision: int) -> np.ndarray:
        if decision != DECISION_ROUTE:
            return _first_only([2, self.num_prefill, self.num_decode, 2])
        grid = mask[: self.route_count - 1].reshape(self.num_prefill, self.num_decode, 2)
        rejecting = [bool(grid.any()), bool(mask[self.route_count - 1])]
        return np.concatenate([rejecting, grid.any((1, 2)), grid.any((0, 2)), grid.any((0, 1))])

    def _move_parts(self, mask: np.ndarray, decision: int) -> np.ndarray:
        sizes = [2, self.num_decode, self.candidates, self.num_decode]
        grid = mask[self.route_count : -1].reshape(self.num_decode, self.candidates, self.num_decode)
        if decision != DECISION_MIGRATE or not grid.any():
            flat = _first_only(sizes)
            flat[:2] = [False, True]
            return flat
        staying = [True, True]
        return np.concatenate([staying, grid.any((1, 2)), grid.any((0, 2)), grid.any((0, 1))])


def _first_only(sizes: list[int]) -> np.ndarray:
    """A flat mask that allows the first entry of each part: parts that the decision does not read."""
    return np.concatenate([np.arange(size) == 0 for size in sizes])
