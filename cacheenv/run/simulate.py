"""One run: a scenario under a policy, in the compiled loop where the policy is compiled."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle, as_bundle, make_policy
from cacheenv.policy.compiled import bundle_addresses
from cacheenv.run.metrics import summarize
from cacheenv.run.records import instance_totals, request_records
from cacheenv.run.seeds import checked_seed
from cacheenv.run.timeline import sample
from cacheenv.run.trials import Trials
from cacheenv.run.worlds import Worlds
from cacheenv.scenario import Scenario, load_scenario
from cacheenv.scenario.fleet import for_all_groups
from cacheenv.sim.actions import move_count, route_count
from cacheenv.sim.decode.load import areas_until
from cacheenv.sim.state.codes import STOP_DONE, STOP_GROW, STOP_HORIZON
from cacheenv.sim.state.world import World
from cacheenv.sim.view.columns import DECISION_ADMIT, DECISION_MIGRATE, DECISION_ROUTE, View
from cacheenv.workload import Workload


@dataclass(frozen=True)
class Result:
    """Outcome of a run.

    Attributes:
        requests: :data:`RECORD_DTYPE`, one row a request in the order of the workload; times in seconds, NaN where
            not reached.
        instances: :data:`INSTANCE_DTYPE`, totals of prefill instances, decode instances and the store.
        summary: Flat dict of the metrics.
        scenario: The scenario that was run, the policy's requirements applied.
        policy: Name of the policy.
        seed: Seed of the run.
        decisions: Number of decisions taken.
        invalid_decisions: How many of them were illegal and fell back to a legal one.
        timeline: :data:`TIMELINE_DTYPE`, load of each instance every `timeline_s`; None where it was not asked for.
    """

    requests: np.recarray
    instances: np.recarray
    summary: dict[str, Any]
    scenario: Scenario
    policy: str
    seed: int
    decisions: int
    invalid_decisions: int
    timeline: np.recarray | None = None


def complete_bundle(policy: Any, scenario: Scenario) -> PolicyBundle:
    """The bundle for a run: a rescheduler alone is combined with the scenario's router."""
    bundle = as_bundle(policy)
    if bundle.router is None and bundle.actor is None:
        base = make_policy(scenario.router)
        bundle = PolicyBundle(
            bundle.name,
            router=base.router,
            decode_choice=bundle.decode_choice or base.decode_choice,
            admission=bundle.admission or base.admission,
            rescheduler=bundle.rescheduler or base.rescheduler,
        )
    return bundle


def apply_requirements(scenario: Scenario, bundle: PolicyBundle, common_cluster: bool = False) -> Scenario:
    """The scenario with what the routers keep and the engine-side mechanisms that the policies need.

    A key `max:KEY` raises a number to at least the value and leaves a larger one alone. On a common cluster the
    engine-side ones are left out.
    """
    changes: dict[str, Any] = {}
    needs = bundle.brings() if common_cluster else {**bundle.brings(), **bundle.requires()}
    for key, value in needs.items():
        if not key.startswith("max:"):
            changes[key] = value
            continue
        place = key.removeprefix("max:")
        present: Any = scenario
        for name in place.split("."):
            present = getattr(present, name, None)
        # A key that does not exist, or holds no number, is refused by the check of the overrides.
        changes[place] = max(present, value) if isinstance(present, (int, float)) else value
    return scenario.with_overrides({**changes, **for_all_groups(scenario.cluster, needs)})


def simulate(
    scenario: Scenario | str | Mapping[str, Any] = "kimi-chat",
    policy: Any = "mooncake",
    seed: int = 0,
    *,
    workload: Workload | None = None,
    common_cluster: bool = False,
    timeline_s: float | None = None,
) -> Result:
    """Runs a scenario under a policy until all requests are served (or the horizon).

    Args:
        scenario: Scenario, name, path of a YAML file, or mapping.
        policy: Name, compiled policy, bundle, or Python object with `act(view, mask) -> int`.
        seed: Workload, predictor noise and policy randomness derive from it in separate streams.
        workload: Requests to use instead of the scenario's own.
        common_cluster: Run on the scenario's cluster as it is, without the engine features that the policy would need.
            What its router keeps stays.
        timeline_s: Seconds of simulated time between the moments of `Result.timeline`; None: it is not kept.

    Returns:
        The records of all requests and their summary.

    Raises:
        InputError: For an unknown policy or scenario, or inconsistent settings.
    """
    scenario = load_scenario(scenario)
    seed = checked_seed(seed)
    bundle = complete_bundle(policy, scenario)
    scenario = apply_requirements(scenario, bundle, common_cluster)
    ticks = bundle.rescheduler is not None or bool(getattr(bundle.actor, "migrates", False))
    worlds = Worlds(scenario, bundle=bundle, ticks=ticks, needs_running=bool(getattr(bundle.actor, "needs_running", 0)))
    worlds.reset(0, seed, workload)
    if timeline_s is None:
        drive(worlds, 0, bundle)
        return collect(worlds, 0, bundle.name, seed)
    timeline = drive_and_sample(worlds, 0, bundle, timeline_s)
    return replace(collect(worlds, 0, bundle.name, seed), timeline=timeline)


