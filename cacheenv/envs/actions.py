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

from cacheenv.errors import InputError
from cacheenv.sim.actions import (
    candidate_parts,
    candidate_row,
    move_count,
    move_number,
    move_parts,
    reject_number,
    route_count,
    route_number,
    route_parts,
    stay_number,
)
from cacheenv.sim.view.columns import DECISION_MIGRATE

#: Parts of a factored action and their places: a route is its first numbers, a move its last ones.
ROUTE_PARTS = ("reject", "prefill", "decode", "pull")
REJECT, PREFILL, DECODE, PULL = range(len(ROUTE_PARTS))
MOVE_PARTS = ("stay", "source", "candidate", "destination")
STAY, SOURCE, CANDIDATE, DESTINATION = range(len(MOVE_PARTS))
FLAGS = ("reject", "pull", "stay")


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
        return route_count(self.num_prefill, self.num_decode) if self.routes else 0

    @property
    def move_count(self) -> int:
        """Entries of the migration block, `stay` included (0 where ticks are not decided)."""
        return move_count(self.num_decode, self.candidates) if self.moves else 0

    @property
    def reject_number(self) -> int:
        """The number of the routing block that refuses the request."""
        return reject_number(self.num_prefill, self.num_decode)

    @property
    def stay_number(self) -> int:
        """The number of the migration block that moves nothing."""
        return stay_number(self.num_decode, self.candidates)

    @property
    def joint_count(self) -> int:
        """Size of the joint Discrete space."""
        return self.route_count + self.move_count

    @property
    def part_sizes(self) -> list[int]:
        """`nvec` of the factored space."""
        return (self.sizes(ROUTE_PARTS) if self.routes else []) + (self.sizes(MOVE_PARTS) if self.moves else [])

    def sizes(self, names: tuple[str, ...]) -> list[int]:
        """How many values each of the named parts has."""
        instances = {"prefill": self.num_prefill, "candidate": self.candidates}
        return [2 if name in FLAGS else instances.get(name, self.num_decode) for name in names]

    @property
    def width(self) -> int:
        """Numbers of one action: 1, or one for each part."""
        return len(self.part_sizes) if self.factored else 1

    @property
    def mask_size(self) -> int:
        """Length of a mask: a flag for each joint number, or for each value of each part (`sum(nvec)`)."""
        return sum(self.part_sizes) if self.factored else self.joint_count

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
        source: int | None = None,
        candidate: int | None = None,
        destination: int | None = None,
        stay: bool | None = None,
    ) -> Any:
        """An element of the action space: a move where one of its parts is given or only ticks are decided.

        Args:
            prefill: Prefill instance p of a route.
            decode: Decode instance d of a route.
            pull: Whether p fetches the longest remote match first.
            reject: Refuse the request.
            source: Decode instance s that a move leaves.
            candidate: Candidate slot k of s.
            destination: Decode instance that a move goes to.
            stay: Move nothing.

        Raises:
            InputError: For a part that is out of range.
        """
        migrate = not self.routes or any(part is not None for part in (source, candidate, destination, stay))
        route = self._checked(ROUTE_PARTS, (reject, prefill, decode, pull)) if self.routes else []
        move = self._checked(MOVE_PARTS, (stay, source, candidate, destination)) if self.moves else []
        if migrate and not self.moves:
            raise InputError("action: only arrivals are decided here, so there is nothing to move")
        if self.factored:
            return np.array(route + move, np.int64)
        if migrate:
            if move[STAY]:
                return self.route_count + self.stay_number
            row = candidate_row(move[SOURCE], move[CANDIDATE], self.candidates)
            return self.route_count + move_number(row, move[DESTINATION], self.num_decode)
        if reject:
            return self.reject_number
        return route_number(prefill, decode, int(pull), self.num_decode)

    def _checked(self, names: tuple[str, ...], values: tuple[Any, ...]) -> list[int]:
        """The parts as whole numbers, 0 where they are not given."""
        sizes = self.sizes(names)
        parts = [int(value or 0) for value in values]
        for name, part, size in zip(names, parts, sizes, strict=True):
            if not 0 <= part < size:
                raise InputError(f"action: {name}: expected 0 to {size - 1}, got {part}")
        return parts

    def decode(self, action: Any, decision: int | None = None) -> dict[str, Any]:
        """The parts of an element of the action space, as :meth:`encode` takes them.

        Args:
            action: Element of the space.
            decision: `DECISION_ROUTE` or `DECISION_MIGRATE`: which half of a factored action of Cluster-v0 counts.
        """
        if not self.factored:
            number = int(action)
            if not 0 <= number < self.joint_count:
                raise InputError(f"action: expected 0 to {self.joint_count - 1}, got {number}")
            routing = number < self.route_count
            return self.route_parts(number) if routing else self.move_parts(number - self.route_count)
        values = [int(part) for part in np.asarray(action).reshape(-1)]
        if self.routes and (decision != DECISION_MIGRATE or not self.moves):
            return _named(ROUTE_PARTS, values[: len(ROUTE_PARTS)])
        return _named(MOVE_PARTS, values[-len(MOVE_PARTS) :])

    def route_parts(self, number: int) -> dict[str, Any]:
        """The parts of a number of the routing block."""
        if number == self.reject_number:
            return _named(ROUTE_PARTS, [1, 0, 0, 0])
        return _named(ROUTE_PARTS, [0, *route_parts(number, self.num_decode)])

    def move_parts(self, number: int) -> dict[str, Any]:
        """The parts of a number of the migration block."""
        if number == self.stay_number:
            return _named(MOVE_PARTS, [1, 0, 0, 0])
        row, destination = move_parts(number, self.num_decode)
        return _named(MOVE_PARTS, [0, *candidate_parts(row, self.candidates), destination])

    def route_grid(self, routes: np.ndarray) -> np.ndarray:
        """Values of the routing block without its refusal, by (prefill, decode, pull): a view of shape (P, D, 2)."""
        return routes[: self.reject_number].reshape(self.num_prefill, self.num_decode, 2)

    def move_grid(self, moves: np.ndarray) -> np.ndarray:
        """Values of the migration block without staying, by (source, candidate, destination): a view (D, K, D)."""
        return moves[: self.stay_number].reshape(self.num_decode, self.candidates, self.num_decode)


def _named(names: tuple[str, ...], values: list[int]) -> dict[str, Any]:
    return {name: bool(value) if name in FLAGS else value for name, value in zip(names, values, strict=True)}
