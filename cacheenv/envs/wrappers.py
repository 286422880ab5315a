"""Wrappers around the environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs


class ActionMaskObservation(gym.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Puts the mask into the observation: `{"observations": ..., "action_mask": ...}`, as RLlib's masking models want.

    The mask is float32, 1 for a legal action; see :meth:`cacheenv.envs.env.CacheEnv.action_masks` for its layout.

    Args:
        env: An environment with `action_masks()`.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        size = len(self.action_masks())
        self.observation_space = gym.spaces.Dict(
            {
                "observations": env.observation_space,
                "action_mask": gym.spaces.Box(0.0, 1.0, (size,), np.float32),
            }
        )

    def observation(self, observation: Any) -> dict[str, Any]:
        """The observation with the mask beside it."""
        return {"observations": observation, "action_mask": self.action_masks().astype(np.float32)}

    def action_masks(self) -> np.ndarray:
        """Legal actions, as the environment's."""
        masks: np.ndarray = self.env.get_wrapper_attr("action_masks")()
        return masks
