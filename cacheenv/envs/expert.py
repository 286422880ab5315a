"""Compiled policies that play the environment through `step`: for demonstrations and comparisons."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from cacheenv.envs.env import CacheEnv
from cacheenv.errors import InputError
from cacheenv.policy import DECISION_ROUTE, as_bundle
from cacheenv.sim.rng import seed_words
from cacheenv.sim.tables import POLICY_PARTS
from cacheenv.worlds import part_index, split_seed


class Expert:
    """Decides as `simulate` with the same policy and seed does, one step at a time.

    The environment's scenario must have what the policy requires (:func:`cacheenv.simulation.apply_requirements`).

    Args:
        policy: Name, :class:`cacheenv.policy.Policy` or bundle of compiled policies.
    """

    def __init__(self, policy: Any) -> None:
        self.bundle = as_bundle(policy)
        if self.bundle.actor is not None:
            raise InputError(f"policy {self.bundle.name}: expected compiled policies; call act(view, mask) of this one")
        self._parts: dict[str, tuple[Any, np.ndarray, np.ndarray]] = {}

    def begin(self, env: gym.Env[Any, Any]) -> None:
        """Starts the policies' random streams and state anew, for the episode that the environment has begun."""
        seed = self._inner(env).episode_seed
        if seed is None:
            raise gym.error.ResetNeeded("call reset() of the environment first")
        streams = split_seed(seed)[2].spawn(POLICY_PARTS)
        self._parts = {
            part.kind: (part.function, seed_words(streams[part_index(part)]), part.parameter_array())
            for part in self.bundle.parts()
        }

    def act(self, env: gym.Env[Any, Any]) -> Any:
        """The action at the present decision, an element of the environment's action space."""
        inner = self._inner(env)
        view, codec = inner.view, inner.core.codec
        if inner.decision != DECISION_ROUTE:
            return inner.encode_action(**codec.move_parts(self._ask("rescheduler", view)))
        action = self._ask("router", view)
        refusal = codec.route_count - 1
        if "decode_choice" in self._parts and action != refusal:
            other = self._ask("decode_choice", view)
            if other != refusal:
                decodes = codec.num_decode
                action = (action // 2 // decodes * decodes + other // 2 % decodes) * 2 + action % 2
        if "admission" in self._parts and action != refusal:
            view.cluster[0].proposed = action
            if self._ask("admission", view) == 0:
                action = refusal
        return inner.encode_action(**codec.route_parts(action))

    def _ask(self, kind: str, view: Any) -> int:
        if kind not in self._parts:
            missing = "call begin() first" if not self._parts else f"it has no {kind}, which this decision needs"
            raise InputError(f"policy {self.bundle.name}: {missing}")
        function, rng, params = self._parts[kind]
        return int(function(view, rng, params))

    @staticmethod
    def _inner(env: gym.Env[Any, Any]) -> CacheEnv:
        inner = env.unwrapped
        if not isinstance(inner, CacheEnv):
            raise InputError(f"expected an environment of cacheenv, got {type(inner).__name__}")
        return inner
