"""The simulator's whole state: the tables of a world. Copying them is copying the simulator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: Tables of the workload, which worlds with equal requests share.
WORKLOAD_TABLES = ("workload", "blocks", "mean_residual_tokens")


class World(NamedTuple):
    """All tables of one world; of N stacked worlds each has a leading axis more.

    P prefill and D decode instances, R requests, F flows, N tree nodes, S = D * `max_batch` slots, W words of a holder
    bit set, B distinct pages. The columns of the record tables, their units and the rooms that write them stand in
    `columns.py`; of the plain arrays the room that writes them is named here.
    """

    #: CONFIG (1,): settings of the episode, constant.
    config: np.ndarray
    #: STATE (1,): clock, counters, heads of lists.
    state: np.ndarray
    #: WORKLOAD (R,): the requests as they will arrive, constant.
    workload: np.ndarray
    #: int32 (entries,): page ids of all prompts, constant.
    blocks: np.ndarray
    #: float64 (refreshes,): mean output tokens still to come after k * 20 tokens, constant.
    mean_residual_tokens: np.ndarray
    #: INSTANCE (P + D,): coordinates and coefficients of prefill instances and then of decode instances, constant.
    instance: np.ndarray
    #: REQUEST (R,): records and progress.
    request: np.ndarray
    #: PREFILL (P,): prefill parts of the instances.
    prefill: np.ndarray
    #: DECODE (D,): decode parts of the instances.
    decode: np.ndarray
    #: NIC (P + D + 1,): links of the instances, and of the store.
    nic: np.ndarray
    #: FLOW (F,): pool of flows.
    flow: np.ndarray
    #: TIMER (timers,): heap of armed timers; `core.timers`.
    heap: np.ndarray
    #: int64 (timers,): place of each timer in the heap, -1 where it is not armed; `core.timers`.
    heap_position: np.ndarray
    #: TREE (P + 1 + P + P,): prefix caches, the store, the router's memory of each instance and its host memory where
    #: there are such.
    tree: np.ndarray
    #: NODE (N,): pool of the nodes of all trees.
    node: np.ndarray
    #: int32 (power of two,): hash table of nodes by tree and first page id, -1 where empty; `cache.radix`.
    child_table: np.ndarray
    #: int64 (B, W): bit set of the holders that the index lists for a page; `index.central`.
    holders: np.ndarray
    #: int64 (B or 1, W): the same by news alone, where the index learns at the assignment; `index.central`.
    stored_on: np.ndarray
    #: int64 (B or 1, W): bit set of the instances that the router remembers having sent a page to;
    #: `index.router_memory`.
    remembered: np.ndarray
    #: int32 (B or 1,): the instance that was first sent a page, -1 for none; `index.router_memory`.
    first_sent: np.ndarray
    #: int64 (W,): work space of a look-up; `index.hits`.
    holder_mask: np.ndarray
    #: int32 (B or 1,): the first request of a page's list of carriers, -1 for none; `index.backlog`.
    first_carrier: np.ndarray
    #: int32 (entries or 1,): the next carrier of each prompt's page, in a circle; `index.backlog`.
    carrier_next: np.ndarray
    #: int32 (entries or 1,): the one before it; `index.backlog`.
    carrier_before: np.ndarray
    #: LOOKUP (1,): what the index said of the prompt that is being decided.
    lookup: np.ndarray
    #: HIT (P + 1 + P,): the same for each holder.
    hit: np.ndarray
    #: NEWS (events or 1,): ring of stored/removed news on their way to the index.
    news: np.ndarray
    #: SHARD (shards or 1,): shards of the index, where they take in events at a bounded rate.
    shard: np.ndarray
    #: SHARD_EVENT (shards * high_water or 1,): events that wait there, a ring for each shard.
    shard_event: np.ndarray
    #: SLOT (S,): requests that are, or were, in a decode batch.
    slot: np.ndarray
    #: int64 (R,): requests that an answer, or a refusal, has called: a heap by (time, row); `arrivals`.
    coming: np.ndarray
    #: int32 (D, max_batch): slots of the running batch, a heap by finishing step; `decode.batch`.
    batch_heap: np.ndarray
    #: int32 (S, bins): histogram of each slot's own token gaps, less what its instance had when it joined;
    #: `decode.gaps`.
    slot_gaps: np.ndarray
    #: int32 (D, bins): histogram of each decode instance's steps; `decode.gaps`.
    step_gaps: np.ndarray
    #: int32 (R,): work space of queue disciplines; `prefill.queue`.
    queue_order: np.ndarray
    #: int64 (parts, 4): random streams of the policies.
    policy_rng: np.ndarray
    #: float64 (parts, longest): parameters and private state of the policies.
    policy_params: np.ndarray


def world_rows(worlds: World, workload_of: np.ndarray, index: int) -> World:
    """World `index` of the stacked tables, as views; `workload_of[index]` is its row in the workload tables."""
    which = workload_of[index]
    rows: list[Any] = [
        table[which] if name in WORKLOAD_TABLES else table[index]
        for name, table in zip(World._fields, worlds, strict=True)
    ]
    return World(*rows)
