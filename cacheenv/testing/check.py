"""`check_policy`: a policy in small worlds that have broken others, each answer judged."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle
from cacheenv.run.simulate import apply_requirements, complete_bundle, simulate
from cacheenv.scenario import Scenario, load_scenario
from cacheenv.testing.problems import PolicyCheckError, PolicyCheckWarning
from cacheenv.testing.views import CANDIDATE, NOISE, OUTSIDE, RUNNING
from cacheenv.testing.watch import ActorWatch, CompiledWatch, Log, Watch, has_moves, needs_running
from cacheenv.testing.worlds import REQUESTS, WORLDS, World

SEED = 0
QUIET: frozenset[str] = frozenset()
#: What a decision may not depend on, by kind of noise.
MEANINGLESS = {
    OUTSIDE: "rows outside a table of the view or numbers behind params; stay below num_prefill, num_decode, ...",
    RUNNING: "rows of view.running from num_running on, which are left over; stop at view.cluster[0].num_running",
    CANDIDATE: "rows of view.candidate that are left over; read it at ticks only, and only where valid is 1",
}


def check_policy(policy: Any, scenario: Any = None) -> None:
    """Runs a policy in a dozen small worlds and says what is wrong with it; a good one passes silently.

    The worlds: nothing to pull, no rejecting, one instance of each kind, 70 prefill instances, pulls that vanish
    before they start, prompts shorter than a page, no SLO, hits of whole prompts, preempted requests, long outputs,
    overload. In each, every answer must be the number of an action (0 or 1 of an admission policy); the view, the mask
    and the parameters must stay as they are; private state must stay within `state_size`; two runs of one seed must
    be equal; and no decision may depend on rows that mean nothing. Worlds that the policy's `requires` forbids, or
    that an object refuses with an :class:`cacheenv.InputError` (an agent for another cluster), are left out.

    Not seen: parameters in another order than the function reads them, and a policy that decides badly.

    Args:
        policy: Name, compiled policy, bundle, or Python object with `act(view, mask)`. Objects are copied before
            each run; one that cannot be copied is used as it is.
        scenario: One more world, for example the one that the policy is made for: its first requests.

    Raises:
        PolicyCheckError: The policy is wrong: one line with the place, what was expected, what came and what to do.
        InputError: Unknown name or requirement, a planner, or every world was refused.

    Warns:
        PolicyCheckWarning: Legal but suspicious: illegal actions that fall back; a rescheduler that never moves; a
            store that is required and never pulled from; running requests that would change decisions at arrivals
            but are not asked for; an object that keeps state between episodes.
    """
    bundle = complete_bundle(policy, Scenario())
    if bundle.plans:
        raise InputError(f"policy {bundle.name}: a planner acts in its own world only; check its base")
    logs: list[Log] = []
    notes: dict[str, str] = {}  # the first of each sort
    refusals: list[InputError] = []
    for world in _worlds(scenario):
        try:
            settled = apply_requirements(world.scenario(), bundle)
            logs.append(_check_in(world, settled, bundle, notes))
        except PolicyCheckError:
            raise
        except InputError as refusal:
            refusals.append(refusal)
    if not logs:
        raise refusals[-1]
    _note_habits(bundle, logs, notes)
    for note in notes.values():
        warnings.warn(note, PolicyCheckWarning, stacklevel=2)


def _worlds(scenario: Any) -> tuple[World, ...]:
    if scenario is None:
        return WORLDS
    own = load_scenario(scenario)
    limit = {"workload.limit": REQUESTS} if own.workload.trace else {"workload.requests": REQUESTS}
    return (*WORLDS, World(own.name, {**limit, "warmup_requests": 0, "warmup_share": 0.0}, None, own))


def _check_in(world: World, scenario: Scenario, bundle: PolicyBundle, notes: dict[str, str]) -> Log:
    """All checks in one world; the log of the first run. Suspicions go into `notes`."""
    place = f"policy {bundle.name}: world '{world.name}'"
    first_bundle = _fresh(bundle)
    copied = bundle.actor is None or first_bundle.actor is not bundle.actor
    log = _run(world, scenario, first_bundle)
    at = _first_difference(log, _run(world, scenario, _fresh(bundle)))
    if at is not None:
        causes = "draw from" if copied else "keep nothing between episodes, and draw from"
        source = "rng" if bundle.actor is None else "a generator that the object seeds and owns"
        raise PolicyCheckError(
            f"{place}: expected equal decisions in two runs of one seed, got others from decision {at} on; "
            f"{causes} {source} only"
        )
    _check_noise(world, scenario, bundle, log, place)
    if not needs_running(bundle):
        at = _first_difference(log, _run(world, scenario, _fresh(bundle), fill_running=True))
        if at is not None:
            notes.setdefault(
                "running",
                f"{place}: expected decisions that do not need view.running at arrivals, got another decision {at} "
                "where it is filled; declare needs_running=True",
            )
    if bundle.actor is not None and copied:
        at = _first_difference(log, _run(world, scenario, first_bundle))
        if at is not None:
            notes.setdefault(
                "state",
                f"{place}: expected equal decisions when an object runs the same episode again, got others from "
                f"decision {at} on; use a new object for each run, or start over where now_s goes back",
            )
    return log


def _check_noise(world: World, scenario: Scenario, bundle: PolicyBundle, log: Log, place: str) -> None:
    """Replaces numbers that mean nothing; the decisions must stay."""
    if _first_difference(log, _run(world, scenario, _fresh(bundle), frozenset(NOISE))) is None:
        return
    for kind in NOISE:
        at = _first_difference(log, _run(world, scenario, _fresh(bundle), frozenset([kind])))
        if at is not None:
            raise PolicyCheckError(
                f"{place}: expected decisions from numbers that mean something, got decision {at} from "
                f"{MEANINGLESS[kind]}"
            )


def _fresh(bundle: PolicyBundle) -> PolicyBundle:
    """The bundle with a copy of its Python object, where that can be copied."""
    if bundle.actor is None:
        return bundle
    try:
        return replace(bundle, actor=copy.deepcopy(bundle.actor))
    except Exception:  # whatever an object raises, it cannot be copied
        return bundle


def _run(
    world: World, scenario: Scenario, bundle: PolicyBundle, noise: frozenset[str] = QUIET, fill_running: bool = False
) -> Log:
    watch: Watch
    if bundle.actor is None:
        watch = CompiledWatch(bundle, world.name, noise, fill_running, SEED)
    else:
        watch = ActorWatch(bundle, world.name, noise, fill_running)
    simulate(scenario, watch, SEED, workload=world.workload(scenario), common_cluster=True)
    return watch.log


def _first_difference(one: Log, other: Log) -> int | None:
    """The first decision in which two runs differ."""
    if one.actions == other.actions:
        return None
    pairs = zip(one.actions, other.actions, strict=False)
    shorter = min(len(one.actions), len(other.actions))
    return next((at for at, (mine, theirs) in enumerate(pairs) if mine != theirs), shorter)


def _note_habits(bundle: PolicyBundle, logs: list[Log], notes: dict[str, str]) -> None:
    """What is legal in each decision and suspicious in all of them together."""
    decisions = sum(len(log.actions) for log in logs)
    illegal = sum(log.illegal for log in logs)
    name = f"policy {bundle.name}"
    if illegal:
        first = next(log.first_illegal for log in logs if log.illegal)
        notes["illegal"] = (
            f"{name}: expected legal actions, got {illegal} of {decisions} ({100 * illegal / decisions:.2g} %) that "
            f"were not and fell back, the first in {first}; look at the mask, or at pull_tokens, allow_reject, "
            "can_send, can_receive and room_tokens"
        )
    wants_store = any(key.removeprefix("max:").startswith("cluster.store") for key in bundle.requires())
    if wants_store and not any(log.pulls for log in logs):
        notes["pulls"] = (
            f"{name}: expected pulls, as it requires a store, got none in {decisions} decisions; see route(..., pull)"
        )
    ticks = sum(log.ticks for log in logs)
    if has_moves(bundle) and ticks and not any(log.moves for log in logs):
        notes["moves"] = f"{name}: expected moves, got {ticks} ticks with a legal one at which it stayed; see move(...)"
