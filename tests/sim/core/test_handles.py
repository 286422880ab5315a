"""Compiled code reaches the tables through addresses: they must be those of the tables as they are now."""

import copy
import pickle

import numba
import numpy as np
import pytest
from tiny_cluster import tiny

from cacheenv.run.worlds import Worlds
from cacheenv.sim.cache.radix import forest_of
from cacheenv.sim.core.handles import write_handle
from cacheenv.sim.core.jit import disabled
from cacheenv.sim.state.handle import WORLD_TYPE, world_at
from cacheenv.sim.state.world import World
from cacheenv.sim.view.columns import View, view_at


@pytest.fixture
def worlds():
    two = Worlds(tiny(), 2)
    for index in range(2):
        two.reset(index, seed=index)
    return two


def _mark(handles, index, clock_s):
    """Writes through the handle into a record table, an array with two axes and the view."""
    w = world_at(handles, index)
    w.state[0].now_s = clock_s
    w.policy_rng[w.policy_rng.shape[0] - 1, 3] = 17
    forest_of(w).child_table[0] = 23 + len([number for number in range(1)])  # a closure: Numba looks for dead code
    view_at(handles, index).cluster[0].now_s = clock_s
    return w.request.shape[0], w.blocks.shape[0], w.holders.shape[1]


mark = _mark if disabled() else numba.njit(_mark)


def check(worlds):
    for index, clock_s in ((0, 3.5), (1, 4.5)):
        world = worlds.world(index)
        world.policy_rng[:] = 0
        shape = mark(worlds.handles, index, clock_s)
        assert shape == (len(world.request), len(world.blocks), world.holders.shape[1])
        assert world.state[0].now_s == worlds.view(index).cluster[0].now_s == clock_s
        assert world.child_table[0] == 24
        assert world.policy_rng[-1, 3] == 17 and np.count_nonzero(world.policy_rng) == 1


def test_written_tables_are_those_of_the_worlds(worlds):
    check(worlds)


def test_tables_that_were_replaced_are_found_again(worlds):
    check(worlds)
    worlds.grow()
    check(worlds)
    worlds.set_state(worlds.get_state())
    check(worlds)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda worlds: pickle.loads(pickle.dumps(worlds))])
def test_a_copy_has_addresses_of_its_own(worlds, twin_of):
    check(worlds)
    twin = twin_of(worlds)
    check(twin)
    mark(twin.handles, 0, 9.0)
    assert worlds.world(0).state[0].now_s == 3.5


@pytest.mark.skipif(disabled(), reason="nothing is compiled: the handles are the tables themselves")
def test_a_handle_names_every_table(worlds):
    for index in range(2):
        rows = {**worlds.world(index)._asdict(), **worlds.view(index)._asdict()}
        assert set(rows) == {*World._fields, *View._fields}
        words = worlds.handles[index].tolist()
        for name, table in worlds.world(index)._asdict().items():
            first = WORLD_TYPE.tables[name][1]
            assert words[first : first + 1 + table.ndim] == [table.ctypes.data, *table.shape], name


def test_a_table_with_gaps_is_refused():
    handles = np.zeros((2, WORLD_TYPE.words), np.int64)
    with pytest.raises(ValueError, match="policy_rng: expected a C-contiguous table"):
        write_handle(handles, WORLD_TYPE, "policy_rng", np.zeros((2, 4, 8), np.int64)[:, :, ::2], np.arange(2))
