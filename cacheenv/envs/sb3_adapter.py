"""The adapter behind :func:`cacheenv.sb3.as_vec_env`; importing it needs Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.errors import InputError

#: Methods of the batch that take the number of a world.
PER_WORLD = ("view", "result")


class SB3VecEnv(VecEnv):
    """N worlds as an SB3 `VecEnv`.

    Infos are empty, but for worlds whose episode is over: `terminal_observation`, `TimeLimit.truncated` and the
    episode's metrics. `env_method("action_masks")` gives the rows that `MaskablePPO` asks for.

    Args:
        batch: The batched environment, resetting in the same step.
    """

    def __init__(self, batch: CacheVectorEnv) -> None:
        self.batch = batch
        super().__init__(batch.num_envs, batch.single_observation_space, batch.single_action_space)
        self._actions: np.ndarray = np.zeros(0, np.int64)

    def reset(self) -> Any:
        """Starts all episodes, with the seeds and options given since the last reset."""
        options = self._options[0]
        if any(other is not options and other != options for other in self._options):
            raise InputError("set_options: expected the same options for all worlds")
        observations, _ = self.batch.reset(seed=self._seeds, options=options)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Takes the actions of the next :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Steps all worlds; those that are over start their next episode in the same step."""
        observations, rewards, terminated, truncated, info = self.batch.step(self._actions)
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(done):
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
            }
            for key, values in info["final_info"].items():
                if not key.startswith("_") and key != "action_mask":
                    infos[i][key] = values[i].item()
        return observations, rewards, done, infos

    def close(self) -> None:
        """Ends the threads."""
        self.batch.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the batch, once for each world asked for."""
        value = getattr(self.batch, attr_name)
        return [value for _ in self._asked(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Worlds have no attributes of their own."""
        raise AttributeError(f"cannot set '{attr_name}': the worlds of a batch have no attributes of their own")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """`action_masks`, `view` or `result` of each world asked for."""
        asked = self._asked(indices)
        if method_name == "action_masks":
            masks = self.batch.action_masks()
            return [masks[i] for i in asked]
        if method_name not in PER_WORLD:
            raise AttributeError(f"no method '{method_name}' for single worlds; known: action_masks, view, result")
        return [getattr(self.batch, method_name)(i, *method_args, **method_kwargs) for i in asked]

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None) -> list[bool]:
        """Worlds are never wrapped."""
        return [False for _ in self._asked(indices)]

    def get_images(self) -> list[Any]:
        """The batch draws nothing."""
        return [None for _ in range(self.num_envs)]

    def _asked(self, indices: Any) -> Iterable[int]:
        return list(self._get_indices(indices))
