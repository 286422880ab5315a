"""What a decision taken in Python needs of one world: the entries into the compiled code for that."""

from __future__ import annotations

from cacheenv.sim.engine import apply_move, apply_route
from cacheenv.sim.jit import jit
from cacheenv.sim.tables import world_at
from cacheenv.sim.view import fill_running
from cacheenv.sim.view_slice import view_at


@jit
def take_route(worlds, views, workload_of, index, action):
    """Routes or rejects the request that world `index` decides about; False when the action was illegal."""
    return apply_route(world_at(worlds, workload_of, index), view_at(views, index), action)


@jit
def take_move(worlds, views, workload_of, index, action):
    """Starts a migration in world `index`, or ends its tick; False when the action was illegal."""
    return apply_move(world_at(worlds, workload_of, index), view_at(views, index), action)


@jit
def list_running(worlds, views, workload_of, index):
    """Fills the table of running requests in the view of world `index`, which an arrival leaves out."""
    fill_running(world_at(worlds, workload_of, index), view_at(views, index))
