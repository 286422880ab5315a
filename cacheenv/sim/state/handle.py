"""Which tables compiled code reaches through the handle of a world; see :mod:`cacheenv.sim.core.handles`.

The handle of a world has the words of its tables (:data:`WORLD_TYPE`) and then those of its view
(:data:`cacheenv.sim.view.columns.VIEW_ROW_TYPE`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from cacheenv.sim.core.handles import TablesType, leads_to_argument, reader, write_handle
from cacheenv.sim.core.jit import disabled
from cacheenv.sim.state.allocate import Sizes, allocate
from cacheenv.sim.state.world import WORKLOAD_TABLES, World, world_rows

#: The type of `w` in compiled code.
WORLD_TYPE = TablesType(__name__, "WORLD_TYPE", world_rows(allocate(Sizes()), np.zeros(1, np.int64), 0))


class PlainHandles(NamedTuple):
    """What stands for the handles where nothing is compiled."""

    tables: World
    workload_of: np.ndarray
    views: Any


def make_handles(tables: World, workload_of: np.ndarray, views: Any = None, words: int = WORLD_TYPE.words) -> Any:
    """Handles of stacked worlds: int64 (worlds, words), good as long as none of the tables is replaced.

    Args:
        tables: The stacked tables.
        workload_of: Row of each world's requests in the workload tables.
        views: The stacked views, which the caller enters behind the words of the worlds.
        words: Words of a row.
    """
    if disabled():
        return PlainHandles(tables, workload_of, views)
    handles = np.zeros((len(workload_of), words), np.int64)
    everyone = np.arange(len(workload_of))
    for name, table in zip(World._fields, tables, strict=True):
        write_handle(handles, WORLD_TYPE, name, table, workload_of if name in WORKLOAD_TABLES else everyone)
    return handles


def point_to_workload(handles: Any, tables: World, workload_of: np.ndarray, index: int) -> None:
    """World `index` has another row in the workload tables."""
    if not disabled():
        for name in WORKLOAD_TABLES:
            write_handle(handles[index : index + 1], WORLD_TYPE, name, getattr(tables, name), workload_of[index])


def world_at(handles, index):
    """World `index` of the handles."""
    return world_rows(handles.tables, handles.workload_of, index)


leads_to_argument(world_at)
_read_world = reader(WORLD_TYPE)


@overload(world_at)
def _world_at(handles, index):
    return lambda handles, index: _read_world(handles, index)
