"""One run: a scenario under a policy, in the compiled loop where the policy is compiled."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle, as_bundle, make_policy
from cacheenv.policy.compiled import bundle_addresses
from cacheenv.run.metrics import KIND_DECODE, KIND_PREFILL, KIND_STORE, summarize
from cacheenv.run.worlds import Worlds, checked_seed
from cacheenv.scenario import Scenario, load_scenario
from cacheenv.sim.state.world import (
    COMPLETED,
    FUTURE,
    HANDOVER,
    PHASE_LAST,
    PHASE_MAIN,
    PREFILLING,
    QUEUED,
    STOP_DONE,
    STOP_GROW,
    WAITING,
    World,
    columns,
)
from cacheenv.sim.view.columns import DECISION_MIGRATE, DECISION_ROUTE, View
from cacheenv.workload import Workload

_TIMES = (
    "arrival_s routed_s prefill_start_s prefill_end_s transfer_end_s decode_start_s finish_s "
    "ttft_s tpot_s tbt_p99_s tbt_tail_s e2e_s"
).split()
#: The last state of a request in which a time is not known yet; the other times are known of completed requests.
_LAST_STATE_BEFORE = {
    "routed_s": FUTURE,
    "prefill_start_s": QUEUED,
    "prefill_end_s": PREFILLING,
    "transfer_end_s": HANDOVER,
    "decode_start_s": WAITING,
}
_COUNTS = (
    "prompt_tokens output_tokens hit_tokens hit_predicted_tokens hit_available_tokens pulled_tokens migrated_tokens "
    "rework_tokens preemptions migrations prefill_instance decode_instance outcome slo_met counted"
).split()

RECORD_DTYPE = columns(f"i8 request session namespace\nf8 {' '.join(_TIMES)}\ni8 {' '.join(_COUNTS)}")
INSTANCE_DTYPE = columns("i8 kind index tokens\nf8 busy_s bytes_out bytes_in nic_bytes_per_s")


@dataclass(frozen=True)
class Result:
    """Outcome of a run.

    Attributes:
        requests: :data:`RECORD_DTYPE`, one row a request in order of arrival; times in seconds, NaN where not reached.
        instances: :data:`INSTANCE_DTYPE`, totals of prefill instances, decode instances and the store.
        summary: Flat dict of the metrics.
        scenario: The scenario that was run, the policy's requirements applied.
        policy: Name of the policy.
        seed: Seed of the run.
        decisions: Number of decisions taken.
        invalid_decisions: How many of them were illegal and fell back to a legal one.
    """

    requests: np.recarray
    instances: np.recarray
    summary: dict[str, Any]
    scenario: Scenario
    policy: str
    seed: int
    decisions: int
    invalid_decisions: int


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


def apply_requirements(scenario: Scenario, bundle: PolicyBundle) -> Scenario:
    """The scenario with the engine-side mechanisms that the policies need.

    A key `max:KEY` raises a number to at least the value and leaves a larger one alone.
    """
    changes: dict[str, Any] = {}
    for key, value in bundle.requires().items():
        if not key.startswith("max:"):
            changes[key] = value
            continue
        place = key.removeprefix("max:")
        present: Any = scenario
        for name in place.split("."):
            present = getattr(present, name, None)
        # A key that does not exist, or holds no number, is refused by the check of the overrides.
        changes[place] = max(present, value) if isinstance(present, (int, float)) else value
    return scenario.with_overrides(changes)


def simulate(
    scenario: Scenario | str | Mapping[str, Any] = "kimi-chat",
    policy: Any = "mooncake",
    seed: int = 0,
    *,
    workload: Workload | None = None,
    common_cluster: bool = False,
) -> Result:
    """Runs a scenario under a policy until all requests are served (or the horizon).

    Args:
        scenario: Scenario, name, path of a YAML file, or mapping.
        policy: Name, compiled policy, bundle, or Python object with `act(view, mask) -> int`.
        seed: Workload, predictor noise and policy randomness derive from it in separate streams.
        workload: Requests to use instead of the scenario's own.
        common_cluster: Run on the scenario's cluster as it is, without what the policy would need.

    Returns:
        The records of all requests and their summary.

    Raises:
        InputError: For an unknown policy or scenario, or inconsistent settings.
    """
    scenario = load_scenario(scenario)
    seed = checked_seed(seed)
    bundle = complete_bundle(policy, scenario)
    if not common_cluster:
        scenario = apply_requirements(scenario, bundle)
    ticks = bundle.rescheduler is not None or bool(getattr(bundle.actor, "migrates", False))
    worlds = Worlds(scenario, bundle=bundle, ticks=ticks, needs_running=bool(getattr(bundle.actor, "needs_running", 0)))
    worlds.reset(0, seed, workload)
    drive(worlds, 0, bundle)
    return collect(worlds, 0, bundle.name, seed)


def drive(worlds: Worlds, index: int, bundle: PolicyBundle) -> int:
    """Runs world `index` to its end under a bundle; returns the stop code."""
    from cacheenv.sim.policies.drive import run

    policies, parts = bundle_addresses(bundle)
    view = worlds.view(index)
    while True:
        stop = int(run(worlds.tables, worlds.views, worlds.workload_of, index, policies, parts))
        if stop == STOP_GROW:
            worlds.grow()
        elif stop in (DECISION_ROUTE, DECISION_MIGRATE):
            _act(worlds, index, view, bundle.actor, stop)
        else:
            if stop == STOP_DONE:
                worlds.check_served(index)
            return stop


def _act(worlds: Worlds, index: int, view: View, actor: Any, stop: int) -> None:
    """One decision of a Python object."""
    from cacheenv.sim.policies.python_entry import fill_mask, take

    rows = len(view.prefill) * 2 if stop == DECISION_ROUTE else len(view.candidate)
    mask = np.zeros(rows * len(view.decode) + 1, np.bool_)
    fill_mask(worlds.views, index, stop, mask)
    answer = actor.act(view, mask)
    try:
        action = operator.index(answer)
    except TypeError:
        raise InputError(f"{type(actor).__name__}.act(view, mask): expected a whole number, got {answer!r}") from None
    if not 0 <= action < len(mask):
        action = -1  # illegal however large it is
    take(worlds.tables, worlds.views, worlds.workload_of, index, stop, action)


def collect(worlds: Worlds, index: int, name: str, seed: int) -> Result:
    """The records, totals and summary of a world as it stands."""
    world = worlds.world(index)
    count = int(world.config[0].num_requests)
    records = request_records(world, count)
    instances = instance_totals(world)
    summary = summarize(
        records,
        instances,
        kv_bytes_per_token=float(world.config[0].prefill_kv_bytes),
        decode_kv_bytes_per_token=float(world.config[0].decode_kv_bytes),
    )
    state = world.state[0]
    return Result(records, instances, summary, worlds.scenario, name, seed, int(state.decisions), int(state.invalid))


def request_records(world: World, count: int) -> np.recarray:
    """One :data:`RECORD_DTYPE` row for each of the first `count` requests."""
    source, load = world.request[:count], world.load[:count]
    records = np.zeros(count, RECORD_DTYPE)
    records["request"] = np.arange(count)
    records["session"], records["namespace"] = load["session"], load["namespace"]
    for name in (*_TIMES, *_COUNTS):
        records[name] = source[name]
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        records[name] = load[name]
    arrived = np.arange(count) < int(world.state[0].next_arrival)
    records["counted"] = np.arange(count) >= int(world.config[0].warmup_requests)
    for name in ("prefill_instance", "decode_instance"):
        records[name][~arrived] = -1
    routed = arrived & (records["prefill_instance"] >= 0)
    decoded = routed & (records["output_tokens"] > 1)
    completed = records["outcome"] == COMPLETED
    for name in _TIMES[1:]:
        if name in _LAST_STATE_BEFORE:
            passed = decoded if name in ("transfer_end_s", "decode_start_s") else routed
            reached = passed & (source["state"] > _LAST_STATE_BEFORE[name])
        else:
            reached = completed
        records[name][~reached] = np.nan
    return records.view(np.recarray)


def instance_totals(world: World) -> np.recarray:
    """One :data:`INSTANCE_DTYPE` row for each instance and for the store, what is under way included."""
    prefills, decodes = len(world.prefill), len(world.decode)
    rows = np.zeros(prefills + decodes + 1, INSTANCE_DTYPE)
    rows["kind"] = [KIND_PREFILL] * prefills + [KIND_DECODE] * decodes + [KIND_STORE]
    rows["index"] = [*range(prefills), *range(decodes), 0]
    rows["busy_s"][:prefills] = world.prefill["busy_s"]
    rows["busy_s"][prefills : prefills + decodes] = world.decode["busy_s"]
    rows["tokens"][:prefills] = world.prefill["tokens"]
    rows["tokens"][prefills : prefills + decodes] = world.decode["tokens"]
    for name, column in (("bytes_out", "bytes_out"), ("bytes_in", "bytes_in"), ("nic_bytes_per_s", "bytes_per_s")):
        rows[name] = world.nic[column]
    _add_under_way(world, rows)
    return rows.view(np.recarray)


def _add_under_way(world: World, rows: np.ndarray) -> None:
    """Adds what the tables book only at its end: the running batches and steps, and the flows in transmission."""
    now_s = float(world.state[0].now_s)
    busy = world.prefill["busy"] == 1
    rows["busy_s"][: len(busy)][busy] += now_s - world.prefill["batch_start_s"][busy]
    for d in np.flatnonzero((world.decode["batch"] > 0) & (world.decode["planned"] > 0)):
        row = world.decode[d]
        rows["busy_s"][len(busy) + d] += now_s - row.start_s
        rows["tokens"][len(busy) + d] += _steps_ended(row, now_s) * row.batch
    flows = world.flow[(world.flow["phase"] == PHASE_MAIN) | (world.flow["phase"] == PHASE_LAST)]
    whole = np.where(flows["phase"] == PHASE_MAIN, flows["main_bytes"], flows["last_bytes"])
    sent = whole - np.maximum(0.0, flows["remaining"] - flows["rate"] * (now_s - flows["updated_s"]))
    np.add.at(rows["bytes_out"], flows["source"], sent)
    np.add.at(rows["bytes_in"], flows["sink"], sent)


def _steps_ended(row: Any, now_s: float) -> int:
    """Steps of a decode instance's present run that have ended (the formula of :mod:`cacheenv.sim.decode.steps`)."""
    steps = np.arange(1, int(row.planned) + 1)
    ends_s = row.start_s + row.stall_s + steps * row.base_s + row.slope_s * (0.5 * steps * (steps - 1))
    return int(np.searchsorted(ends_s, now_s, "right"))
