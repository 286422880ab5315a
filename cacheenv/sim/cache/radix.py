"""Compressed radix trees of prefix pages, all trees of a world in one pool of nodes.

An edge carries a run of page ids; ids are chained (an id names its page and all before it), so a child is found by the
first id of its edge, in one hash table over all trees. Semantics follow SGLang's radix cache (match splits edges and
refreshes recency, locks count along the path, only unlocked leaves are evicted) with one refinement: a leaf can be
trimmed page by page from its end, so that exactly what is needed goes and tails go before heads (as in vLLM's block
pool).

Recency is a list per tree from oldest to newest that holds the unlocked nodes. Paths are moved to its newest end from
the leaf upwards, so a parent always stands behind its children and the oldest node is always a leaf. Which node goes
is the kind of eviction's to say (`eviction/`).

Invariant after every operation: free + evictable + locked + private = capacity, in pages.

The functions take whatever has the few tables that the trees live in: a world, or a :class:`Forest`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cacheenv.sim.core.handles import leads_to_argument
from cacheenv.sim.core.jit import inner, jit


class Forest(NamedTuple):
    """The tables that the trees live in; see :class:`cacheenv.sim.state.world.World`."""

    state: np.ndarray
    blocks: np.ndarray
    tree: np.ndarray
    node: np.ndarray
    child_table: np.ndarray


@inner
def forest_of(w):
    """The trees of a world."""
    return w


leads_to_argument(forest_of)


@jit
def _home(forest, tree_index, block):
    """Where the probe for a child starts."""
    mixed = ((int(block) ^ (int(tree_index) * 0x1F351F35)) & 0x7FFFFFFF) * 0x1E3779B1
    return ((mixed >> 17) ^ (mixed >> 31)) & (forest.child_table.shape[0] - 1)


@jit
def _home_of(forest, index):
    return _home(forest, forest.node[index].tree, forest.blocks[forest.node[index].start])


@jit
def find_child(forest, tree_index, block):
    """The node of `tree_index` whose edge starts with `block`, or -1."""
    table = forest.child_table
    at = _home(forest, tree_index, block)
    while table[at] >= 0:
        candidate = forest.node[table[at]]
        if candidate.tree == tree_index and forest.blocks[candidate.start] == block:
            return np.int64(table[at])
        at = (at + 1) & (table.shape[0] - 1)
    return -1


@jit
def table_add(forest, index):
    """Enters a node under its tree and the first page id of its edge."""
    table = forest.child_table
    at = _home_of(forest, index)
    while table[at] >= 0:
        at = (at + 1) & (table.shape[0] - 1)
    table[at] = index


@jit
def _table_locate(forest, index):
    table = forest.child_table
    at = _home_of(forest, index)
    while table[at] != index:
        at = (at + 1) & (table.shape[0] - 1)
    return at


@jit
def _table_remove(forest, index):
    """Removes a node; later entries of the probe run shift back so that no tombstones are needed."""
    table = forest.child_table
    hole = _table_locate(forest, index)
    mask = table.shape[0] - 1
    at = hole
    while True:
        at = (at + 1) & mask
        entry = np.int64(table[at])
        if entry < 0:
            break
        if ((at - _home_of(forest, entry)) & mask) >= ((at - hole) & mask):
            table[hole] = entry
            hole = at
    table[hole] = -1


@jit
def _unlink(forest, index):
    """Takes a node out of its tree's recency list."""
    node, row = forest.node, forest.tree[forest.node[index].tree]
    older, newer = node[index].older, node[index].newer
    if older >= 0:
        node[older].newer = newer
    else:
        row.oldest = newer
    if newer >= 0:
        node[newer].older = older
    else:
        row.newest = older


@jit
def _append(forest, index):
    """Puts a node at the newest end of its tree's recency list."""
    node, row = forest.node, forest.tree[forest.node[index].tree]
    last = row.newest
    node[index].older = last
    node[index].newer = -1
    if last >= 0:
        node[last].newer = index
    else:
        row.oldest = index
    row.newest = index


@jit
def _new_node(forest):
    state, node = forest.state[0], forest.node
    index = state.free_node
    state.free_node = node[index].newer
    state.free_nodes -= 1
    node[index].used = 1
    node[index].locks = 0
    node[index].children = 0
    node[index].hits = 0
    node[index].window_hits = 0
    node[index].depth = 0
    return index


@jit
def _free_node(forest, index):
    """Returns a node to the pool."""
    state, node = forest.state[0], forest.node
    node[index].used = 0
    node[index].newer = state.free_node
    state.free_node = index
    state.free_nodes += 1


