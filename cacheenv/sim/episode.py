"""Where an episode starts, and how the pools of worlds grow in the middle of one."""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.radix import adopt_nodes, forest_of, make_tree
from cacheenv.sim.cache.radix import start_pool as start_nodes
from cacheenv.sim.core.jit import jit
from cacheenv.sim.decisions import expect_first
from cacheenv.sim.decode.batch import start_slots
from cacheenv.sim.decode.gaps import start_gaps
from cacheenv.sim.index.central import unwrap_news
from cacheenv.sim.network.links import adopt_flows
from cacheenv.sim.network.links import start_pool as start_flows
from cacheenv.sim.requests import start_requests
from cacheenv.sim.state.allocate import child_table_size, lengthen
from cacheenv.sim.state.handle import make_handles, world_at
from cacheenv.sim.state.world import World
from cacheenv.sim.view.columns import view_at
from cacheenv.sim.view.fill import fill_constants


@jit
def start_episode(handles, index):
    """Every room takes up its work; the tables have their start values, settings and instances are filled in."""
    w = world_at(handles, index)
    fill_constants(w, view_at(handles, index))
    start_requests(w)
    start_flows(w)
    start_slots(w)
    start_gaps(w)
    forest = forest_of(w)
    start_nodes(forest)
    for tree in range(w.tree.shape[0]):
        make_tree(forest, tree)
    expect_first(w)


@jit
def _adopt(handles, index, old_flows, old_nodes, old_news):
    w = world_at(handles, index)
    adopt_flows(w, old_flows)
    adopt_nodes(forest_of(w), old_nodes)
    unwrap_news(w, old_news)


def grow(worlds: World, workload_of: np.ndarray) -> World:
    """Doubles the pools of flows, tree nodes and news of all worlds, keeping their state."""
    flows, nodes, news = worlds.flow.shape[1], worlds.node.shape[1], worlds.news.shape[1]
    timers = worlds.heap.shape[1] + flows
    lengths = {"flow": 2 * flows, "heap": timers, "heap_position": timers, "node": 2 * nodes}
    if news > 1:
        lengths["news"] = 2 * news
    grown = lengthen(worlds, lengths)
    table = np.full((worlds.node.shape[0], child_table_size(2 * nodes)), -1, worlds.child_table.dtype)
    grown = grown._replace(child_table=table)
    handles = make_handles(grown, workload_of)
    for index in range(len(workload_of)):
        _adopt(handles, index, flows, nodes, news)
    return grown
