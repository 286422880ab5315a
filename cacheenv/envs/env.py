"""The Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from cacheenv.envs.arguments import EnvArguments
from cacheenv.envs.render import render_ansi, render_rgb
from cacheenv.envs.stepper import Stepper
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
    """A prefill/decode-disaggregated cluster that serves a language model.

    | id | the agent decides | somebody else decides |
    | --- | --- | --- |
    | `cacheenv/Routing-v0` | each arrival: prefill instance, decode instance, pull, or reject | moves: the scenario's `rescheduler`, if any |
    | `cacheenv/Migration-v0` | each rescheduling tick: which running request moves where, or none | arrivals: the scenario's `router` |
    | `cacheenv/Cluster-v0` | both | |

    ## Description

    A cluster serves language-model requests: a request is prefilled on one instance, its KV goes over the network to a
    decode instance, which generates its tokens in a batch with others. What a prefill instance has computed stays in
    its prefix cache. The agent sends requests where their prefix is cached, unless too much is waiting there; lets an
    instance fetch a prefix from another one; refuses requests; evens out decode instances by moving requests that run.
    What happens in between is in [simulator.md](simulator.md); scenarios are in [workloads.md](workloads.md).

    A **step goes to the next decision**: an arrival, or a tick (every `reschedule.period_s`) at which some move is
    legal. A tick's decisions go on, at the same simulated time, until the agent stays or no move is legal. Steps are
    therefore not equally long: `info["dt"]` is the simulated time since the last decision, and a discount is per
    decision, not per second.

    ## Action Space

    P prefill instances, D decode instances, K candidate slots of each decode instance (`reschedule.candidates`).

    `action_format="joint"` (default): `Discrete`. Cluster-v0 has the routing block first and the migration block behind
    it.

    | block | number | meaning | count |
    | --- | --- | --- | --- |
    | routing | `((p * D) + d) * 2 + pull` | prefill on p, decode on d; `pull` 1: p first fetches the longest prefix that another instance or the store has | 2 P D |
    | routing | `2 P D` | reject | 1 |
    | migration | `((s * K) + k) * D + d` | move candidate k of decode instance s to d | D K D |
    | migration | `D K D` | stay: move nothing (more) at this tick | 1 |

    `action_format="factored"`: `MultiDiscrete` of the same parts. Cluster-v0 has both rows one after the other, and a
    decision reads only its own four numbers.

    | block | parts | sizes |
    | --- | --- | --- |
    | routing | `reject`, `prefill`, `decode`, `pull` | 2, P, D, 2 |
    | migration | `stay`, `source`, `candidate`, `destination` | 2, D, K, D |

    **Masks.** `action_masks()` (bool) and `info["action_mask"]` (int8) have 1 for each legal action; at least one is
    legal. A route is legal where both instances are large enough for the request (all are where they are equal), a pull
    where there is something to pull, rejecting where `admission.allow_reject` is set, a move where both instances are
    free to move and the request fits. In the factored format the mask has a flag for each
    value of each part (length `sum(nvec)`) and allows what *some* legal action has: combinations cannot be forbidden
    there.

    **Illegal actions** are carried out as a legal one and flagged in `info["invalid_action"]`: a route goes to the
    prefill instance with the least backlog and the decode instance with the fewest resident and coming tokens, without
    a pull; a move stays. Numbers outside the space, and routes at a tick or moves at an arrival, are illegal too.

    ## Observation Space

    `observation="flat"` (default): a float32 `Box` in [0, 1] with the tables below one after the other, row by row.
    `observation="dict"`: a `Dict` with one flat `Box` a table.

    | table | rows | in |
    | --- | --- | --- |
    | `cluster` | 1 | all |
    | `request` | 1: the request that arrived; zeros at a tick | Routing, Cluster |
    | `prefill` | P | Routing, Cluster |
    | `decode` | D | all |
    | `candidate` | D K: slot k of instance s in row `s * K + k`; zeros at an arrival and where empty | Migration, Cluster |

    Numbers without a natural bound are squashed by a fixed scale, the value at which the feature is 0.5. No further
    normalisation (`VecNormalize`) is needed. Where an objective is not set, 10 s stand for the TTFT and 0.1 s for the
    gap.

    All of it is computed from the *view*, the table in physical units that every baseline decides on (`view`, columns
    in [policies.md](policies.md)). Output lengths are not in it, only their predictions (`prediction.kind`).

    ## Rewards

    | `reward` | a step's reward |
    | --- | --- |
    | `slo` (default) | +1 for each request that finishes within all objectives, `-reward.violation` for each that misses one, `-reward.rejection` for each rejected |
    | `latency` | minus the integral of the number of requests in the system since the last decision, request-seconds: over an episode minus the sum of all `e2e_s` (without `response_overhead_s`) |
    | `shaped` | `slo`, minus 0.01 for each request-second |

    A request counts as soon as its fate is known: a missed TTFT at the first token, other misses and a success at the
    end, a rejection at once. Requests that are too large for every instance and the first `warmup_requests` never
    count. The sum over an episode depends on what happened, not on where the decisions were; what happened before the
    first decision is in the first reward.

    ## Starting State

    An empty cluster, run on to its first decision. `reset(seed=...)` seeds a stream from which each episode takes an
    `episode_seed`; workload, prediction errors and random policies have separate streams derived from it, so that every
    policy meets the same arrivals (in a closed loop: the same first turns and think times). With `warmup_requests`
    metrics and rewards leave out the first requests; the caches are warm by then. Two options of `reset`:

    | option | meaning |
    | --- | --- |
    | `episode_seed` | the seed of this episode itself, as in `cacheenv.simulate(seed=...)` |
    | `workload` | a `cacheenv.Workload` in place of the scenario's |

    ## Episode End

    * **terminated**: the workload is served.
    * **truncated**: `horizon_s` of simulated time are over, or `max_episode_steps` of `gym.make` decisions.

    An episode in which nothing was left to decide ends at the first step, whatever the action. The last observation
    shows the cluster as it stands, with no decision open; the last mask allows the last action only.

    ## Information

    | key | in | meaning |
    | --- | --- | --- |
    | `action_mask` | every info | int8, see above |
    | `dt` | every info | simulated seconds since the last decision; 0.0 after `reset` |
    | `invalid_action` | every info | whether the action was illegal and fell back |
    | `slo_attainment`, `ttft_p99_s`, ... | the last info | the episode's summary, all names of [metrics.md](metrics.md), NaN where not defined |

    Where Gymnasium's `TimeLimit` cuts an episode the environment does not know that the info is the last. At any time
    `result()` has the records of all requests and the summary so far.

    ## Version History

    * v0: first release. Any change of dynamics, rewards, spaces or defaults that alters results gets a new version.

    ## Arguments

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
    """  # noqa: E501

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
        self.stepper = Stepper(
            1, EnvArguments(routes, moves, scenario, overrides, action_format, observation, reward, horizon_s)
        )
        self.action_space = self.stepper.codec.space()
        self.observation_space = self.stepper.layout.space(observation)
        self.episode_seed: int | None = None
        self._joint = action_format == "joint"
        self._flat = observation == "flat"
        self._actions = np.zeros((1, self.stepper.codec.width), np.int64)
        self._observations = np.zeros((1, len(self.stepper.layout)), np.float32)
        self._masks = np.ones((1, self.stepper.codec.mask_size), np.bool_)
        self._bind()

    def _bind(self) -> None:
        """Binds what every step reads as plain arrays: attribute access to a record takes as long as a step."""
        steps = self.stepper.steps.view(np.ndarray)
        self._phase, self._stop = steps["phase"], steps["stop"]
        self._reward, self._dt, self._invalid = steps["reward"], steps["dt"], steps["invalid"]
        self._observation = self._observations[0]
        self._mask = self._masks[0].view(np.int8)
        self._buffers = self.stepper.buffers(self._actions, self._observations, self._masks)
        self._run = self.stepper.run

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
        self.stepper.begin(0, episode_seed, given.get("workload"))
        self.episode_seed = episode_seed
        self._run(0, 1, self._buffers)
        self.stepper.opened(0)
        return self._seen(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carries the action out and runs to the next decision."""
        if self.episode_seed is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        if self._joint:
            self._actions[0, 0] = action
        else:
            self._actions[0] = action
        self._phase[0] = self.stepper.compiled.PHASE_ACT
        self._run(0, 1, self._buffers)
        stop = self._stop.item(0)
        info = self._info()
        if stop == STOP_DONE:
            self.stepper.worlds.check_served(0)
            info.update(self.stepper.summary(0))
        elif stop == STOP_HORIZON:
            info.update(self.stepper.summary(0))
        return self._seen(), self._reward.item(0), stop == STOP_DONE, stop == STOP_HORIZON, info

    def _seen(self) -> Any:
        """The present observation, as arrays of its own."""
        return self._observation.copy() if self._flat else self.stepper.shape_observation(self._observation)

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
        return self.stepper.view(0)

    @property
    def decision(self) -> int:
        """`DECISION_ROUTE`, `DECISION_MIGRATE`, or `DECISION_NONE` when the episode is over."""
        return int(self.stepper.worlds.views.cluster.decision[0, 0])

    def encode_action(self, **parts: Any) -> Any:
        """An element of the action space from its parts; see :meth:`cacheenv.envs.actions.ActionCodec.encode`."""
        return self.stepper.codec.encode(**parts)

    def decode_action(self, action: Any) -> dict[str, Any]:
        """The parts of an action at the present decision."""
        return self.stepper.codec.decode(action, self.decision)

    def result(self) -> Result:
        """Records and summary of the episode so far."""
        return collect(self.stepper.worlds, 0, "env", self.episode_seed or 0)

    def get_state(self) -> dict[str, Any]:
        """Everything that the episode and the seeding depend on; see :meth:`set_state`."""
        if self.episode_seed is None:
            raise gym.error.ResetNeeded("call reset() before get_state()")
        return {
            "worlds": self.stepper.worlds.get_state(),
            "steps": self.stepper.steps.copy(),
            "mask": self._masks.copy(),
            "episode_seed": self.episode_seed,
            "np_random": self.np_random.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues exactly from a state of this or another environment with the same arguments."""
        self.stepper.worlds.set_state(state["worlds"])
        self.stepper.steps[:] = state["steps"]
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
        bound = ("_phase", "_stop", "_reward", "_dt", "_invalid", "_observation", "_mask", "_buffers", "_run")
        return {name: value for name, value in self.__dict__.items() if name not in bound}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the state and binds the columns again."""
        self.__dict__.update(state)
        self._bind()
