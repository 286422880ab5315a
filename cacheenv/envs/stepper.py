"""N worlds that are stepped from decision to decision: what the environment and its batched form share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cacheenv.envs.actions import ActionCodec
from cacheenv.envs.arguments import EnvArguments
from cacheenv.envs.layout import ObservationLayout
from cacheenv.envs.rewards import REWARDS
from cacheenv.envs.step_threads import StepThreads
from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle, View, make_policy
from cacheenv.policy.compiled import bundle_addresses
from cacheenv.run.simulate import apply_requirements, collect
from cacheenv.run.worlds import Worlds
from cacheenv.scenario import Scenario
from cacheenv.sim.policies.python_entry import list_running

if TYPE_CHECKING:
    from cacheenv.envs.compiled_step import StepBuffers


class Stepper:
    """The worlds of an environment, and the call into the compiled step.

    Args:
        count: Number of worlds.
        arguments: What the caller asked for.

    Attributes:
        scenario: The resolved scenario, with what the policies inside require.
        bundle: The compiled policies that decide what the agent does not.
        codec: Numbers of the action space.
        layout: Numbers of the observation.
        worlds: The simulators.
        steps: Step records, shape (count,): phase, reward, stop of each world.
    """

    def __init__(self, count: int, arguments: EnvArguments) -> None:
        resolved = arguments.checked_scenario()
        self.form = arguments.observation
        self.bundle = _inner_policies(resolved, arguments.routes, arguments.moves)
        self.scenario = apply_requirements(resolved, self.bundle)
        self.codec = ActionCodec(
            self.scenario.cluster.prefill.count,
            self.scenario.cluster.decode.count,
            self.scenario.candidate_slots,
            arguments.routes,
            arguments.moves,
            arguments.action_format == "factored",
        )
        self.layout = ObservationLayout(self.codec)
        ticks = arguments.moves or self.bundle.rescheduler is not None
        self.worlds = Worlds(self.scenario, count, bundle=self.bundle, ticks=ticks)
        self._bind()
        self.steps = self.compiled.allocate_steps(count)

    def _bind(self) -> None:
        """Fixes what is the same in every call of the compiled step; imports it, which may compile it."""
        from cacheenv.envs import compiled_step

        self.compiled = compiled_step
        settings = np.zeros(1, compiled_step.SETTINGS).view(np.recarray)
        reward = REWARDS[self.scenario.reward.kind]
        policies, parts = bundle_addresses(self.bundle)
        values = {
            "violation": self.scenario.reward.violation,
            "rejection": self.scenario.reward.rejection,
            "counts_outcomes": reward.counts_outcomes,
            "per_request_s": reward.per_request_s,
            "routes": self.codec.route_count,
            "moves": self.codec.move_count,
            "factored": self.codec.factored,
            "parts": parts,
        }
        for name, value in values.items():
            settings[name] = value
        self._step = compiled_step.step_worlds  # says STEP_GROW, which is true, where pools are exhausted
        self.rules = compiled_step.StepRules(self.layout.edges, self.layout.scales, settings, policies)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the compiled module and the addresses of functions, which :meth:`__setstate__` binds again."""
        return {key: value for key, value in self.__dict__.items() if key not in ("compiled", "_step", "rules")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the tables and binds the compiled functions again."""
        self.__dict__.update(state)
        self._bind()

    # -- stepping ------------------------------------------------------------------------------------------------

    def begin(self, index: int, seed: int, workload: Any = None) -> None:
        """Starts an episode in world `index`; the next :meth:`run` takes it to its first decision."""
        self.worlds.reset(index, seed, workload)
        step = self.steps[index]
        for name in self.steps.dtype.names or ():
            setattr(step, name, 0)
        step.phase = self.compiled.PHASE_RUN

    def opened(self, index: int) -> None:
        """After the run to the first decision: what happened before it counts for the first step's reward."""
        step = self.steps[index]
        step.previous_met = step.previous_violated = step.previous_rejected = 0
        step.previous_integral_s = 0.0
        step.reward = step.dt = 0.0

    def buffers(self, actions: np.ndarray, observations: np.ndarray, masks: np.ndarray) -> StepBuffers:
        """What :meth:`run` reads and fills: a row for each world.

        Args:
            actions: Int64 (worlds, numbers of an action), C-contiguous as the others.
            observations: Float32 (worlds, features).
            masks: Bool (worlds, mask size).
        """
        return self.compiled.StepBuffers(actions, self.steps, observations, masks)

    def run(self, first: int, last: int, buffers: StepBuffers) -> None:
        """Steps worlds `first` to `last` (exclusive) that are not done with this step, growing pools as needed."""
        worlds = self.worlds
        while self._step(worlds.handles, first, last, buffers, self.rules):
            worlds.grow()

    def run_parts(self, threads: StepThreads, edges: Sequence[int], buffers: StepBuffers) -> tuple[bool, float]:
        """Steps the ranges between `edges` side by side, the first on this thread.

        Returns:
            Whether the pools were grown and it must be called again, and by how many seconds the last of the other
            threads ended after this one.
        """
        worlds = self.worlds
        handles = worlds.handles

        # The tables have to live as long as somebody is at work on their addresses.
        def part(number: int, tables: Any = worlds.tables) -> tuple[bool, float]:
            ends = edges[number], edges[number + 1]
            stuck = self._step(handles, *ends, buffers, self.rules)
            return bool(stuck), time.perf_counter()

        threads.start(part)
        try:
            own, own_end = part(0)
        finally:
            results = threads.finish()
        lag_s = max(end for _, end in results) - own_end
        grown = own or any(stuck for stuck, _ in results)
        if grown:
            worlds.grow()
        return grown, lag_s

    # -- reading -------------------------------------------------------------------------------------------------

    def shape_observation(self, flat: np.ndarray) -> Any:
        """The observation in the form that was asked for; `flat` has the features on its last axis, handed over."""
        return self.layout.shape(flat, self.form)

    def view(self, index: int) -> View:
        """The view of world `index`, the table of running requests included."""
        worlds = self.worlds
        if worlds.tables is not None:
            list_running(worlds.handles, index)
        return worlds.view(index)

    def summary(self, index: int) -> dict[str, Any]:
        """The flat metrics of world `index` as it stands; numbers only, NaN where a metric is not defined."""
        metrics = collect(self.worlds, index, "env", 0).summary
        return {key: float("nan") if value is None else value for key, value in metrics.items()}


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
