"""The natively batched environment: N worlds stepped by one compiled call on each core."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cacheenv.config import Scenario
from cacheenv.envs.core import Core
from cacheenv.envs.env import check_options
from cacheenv.errors import InputError
from cacheenv.policy import View
from cacheenv.sim.tables import STOP_DONE, STOP_HORIZON
from cacheenv.simulation import Result, collect

MIN_WORLDS_PER_THREAD = 8


class CacheVectorEnv(VectorEnv[Any, Any, Any]):
    """N independent worlds of one scenario; world i behaves exactly as `CacheEnv` seeded with `seed + i`.

    Args:
        num_envs: Number of worlds.
        autoreset_mode: Gymnasium's modes: `NEXT_STEP` (default), `SAME_STEP` or `DISABLED`.
        threads: Threads that step the worlds; None for one a core (at least 8 worlds each).
        max_episode_steps: Decisions after which an episode is truncated; None for no limit.
        summaries: Whether the metrics of an episode are put in the last info.
        routes: As for `CacheEnv`, like the arguments that follow.
        moves: See `CacheEnv`.
        scenario: See `CacheEnv`.
        overrides: See `CacheEnv`.
        action_format: See `CacheEnv`.
        observation: See `CacheEnv`.
        reward: See `CacheEnv`.
        horizon_s: See `CacheEnv`.
        render_mode: Only None.

    Raises:
        InputError: For an unknown scenario, key or choice; the message names the place.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        max_episode_steps: int | None = None,
        summaries: bool = True,
        routes: bool = True,
        moves: bool = True,
        scenario: str | Mapping[str, Any] | Scenario = "kimi-chat",
        overrides: Mapping[str, Any] | None = None,
        action_format: str = "joint",
        observation: str = "flat",
        reward: str | None = None,
        horizon_s: float | None = None,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise InputError(f"num_envs: expected at least 1, got {num_envs}")
        if render_mode is not None:
            raise InputError("render_mode: the batched environment draws nothing; expected None")
        self.num_envs = num_envs
        self.render_mode = None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.max_episode_steps = max_episode_steps
        self.summaries = summaries
        self.core = Core(
            num_envs,
            routes=routes,
            moves=moves,
            scenario=scenario,
            overrides=overrides,
            action_format=action_format,
            observation=observation,
            reward=reward,
            horizon_s=horizon_s,
        )
        self.single_action_space = self.core.codec.space()
        self.single_observation_space = self.core.observation_space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        wanted = threads if threads is not None else os.cpu_count() or 1
        self.threads = max(1, min(wanted, num_envs // MIN_WORLDS_PER_THREAD))
        self._pool: ThreadPoolExecutor | None = None
        self._randoms: list[np.random.Generator] = []
        self._episode_seeds = np.zeros(num_envs, np.int64)
        self._masks = np.ones((num_envs, self.core.codec.joint_count), np.bool_)
        self._pending_reset = np.zeros(num_envs, np.bool_)

    # -- Gymnasium ---------------------------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Starts episodes: world i is seeded with `seed + i`, or with `seed[i]`.

        Args:
            seed: One number, one for each world, or None to continue the streams.
            options: `reset_mask` (bool array: which worlds), `workload` (requests for all worlds).
        """
        given = check_options(options, ("reset_mask", "workload", "episode_seed"))
        mask = np.asarray(given.get("reset_mask", np.ones(self.num_envs, np.bool_)), np.bool_)
        if mask.shape != (self.num_envs,) or not mask.any():
            raise InputError(f"reset options: reset_mask must be {self.num_envs} booleans, at least one true")
        seeds = seed if isinstance(seed, Sequence) else [None if seed is None else seed + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise InputError(f"reset: expected {self.num_envs} seeds, got {len(seeds)}")
        if not self._randoms:
            self._randoms = [seeding.np_random(value)[0] for value in seeds]
        else:
            for i, value in enumerate(seeds):
                if value is not None and mask[i]:
                    self._randoms[i] = seeding.np_random(value)[0]
        observations = self._flat()
        if not mask.all():
            observations[:] = self._last
        self._begin(mask, given)
        self._run(np.zeros(self.num_envs, np.int64), observations)
        self._opened(mask)
        return self._shape(observations), self._info(np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_))

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all worlds; see the class for what happens to worlds whose episode is over."""
        if not self._randoms:
            raise gym.error.ResetNeeded("call reset() before step()")
        core = self.core
        steps = core.steps
        rows = core.codec.joint_rows(np.asarray(actions), steps["stop"])
        if rows.shape != (self.num_envs,):
            raise InputError(f"step: expected {self.num_envs} actions, got an array of shape {rows.shape}")
        resetting = self._pending_reset.copy()
        steps["phase"] = 0
        observations = self._flat()
        if resetting.any():
            self._begin(resetting, {})
        self._run(rows, observations)
        if resetting.any():
            self._opened(resetting)
            self._pending_reset[:] = False
        stop = steps["stop"]
        terminated = stop == STOP_DONE
        truncated = stop == STOP_HORIZON
        if self.max_episode_steps is not None:
            truncated = truncated | ((steps["steps"] >= self.max_episode_steps) & ~terminated)
        terminated &= ~resetting
        truncated &= ~resetting
        rewards = steps["reward"].copy()
        done = terminated | truncated
        info = self._info(np.where(resetting, 0.0, steps["dt"]), (steps["invalid"] != 0) & ~resetting)
        if done.any():
            final = {i: core.summary(i) for i in np.flatnonzero(done)} if self.summaries else {}
            if self.autoreset_mode == AutoresetMode.SAME_STEP:
                info = self._restart(done, observations, info, final)
            else:
                self._add_final(info, final, done)
                self._pending_reset |= done & (self.autoreset_mode == AutoresetMode.NEXT_STEP)
        return self._shape(observations), rewards, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    # -- beyond the Gymnasium interface ------------------------------------------------------------------------

    def action_masks(self) -> np.ndarray:
        """Legal actions of all worlds: bool array (num_envs, actions) as `CacheEnv.action_masks`."""
        if not self.core.codec.factored:
            return self._masks.copy()
        stops = self.core.steps["stop"]
        rows = [self.core.codec.factored_mask(mask, int(stop)) for mask, stop in zip(self._masks, stops, strict=True)]
        return np.array(rows)

    def view(self, index: int) -> View:
        """The view of world `index` in physical units (read only)."""
        return self.core.worlds.view(index)

    def result(self, index: int) -> Result:
        """Records and summary of the episode of world `index` so far."""
        return collect(self.core.worlds, index, "env", int(self._episode_seeds[index]))

    # -- inside ------------------------------------------------------------------------------------------------

    def _flat(self) -> np.ndarray:
        return np.empty((self.num_envs, len(self.core.rows)), np.float32)

    def _shape(self, observations: np.ndarray) -> Any:
        self._last = observations if self.autoreset_mode != AutoresetMode.DISABLED else observations.copy()
        return self.core.shape_observation(observations)

    def _begin(self, mask: np.ndarray, options: Mapping[str, Any]) -> None:
        """Starts episodes in the masked worlds; the others are left as they are by the next run."""
        self.core.steps["phase"][~mask] = np.where(self.core.steps["phase"][~mask] == 0, 0, 2)
        for i in np.flatnonzero(mask):
            drawn = int(self._randoms[i].integers(2**62))
            self._episode_seeds[i] = int(options["episode_seed"]) + i if "episode_seed" in options else drawn
            self.core.begin(int(i), int(self._episode_seeds[i]), options.get("workload"))

    def _opened(self, mask: np.ndarray) -> None:
        for i in np.flatnonzero(mask):
            self.core.opened(int(i))

    def _run(self, actions: np.ndarray, observations: np.ndarray) -> None:
        """Steps all worlds, on one thread or several."""
        if self.threads == 1:
            self.core.run(0, self.num_envs, actions, observations, self._masks)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, "cacheenv")
        edges = np.linspace(0, self.num_envs, self.threads + 1).astype(int)
        grown = self.core.run_parts(self._pool, edges, actions, observations, self._masks)
        while grown:
            grown = self.core.run_parts(self._pool, edges, actions, observations, self._masks)

    def _info(self, dt: np.ndarray, invalid: np.ndarray) -> dict[str, Any]:
        present = np.ones(self.num_envs, np.bool_)
        return {
            "action_mask": self.action_masks().view(np.int8),
            "_action_mask": present,
            "dt": np.array(dt, np.float64),
            "_dt": present.copy(),
            "invalid_action": invalid,
            "_invalid_action": present.copy(),
        }

    def _add_final(self, info: dict[str, Any], final: Mapping[int, dict[str, Any]], done: np.ndarray) -> None:
        for key in next(iter(final.values()), {}):
            values = np.zeros(self.num_envs)
            for i, summary in final.items():
                values[i] = summary[key]
            info[key] = values
            info[f"_{key}"] = done.copy()

    def _restart(
        self, done: np.ndarray, observations: np.ndarray, info: dict[str, Any], final: Mapping[int, dict[str, Any]]
    ) -> dict[str, Any]:
        """SAME_STEP: the last observation and info move to `final_obs` and `final_info`, new episodes begin."""
        last = np.empty(self.num_envs, object)
        for i in np.flatnonzero(done):
            last[i] = self.core.shape_observation(observations[i].copy())
        final_info: dict[str, Any] = {}
        for key in ("action_mask", "dt", "invalid_action"):
            final_info[key] = info[key].copy()
            final_info[f"_{key}"] = done.copy()
        self._add_final(final_info, final, done)
        self.core.steps["phase"][:] = 2
        self._begin(done, {})
        self._run(np.zeros(self.num_envs, np.int64), observations)
        self._opened(done)
        fresh = self._info(info["dt"], info["invalid_action"])
        fresh["final_obs"] = last
        fresh["_final_obs"] = done.copy()
        fresh["final_info"] = final_info
        fresh["_final_info"] = done.copy()
        return fresh

    def __getstate__(self) -> dict[str, Any]:
        """Pickles everything but the threads."""
        return {**self.__dict__, "_pool": None}
