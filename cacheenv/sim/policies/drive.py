"""The compiled loop: a world under compiled policies, up to its end or to a decision that is somebody else's.

Policies are called through their addresses, so this one compiled function serves all of them and is cached on disk.
"""

from __future__ import annotations

import numba

from cacheenv.sim.core.jit import HOT_OPTIONS, direct, inner, jit_signature
from cacheenv.sim.decisions import apply_check, apply_move, apply_route
from cacheenv.sim.events import advance
from cacheenv.sim.policies.address import ADDRESSES_TYPE
from cacheenv.sim.policies.compose import (
    HAS_ADMISSION,
    HAS_RESCHEDULER,
    HAS_ROUTER,
    decide_after_prefill,
    decide_move,
    decide_route,
)
from cacheenv.sim.state.handle import world_at
from cacheenv.sim.view.columns import DECISION_ADMIT, DECISION_MIGRATE, DECISION_ROUTE, view_at

HANDLES_TYPE = numba.types.int64[:, ::1]


@inner
def advance_with_policies(w, view, policies, parts):
    """Runs on while the decisions belong to the given policies; returns the first other stop."""
    while True:
        stop = advance(w, view)
        if stop == DECISION_ROUTE and parts & HAS_ROUTER:
            apply_route(w, view, decide_route(view, policies, parts, w.policy_rng, w.policy_params))
        elif stop == DECISION_ADMIT and parts & HAS_ADMISSION:
            apply_check(w, decide_after_prefill(view, policies, w.policy_rng, w.policy_params))
        elif stop == DECISION_MIGRATE and parts & HAS_RESCHEDULER:
            apply_move(w, view, decide_move(view, policies, w.policy_rng, w.policy_params))
        else:
            return stop


def _run(handles, index, policies, parts):
    w = world_at(handles, index)
    view = view_at(handles, index)
    return advance_with_policies(w, view, policies, parts)


_INT = numba.types.int64
RUN_SIGNATURE = _INT(HANDLES_TYPE, _INT, ADDRESSES_TYPE, _INT)
run = direct(jit_signature(RUN_SIGNATURE, _run, HOT_OPTIONS), RUN_SIGNATURE)
