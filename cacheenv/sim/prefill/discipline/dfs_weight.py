"""`dfs_weight`: depth first over the tree of cached prefixes, branches with more waiting requests first (SGLang).

A branch's weight is the number of waiting requests whose match ends in it. Of equal branches the one that was cached
first comes first, and requests that end at the same place keep their order. Those that end in the branches of a place
come before those that end there. Looking a prompt up touches its path; nothing is deferred, and the queue may be as
long as it likes. Source: `_sort_by_dfs_weight` in SGLang's `managers/schedule_policy.py`.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import reusable_pages
from cacheenv.sim.cache.radix import end_depth, forest_of, match
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.prefill.pages import hold_prefix
from cacheenv.sim.prefill.queue import link_queue, list_queue, note_match, swap_listed
from cacheenv.sim.state.ids import tree_of


@inner
def order(w, p):
    """Sorts the queue depth first."""
    forest, tree = forest_of(w), tree_of(w, p)
    count = list_queue(w, p)
    for at in range(count):
        index = np.int64(w.queue_order[at])
        _, node = match(forest, tree, w.workload[index].block_start, reusable_pages(w, index))
        if w.config[0].protect_queued:
            hold_prefix(w, index, node)
        note_match(w, index, node)
    _weigh(w, count)
    for at in range(1, count):  # the queue as it was left is nearly in order
        while at > 0 and _comes_before(w, w.queue_order[at], w.queue_order[at - 1]):
            swap_listed(w, at, at - 1)
            at -= 1
    link_queue(w, p, count)


@once
def _weigh(w, count):
    """Counts the waiting requests in each branch."""
    for added in range(2):  # what an earlier queue has left goes first
        for at in range(count):
            node = np.int64(w.request[w.queue_order[at]].queue_node)
            while w.node[node].parent >= 0:
                w.node[node].weight = w.node[node].weight + 1 if added else 0
                node = np.int64(w.node[node].parent)


@once
def _comes_before(w, left, right):
    """Whether a request has to stand before another one, which stands before it now."""
    a, b = np.int64(w.request[left].queue_node), np.int64(w.request[right].queue_node)
    from_left, from_right = np.int64(-1), np.int64(-1)  # the branches in which they lie where their paths part
    forest = forest_of(w)
    while a != b:
        if end_depth(forest, a) >= end_depth(forest, b):
            from_left, a = a, np.int64(w.node[a].parent)
        else:
            from_right, b = b, np.int64(w.node[b].parent)
    if from_left < 0:
        return False
    if from_right < 0:
        return True
    one, other = w.node[from_left], w.node[from_right]
    if one.weight != other.weight:
        return one.weight > other.weight
    return one.number < other.number
