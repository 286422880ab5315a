"""What the environment and its batched form share: resolved settings, spaces, and the call into the compiled step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from cacheenv.envs.actions import ActionCodec
from cacheenv.envs.features import TABLES, Feature, flat_scales
from cacheenv.envs.workers import StepThreads
from cacheenv.errors import InputError, suggestion
from cacheenv.policy import PolicyBundle, View, make_policy
from cacheenv.policy.compiled import bundle_addresses
from cacheenv.run.simulate import apply_requirements, collect
from cacheenv.run.worlds import Worlds
from cacheenv.scenario import Scenario, load_scenario
from cacheenv.sim.policies.python_entry import list_running

ACTION_FORMATS = ("joint", "factored")
OBSERVATIONS = ("flat", "dict")
REWARDS = ("slo", "latency", "shaped")


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InputError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}{suggestion(value, allowed)}")
    return str(value)


class Core:
    """N worlds with everything that turns them into an environment.

    Args:
        count: Number of worlds.
        routes: Whether the agent decides arrivals; otherwise the scenario's router does.
        moves: Whether the agent decides rescheduling ticks; otherwise the scenario's rescheduler does, if any.
        scenario: Name, YAML path, mapping or :class:`Scenario`.
        overrides: Changes to it, nested or with dotted keys.
        action_format: `joint` or `factored`.
        observation: `flat` or `dict`.
        reward: `slo`, `latency`, `shaped`, or None for the scenario's.
        horizon_s: Simulated seconds after which an episode is truncated; None for the scenario's.
    """

    def __init__(
        self,
        count: int,
        *,
        routes: bool,
        moves: bool,
        scenario: str | Mapping[str, Any] | Scenario,
        overrides: Mapping[str, Any] | None,
        action_format: str,
        observation: str,
        reward: str | None,
        horizon_s: float | None,
    ) -> None:
        resolved = load_scenario(scenario, overrides)
        if horizon_s is not None:
            resolved = resolved.with_overrides({"horizon_s": horizon_s})
        if reward is not None:
            resolved = resolved.with_overrides({"reward.kind": _choice("reward", reward, REWARDS)})
        self.observation = _choice("observation", observation, OBSERVATIONS)
        factored = _choice("action_format", action_format, ACTION_FORMATS) == "factored"
        self.bundle = self._inner_policies(resolved, routes, moves)
        self.scenario = apply_requirements(resolved, self.bundle)
        cluster = self.scenario.cluster
        self.codec = ActionCodec(
            cluster.prefill.count, cluster.decode.count, self.scenario.reschedule.candidates, routes, moves, factored
        )
        ticks = moves or self.bundle.rescheduler is not None
        self.worlds = Worlds(self.scenario, count, bundle=self.bundle, ticks=ticks)
        self.rows = self._observation_rows()
        self.scales = flat_scales([feature for _, _, feature in self.rows])
        self._bind()

    @staticmethod
    def _inner_policies(scenario: Scenario, routes: bool, moves: bool) -> PolicyBundle:
        """The compiled policies that decide what the agent does not."""
        bundle = PolicyBundle("agent")
        if not routes:
            inner = make_policy(scenario.router)
            if inner.router is None:
                raise InputError(f"router: expected a compiled router, got '{scenario.router}'")
            bundle = replace(inner, rescheduler=None)
        if not moves and scenario.rescheduler != "none":
            inner = make_policy(scenario.rescheduler)
            if inner.rescheduler is None:
                raise InputError(f"rescheduler: expected a rescheduler, got '{scenario.rescheduler}'")
            bundle = replace(bundle, rescheduler=inner.rescheduler)
        return bundle

    def _observation_rows(self) -> list[tuple[str, str, Feature]]:
        """One (table, row label, feature) for each number of the flat observation, in order."""
        cluster = self.scenario.cluster
        counts = {"cluster": 1}
        if self.codec.routes:
            counts |= {"request": 1, "prefill": cluster.prefill.count}
        counts["decode"] = cluster.decode.count
        if self.codec.moves:
            counts["candidate"] = cluster.decode.count * self.scenario.reschedule.candidates
        return [
            (table, f"{table}[{row}]" if count > 1 else table, feature)
            for table, count in counts.items()
            for row in range(count)
            for feature in TABLES[table]
        ]

    def _bind(self) -> None:
        """Allocates what the compiled step fills and fixes its constant arguments."""
        from cacheenv.envs import kernel

        self.kernel = kernel
        count = self.worlds.count
        self.steps = kernel.allocate_steps(count)
        self.settings = np.zeros(1, kernel.SETTINGS).view(np.recarray)
        self.settings[0].violation = self.scenario.reward.violation
        self.settings[0].rejection = self.scenario.reward.rejection
        self.settings[0].reward = REWARDS.index(self.scenario.reward.kind)
        self.settings[0].routes = self.codec.route_count
        self.settings[0].moves = self.codec.move_count
        self.settings[0].factored = self.codec.factored
        self.settings[0].tables = (3 if self.codec.routes else 0) + 4 + (8 if self.codec.moves else 0)
        self.policies, self.settings[0].parts = bundle_addresses(self.bundle)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the compiled functions and modules, which :meth:`__setstate__` binds again."""
        return {key: value for key, value in self.__dict__.items() if key not in ("kernel", "policies")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the tables and binds the compiled functions again."""
        self.__dict__.update(state)
        steps = self.steps
        self._bind()
        self.steps[:] = steps

    # -- spaces --------------------------------------------------------------------------------------------------

    def observation_space(self) -> gym.Space[Any]:
        """Float32 numbers in [0, 1]: one Box, or one flat Box for each table."""
        if self.observation == "flat":
            return gym.spaces.Box(0.0, 1.0, (len(self.rows),), np.float32)
        return gym.spaces.Dict(
            {name: gym.spaces.Box(0.0, 1.0, (stop - start,), np.float32) for name, start, stop in self.slices()}
        )

    def slices(self) -> list[tuple[str, int, int]]:
        """(table, start, stop) of each table in the flat observation."""
        tables = [table for table, _, _ in self.rows]
        return [(name, tables.index(name), len(tables) - tables[::-1].index(name)) for name in dict.fromkeys(tables)]

    def shape_observation(self, flat: np.ndarray) -> Any:
        """The observation in its configured form; `flat` has the features on its last axis and is handed over."""
        if self.observation == "flat":
            return flat
        return {name: flat[..., start:stop].copy() for name, start, stop in self.slices()}

    # -- stepping ------------------------------------------------------------------------------------------------

    def begin(self, index: int, seed: int, workload: Any = None) -> None:
        """Starts an episode in world `index`; the next :meth:`run` takes it to its first decision."""
        self.worlds.reset(index, seed, workload)
        step = self.steps[index]
        for name in self.steps.dtype.names or ():
            setattr(step, name, 0)
        step.phase = self.kernel.PHASE_RUN

    def opened(self, index: int) -> None:
        """After the run to the first decision: what happened before it counts for the first step's reward."""
        step = self.steps[index]
        step.previous_met = step.previous_violated = step.previous_rejected = 0
        step.previous_integral_s = 0.0
        step.reward = step.dt = 0.0

    def run(self, first: int, last: int, actions: np.ndarray, observations: np.ndarray, masks: np.ndarray) -> None:
        """Steps worlds `first` to `last` (exclusive) that are not done with this step, growing pools as needed."""
        while True:
            worlds = self.worlds
            status = self.kernel.step_worlds(
                worlds.tables, worlds.views, worlds.workload_of, first, last, actions, self.steps, observations, masks,
                self.scales, self.settings, self.policies,
            )  # fmt: skip
            if status == self.kernel.STEP_OK:
                return
            worlds.grow()

    def run_parts(
        self,
        threads: StepThreads,
        edges: Sequence[int],
        actions: np.ndarray,
        observations: np.ndarray,
        masks: np.ndarray,
    ) -> tuple[bool, float]:
        """Steps the ranges between `edges` side by side, the first on this thread.

        Returns:
            Whether the pools were grown and it must be called again, and by how many seconds the last of the other
            threads ended after this one.
        """
        worlds = self.worlds

        def part(number: int) -> tuple[int, float]:
            status = self.kernel.step_worlds(
                worlds.tables, worlds.views, worlds.workload_of, edges[number], edges[number + 1], actions, self.steps,
                observations, masks, self.scales, self.settings, self.policies,
            )  # fmt: skip
            return int(status), time.perf_counter()

        threads.start(part)
        try:
            own, own_end = part(0)
        finally:
            results = threads.finish()
        lag_s = max(end for _, end in results) - own_end
        if own == self.kernel.STEP_OK and all(status == self.kernel.STEP_OK for status, _ in results):
            return False, lag_s
        worlds.grow()
        return True, lag_s

    def view(self, index: int) -> View:
        """The view of world `index`, the table of running requests included."""
        worlds = self.worlds
        if worlds.tables is not None:
            list_running(worlds.tables, worlds.views, worlds.workload_of, index)
        return worlds.view(index)

    def summary(self, index: int) -> dict[str, Any]:
        """The flat metrics of world `index` as it stands; numbers only, NaN where a metric is not defined."""
        metrics = collect(self.worlds, index, "env", 0).summary
        return {key: float("nan") if value is None else value for key, value in metrics.items()}
