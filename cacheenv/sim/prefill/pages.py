"""What a request holds at its prefill instance: the locked path of its cached prefix, and pages for the rest.

From its admission on a request's cached prefix is locked and the rest of its prompt has private pages; at the end of
its prefill its full pages enter the tree, locked until the hand-over has ended. Invariant: a tree's private pages are
those of its requests and of the pulls that are on their way to it.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import full_pages, pages_of
from cacheenv.sim.cache.radix import forest_of, lock, reserve_private, unlock
from cacheenv.sim.core.jit import once
from cacheenv.sim.index.feed import add_pages, make_room
from cacheenv.sim.state.codes import NONE
from cacheenv.sim.state.ids import tree_of


@once
def hold_pages(w, index, p, cached, node):
    """Locks the cached prefix and reserves the rest of the prompt; False when the memory is not there.

    `cached` pages end at `node` of the instance's tree.
    """
    request = w.request[index]
    forest, tree = forest_of(w), tree_of(w, p)
    lock(forest, tree, node)
    need = pages_of(w, request.prompt_tokens) - cached
    if not make_room(w, tree, need):
        unlock(forest, tree, node)
        return False
    reserve_private(forest, tree, need)
    request.private_pages = need
    request.lock_node = node
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
