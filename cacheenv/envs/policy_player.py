"""Policies that play the environment through `step`: for demonstrations and comparisons."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from cacheenv.envs.env import CacheEnv
from cacheenv.errors import InputError
from cacheenv.policy import DECISION_ROUTE, Policy, as_bundle
from cacheenv.policy.compiled import bundle_addresses, policy_params, policy_streams
from cacheenv.run.seeds import split_seed
from cacheenv.run.trials import Trials
from cacheenv.sim.actions import move_count, route_count
from cacheenv.sim.policies.compose import RESCHEDULER
from cacheenv.sim.policies.python_entry import compose, fill_mask


class PolicyPlayer:
    """Decides as `simulate` with the same policy and seed does, one step at a time.

    The environment's scenario must have what the policy requires (:func:`cacheenv.run.simulate.apply_requirements`).

    Args:
        policy: Name, :class:`cacheenv.policy.Policy` or bundle of compiled policies; or a planner, where the
            environment has no policies inside.
    """

    def __init__(self, policy: Any) -> None:
        self.bundle = as_bundle(policy)
        if self.bundle.actor is not None and not self.bundle.plans:
            raise InputError(f"policy {self.bundle.name}: expected compiled policies; call act(view, mask) of this one")
        self._policies, self._present = bundle_addresses(self.bundle)
        self._rng: np.ndarray | None = None
        self._params = policy_params(self.bundle)

    def begin(self, env: gym.Env[Any, Any]) -> None:
        """Starts the policies' random streams and state anew, for the episode that the environment has begun."""
        seed = self._inner(env).episode_seed
        if seed is None:
            raise gym.error.ResetNeeded("call reset() of the environment first")
        self._rng = policy_streams(split_seed(seed)[2])
        self._params = policy_params(self.bundle)
        if self.bundle.plans:
            stepper = self._inner(env).stepper
            if stepper.bundle.parts():
                raise InputError(f"policy {self.bundle.name}: expected an environment in which it decides everything")
            self.bundle.actor.attach(Trials(stepper.worlds, 0, self.bundle, (self._rng, self._params)))

    def act(self, env: gym.Env[Any, Any]) -> Any:
        """The action at the present decision, an element of the environment's action space."""
        inner = self._inner(env)
        view, codec = inner.view, inner.stepper.codec
        if self.bundle.plans:
            return inner.encode_action(**self._plan(inner))
        if inner.decision != DECISION_ROUTE:
            mover, rng = self._part("rescheduler"), self._streams()
            action = mover.function(view, rng[RESCHEDULER], self._params[RESCHEDULER])
            return inner.encode_action(**codec.move_parts(int(action)))
        self._part("router")
        action = compose(view, self._policies, self._present, self._streams(), self._params)
        return inner.encode_action(**codec.route_parts(action))

    def _plan(self, inner: CacheEnv) -> dict[str, Any]:
        """The parts of the action that a planner takes."""
        self._streams()
        view, codec = inner.view, inner.stepper.codec
        routes = inner.decision == DECISION_ROUTE
        prefills, decodes, slots = len(view.prefill), len(view.decode), int(view.cluster[0].num_candidates)
        mask = np.zeros(route_count(prefills, decodes) if routes else move_count(decodes, slots), np.bool_)
        fill_mask(inner.stepper.worlds.handles, 0, inner.decision, mask)
        action = int(self.bundle.actor.act(view, mask))
        return codec.route_parts(action) if routes else codec.move_parts(action)

    def _streams(self) -> np.ndarray:
        if self._rng is None:
            raise InputError(f"policy {self.bundle.name}: call begin() first")
        return self._rng

    def _part(self, kind: str) -> Policy:
        part: Policy | None = getattr(self.bundle, kind)
        if part is None:
            raise InputError(f"policy {self.bundle.name}: it has no {kind}, which this decision needs")
        return part

    @staticmethod
    def _inner(env: gym.Env[Any, Any]) -> CacheEnv:
        inner = env.unwrapped
        if not isinstance(inner, CacheEnv):
            raise InputError(f"expected an environment of cacheenv, got {type(inner).__name__}")
        return inner
