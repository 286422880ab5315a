"""From logits to actions, and pulls that have nothing to pull: the one illegal action with an obvious legal meaning.

The environment answers an illegal action with its fallback pair. A factored action cannot forbid `pull` for some
prefill instances only, so an agent would learn to use the fallback. Training and inference therefore both drop the
pull and keep the pair, as `cacheenv.policy.route` does for coded policies.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cacheenv.envs.actions import MOVE_PARTS, PREFILL, PULL, ROUTE_PARTS, ActionCodec
from cacheenv.sim.actions import candidate_row, move_number, route_number, route_parts

FORBIDDEN = -np.inf


def drop_empty_pulls(codec: ActionCodec, actions: np.ndarray, pull_tokens: np.ndarray) -> np.ndarray:
    """Actions without pulls that have nothing to pull.

    Args:
        codec: Numbers of the action space.
        actions: One action a world: int (worlds,), or (worlds, parts) where factored.
        pull_tokens: Tokens that each prefill instance could pull, (worlds, P).

    Returns:
        A changed copy.
    """
    actions = np.array(actions, np.int64)
    if not codec.routes:
        return actions
    worlds = np.arange(len(actions))
    if codec.factored:
        actions[:, PULL] &= pull_tokens[worlds, actions[:, PREFILL]] > 0
        return actions
    prefill, decode, pull = route_parts(actions, codec.num_decode)
    pulls = (actions < codec.reject_number) & (pull == 1)
    empty = pulls & (pull_tokens[worlds, np.where(pulls, prefill, 0)] <= 0)
    return np.where(empty, route_number(prefill, decode, 0, codec.num_decode), actions)


def best_route(logits: np.ndarray, mask: np.ndarray, codec: ActionCodec) -> int:
    """The route of the largest legal logit of each part (factored format); a pull of nothing is dropped.

    Args:
        logits: All logits, float32; those of the routing parts come first.
        mask: Legal joint numbers of the routing block, bool.
        codec: Numbers of the action space.

    Returns:
        Joint number of the routing block.
    """
    grid, refusal = codec.route_grid(mask), mask[codec.reject_number]
    legal = np.concatenate([[grid.any(), refusal], grid.any((1, 2)), grid.any((0, 2)), grid.any((0, 1))])
    reject, prefill, decode, pull = _best_parts(logits[: len(legal)], legal, codec.sizes(ROUTE_PARTS))
    if reject:
        return codec.reject_number
    action = route_number(prefill, decode, pull, codec.num_decode)
    return action if mask[action] else route_number(prefill, decode, 0, codec.num_decode)


def best_move(logits: np.ndarray, mask: np.ndarray, codec: ActionCodec) -> int:
    """The move of the largest legal logit of each part (factored format).

    Args:
        logits: All logits, float32; those of the migration parts come last.
        mask: Legal joint numbers of the migration block, bool.
        codec: Numbers of the action space.

    Returns:
        Joint number of the migration block; one that is illegal moves nothing.
    """
    grid = codec.move_grid(mask)
    legal = np.concatenate([[grid.any(), True], grid.any((1, 2)), grid.any((0, 2)), grid.any((0, 1))])
    stay, source, candidate, destination = _best_parts(logits[-len(legal) :], legal, codec.sizes(MOVE_PARTS))
    if stay:
        return codec.stay_number
    return move_number(candidate_row(source, candidate, codec.candidates), destination, codec.num_decode)


def _best_parts(logits: np.ndarray, legal: np.ndarray, sizes: list[int]) -> list[int]:
    """Number of the largest legal logit of each part, the lowest on ties."""
    values = np.where(legal, logits, FORBIDDEN)
    return [int(np.argmax(values[start:stop])) for start, stop in pairwise(np.cumsum([0, *sizes]))]
