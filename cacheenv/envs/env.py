"""The Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from cacheenv.envs.core import Core
from cacheenv.envs.render import render_ansi, render_rgb
from cacheenv.errors import InputError, suggestion
from cacheenv.policy import View
from cacheenv.run.seeds import checked_seed
from cacheenv.run.simulate import Result, collect
from cacheenv.scenario import Scenario
from cacheenv.sim.state.codes import STOP_DONE, STOP_HORIZON

RESET_OPTIONS = ("episode_seed", "workload")


def check_options(options: Mapping[str, Any] | None, known: tuple[str, ...] = RESET_OPTIONS) -> dict[str, Any]:
    """Reset options; an unknown one is an :class:`InputError`."""
    for key in options or {}:
        if key not in known:
            raise InputError(f"reset options: unknown key '{key}'{suggestion(key, known)}; known: {', '.join(known)}")
    return dict(options or {})


class CacheEnv(gym.Env[Any, Any]):
    """A prefill/decode-disaggregated serving cluster; see `docs/environment.md`.

    Args:
        routes: Whether the agent decides arrivals (set by the registered id).
        moves: Whether the agent decides rescheduling ticks (set by the registered id).
        scenario: Name, YAML path, mapping or :class:`cacheenv.Scenario`.
        overrides: Changes to the scenario, nested or with dotted keys.
        action_format: `joint` (Discrete) or `factored` (MultiDiscrete).
        observation: `flat` (Box) or `dict` (one Box for each table).
        reward: `slo`, `latency` or `shaped`; None for the scenario's.
        horizon_s: Simulated seconds after which an episode is truncated; None for the scenario's.
        render_mode: None, `ansi` or `rgb_array`.

    Raises:
        InputError: For an unknown scenario, key or choice; the message names the place.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
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
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise InputError(f"render_mode: expected None, 'ansi' or 'rgb_array', got {render_mode!r}")
        self.render_mode = render_mode
        self.core = Core(
            1,
            routes=routes,
            moves=moves,
            scenario=scenario,
            overrides=overrides,
            action_format=action_format,
            observation=observation,
            reward=reward,
            horizon_s=horizon_s,
        )
        self.action_space = self.core.codec.space()
        self.observation_space = self.core.observation_space()
        self.episode_seed: int | None = None
        self._joint = action_format == "joint"
        self._flat = observation == "flat"
        self._actions = np.zeros((1, self.core.codec.width), np.int64)
        self._observations = np.zeros((1, len(self.core.rows)), np.float32)
        self._masks = np.ones((1, self.core.codec.mask_size), np.bool_)
        self._bind()

    def _bind(self) -> None:
        """Binds what every step reads as plain arrays: attribute access to a record takes as long as a step."""
        steps = self.core.steps.view(np.ndarray)
        self._phase, self._stop = steps["phase"], steps["stop"]
        self._reward, self._dt, self._invalid = steps["reward"], steps["dt"], steps["invalid"]
        self._observation = self._observations[0]
        self._mask = self._masks[0].view(np.int8)
        self._run = self.core.run

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: Seeds the stream that episode seeds are drawn from; None continues it.
            options: `episode_seed` fixes the seed of this one episode (as in `simulate(seed=...)`); `workload` replaces
                its requests.
        """
        super().reset(seed=seed)
        given = check_options(options)
        drawn = int(self.np_random.integers(2**62))
        episode_seed = checked_seed(given.get("episode_seed", drawn), "reset options: episode_seed")
        self.core.begin(0, episode_seed, given.get("workload"))
        self.episode_seed = episode_seed
        self._run(0, 1, self._actions, self._observations, self._masks)
        self.core.opened(0)
        return self._seen(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carries the action out and runs to the next decision."""
        if self.episode_seed is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        if self._joint:
            self._actions[0, 0] = action
        else:
            self._actions[0] = action
        self._phase[0] = self.core.kernel.PHASE_ACT
        self._run(0, 1, self._actions, self._observations, self._masks)
        stop = self._stop.item(0)
        info = self._info()
        if stop == STOP_DONE:
            self.core.worlds.check_served(0)
            info.update(self.core.summary(0))
        elif stop == STOP_HORIZON:
            info.update(self.core.summary(0))
        return self._seen(), self._reward.item(0), stop == STOP_DONE, stop == STOP_HORIZON, info

    def _seen(self) -> Any:
        """The present observation, as arrays of its own."""
        return self._observation.copy() if self._flat else self.core.shape_observation(self._observation)

    def _info(self) -> dict[str, Any]:
        return {
            "action_mask": self._mask.copy(),
            "dt": self._dt.item(0),
            "invalid_action": self._invalid.item(0) != 0,
        }

    # -- beyond the Gymnasium interface ----------------------------------------------------------------------------

    def action_masks(self) -> np.ndarray:
        """Legal actions: bool array over the joint actions, or over the values of the parts (length `sum(nvec)`).

        A factored mask allows what some legal action has; a pull to an instance that has nothing to pull, or a move
        that does not fit, cannot be forbidden in that form and counts as illegal when it is taken.
        """
        mask: np.ndarray = self._masks[0].copy()
        return mask

    @property
    def view(self) -> View:
        """The view of the present decision in physical units (read only): what every policy decides on."""
        return self.core.view(0)

    @property
    def decision(self) -> int:
        """`DECISION_ROUTE`, `DECISION_MIGRATE`, or `DECISION_NONE` when the episode is over."""
        return int(self.core.worlds.views.cluster.decision[0, 0])

    def encode_action(self, **parts: Any) -> Any:
        """An element of the action space from its parts; see :meth:`cacheenv.envs.actions.ActionCodec.encode`."""
        return self.core.codec.encode(**parts)

    def decode_action(self, action: Any) -> dict[str, Any]:
        """The parts of an action at the present decision."""
        return self.core.codec.decode(action, self.decision)

    def result(self) -> Result:
        """Records and summary of the episode so far."""
        return collect(self.core.worlds, 0, "env", self.episode_seed or 0)

    def get_state(self) -> dict[str, Any]:
        """Everything that the episode and the seeding depend on; see :meth:`set_state`."""
        if self.episode_seed is None:
            raise gym.error.ResetNeeded("call reset() before get_state()")
        return {
            "worlds": self.core.worlds.get_state(),
            "steps": self.core.steps.copy(),
            "mask": self._masks.copy(),
            "episode_seed": self.episode_seed,
            "np_random": self.np_random.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues exactly from a state of this or another environment with the same arguments."""
        self.core.worlds.set_state(state["worlds"])
        self.core.steps[:] = state["steps"]
        self._masks[:] = state["mask"]
        self.episode_seed = state["episode_seed"]
        self.np_random.bit_generator.state = state["np_random"]

    def render(self) -> Any:
        """A table of the instances as text (`ansi`) or as a picture (`rgb_array`)."""
        if self.render_mode is None or self.episode_seed is None:
            return None
        if self.render_mode == "ansi":
            return render_ansi(self.view)
        return render_rgb(self.view)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the arguments and the state; what is bound is bound again on loading."""
        bound = ("_phase", "_stop", "_reward", "_dt", "_invalid", "_observation", "_mask", "_run")
        return {name: value for name, value in self.__dict__.items() if name not in bound}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the state and binds the columns again."""
        self.__dict__.update(state)
        self._bind()
