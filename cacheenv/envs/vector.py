"""The natively batched environment: N worlds stepped by one compiled call on each core."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cacheenv.envs.arguments import EnvArguments
from cacheenv.envs.env import check_options
from cacheenv.envs.step_threads import StepThreads
from cacheenv.envs.stepper import Stepper
from cacheenv.errors import InputError
from cacheenv.policy import View
from cacheenv.run.seeds import checked_seed
from cacheenv.run.simulate import Result, collect
from cacheenv.scenario import Scenario
from cacheenv.sim.state.codes import STOP_DONE, STOP_HORIZON

MIN_WORLDS_PER_THREAD = 8


class CacheVectorEnv(VectorEnv[Any, Any, Any]):
    """N independent worlds of one scenario; world i behaves exactly as `CacheEnv` seeded with `seed + i`.

    One compiled call steps all worlds, on all cores. All of Gymnasium's autoreset modes give what its `SyncVectorEnv`
    gives. `final_info` (`SAME_STEP`) or the info of the last step (otherwise) has the summaries; here also where
    `max_episode_steps` ends an episode. `action_masks()`, `view(i)`, `result(i)`, `get_state()` and `set_state(state)`
    work as in the single environment.

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

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

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
        self.stepper = Stepper(
            num_envs, EnvArguments(routes, moves, scenario, overrides, action_format, observation, reward, horizon_s)
        )
        self.single_action_space = self.stepper.codec.space()
        self.single_observation_space = self.stepper.layout.space(observation)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        wanted = threads if threads is not None else os.cpu_count() or 1
        self.threads = max(1, min(wanted, num_envs // MIN_WORLDS_PER_THREAD))
        self._pool: StepThreads | None = None
        self._randoms: list[np.random.Generator] = []
        self._episode_seeds = np.zeros(num_envs, np.int64)
        self._masks = np.ones((num_envs, self.stepper.codec.mask_size), np.bool_)
        self._no_actions = np.zeros((num_envs, self.stepper.codec.width), np.int64)
        self._own_worlds = num_envs // self.threads
        self._steps = self.stepper.steps.view(np.ndarray)  # attribute access to records is slow
        self._pending = np.zeros(num_envs, np.bool_)  # worlds whose episode is over and that are not yet reset
        self._last: np.ndarray | None = None

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
            options: `reset_mask` (bool array: which worlds), `workload` (requests for all of them), `episode_seed`
                (world i gets `episode_seed + i`).
        """
        given = check_options(options, ("reset_mask", "workload", "episode_seed"))
        mask = np.array(given.get("reset_mask", np.ones(self.num_envs, np.bool_)), np.bool_)
        if mask.shape != (self.num_envs,) or not mask.any():
            raise InputError(f"reset options: reset_mask must be {self.num_envs} booleans, at least one true")
        if not self._randoms and not mask.all():
            raise gym.error.ResetNeeded("the first reset() must be of all worlds")
        self._seed(seed, mask)
        observations = self._flat()
        if not mask.all():
            observations[:] = self._last
        self._begin(mask, given, observations)
        self._pending &= ~mask
        self._last = observations.copy() if self._keeps_last else None
        info = self._info(np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_), mask)
        return self.stepper.shape_observation(observations), info

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all worlds; the class says what happens to those whose episode is over."""
        if not self._randoms:
            raise gym.error.ResetNeeded("call reset() before step()")
        if self._pending.any() and self.autoreset_mode == AutoresetMode.DISABLED:
            over = ", ".join(str(i) for i in np.flatnonzero(self._pending))
            raise gym.error.ResetNeeded(f"the episodes of worlds {over} are over; reset them with `reset_mask`")
        steps, compiled = self._steps, self.stepper.compiled
        rows = self._rows(actions)
        observations = self._flat()
        steps["phase"] = np.where(self._pending, compiled.PHASE_DONE, compiled.PHASE_ACT)
        self._run(rows, observations)
        rewards, dt, invalid = steps["reward"].copy(), steps["dt"].copy(), steps["invalid"] != 0
        terminated, truncated = steps["stop"] == STOP_DONE, steps["stop"] == STOP_HORIZON
        if self.max_episode_steps is not None:
            truncated |= (steps["steps"] >= self.max_episode_steps) & ~terminated
        if self._pending.any():  # NEXT_STEP: these worlds were over before this step, which only resets them
            resetting = self._pending
            self._begin(resetting, {}, observations)
            for values in (rewards, dt, invalid, terminated, truncated):
                values[resetting] = 0
        for i in np.flatnonzero(terminated):
            self.stepper.worlds.check_served(int(i))
        done = terminated | truncated
        present = np.ones(self.num_envs, np.bool_)
        if not done.any():
            info = self._info(dt, invalid, present)
        elif self.autoreset_mode == AutoresetMode.SAME_STEP:
            info = self._restart(done, dt, invalid, observations)
        else:
            info = self._info(dt, invalid, present)
            self._add_summaries(info, done)
        self._pending = done & (self.autoreset_mode != AutoresetMode.SAME_STEP)
        if self._keeps_last:
            self._last = observations.copy()
        return self.stepper.shape_observation(observations), rewards, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    # -- beyond the Gymnasium interface ------------------------------------------------------------------------

    def action_masks(self) -> np.ndarray:
        """Legal actions of all worlds: bool array (num_envs, actions) as `CacheEnv.action_masks`."""
        return self._masks.copy()

    def view(self, index: int) -> View:
        """The view of world `index` in physical units (read only)."""
        return self.stepper.view(index)

    def result(self, index: int) -> Result:
        """Records and summary of the episode of world `index` so far."""
        return collect(self.stepper.worlds, index, "env", int(self._episode_seeds[index]))

    def get_state(self) -> dict[str, Any]:
        """Everything that the episodes and the seeding depend on; see :meth:`set_state`."""
        if not self._randoms:
            raise gym.error.ResetNeeded("call reset() before get_state()")
        return {
            "worlds": self.stepper.worlds.get_state(),
            "steps": self.stepper.steps.copy(),
            "randoms": copy.deepcopy(self._randoms),
            **{name: copy.copy(getattr(self, f"_{name}")) for name in ("masks", "last", "pending", "episode_seeds")},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues exactly from a state of this or another batch with the same arguments."""
        self.stepper.worlds.set_state(state["worlds"])
        self.stepper.steps[:] = state["steps"]
        self._randoms = copy.deepcopy(state["randoms"])
        for name in ("masks", "last", "pending", "episode_seeds"):
            setattr(self, f"_{name}", copy.copy(state[name]))

    # -- inside ------------------------------------------------------------------------------------------------

    @property
    def _keeps_last(self) -> bool:
        """Whether a reset may leave worlds as they are, so that their last observations are needed again."""
        return self.autoreset_mode == AutoresetMode.DISABLED

    def _flat(self) -> np.ndarray:
        return np.empty((self.num_envs, len(self.stepper.layout)), np.float32)

    def _rows(self, actions: Any) -> np.ndarray:
        """The actions as int64 array (num_envs, numbers of an action)."""
        rows = np.ascontiguousarray(actions, np.int64)
        shape = (self.num_envs, self.stepper.codec.width)
        if rows.shape not in (shape, shape[: 1 + self.stepper.codec.factored]):
            raise InputError(f"step: expected {self.num_envs} actions, got an array of shape {rows.shape}")
        return rows.reshape(shape)

    def _seed(self, seed: int | Sequence[int | None] | None, mask: np.ndarray) -> None:
        """Starts the streams of the masked worlds that are given a seed, and all where there are none yet."""
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = [None if value is None else int(value) for value in seed]
        if len(seeds) != self.num_envs:
            raise InputError(f"reset: expected {self.num_envs} seeds, got {len(seeds)}")
        if not self._randoms:
            self._randoms = [seeding.np_random(value)[0] for value in seeds]
            return
        for i in np.flatnonzero(mask):
            if seeds[i] is not None:
                self._randoms[i] = seeding.np_random(seeds[i])[0]

    def _begin(self, mask: np.ndarray, options: Mapping[str, Any], observations: np.ndarray) -> None:
        """Starts episodes in the masked worlds and takes them to their first decisions."""
        self._steps["phase"] = self.stepper.compiled.PHASE_DONE
        for i in np.flatnonzero(mask):
            drawn = int(self._randoms[i].integers(2**62))
            if "episode_seed" in options:
                drawn = checked_seed(options["episode_seed"], "reset options: episode_seed") + int(i)
            self._episode_seeds[i] = drawn
            self.stepper.begin(int(i), int(self._episode_seeds[i]), options.get("workload"))
        self._run(self._no_actions, observations)
        for i in np.flatnonzero(mask):
            self.stepper.opened(int(i))

    def _run(self, actions: np.ndarray, observations: np.ndarray) -> None:
        """Steps all worlds that are not done, on one thread or several."""
        buffers = self.stepper.buffers(actions, observations, self._masks)
        if self.threads == 1:
            self.stepper.run(0, self.num_envs, buffers)
            return
        if self._pool is None:
            self._pool = StepThreads(self.threads - 1)
        grown = True
        while grown:
            rest, others = self.num_envs - self._own_worlds, self.threads - 1
            edges = [0, *(self._own_worlds + rest * part // others for part in range(others + 1))]
            grown, lag_s = self.stepper.run_parts(self._pool, edges, buffers)
            # The other threads must first be woken: this one takes more worlds until all end together.
            moved = self._own_worlds + (1 if lag_s > 0.0 else -1)
            self._own_worlds = min(max(moved, 1), self.num_envs - others)

    def _info(self, dt: np.ndarray, invalid: np.ndarray, present: np.ndarray) -> dict[str, Any]:
        return {
            "action_mask": self._masks.astype(np.int8),
            "_action_mask": present,
            "dt": dt,
            "_dt": present.copy(),
            "invalid_action": invalid,
            "_invalid_action": present.copy(),
        }

    def _add_summaries(self, info: dict[str, Any], done: np.ndarray) -> None:
        """The metrics of the episodes that are over."""
        if not self.summaries:
            return
        over = np.flatnonzero(done)
        rows = [self.stepper.summary(int(i)) for i in over]
        for key, first in rows[0].items():
            values = np.zeros(self.num_envs, type(first))
            values[over] = [row[key] for row in rows]
            info[key] = values
            info[f"_{key}"] = done.copy()

    def _restart(
        self, done: np.ndarray, dt: np.ndarray, invalid: np.ndarray, observations: np.ndarray
    ) -> dict[str, Any]:
        """SAME_STEP: the last observation and info move to `final_obs` and `final_info`, new episodes begin."""
        final_obs = np.empty(self.num_envs, object)
        for i in np.flatnonzero(done):
            final_obs[i] = self.stepper.shape_observation(observations[i].copy())
        final_info = self._info(dt.copy(), invalid.copy(), done.copy())
        self._add_summaries(final_info, done)
        self._begin(done, {}, observations)
        dt[done], invalid[done] = 0.0, False
        info = self._info(dt, invalid, np.ones(self.num_envs, np.bool_))
        info |= {"final_obs": final_obs, "_final_obs": done.copy()}
        return info | {"final_info": final_info, "_final_info": done.copy()}

    def __getstate__(self) -> dict[str, Any]:
        """Pickles everything but the threads and what is bound to the tables."""
        return {name: value for name, value in self.__dict__.items() if name != "_steps"} | {"_pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the state and binds the columns again."""
        self.__dict__.update(state)
        self._steps = self.stepper.steps.view(np.ndarray)
