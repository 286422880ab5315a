"""Allocates, clears and grows the tables of stacked worlds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cacheenv.sim.state.columns import (
    CONFIG,
    DECODE,
    FLOW,
    HIT,
    INSTANCE,
    LOOKUP,
    NEWS,
    NIC,
    NODE,
    PREFILL,
    REQUEST,
    SHARD,
    SHARD_EVENT,
    SLOT,
    STATE,
    TIMER,
    TREE,
    WORKLOAD,
    Table,
)
from cacheenv.sim.state.ids import CLUSTER_TIMERS
from cacheenv.sim.state.world import WORKLOAD_TABLES, World

#: Record table -> its columns.
TABLES: dict[str, Table] = {
    "config": CONFIG,
    "state": STATE,
    "workload": WORKLOAD,
    "instance": INSTANCE,
    "request": REQUEST,
    "prefill": PREFILL,
    "decode": DECODE,
    "nic": NIC,
    "flow": FLOW,
    "heap": TIMER,
    "tree": TREE,
    "node": NODE,
    "lookup": LOOKUP,
    "hit": HIT,
    "news": NEWS,
    "shard": SHARD,
    "shard_event": SHARD_EVENT,
    "slot": SLOT,
}
#: Plain array -> (type, value at the start of an episode).
ARRAYS: dict[str, tuple[type[np.generic], int]] = {
    "blocks": (np.int32, 0),
    "mean_residual_tokens": (np.float64, 0),
    "heap_position": (np.int64, -1),
    "child_table": (np.int32, -1),
    "holders": (np.int64, 0),
    "stored_on": (np.int64, 0),
    "remembered": (np.int64, 0),
    "first_sent": (np.int32, -1),
    "holder_mask": (np.int64, 0),
    "coming": (np.int64, 0),
    "first_carrier": (np.int32, -1),
    "carrier_next": (np.int32, 0),
    "carrier_before": (np.int32, 0),
    "batch_heap": (np.int32, 0),
    "slot_gaps": (np.int32, 0),
    "step_gaps": (np.int32, 0),
    "queue_order": (np.int32, 0),
    "policy_rng": (np.int64, 0),
    "policy_params": (np.float64, 0),
}
#: Tables that doubling the pools makes longer.
POOLS = ("flow", "heap", "heap_position", "node", "child_table", "news")
#: What the start of an episode leaves as it is: the workload, pools that their rooms start
#: (see `sim/episode.py`), and work space that is written before it is read.
KEPT = {
    *WORKLOAD_TABLES, "flow", "heap", "node", "news", "shard_event", "slot", "holder_mask", "coming", "batch_heap",
    "queue_order", "carrier_next", "carrier_before",
    "policy_rng", "policy_params",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Row counts of one world's tables; the defaults make the smallest world.

    Attributes:
        worlds: Worlds that are stacked.
        workloads: Different workloads among them.
        requests: Requests of the longest workload.
        block_entries: Page ids of all its prompts.
        distinct_blocks: Different pages among them.
        residual_entries: Length of the table of mean residual lengths.
        num_prefill: P.
        num_decode: D.
        max_batch: Places of the largest decode batch.
        batch_places: Places of all decode batches.
        holder_words: int64 words of a holder bit set.
        gap_bins: Bins of a histogram of gaps.
        learns_early: Whether the index learns at the assignment.
        memory_enabled: Whether the router remembers what it sent.
        host_enabled: Whether the prefill instances have host memory.
        prices_now: Whether waiting requests are priced anew.
        news: Places of the ring of news for the index.
        shards: Shards of the index.
        shard_events: Events that may wait at one of them.
        flows: Pool of flows.
        nodes: Pool of tree nodes.
        policy_parts: Kinds of policy parts.
        policy_params: Parameters and private state of the part with most of them.
    """

    worlds: int = 1
    workloads: int = 1
    requests: int = 1
    block_entries: int = 1
    distinct_blocks: int = 1
    residual_entries: int = 1
    num_prefill: int = 1
    num_decode: int = 1
    max_batch: int = 1
    batch_places: int = 1
    holder_words: int = 1
    gap_bins: int = 1
    memory_enabled: bool = False
    learns_early: bool = False
    host_enabled: bool = False
    prices_now: bool = False
    news: int = 1
    shards: int = 1
    shard_events: int = 1
    flows: int = 1
    nodes: int = 1
    policy_parts: int = 1
    policy_params: int = 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each table of one world."""
        instances = self.num_prefill + self.num_decode
        slots = self.batch_places
        remembered = self.distinct_blocks if self.memory_enabled else 1
        hosts = self.num_prefill if self.host_enabled else 0
        carried, entries = (self.distinct_blocks, self.block_entries) if self.prices_now else (1, 1)
        timers = instances + int(CLUSTER_TIMERS) + self.flows
        return {
            "config": (1,),
            "state": (1,),
            "workload": (self.requests,),
            "blocks": (self.block_entries,),
            "mean_residual_tokens": (self.residual_entries,),
            "instance": (instances,),
            "request": (self.requests,),
            "prefill": (self.num_prefill,),
            "decode": (self.num_decode,),
            "nic": (instances + 1,),
            "flow": (self.flows,),
            "heap": (timers,),
            "heap_position": (timers,),
            "tree": (self.num_prefill + 1 + (self.num_prefill if self.memory_enabled else 0) + hosts,),
            "node": (self.nodes,),
            "child_table": (child_table_size(self.nodes),),
            "holders": (self.distinct_blocks, self.holder_words),
            "stored_on": (self.distinct_blocks if self.learns_early else 1, self.holder_words),
            "remembered": (remembered, self.holder_words),
            "first_sent": (remembered,),
            "holder_mask": (self.holder_words,),
            "first_carrier": (carried,),
            "carrier_next": (entries,),
            "carrier_before": (entries,),
            "lookup": (1,),
            "hit": (self.num_prefill + 1 + hosts,),
            "news": (self.news,),
            "shard": (self.shards,),
            "shard_event": (self.shards * self.shard_events,),
            "slot": (slots,),
            "coming": (self.requests,),
            "batch_heap": (self.num_decode, self.max_batch),
            "slot_gaps": (slots, self.gap_bins),
            "step_gaps": (self.num_decode, self.gap_bins),
            "queue_order": (self.requests,),
            "policy_rng": (self.policy_parts, 4),
            "policy_params": (self.policy_parts, self.policy_params),
        }


def child_table_size(nodes: int) -> int:
    """Power of two that keeps the hash table of nodes at most half full."""
    return 1 << (2 * nodes - 1).bit_length()


def allocate(sizes: Sizes) -> World:
    """Zeroed tables for `sizes.worlds` stacked worlds."""
    arrays = {}
    for name, shape in sizes.shapes().items():
        count = sizes.workloads if name in WORKLOAD_TABLES else sizes.worlds
        # Plain arrays of records: rows have attribute access all the same, and slicing one costs a tenth of a recarray.
        dtype = TABLES[name].dtype if name in TABLES else ARRAYS[name][0]
        arrays[name] = np.zeros((count, *shape), dtype)
    return World(**arrays)


def reset_tables(world: World, start: Mapping[str, np.ndarray]) -> None:
    """Puts the tables of a world to their start values; :func:`cacheenv.sim.episode.start_episode` does the rest.

    Args:
        world: The world; of its histograms of slots only rows that were in use are not 0.
        start: Tables with constant columns, as they start.
    """
    busy = world.slot["request"] >= 0 if world.state[0].top_bin > 0 else ()
    for name, table in zip(World._fields, world, strict=True):
        if name in start:
            table[...] = start[name]
        elif name == "slot_gaps":
            table[busy] = 0
        elif name in TABLES and name not in KEPT:  # as raw bytes: NumPy copies records column by column
            raw = np.dtype((np.void, table.dtype.itemsize))
            table.view(raw)[...] = TABLES[name].start.view(raw)
        elif name not in KEPT:
            table[...] = start_of(name)


def start_of(name: str) -> Any:
    """The value of a row of a table at the start of an episode."""
    return TABLES[name].start[0] if name in TABLES else ARRAYS[name][1]


def _longer(array: Any, length: int, fill: Any) -> Any:
    """A copy of a stacked table with more rows."""
    grown = np.empty((array.shape[0], length, *array.shape[2:]), array.dtype)
    grown[:, : array.shape[1]] = array
    grown[:, array.shape[1] :] = fill
    return grown


def lengthen(worlds: World, lengths: dict[str, int]) -> World:
    """Copies of the named tables with more rows, which start as those of an episode; the others are kept."""
    changed: dict[str, Any] = {
        name: _longer(getattr(worlds, name), length, start_of(name)) for name, length in lengths.items()
    }
    return worlds._replace(**changed)