def drive_and_sample(worlds: Worlds, index: int, bundle: PolicyBundle, timeline_s: float) -> np.recarray:
    """Runs a world to its end as :func:`drive` does; returns its load every `timeline_s`, from that time on.

    It runs to one moment after the other as if each were its horizon: an event at the moment comes before the look.
    """
    if isinstance(timeline_s, bool) or not isinstance(timeline_s, (int, float)) or not 0.0 < timeline_s < np.inf:
        raise InputError(f"timeline_s: expected a number of seconds > 0, got {timeline_s!r}")
    horizon_s = float(worlds.world(index).config[0].horizon_s)
    rows: list[np.ndarray] = []
    trials = Trials(worlds, index, bundle) if bundle.plans else None
    while True:
        until_s = min((len(rows) + 1) * timeline_s, horizon_s)
        worlds.world(index).config[0].horizon_s = until_s
        stop = drive(worlds, index, bundle, trials)
        if stop != STOP_HORIZON or until_s == horizon_s:
            break
        rows.append(sample(worlds, index))
    worlds.world(index).config[0].horizon_s = horizon_s
    if stop == STOP_DONE:
        drive(worlds, index, bundle, trials)  # writes to the store and news for the index that were left
    return np.concatenate([sample(worlds, index)[:0], *rows]).view(np.recarray)


def drive(worlds: Worlds, index: int, bundle: PolicyBundle, trials: Trials | None = None) -> int:
    """Runs world `index` to its end under a bundle; returns the stop code.

    `trials` are those of an earlier call, where a planner goes on.
    """
    from cacheenv.sim.policies.drive import run

    policies, parts = bundle_addresses(bundle)
    view = worlds.view(index)
    if bundle.plans:
        bundle.actor.attach(trials or Trials(worlds, index, bundle))
    while True:
        stop = int(run(worlds.handles, index, policies, parts))
        if stop == STOP_GROW:
            worlds.grow()
        elif stop in (DECISION_ROUTE, DECISION_ADMIT, DECISION_MIGRATE):
            _act(worlds, index, view, bundle.actor, stop)
        else:
            if stop == STOP_DONE:
                worlds.check_served(index)
            return stop


def _act(worlds: Worlds, index: int, view: View, actor: Any, stop: int) -> None:
    """One decision of a Python object."""
    from cacheenv.sim.policies.python_entry import fill_mask, take

    prefills, decodes, candidates = len(view.prefill), len(view.decode), int(view.cluster[0].num_candidates)
    if stop == DECISION_ADMIT:
        count = 2  # 0 refuses, 1 accepts
    else:
        count = route_count(prefills, decodes) if stop == DECISION_ROUTE else move_count(decodes, candidates)
    mask = np.zeros(count, np.bool_)
    fill_mask(worlds.handles, index, stop, mask)
    answer = actor.act(view, mask)
    try:
        action = operator.index(answer)
    except TypeError:
        raise InputError(f"{type(actor).__name__}.act(view, mask): expected a whole number, got {answer!r}") from None
    if not 0 <= action < len(mask):
        action = -1  # illegal however large it is
    take(worlds.handles, index, stop, action)


def decode_load(world: World) -> tuple[float, float]:
    """(mean, variance) of the KV tokens of the decode instances: over them at each moment, averaged over time.

    The time is that in which any of them runs a batch.
    """
    state, decodes = world.state[0], len(world.decode)
    time_s, sum_area, square_area, sum_squared_area = areas_until(state, state.now_s)
    if not time_s > 0:
        return np.nan, np.nan
    variance = (square_area / decodes - sum_squared_area / decodes**2) / time_s
    return float(sum_area / decodes / time_s), max(0.0, float(variance))


def collect(worlds: Worlds, index: int, name: str, seed: int) -> Result:
    """The records, totals and summary of a world as it stands."""
    world = worlds.world(index)
    count = int(world.config[0].num_requests)
    records = request_records(world, count)
    instances = instance_totals(world)
    summary = summarize(
        records,
        instances,
        kv_bytes_per_token=world.nic["kv_bytes"][: len(world.prefill)],
        decode_kv_bytes_per_token=world.nic["kv_bytes"][len(world.prefill) : -1],
        decode_load=decode_load(world),
        index_events_lost=int(world.state[0].news_lost),
    )
    state = world.state[0]
    return Result(records, instances, summary, worlds.scenario, name, seed, int(state.decisions), int(state.invalid))
