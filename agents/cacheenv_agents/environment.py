"""The worlds that an agent is trained in, as Stable-Baselines3 wants them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from cacheenv.envs.registration import IDS
from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.sb3 import as_vec_env
from cacheenv_agents.actions import drop_empty_pulls
from cacheenv_agents.config import TrainingConfig

#: Metrics of each finished episode that training reports.
EPISODE_METRICS = ("goodput_rps", "slo_attainment", "ttft_mean_s", "hit_rate", "rejected")


class DropEmptyPulls(VecEnvWrapper):
    """Applies :func:`cacheenv_agents.actions.drop_empty_pulls` to every action."""

    def __init__(self, venv: VecEnv, worlds: CacheVectorEnv) -> None:
        super().__init__(venv)
        self.worlds = worlds

    def reset(self) -> Any:
        """Starts all episodes."""
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Sends the changed actions."""
        pull_tokens = self.worlds.stepper.worlds.views.prefill["pull_tokens"]
        self.venv.step_async(drop_empty_pulls(self.worlds.stepper.codec, actions, pull_tokens))

    def step_wait(self) -> Any:
        """Waits for the step."""
        return self.venv.step_wait()


def make_worlds(config: TrainingConfig) -> CacheVectorEnv:
    """The batched environment of a configuration."""
    arguments: dict[str, Any] = {**IDS[config.env_id], **config.parameters.env_kwargs}
    return CacheVectorEnv(config.parameters.n_envs, AutoresetMode.SAME_STEP, **arguments)


def make_vec_env(config: TrainingConfig, worlds: CacheVectorEnv, normalizer: str | None = None) -> VecEnv:
    """The worlds with monitoring and, where configured, running normalisation of the reward.

    Args:
        config: What is trained.
        worlds: From :func:`make_worlds`.
        normalizer: File with the normaliser's state to continue with.
    """
    venv: VecEnv = VecMonitor(DropEmptyPulls(as_vec_env(worlds), worlds))
    if not normalizes_reward(config):
        return venv
    if normalizer is not None:
        return VecNormalize.load(normalizer, venv)
    return VecNormalize(venv, norm_obs=False, norm_reward=True, gamma=config.parameters.gamma)


def normalizes_reward(config: TrainingConfig) -> bool:
    """Whether the reward is divided by its running standard deviation."""
    normalize = config.parameters.normalize
    return isinstance(normalize, dict) and normalize["norm_reward"]
