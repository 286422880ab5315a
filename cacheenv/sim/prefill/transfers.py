"""Prefixes that travel: pulls from other instances or the store, and the writes that fill the store.

Both ends of a flow are locked while it runs, so neither the source nor the path that it continues is evicted under it.
"""

from __future__ import annotations

from cacheenv.sim.cache.radix import lock, match, obtainable_pages, peek, unlock
from cacheenv.sim.core.jit import inner
from cacheenv.sim.index.central import add_pages, make_room
from cacheenv.sim.network.links import new_flow, start_flow
from cacheenv.sim.prefill.queue import reusable_pages, wake
from cacheenv.sim.state.world import FLOW_PULL, FLOW_STORE_WRITE


@inner
def start_pull(w, index, instance, source):
    """Fetches the prefix that `source` (an instance or the store) holds beyond the local one.

    Nothing is pulled when the source turns out to hold no more than `instance` does, or when the pages do not fit.
    """
    request = w.request[index]
    start = w.load[index].block_start
    count = reusable_pages(w, index)
    there, source_node = match(w.state, w.tree, w.node, w.table, w.blocks, source, start, count)
    here, node = match(w.state, w.tree, w.node, w.table, w.blocks, instance, start, count)
    pages = there - here
    if pages <= 0:
        return
    lock(w.tree, w.node, instance, node)
    if not make_room(w, instance, pages):
        unlock(w.tree, w.node, instance, node)
        return
    w.tree[instance].private += pages
    lock(w.tree, w.node, source, source_node)
    nic = source if source < w.config[0].num_prefill else w.config[0].num_prefill + w.config[0].num_decode
    tokens = pages * w.config[0].page_tokens
    flow = new_flow(w, FLOW_PULL, nic, instance, index, tokens, tokens * w.config[0].prefill_kv_bytes, pages)
    w.flow[flow].source_node = source_node
    w.flow[flow].sink_node = node
    w.flow[flow].start = there
    w.flow[flow].reserved_pages = pages
    request.pulling = 1
    start_flow(w, flow)


@inner
def pull_arrived(w, flow_index):
    """A pulled prefix is complete: it enters the tree (the copy stays), and the request may be batched."""
    flow = w.flow[flow_index]
    index = flow.request
    instance = flow.sink
    config = w.config[0]
    source = flow.source if flow.source < config.num_prefill else config.num_prefill
    start = w.load[index].block_start
    w.tree[instance].private -= flow.reserved_pages
    add_pages(w, instance, start, flow.start)
    unlock(w.tree, w.node, instance, flow.sink_node)
    unlock(w.tree, w.node, source, flow.source_node)
    w.request[index].pulled_tokens += flow.tokens
    w.request[index].pulling = 0
    wake(w, instance)
    if source < config.num_prefill:
        wake(w, source)


@inner
def write_through(w, index, instance, full, node):
    """Copies the pages that the store lacks to it; the source path stays locked meanwhile."""
    config = w.config[0]
    start = w.load[index].block_start
    present = peek(w.tree, w.node, w.table, w.blocks, config.num_prefill, start, full)
    pages = full - present
    if pages <= 0:
        return
    lock(w.tree, w.node, instance, node)
    tokens = pages * config.page_tokens
    sink = config.num_prefill + config.num_decode
    flow = new_flow(w, FLOW_STORE_WRITE, instance, sink, index, tokens, tokens * config.prefill_kv_bytes, pages)
    w.flow[flow].source_node = node
    w.flow[flow].start = full
    start_flow(w, flow)


@inner
def store_written(w, flow_index):
    """A write to the store is complete: the path enters its tree as far as it fits."""
    flow = w.flow[flow_index]
    store = w.config[0].num_prefill
    start = w.load[flow.request].block_start
    full = flow.start
    present, node = match(w.state, w.tree, w.node, w.table, w.blocks, store, start, full)
    lock(w.tree, w.node, store, node)
    added = min(full - present, obtainable_pages(w.tree, store))
    if added > 0:
        make_room(w, store, added)
        add_pages(w, store, start, present + added)
    unlock(w.tree, w.node, store, node)
    unlock(w.tree, w.node, flow.source, flow.source_node)
    wake(w, flow.source)
