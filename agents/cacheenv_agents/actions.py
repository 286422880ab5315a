"""From logits to actions, and pulls that have nothing to pull: the one illegal action with an obvious legal meaning.

The environment answers an illegal action with its fallback pair. A factored action cannot forbid `pull` for some
prefill instances only, so an agent would learn to use the fallback. Training and inference therefore both drop the
pull and keep the pair, as `cacheenv.policy.route` does for coded policies.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cacheenv.envs.actions import ActionCodec

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
    rows = np.arange(len(actions))
    if codec.factored:
        actions[:, 3] &= pull_tokens[rows, actions[:, 1]] > 0
        return actions
    pulls = (actions < codec.route_count - 1) & (actions % 2 == 1)
    prefill = np.where(pulls, actions // (2 * codec.num_decode), 0)
    actions[pulls & (pull_tokens[rows, prefill] <= 0)] -= 1
    return actions


def best_route(logits: np.ndarray, mask: np.ndarray, codec: ActionCodec) -> int:
    """The route of the largest legal logit of each part (factored format); a pull of nothing is dropped.

    Args:
        logits: All logits, float32; those of the routing parts come first.
        mask: Legal joint numbers of the routing block, bool (2 P D + 1,).
        codec: Numbers of the action space.

    Returns:
        Joint number of the routing block.
    """
    grid = mask[:-1].reshape(codec.num_prefill, codec.num_decode, 2)
    routes = bool(grid.any())
    legal = np.concatenate([[routes, mask[-1]], grid.any((1, 2)), grid.any((0, 2)), grid.any((0, 1))])
    parts = _best_parts(logits[: len(legal)], legal, [2, codec.num_prefill, codec.num_decode, 2])
    if parts[0]:
        return codec.route_count - 1
    action = (parts[1] * codec.num_decode + parts[2]) * 2 + parts[3]
    return action if mask[action] else action - parts[3]


def best_move(logits: np.ndarray, mask: np.ndarray, codec: ActionCodec) -> int:
    """The move of the largest legal logit of each part (factored format).

    Args:
        logits: All logits, float32; those of the migration parts come last.
        mask: Legal joint numbers of the migration block, bool (D K D + 1,).
        codec: Numbers of the action space.

    Returns:
        Joint number of the migration block; one that is illegal moves nothing.
    """
    grid = mask[:-1].reshape(codec.num_decode, codec.candidates, codec.num_decode)
    legal = np.concatenate([[grid.any(), True], grid.any((1, 2)), grid.any((0, 2)), grid.any((0, 1))])
    parts = _best_parts(logits[-len(legal) :], legal, [2, codec.num_decode, codec.candidates, codec.num_decode])
    if parts[0]:
        return codec.move_count - 1
    return int((parts[1] * codec.candidates + parts[2]) * codec.num_decode + parts[3])


def _best_parts(logits: np.ndarray, legal: np.ndarray, sizes: list[int]) -> list[int]:
    """Number of the largest legal logit of each part, the lowest on ties."""
    values = np.where(legal, logits, FORBIDDEN)
    return [int(np.argmax(values[start:stop])) for start, stop in pairwise(np.cumsum([0, *sizes]))]
