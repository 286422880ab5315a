"""Hot prefixes are copied to other prefill instances (`cluster.replication`).

A delivered hit counts for each page of it, on the instance that delivers it. When a page has had more than `hits` of
them in a window of `window_s`, the path that ends with the deepest such page is sent once to one other instance, if
fewer than `replicas` have it by then or are being sent it. The counts of what was found hot start again, copied or not:
each copy takes as many hits.

Mooncake's papers have no such rule. There hot prefixes spread by pulls alone, which leave a copy; copying by frequency
is a proposal for its store (kvcache-ai/Mooncake#3388), with a window and a bound of copies for each object. Its store
counts the reads of an object, wherever they come from. Counting on each instance, and the choice of the target, are
ours.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.radix import count_hit, end_depth, forest_of, obtainable_pages, peek
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.prefill.transfers import start_replica
from cacheenv.sim.state.codes import NONE
from cacheenv.sim.state.ids import has_host, host_tree_of, landing_tree, tree_of


@inner
def count_delivered(w, index, p):
    """A request of prefill part `p` has been given its hit, which it holds: it counts, and may start a copy."""
    config = w.config[0]
    forest, tree = forest_of(w), tree_of(w, p)
    path = np.int64(w.request[index].lock_node)
    node = count_hit(forest, tree, path, config.replication_window_s, config.replication_hits)
    if node == NONE:
        return
    pages = end_depth(forest, node)
    target = _choose_target(w, index, p, pages)
    if target != NONE and start_replica(w, index, p, target, node, pages):
        w.state[0].replicated_to = target


@once
def _choose_target(w, index, p, pages):
    """Where the first `pages` pages of a prompt are copied to from `p`; NONE where enough instances have them.

    The one with the fewest requests in flight of those that lack a page, have room for the path, and that no copy is
    on its way to: each is sent one at a time. Equal ones take turns.
    """
    start, prefills = w.workload[index].block_start, w.prefill.shape[0]
    have, best = 1, NONE
    last = w.state[0].replicated_to if w.state[0].replicated_to >= 0 else p
    for step in range(1, prefills + 1):
        q = np.int64((last + step) % prefills)
        if q == p:
            continue
        if _has(w, q, start, pages) or _is_sent(w, q, start, pages):
            have += 1
        elif w.prefill[q].replica_flow < 0 and obtainable_pages(forest_of(w), landing_tree(w, q)) >= pages:
            if best < 0 or w.prefill[q].inflight < w.prefill[best].inflight:
                best = q
    return best if have < w.config[0].replicas else NONE


@once
def _has(w, q, start, pages):
    """Whether prefill part `q` has the pages `blocks[start : start + pages]` on one of its tiers."""
    forest = forest_of(w)
    if peek(forest, tree_of(w, q), start, pages) == pages:
        return True
    if not has_host(w, q):
        return False
    return peek(forest, host_tree_of(w, q), start, pages) == pages


@once
def _is_sent(w, q, start, pages):
    """Whether these pages are in the copy that is on its way to prefill part `q`; a page's id names those before it."""
    if w.prefill[q].replica_flow < 0:
        return False
    flow = w.flow[w.prefill[q].replica_flow]
    there = w.workload[flow.request].block_start
    return flow.path_pages >= pages and w.blocks[there + pages - 1] == w.blocks[start + pages - 1]
