"""The compiled loop: a world under compiled policies, up to its end or to a decision that is somebody else's.

Policies are called through their addresses, so this one compiled function serves all of them and is cached on disk.
"""

from __future__ import annotations

import numba

from cacheenv.sim.allocate import Sizes, allocate
from cacheenv.sim.engine import advance, apply_move, apply_route
from cacheenv.sim.jit import HOT_OPTIONS, direct, inner, jit_signature
from cacheenv.sim.policy_type import ADDRESSES_TYPE, STACKED_VIEW_TYPE, policy_at
from cacheenv.sim.tables import world_at
from cacheenv.sim.view_slice import view_at
from cacheenv.sim.view_types import DECISION_MIGRATE, DECISION_ROUTE

PART_ROUTER, PART_CHOICE, PART_ADMISSION, PART_RESCHEDULER = range(4)

# Bits of `parts`: which policies are present.
HAS_ROUTER, HAS_CHOICE, HAS_ADMISSION, HAS_RESCHEDULER = 1, 2, 4, 8

STACKED_WORLD_TYPE = numba.typeof(allocate(Sizes(1, 1, 1, 1, 1, 1, 1, 1, 1, False, 1, 1, 1, 1)))


@inner
def decide_route(w, view, policies, parts):
    """The route action of a router with its decode choice and admission policy."""
    router = policy_at(policies, PART_ROUTER)
    action = router(view, w.policy_rng[PART_ROUTER], w.policy_params[PART_ROUTER])
    refusal = view.cluster[0].num_prefill * view.cluster[0].num_decode * 2
    if parts & HAS_CHOICE and action != refusal:
        choice = policy_at(policies, PART_CHOICE)
        other = choice(view, w.policy_rng[PART_CHOICE], w.policy_params[PART_CHOICE])
        if other != refusal:
            decodes = view.cluster[0].num_decode
            prefill = action // 2 // decodes
            action = (prefill * decodes + other // 2 % decodes) * 2 + action % 2
    if parts & HAS_ADMISSION and action != refusal:
        view.cluster[0].proposed = action
        admission = policy_at(policies, PART_ADMISSION)
        if admission(view, w.policy_rng[PART_ADMISSION], w.policy_params[PART_ADMISSION]) == 0:
            action = refusal
    return action


@inner
def advance_with_policies(w, view, policies, parts):
    """Runs on while the decisions belong to the given policies; returns the first other stop."""
    while True:
        stop = advance(w, view)
        if stop == DECISION_ROUTE and parts & HAS_ROUTER:
            apply_route(w, view, decide_route(w, view, policies, parts))
        elif stop == DECISION_MIGRATE and parts & HAS_RESCHEDULER:
            rescheduler = policy_at(policies, PART_RESCHEDULER)
            action = rescheduler(view, w.policy_rng[PART_RESCHEDULER], w.policy_params[PART_RESCHEDULER])
            apply_move(w, view, action)
        else:
            return stop


def _run(worlds, views, workload_of, index, policies, parts):
    w = world_at(worlds, workload_of, index)
    view = view_at(views, index)
    return advance_with_policies(w, view, policies, parts)


_INT = numba.types.int64
RUN_SIGNATURE = _INT(STACKED_WORLD_TYPE, STACKED_VIEW_TYPE, _INT[::1], _INT, ADDRESSES_TYPE, _INT)
run = direct(jit_signature(RUN_SIGNATURE, _run, HOT_OPTIONS), RUN_SIGNATURE)
