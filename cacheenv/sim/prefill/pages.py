"""What a request holds at its prefill instance: the locked path of its cached prefix, and pages for the rest.

While it waits, a request holds the prefix that was pulled for it, and with `protect_queued` what it matched. From its
admission on its cached prefix is locked and the rest of its prompt has private pages; at the end of its prefill its
full pages enter the tree, locked until the hand-over has ended. Invariant: a tree's private pages are those of its
requests and of the pulls that are on their way to it.

What waiting requests hold could keep everybody from running: each needs room that the others hold. The others give way
then (:func:`_make_way`).
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import full_pages, pages_of, reusable_pages
from cacheenv.sim.cache.radix import forest_of, lock, match, obtainable_pages, reserve_private, unlock
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.backlog import end_computing
from cacheenv.sim.index.feed import add_pages, make_room
from cacheenv.sim.prefill.queue import list_queue
from cacheenv.sim.state.codes import NONE
from cacheenv.sim.state.ids import has_host, host_tree_of, tree_of


@inner
def hold_prefix(w, index, node):
    """A waiting request holds the path to `node` of its instance's tree, and no longer what it held before."""
    request = w.request[index]
    lock(forest_of(w), tree_of(w, request.prefill_instance), node)
    drop_prefix(w, index)
    request.lock_node = node


@inner
def holds_prompt(w, p, prompt_tokens):
    """Whether a prompt is small enough for a prefill instance's cache."""
    return pages_of(w, prompt_tokens) <= w.tree[tree_of(w, p)].capacity_pages


@inner
def drop_prefix(w, index):
    """A waiting request holds nothing any more."""
    request = w.request[index]
    if request.lock_node != NONE:
        unlock(forest_of(w), tree_of(w, request.prefill_instance), np.int64(request.lock_node))
        request.lock_node = NONE


@once
def hold_pulled(w, index, node):
    """A waiting request holds what was pulled for it, which ends at `node` of the tree where pulls arrive."""
    if has_host(w, w.request[index].prefill_instance):
        lock(forest_of(w), host_tree_of(w, w.request[index].prefill_instance), node)
        w.request[index].host_node = node
    else:
        hold_prefix(w, index, node)


@once
def hold_match(w, index):
    """A request that was routed to its instance holds what it finds cached there (`protect_queued`)."""
    tree = tree_of(w, w.request[index].prefill_instance)
    _, node = match(forest_of(w), tree, w.workload[index].block_start, reusable_pages(w, index))
    hold_prefix(w, index, node)


@once
def _make_way(w, index, p, need):
    """Lets a request at the head of the queue run where only what others wait with is in its way.

    If the instance computes nothing and hands nothing over, nobody else will make room: the other waiting requests give
    up what they hold, the last of the queue first, until `need` pages can be had.
    """
    row = w.prefill[p]
    if row.batch_size > 0 or row.inflight > row.queued:
        return
    forest, tree = forest_of(w), tree_of(w, p)
    at = list_queue(w, p)
    while at > 0 and obtainable_pages(forest, tree) < need:
        at -= 1
        other = np.int64(w.queue_order[at])
        if other != index:
            drop_prefix(w, other)


@inner
def hold_pages(w, index, p, cached, node):
    """Locks the cached prefix and reserves the rest of the prompt; False when the memory is not there.

    `cached` pages end at `node` of the instance's tree.
    """
    request = w.request[index]
    forest, tree = forest_of(w), tree_of(w, p)
    lock(forest, tree, node)
    need = pages_of(w, request.prompt_tokens) - cached
    if obtainable_pages(forest, tree) < need:
        _make_way(w, index, p, need)
    if not make_room(w, tree, need):
        unlock(forest, tree, node)
        return False
    reserve_private(forest, tree, need)
    drop_prefix(w, index)
    request.private_pages = need
    request.lock_node = node
    return True


@once
def hold_with_host(w, index, p, cached, node, host_pages, host_node):
    """The same with a host memory in which `host_pages` pages end at `host_node`: what it has beyond the GPU is loaded.

    The loaded pages are in the GPU's tree from now on.
    """
    request = w.request[index]
    forest, tree, host_tree = forest_of(w), tree_of(w, p), host_tree_of(w, p)
    lock(forest, host_tree, host_node)  # write_back may evict there for what leaves the GPU
    held = hold_pages(w, index, p, cached, node)
    unlock(forest, host_tree, host_node)
    if not held:
        return False
    loaded = host_pages - cached
    if loaded > 0:
        reserve_private(forest, tree, -loaded)
        request.private_pages -= loaded
        _, deeper = add_pages(w, tree, w.workload[index].block_start, host_pages)
        lock(forest, tree, deeper)
        unlock(forest, tree, np.int64(request.lock_node))
        request.lock_node = deeper
    if request.host_node != NONE:
        unlock(forest, host_tree, np.int64(request.host_node))
        request.host_node = NONE
    return True


@once
def cache_prompt(w, index):
    """The computed pages turn from private into cached; duplicates of what is cached by now are freed."""
    request = w.request[index]
    forest, tree = forest_of(w), tree_of(w, request.prefill_instance)
    full = full_pages(w, index)
    tail = pages_of(w, request.prompt_tokens) - full
    reserve_private(forest, tree, tail - request.private_pages)
    request.private_pages = tail
    end_computing(w, index)
    _, node = add_pages(w, tree, w.workload[index].block_start, full)
    lock(forest, tree, node)
    unlock(forest, tree, np.int64(request.lock_node))
    request.lock_node = node


@once
def release_pages(w, index):
    """The prompt's path is unlocked, its last page freed."""
    request = w.request[index]
    forest, tree = forest_of(w), tree_of(w, request.prefill_instance)
    unlock(forest, tree, np.int64(request.lock_node))
    reserve_private(forest, tree, -request.private_pages)
    request.private_pages = 0
    request.lock_node = NONE
