"""What a decision taken in Python needs of one world: the entries into the compiled code for that."""

from __future__ import annotations

import numba

from cacheenv.sim.engine import apply_move, apply_route
from cacheenv.sim.jit import HOT_OPTIONS, direct, jit, jit_signature
from cacheenv.sim.masks import migrate_mask, route_mask
from cacheenv.sim.policy_type import STACKED_VIEW_TYPE
from cacheenv.sim.rollout import STACKED_WORLD_TYPE
from cacheenv.sim.tables import world_at
from cacheenv.sim.view import fill_running
from cacheenv.sim.view_slice import view_at
from cacheenv.sim.view_types import DECISION_ROUTE

_INT = numba.types.int64


def _take(worlds, views, workload_of, index, stop, action):
    w = world_at(worlds, workload_of, index)
    view = view_at(views, index)
    if stop == DECISION_ROUTE:
        return apply_route(w, view, action)
    return apply_move(w, view, action)


def _fill_mask(views, index, stop, mask):
    view = view_at(views, index)
    if stop == DECISION_ROUTE:
        route_mask(view, mask)
    else:
        migrate_mask(view, mask)


TAKE_SIGNATURE = numba.types.boolean(STACKED_WORLD_TYPE, STACKED_VIEW_TYPE, _INT[::1], _INT, _INT, _INT)
MASK_SIGNATURE = numba.types.void(STACKED_VIEW_TYPE, _INT, _INT, numba.types.boolean[::1])

#: `take(worlds, views, workload_of, index, stop, action)`: carries out the action of the decision `stop` at which world
#: `index` stands; False when it was illegal.
take = direct(jit_signature(TAKE_SIGNATURE, _take, HOT_OPTIONS), TAKE_SIGNATURE)

#: `fill_mask(views, index, stop, mask)`: the legal actions of the decision `stop`.
fill_mask = direct(jit_signature(MASK_SIGNATURE, _fill_mask, HOT_OPTIONS), MASK_SIGNATURE)


@jit
def list_running(worlds, views, workload_of, index):
    """Fills the table of running requests in the view of world `index`, which an arrival leaves out."""
    fill_running(world_at(worlds, workload_of, index), view_at(views, index))
