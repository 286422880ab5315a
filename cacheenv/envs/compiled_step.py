"""The compiled step: carries actions out, runs to the next decisions, fills observations, masks and rewards.

One call steps a range of worlds; the single environment is the range of one. A world whose pools are exhausted stops
the call (`STEP_GROW`); the caller grows the pools and calls again, and worlds that are done are passed over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from cacheenv.envs.actions import (
    CANDIDATE,
    DECODE,
    DESTINATION,
    MOVE_PARTS,
    PREFILL,
    PULL,
    REJECT,
    SOURCE,
    STAY,
)
from cacheenv.envs.features import fill_observation
from cacheenv.sim.actions import (
    candidate_parts,
    candidate_row,
    migrate_mask,
    move_is_legal,
    move_number,
    reject_number,
    route_mask,
    route_number,
    stay_number,
)
from cacheenv.sim.core.jit import HOT_OPTIONS, direct, jit_signature, once
from cacheenv.sim.decisions import apply_move, apply_route
from cacheenv.sim.policies.drive import HANDLES_TYPE, advance_with_policies
from cacheenv.sim.state.codes import STOP_DONE, STOP_GROW, STOP_HORIZON
from cacheenv.sim.state.handle import world_at
from cacheenv.sim.view.columns import DECISION_MIGRATE, DECISION_ROUTE, record, view_at
from cacheenv.sim.view.fill import fill_end_view

PHASE_ACT, PHASE_RUN, PHASE_DONE = range(3)
STEP_OK, STEP_GROW = 0, 1
MOVE_WIDTH = len(MOVE_PARTS)

STEP = record(
    [("reward", "f8"), ("dt", "f8"), ("previous_s", "f8"), ("previous_integral_s", "f8")]
    + [(name, "i8") for name in "phase stop invalid previous_met previous_violated previous_rejected steps".split()]
)
SETTINGS = record(
    [("violation", "f8"), ("rejection", "f8"), ("per_request_s", "f8")]
    + [(name, "i8") for name in "counts_outcomes routes moves factored parts".split()]
)


class StepBuffers(NamedTuple):
    """What a step reads and fills, a row for each world; see :meth:`cacheenv.envs.stepper.Stepper.buffers`."""

    actions: np.ndarray
    steps: np.recarray
    observations: np.ndarray
    masks: np.ndarray


class StepRules(NamedTuple):
    """What is the same in every step of an environment.

    Attributes:
        edges: Where each table stands in an observation: :class:`cacheenv.envs.layout.ObservationLayout`, int64.
        scales: Scale of each feature, float32.
        settings: One `SETTINGS` record: the reward and the action space.
        policies: Addresses of the policies that decide inside the worlds.
    """

    edges: np.ndarray
    scales: np.ndarray
    settings: np.recarray
    policies: Any


def allocate_steps(worlds: int) -> np.recarray:
    """Step records of `worlds` worlds, shape (worlds,)."""
    return np.zeros(worlds, STEP).view(np.recarray)


@once
def _route_number(view, action, settings):
    """Joint number of a route action in either format; -1 where it names none."""
    if settings.factored == 0:
        return action[0] if 0 <= action[0] < settings.routes else -1
    prefills, decodes = view.prefill.shape[0], view.decode.shape[0]
    if settings.routes > 0 and action[REJECT] == 1:
        return reject_number(prefills, decodes)
    prefill, decode, pull = action[PREFILL], action[DECODE], action[PULL]
    if action[REJECT] != 0 or not (0 <= prefill < prefills and 0 <= decode < decodes and 0 <= pull < 2):
        return -1
    return route_number(prefill, decode, pull, decodes)


@once
def _move_number(view, action, settings):
    """Number within the migration block of a move in either format; -1 where it names none."""
    if settings.factored == 0:
        return action[0] - settings.routes if action[0] >= settings.routes else -1
    decodes = view.decode.shape[0]
    candidates = view.candidate.shape[0] // decodes
    parts = action[action.shape[0] - MOVE_WIDTH :]
    if parts[STAY] == 1:
        return stay_number(decodes, candidates)
    source, candidate, target = parts[SOURCE], parts[CANDIDATE], parts[DESTINATION]
    if parts[STAY] != 0 or not (0 <= source < decodes and 0 <= candidate < candidates and 0 <= target < decodes):
        return -1
    return move_number(candidate_row(source, candidate, candidates), target, decodes)


@once
def _act(w, view, step, action, settings):
    """Carries out the action of the decision at which the world stopped."""
    legal = True
    if step.stop == DECISION_ROUTE:
        legal = apply_route(w, view, _route_number(view, action, settings))
    elif step.stop == DECISION_MIGRATE:
        legal = apply_move(w, view, _move_number(view, action, settings))
    step.invalid = 0 if legal else 1
    step.steps += 1


@once
def _reward(w, step, settings):
    """Reward since the last decision; sums over an episode do not depend on where the decisions were."""
    state = w.state[0]
    met = state.met - step.previous_met
    violated = state.violated - step.previous_violated
    rejected = state.rejected - step.previous_rejected
    request_s = state.integral_s - step.previous_integral_s
    step.previous_met = state.met
    step.previous_violated = state.violated
    step.previous_rejected = state.rejected
    step.previous_integral_s = state.integral_s
    step.dt = state.now_s - step.previous_s
    step.previous_s = state.now_s
    objective = met - settings.violation * violated - settings.rejection * rejected
    waiting = settings.per_request_s * request_s
    step.reward = objective - waiting if settings.counts_outcomes else -waiting


@once
def _joint_mask(view, stop, mask, settings):
    """Legal joint numbers."""
    routes = settings.routes
    mask[:] = False
    if stop == DECISION_ROUTE:
        route_mask(view, mask[:routes])
    elif stop == DECISION_MIGRATE:
        migrate_mask(view, mask[routes:])
    else:  # nothing is left to decide: the last action (reject or stay) is as good as any
        mask[mask.shape[0] - 1] = True


@once
def _factored_mask(view, stop, mask, settings):
    """Parts that some legal action has; of parts that the decision does not read, only the first value."""
    prefills, decodes = view.prefill.shape[0], view.decode.shape[0]
    mask[:] = False
    at = 0
    if settings.routes > 0:
        deciding = stop == DECISION_ROUTE
        mask[0] = True
        mask[1] = deciding and view.cluster[0].allow_reject == 1
        pull = 2 + prefills + decodes
        for i in range(prefills):
            mask[2 + i] = view.prefill[i].accepts == 1 if deciding else i == 0
            if deciding and view.prefill[i].accepts == 1 and view.prefill[i].pull_tokens > 0:
                mask[pull + 1] = True
        for d in range(decodes):
            mask[2 + prefills + d] = view.decode[d].accepts == 1 if deciding else d == 0
        mask[pull] = True
        at = pull + 2
    if settings.moves > 0:
        candidates = view.candidate.shape[0] // decodes
        source, slot, target = at + 2, at + 2 + decodes, at + 2 + decodes + candidates
        if stop == DECISION_MIGRATE:
            for row in range(view.candidate.shape[0]):
                for d in range(decodes):
                    if move_is_legal(view, row, d):
                        from_source, from_slot = candidate_parts(row, candidates)
                        mask[at] = True
                        mask[source + from_source] = True
                        mask[slot + from_slot] = True
                        mask[target + d] = True
        mask[at + 1] = True
        if not mask[at]:
            mask[source] = True
            mask[slot] = True
            mask[target] = True


def _step_worlds(handles, first, last, buffers, rules):
    """Signature of :data:`step_worlds`."""
    settings = rules.settings[0]
    for n in range(first, last):
        step = buffers.steps[n]
        if step.phase == PHASE_DONE:
            continue
        w = world_at(handles, n)
        view = view_at(handles, n)
        if step.phase == PHASE_ACT:
            _act(w, view, step, buffers.actions[n], settings)
            step.phase = PHASE_RUN
        stop = advance_with_policies(w, view, rules.policies, settings.parts)
        if stop == STOP_GROW:
            return STEP_GROW
        step.stop = stop
        step.phase = PHASE_DONE
        _reward(w, step, settings)
        if stop == STOP_DONE or stop == STOP_HORIZON:
            fill_end_view(w, view)
        fill_observation(view, rules.edges, rules.scales, buffers.observations[n])
        if settings.factored:
            _factored_mask(view, stop, buffers.masks[n], settings)
        else:
            _joint_mask(view, stop, buffers.masks[n], settings)
    return STEP_OK


def _example_types() -> tuple[Any, Any]:
    """Types of the buffers and of the rules."""
    numbers, settings = np.zeros((1, 1), np.int64), np.zeros(1, SETTINGS).view(np.recarray)
    floats, flags = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.bool_)
    buffers = StepBuffers(numbers, allocate_steps(1), floats, flags)
    rules = StepRules(numbers[0], floats[0], settings, numbers)
    return numba.typeof(buffers), numba.typeof(rules)


_INT = numba.types.int64
STEP_SIGNATURE = _INT(HANDLES_TYPE, _INT, _INT, *_example_types())
#: `step_worlds(handles, first, last, buffers, rules)`: steps worlds `first` to `last` (exclusive).
#: Unboxing a tuple takes no longer than unboxing its arrays one by one.
step_worlds = direct(jit_signature(STEP_SIGNATURE, _step_worlds, HOT_OPTIONS), STEP_SIGNATURE)