@jit
def start_pool(forest):
    """All nodes are free."""
    forest.state[0].free_node = -1
    forest.state[0].free_nodes = 0
    for index in range(forest.node.shape[0] - 1, -1, -1):
        _free_node(forest, index)


@jit
def adopt_nodes(forest, old_count):
    """The pool has become longer: takes the nodes from `old_count` on in, and fills the (empty) hash table anew."""
    for index in range(old_count, forest.node.shape[0]):
        _free_node(forest, index)
    for index in range(old_count):
        if forest.node[index].used and forest.node[index].parent >= 0:
            table_add(forest, index)


@jit
def make_tree(forest, tree_index):
    """Starts an empty tree; its capacity is set already."""
    root = _new_node(forest)
    node, row = forest.node, forest.tree[tree_index]
    node[root].tree = tree_index
    node[root].parent = -1
    node[root].length = 0
    row.root = root
    row.pages = 0
    row.private_pages = 0
    row.locked_pages = 0
    row.oldest = -1
    row.newest = -1
    row.nodes = 0
    row.leaves_made = 0


@jit
def _split(forest, index, length):
    """Cuts the first `length` pages of a node off into a new parent; the node keeps its index (and so its locks)."""
    upper = _new_node(forest)
    node = forest.node
    at = _table_locate(forest, index)
    node[upper].tree = node[index].tree
    node[upper].parent = node[index].parent
    node[upper].start = node[index].start
    node[upper].length = length
    node[upper].locks = node[index].locks
    node[upper].children = 1
    node[upper].hits = node[index].hits
    node[upper].window_hits = node[index].window_hits
    node[upper].window_start_s = node[index].window_start_s
    node[upper].number = node[index].number
    node[upper].depth = node[index].depth
    node[index].depth += length
    forest.child_table[at] = upper
    node[index].parent = upper
    node[index].start += length
    node[index].length -= length
    table_add(forest, index)
    forest.tree[node[index].tree].nodes += 1
    if node[upper].locks == 0:
        _append(forest, upper)
    return upper


@jit
def touch(forest, tree_index, index):
    """Makes the path from `index` to the root the most recently used, the deepest node first."""
    node, row = forest.node, forest.tree[tree_index]
    while index != row.root:
        if node[index].locks == 0 and row.newest != index:
            _unlink(forest, index)
            _append(forest, index)
        index = node[index].parent


@jit
def _count_use(forest, tree_index, index):
    """Everything on the path from `index` to the root has been used once more."""
    node, row = forest.node, forest.tree[tree_index]
    while index != row.root:
        node[index].hits += 1
        index = node[index].parent


@jit
def end_depth(forest, index):
    """Pages from the root to the end of a node."""
    return forest.node[index].depth + forest.node[index].length


@jit
def _common(blocks, left, right, most):
    """How many pages from `left` and from `right` on are the same, of `most`; the first ones are."""
    if left == right:
        return most
    step = 1
    while step < most and blocks[left + step] == blocks[right + step]:
        step += 1
    return step


@jit
def peek(forest, tree_index, start, count):
    """Pages of `blocks[start : start + count]` that the tree holds; changes nothing."""
    blocks, node = forest.blocks, forest.node
    matched = 0
    while matched < count:
        child = find_child(forest, tree_index, blocks[start + matched])
        if child < 0:
            return matched
        length = node[child].length
        first = node[child].start
        step = _common(blocks, first, start + matched, min(length, count - matched))
        matched += step
        if step < length:
            return matched
    return matched


@jit
def _walk(forest, tree_index, index, start, count):
    """Follows the pages from node `index` on, splitting the last edge where they part: (pages matched, node)."""
    blocks, node = forest.blocks, forest.node
    matched = 0
    while matched < count:
        child = find_child(forest, tree_index, blocks[start + matched])
        if child < 0:
            return matched, index
        length = node[child].length
        first = node[child].start
        step = _common(blocks, first, start + matched, min(length, count - matched))
        matched += step
        if step < length:
            return matched, _split(forest, child, step)
        index = child
    return matched, index


@jit
def match(forest, tree_index, start, count):
    """Longest cached prefix of the pages: (pages, deepest node); the path becomes the most recently used."""
    return match_below(forest, tree_index, forest.tree[tree_index].root, start, count)


@jit
def match_below(forest, tree_index, index, start, count):
    """The same for pages that follow the path to node `index`."""
    matched, deepest = _walk(forest, tree_index, index, start, count)
    touch(forest, tree_index, deepest)
    return matched, deepest


@jit
def insert(forest, tree_index, start, count):
    """Adds the pages that are missing: (pages already present, deepest node). The path becomes the newest.

    The caller has made room and takes the added pages off its private pages.
    """
    return insert_below(forest, tree_index, forest.tree[tree_index].root, start, count)


