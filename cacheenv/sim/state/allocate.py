"""Allocates, clears and grows the tables of stacked worlds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cacheenv.sim.cache.radix import make_tree, table_add
from cacheenv.sim.core.jit import jit
from cacheenv.sim.decode.gaps import BINS
from cacheenv.sim.state.world import (
    BITS,
    CONFIG,
    DECODE,
    FLOW,
    HEAP,
    INDEX_EVENT,
    NIC,
    NODE,
    PREFILL,
    REQUEST,
    SLOT,
    STATE,
    TREE,
    WORKLOAD,
    World,
)


@dataclass(frozen=True)
class Sizes:
    """Row counts of one world's tables."""

    worlds: int
    workloads: int
    requests: int
    block_entries: int
    distinct_blocks: int
    residual_entries: int
    num_prefill: int
    num_decode: int
    max_batch: int
    memory_enabled: bool
    index_events: int
    lpm_fallback: int
    flows: int = 256
    nodes: int = 4096
    policy_params: int = 16
    policy_parts: int = 4


def table_size(nodes: int) -> int:
    """Power of two that keeps the node hash table at most half full."""
    return 1 << (2 * nodes - 1).bit_length()


def allocate(sizes: Sizes) -> World:
    """Zeroed tables for `sizes.worlds` stacked worlds."""
    n = sizes.worlds

    # Plain arrays of records: rows have attribute access all the same, and slicing one costs a tenth of a recarray.
    def table(rows: int, dtype: np.dtype, count: int = n) -> np.ndarray:
        return np.zeros((count, rows), dtype)

    holders = sizes.num_prefill + 1
    words = -(-holders // BITS)
    instances = sizes.num_prefill + sizes.num_decode
    trees = sizes.num_prefill + 1 + (sizes.num_prefill if sizes.memory_enabled else 0)
    slots = sizes.num_decode * sizes.max_batch
    remembered = sizes.distinct_blocks if sizes.memory_enabled else 1
    return World(
        config=table(1, CONFIG),
        state=table(1, STATE),
        load=table(sizes.requests, WORKLOAD, sizes.workloads),
        blocks=np.zeros((sizes.workloads, sizes.block_entries), np.int32),
        residual=np.zeros((sizes.workloads, sizes.residual_entries)),
        request=table(sizes.requests, REQUEST),
        prefill=table(sizes.num_prefill, PREFILL),
        decode=table(sizes.num_decode, DECODE),
        nic=table(instances + 1, NIC),
        flow=table(sizes.flows, FLOW),
        heap=table(sizes.flows + instances, HEAP),
        heap_position=np.zeros((n, sizes.flows + instances), np.int64),
        tree=table(trees, TREE),
        node=table(sizes.nodes, NODE),
        table=np.zeros((n, table_size(sizes.nodes)), np.int32),
        holders=np.zeros((n, sizes.distinct_blocks, words), np.int64),
        memory=np.zeros((n, remembered, words), np.int64),
        owner=np.zeros((n, remembered), np.int32),
        mask=np.zeros((n, words), np.int64),
        event=table(sizes.index_events, INDEX_EVENT),
        slot=table(slots, SLOT),
        batch=np.zeros((n, sizes.num_decode, sizes.max_batch), np.int32),
        gaps=np.zeros((n, slots, BINS), np.int32),
        step_gaps=np.zeros((n, sizes.num_decode, BINS), np.int32),
        scratch=np.zeros((n, sizes.lpm_fallback + 8), np.int64),
        policy_rng=np.zeros((n, sizes.policy_parts, 4), np.int64),
        policy_params=np.zeros((n, sizes.policy_parts, sizes.policy_params)),
    )


@jit
def clear_world(w):
    """Prepares a world for an episode: empty queues, caches and links; `config` and instance constants are kept."""
    config = w.config[0]
    state = w.state[0]
    state.now_s = 0.0
    state.next_tick_s = config.period_s
    state.integral_s = 0.0
    state.next_arrival = 0
    state.deciding = -1
    state.unfinished = config.num_requests
    state.in_system = 0
    state.counted_in_system = 0
    state.tick_open = 0
    state.tick_number = 0
    state.heap_size = 0
    state.flow_number = 0
    state.event_head = 0
    state.event_count = 0
    state.met = 0
    state.violated = 0
    state.rejected = 0
    state.routed = 0
    state.decisions = 0
    state.invalid = 0
    state.moves = 0
    if state.top_bin > 0:  # rows of requests that were running when the last episode was cut
        for i in range(w.slot.shape[0]):
            if w.slot[i].request >= 0:
                w.gaps[i, :] = 0
    state.low_bin = BINS
    state.top_bin = -1
    w.heap_position[:] = -1
    w.table[:] = -1
    w.holders[:] = 0
    w.memory[:] = 0
    w.owner[:] = -1
    w.step_gaps[:] = 0
    flows = w.flow.shape[0]
    for i in range(flows):
        w.flow[i].phase = 0
        w.flow[i].next = i + 1 if i + 1 < flows else -1
    state.free_flow = 0
    state.free_flows = flows
    nodes = w.node.shape[0]
    for i in range(nodes):
        w.node[i].used = 0
        w.node[i].newer = i + 1 if i + 1 < nodes else -1
    state.free_node = 0
    state.free_nodes = nodes
    slots = w.slot.shape[0]
    for i in range(slots):
        w.slot[i].request = -1
        w.slot[i].next = i + 1 if i + 1 < slots else -1
    state.free_slot = 0
    for i in range(w.nic.shape[0]):
        nic = w.nic[i]
        nic.out = 0
        nic.in_ = 0
        nic.first_out = -1
        nic.first_in = -1
        nic.bytes_out = 0.0
        nic.bytes_in = 0.0
    for i in range(w.tree.shape[0]):
        make_tree(w.state, w.tree, w.node, i, w.tree[i].capacity)
    for i in range(config.num_prefill):
        _clear_prefill(w.prefill[i])
    for d in range(config.num_decode):
        _clear_decode(w.decode[d])


@jit
def _clear_prefill(row):
    row.queue_s = 0.0
    row.chunk_left_s = 0.0
    row.busy_s = 0.0
    row.queued = 0
    row.queued_tokens = 0
    row.inflight = 0
    row.inflight_tokens = 0
    row.inflight_new_tokens = 0
    row.dispatched = 0
    row.tokens = 0
    row.head = -1
    row.tail = -1
    row.batch_head = -1
    row.batch_size = 0
    row.chunked = -1
    row.busy = 0


@jit
def _clear_decode(row):
    row.pending_stall_s = 0.0
    row.stall_s = 0.0
    row.busy_s = 0.0
    row.step = 0
    row.planned = 0
    row.batch = 0
    row.kv = 0
    row.reserved = 0
    row.pending = 0
    row.pending_tokens = 0
    row.waiting = 0
    row.preempted = 0
    row.inflight = 0
    row.dispatched = 0
    row.preemptions = 0
    row.tokens = 0
    row.head = -1
    row.tail = -1
    row.preempted_head = -1
    row.preempted_tail = -1
    row.outgoing = -1
    row.incoming = -1
    row.arrived = -1
    row.joined_head = -1


@jit
def _adopt_rows(w, old_flows, old_nodes):
    """Chains the rows that growth has added into the free lists and rebuilds the node hash table."""
    state = w.state[0]
    for i in range(old_flows, w.flow.shape[0]):
        w.flow[i].phase = 0
        w.flow[i].next = state.free_flow
        state.free_flow = i
    state.free_flows += w.flow.shape[0] - old_flows
    for i in range(old_nodes, w.node.shape[0]):
        w.node[i].used = 0
        w.node[i].newer = state.free_node
        state.free_node = i
    state.free_nodes += w.node.shape[0] - old_nodes
    for i in range(old_nodes):
        if w.node[i].used and w.node[i].parent >= 0:
            table_add(w.node, w.table, w.blocks, i)


def _longer(array: Any, length: int, fill: int = 0) -> Any:
    """A copy of a stacked table with more rows."""
    grown = np.full((array.shape[0], length, *array.shape[2:]), fill, array.dtype) if fill else np.zeros(
        (array.shape[0], length, *array.shape[2:]), array.dtype
    )  # fmt: skip
    grown[:, : array.shape[1]] = array
    return grown


def grow(worlds: World, workload_of: np.ndarray) -> World:
    """Doubles the pools of flows, tree nodes and index events of all worlds, keeping their state."""
    old_flows, old_nodes = worlds.flow.shape[1], worlds.node.shape[1]
    instances = worlds.heap.shape[1] - old_flows
    flows, nodes = 2 * old_flows, 2 * old_nodes
    events = worlds.event.shape[1]
    ring = worlds.event
    if events > 1:
        ring = _longer(worlds.event, 2 * events)
        for n in range(ring.shape[0]):  # the ring starts again at row 0
            head = int(worlds.state[n, 0].event_head)
            ring[n, :events] = np.roll(worlds.event[n], -head)
            worlds.state[n, 0].event_head = 0
    grown = worlds._replace(
        flow=_longer(worlds.flow, flows),
        heap=_longer(worlds.heap, flows + instances),
        heap_position=_longer(worlds.heap_position, flows + instances, -1),
        node=_longer(worlds.node, nodes),
        table=np.full((worlds.table.shape[0], table_size(nodes)), -1, np.int32),
        event=ring,
    )
    for n in range(worlds.state.shape[0]):
        which = workload_of[n]
        one = World(*(
            array[which] if name in ("load", "blocks", "residual") else array[n]
            for name, array in zip(World._fields, grown, strict=True)
        ))  # fmt: skip
        _adopt_rows(one, old_flows, old_nodes)
    return grown
