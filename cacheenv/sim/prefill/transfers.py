"""Prefixes that travel: pulls from other instances or the store, copies of hot ones, writes that fill the store.

Both ends of a flow are locked while it runs, so neither the source nor the path that it continues is evicted under it.
What has been pulled stays locked until the request that it was pulled for has used it.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import full_pages, reusable_pages
from cacheenv.sim.cache.radix import forest_of, lock, match, peek, reserve_private, unlock
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.backlog import end_pull, expect_pull
from cacheenv.sim.index.feed import add_pages, add_what_fits, make_room
from cacheenv.sim.network.links import new_flow, set_latency, start_flow, start_flow_at
from cacheenv.sim.prefill.pages import hold_pulled
from cacheenv.sim.prefill.wake import wake
from cacheenv.sim.requests import count_pull
from cacheenv.sim.state.codes import FLOW_PULL, FLOW_REPLICA, FLOW_SCHEDULE, FLOW_STORE_WRITE, NONE
from cacheenv.sim.state.ids import (
    has_host,
    host_holder,
    landing_tree,
    nic_of_holder,
    prefill_nic,
    prefill_of_holder,
    store_nic,
    store_tree,
    tree_of,
    tree_of_holder,
)


@once
def start_pull(w, index, holder):
    """Fetches the prefix that `holder` has beyond the request's prefill instance.

    Nothing is pulled when the holder turns out to have no more than the instance, or when the pages do not fit. With a
    host memory the pages arrive there; what the GPU has beyond it is copied and not pulled.
    """
    request = w.request[index]
    p = request.prefill_instance
    forest, tree, source_tree = forest_of(w), landing_tree(w, p), tree_of_holder(w, holder)
    start = w.workload[index].block_start
    count = reusable_pages(w, index)
    there, source_node = match(forest, source_tree, start, count)
    here, node = match(forest, tree, start, count)
    if w.config[0].host_enabled:
        if holder < w.prefill.shape[0] and has_host(w, holder):
            other_tree = tree_of_holder(w, host_holder(w, holder))
            on_host, host_node = match(forest, other_tree, start, count)
            if on_host > there:
                there, source_tree, source_node = on_host, other_tree, host_node
    pages = there - here
    moved = pages
    if has_host(w, p):
        on_gpu, _ = match(forest, tree_of(w, p), start, count)
        moved = there - max(here, on_gpu)
    if moved <= 0:
        return
    lock(forest, tree, node)
    if not make_room(w, tree, pages):
        unlock(forest, tree, node)
        return
    reserve_private(forest, tree, pages)
    lock(forest, source_tree, source_node)
    tokens = moved * w.config[0].page_tokens
    source, sink = nic_of_holder(w, holder), prefill_nic(w, p)
    index_of_flow = new_flow(w, FLOW_PULL, source, sink, index, tokens)
    flow = w.flow[index_of_flow]
    flow.source_tree = source_tree
    flow.source_node = source_node
    flow.sink_node = node
    flow.path_pages = there
    flow.reserved_pages = pages
    request.pulling = 1
    expect_pull(w, index, there)
    seconds = _seconds_to_schedule(w, index)
    if seconds > 0.0:
        start_flow_at(w, index_of_flow, w.state[0].now_s + seconds)
    else:
        start_flow(w, index_of_flow)


@once
def pull_arrived(w, flow_index):
    """A pulled prefix is complete: it enters the tree (the copy stays), held by the request, which may be batched."""
    flow = w.flow[flow_index]
    index = flow.request
    p = w.request[index].prefill_instance
    forest, tree = forest_of(w), landing_tree(w, p)
    reserve_private(forest, tree, -flow.reserved_pages)
    flow.reserved_pages = 0
    _, node = add_pages(w, tree, w.workload[index].block_start, flow.path_pages)
    hold_pulled(w, index, node)
    end_pull(w, index, flow.path_pages - flow.tokens // w.config[0].page_tokens, flow.path_pages)
    unlock(forest, tree, flow.sink_node)
    unlock(forest, flow.source_tree, flow.source_node)
    count_pull(w, index, flow.tokens)
    w.request[index].pulling = 0
    wake(w, p)
    giver = prefill_of_holder(w, w.tree[flow.source_tree].holder)
    if giver >= 0:
        wake(w, giver)


@once
def start_replica(w, index, p, q, source_node, pages):
    """Sends the first `pages` pages of a request's prompt, which end at `source_node` of `p`, to another prefill part.

    They arrive there as a pull does, for nobody. Returns False, and nothing is sent, where they do not fit.
    """
    forest, tree = forest_of(w), landing_tree(w, q)
    start = w.workload[index].block_start
    here, node = match(forest, tree, start, pages)
    moved = pages - here
    if has_host(w, q):
        moved = pages - max(here, peek(forest, tree_of(w, q), start, pages))
    lock(forest, tree, node)
    if not make_room(w, tree, pages - here):
        unlock(forest, tree, node)
        return False
    reserve_private(forest, tree, pages - here)
    lock(forest, tree_of(w, p), source_node)
    tokens = moved * w.config[0].page_tokens
    source, sink = prefill_nic(w, p), prefill_nic(w, q)
    index_of_flow = new_flow(w, FLOW_REPLICA, source, sink, index, tokens)
    flow = w.flow[index_of_flow]
    flow.source_tree = tree_of(w, p)
    flow.source_node = source_node
    flow.sink_node = node
    flow.path_pages = pages
    flow.reserved_pages = pages - here
    w.prefill[q].replica_flow = index_of_flow
    start_flow(w, index_of_flow)
    return True


@once
def replica_arrived(w, flow_index):
    """A copy of a hot prefix is complete: it enters the tree, and nobody holds it."""
    flow = w.flow[flow_index]
    forest, tree = forest_of(w), np.int64(w.node[flow.sink_node].tree)
    q = prefill_of_holder(w, w.tree[tree].holder)
    reserve_private(forest, tree, -flow.reserved_pages)
    flow.reserved_pages = 0
    add_pages(w, tree, w.workload[flow.request].block_start, flow.path_pages)
    unlock(forest, tree, flow.sink_node)
    unlock(forest, flow.source_tree, flow.source_node)
    row = w.prefill[q]
    row.replica_flow = NONE
    row.replicas += 1
    row.replicated_tokens += flow.tokens
    wake(w, q)
    wake(w, w.tree[flow.source_tree].holder)


@inner
def _seconds_to_schedule(w, index):
    """From now until a request that is being routed may be batched or pull: its decision is out, and scheduled."""
    return w.request[index].routed_s - w.state[0].now_s + w.config[0].schedule_s


@once
def start_schedule(w, index):
    """The request has been routed: its schedule takes a while, and then it may be batched; a pull waits for it too."""
    seconds = _seconds_to_schedule(w, index)
    if seconds <= 0.0 or w.request[index].pulling:
        return
    nic = prefill_nic(w, w.request[index].prefill_instance)
    signal = new_flow(w, FLOW_SCHEDULE, nic, nic, index, 0)
    set_latency(w, signal, seconds)
    w.request[index].pulling = 1
    start_flow(w, signal)


@once
def end_schedule(w, index):
    """The request may be batched."""
    w.request[index].pulling = 0
    wake(w, w.request[index].prefill_instance)


@once
def write_through(w, index, node):
    """Copies the computed pages that the store lacks to it; the path to `node` stays locked meanwhile."""
    config = w.config[0]
    full = full_pages(w, index)
    if not (config.store_enabled and config.write_through) or full == 0:
        return
    p = w.request[index].prefill_instance
    forest = forest_of(w)
    pages = full - peek(forest, store_tree(w), w.workload[index].block_start, full)
    if pages <= 0:
        return
    lock(forest, tree_of(w, p), node)
    tokens = pages * config.page_tokens
    source, sink = prefill_nic(w, p), store_nic(w)
    index_of_flow = new_flow(w, FLOW_STORE_WRITE, source, sink, index, tokens)
    flow = w.flow[index_of_flow]
    flow.source_tree = tree_of(w, p)
    flow.source_node = node
    flow.path_pages = full
    flow.reserved_pages = 0
    start_flow(w, index_of_flow)


@once
def store_written(w, flow_index):
    """A write to the store is complete: the path enters its tree as far as it fits."""
    flow = w.flow[flow_index]
    store = store_tree(w)
    add_what_fits(w, store, w.tree[store].root, w.workload[flow.request].block_start, flow.path_pages)
    unlock(forest_of(w), flow.source_tree, flow.source_node)
    wake(w, w.request[flow.request].prefill_instance)