@jit
def insert_below(forest, tree_index, index, start, count):
    """The same for pages that follow the path to node `index`."""
    present, deepest = _walk(forest, tree_index, index, start, count)
    if present < count:
        leaf = _new_node(forest)
        node, row = forest.node, forest.tree[tree_index]
        node[leaf].tree = tree_index
        node[leaf].parent = deepest
        node[leaf].start = start + present
        node[leaf].length = count - present
        node[leaf].depth = end_depth(forest, deepest)
        node[leaf].number = row.leaves_made
        row.leaves_made += 1
        node[deepest].children += 1
        table_add(forest, leaf)
        row.nodes += 1
        row.pages += count - present
        _append(forest, leaf)
        deepest = leaf
    touch(forest, tree_index, deepest)
    _count_use(forest, tree_index, deepest)
    return present, deepest


@jit
def lock(forest, tree_index, index):
    """Protects the path from `index` to the root from eviction; locks count."""
    node, row = forest.node, forest.tree[tree_index]
    while index != row.root:
        if node[index].locks == 0:
            _unlink(forest, index)
            row.locked_pages += node[index].length
        node[index].locks += 1
        index = node[index].parent


@jit
def unlock(forest, tree_index, index):
    """Takes one lock off the path; what no lock holds any more becomes the most recently used."""
    node, row = forest.node, forest.tree[tree_index]
    while index != row.root:
        node[index].locks -= 1
        if node[index].locks == 0:
            _append(forest, index)
            row.locked_pages -= node[index].length
        index = node[index].parent


@jit
def reserve_private(forest, tree_index, pages):
    """Takes free pages for a request of the instance (negative: gives them back); the caller has made room."""
    forest.tree[tree_index].private_pages += pages


@jit
def oldest_leaf(forest, tree_index):
    """The least recently used node that no lock protects, which is a leaf; -1 where there is none."""
    return forest.tree[tree_index].oldest


@jit
def trim(forest, index, wanted):
    """Takes up to `wanted` pages off the end of an unlocked leaf, and the leaf with its last page; returns how many.

    The pages that went are `blocks[run_start : run_start + taken]`, with `run_start` of the tree's row; the path
    before them ends with its node `run_before`.
    """
    node = forest.node
    row = forest.tree[node[index].tree]
    taken = min(wanted, node[index].length)
    row.run_start = node[index].start + node[index].length - taken
    row.pages -= taken
    row.run_before = index
    if taken < node[index].length:
        node[index].length -= taken
        return taken
    row.run_before = node[index].parent
    _table_remove(forest, index)
    _unlink(forest, index)
    node[node[index].parent].children -= 1
    row.nodes -= 1
    _free_node(forest, index)
    return taken


@jit
def often_used(forest, tree_index, index, uses):
    """Pages at the head of the path to `index` that have been used at least `uses` times."""
    node, root = forest.node, forest.tree[tree_index].root
    while index != root and node[index].hits < uses:
        index = node[index].parent
    return end_depth(forest, index)


@jit
def count_hit(forest, tree_index, index, window_s, most):
    """Counts a hit of the path to `index` now; what has more than `most` hits in `window_s` is hot.

    Windows are fixed ones: a node's starts with a hit, and with the first hit after its end the next one does. A hit
    ends where a node does, since a look-up cuts the edge there, so a node's count is that of each of its pages. Returns
    the deepest hot node of the path, -1 for none; it and what stands before it are counted from 0 again.
    """
    node, root = forest.node, forest.tree[tree_index].root
    now_s = forest.state[0].now_s
    hot = np.int64(-1)
    while index != root:
        if node[index].window_hits == 0 or now_s - node[index].window_start_s > window_s:
            node[index].window_hits = 0
            node[index].window_start_s = now_s
        node[index].window_hits += 1
        if hot < 0 and node[index].window_hits > most:
            hot = index
        if hot >= 0:
            node[index].window_hits = 0
        index = np.int64(node[index].parent)
    return hot


@jit
def free_pages(forest, tree_index):
    """Pages that are neither cached nor private."""
    row = forest.tree[tree_index]
    return row.capacity_pages - row.pages - row.private_pages


@jit
def used_pages(forest, tree_index):
    """Pages in use: cached and private."""
    row = forest.tree[tree_index]
    return row.pages + row.private_pages


@jit
def obtainable_pages(forest, tree_index):
    """Pages that are free or could be evicted."""
    row = forest.tree[tree_index]
    return row.capacity_pages - row.locked_pages - row.private_pages
