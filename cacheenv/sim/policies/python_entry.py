"""What a decision taken in Python needs of one world: the entries into the compiled code for that."""

from __future__ import annotations

import numba

from cacheenv.sim.actions import migrate_mask, route_mask
from cacheenv.sim.core.jit import HOT_OPTIONS, direct, jit, jit_signature
from cacheenv.sim.decisions import apply_check, apply_move, apply_route
from cacheenv.sim.policies.address import ADDRESSES_TYPE, VIEW_TYPE
from cacheenv.sim.policies.compose import decide_route
from cacheenv.sim.policies.drive import HANDLES_TYPE
from cacheenv.sim.state.handle import world_at
from cacheenv.sim.view.candidates import fill_running
from cacheenv.sim.view.columns import DECISION_ADMIT, DECISION_ROUTE, view_at
from cacheenv.sim.view.fill import fill_end_view

_INT = numba.types.int64


def _take(handles, index, stop, action):
    w = world_at(handles, index)
    view = view_at(handles, index)
    if stop == DECISION_ROUTE:
        return apply_route(w, view, action)
    if stop == DECISION_ADMIT:
        return apply_check(w, action)
    return apply_move(w, view, action)


def _fill_mask(handles, index, stop, mask):
    view = view_at(handles, index)
    if stop == DECISION_ROUTE:
        route_mask(view, mask)
    elif stop == DECISION_ADMIT:
        mask[:] = True
    else:
        migrate_mask(view, mask)


def _compose(view, policies, parts, rng, params):
    return decide_route(view, policies, parts, rng, params)


COMPOSE_SIGNATURE = _INT(VIEW_TYPE, ADDRESSES_TYPE, _INT, _INT[:, ::1], numba.types.float64[:, ::1])
TAKE_SIGNATURE = numba.types.boolean(HANDLES_TYPE, _INT, _INT, _INT)
MASK_SIGNATURE = numba.types.void(HANDLES_TYPE, _INT, _INT, numba.types.boolean[::1])

#: `take(handles, index, stop, action)`: carries out the action of the decision `stop` at which world
#: `index` stands; False when it was illegal.
take = direct(jit_signature(TAKE_SIGNATURE, _take, HOT_OPTIONS), TAKE_SIGNATURE)

#: `fill_mask(handles, index, stop, mask)`: the legal actions of the decision `stop`.
fill_mask = direct(jit_signature(MASK_SIGNATURE, _fill_mask, HOT_OPTIONS), MASK_SIGNATURE)


#: `compose(view, policies, parts, rng, params)`: the route action of a bundle's router with its decode choice and
#: admission policy; see :func:`cacheenv.sim.policies.compose.decide_route`.
compose = direct(jit_signature(COMPOSE_SIGNATURE, _compose, HOT_OPTIONS), COMPOSE_SIGNATURE)


@jit
def list_running(handles, index):
    """Fills the table of running requests in the view of world `index`, which an arrival leaves out."""
    fill_running(world_at(handles, index), view_at(handles, index))


@jit
def look(handles, index):
    """Fills the view of world `index` as it stands between two events; nothing is decided."""
    fill_end_view(world_at(handles, index), view_at(handles, index))
