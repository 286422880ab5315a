"""Compressed radix trees of prefix pages, all trees of a world in one pool of nodes.

An edge carries a run of page ids; ids are chained (an id names its page and all before it), so a child is found by the
first id of its edge, in one hash table over all trees. Semantics follow SGLang's radix cache (match splits edges and
refreshes recency, locks count along the path, only unlocked leaves are evicted) with one refinement: a leaf is trimmed
page by page from its end, so that exactly what is needed goes and tails go before heads (as in vLLM's block pool).

Recency is a list per tree from oldest to newest that holds the unlocked nodes. Paths are moved to its newest end from
the leaf upwards, so a parent always stands behind its children and the oldest node is always a leaf.

Invariant after every operation: free + evictable + locked + private = capacity, in pages.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import jit


@jit
def _slot(table, tree_index, block):
    mixed = ((int(block) ^ (int(tree_index) * 0x1F351F35)) & 0x7FFFFFFF) * 0x1E3779B1
    return ((mixed >> 17) ^ (mixed >> 31)) & (table.shape[0] - 1)


@jit
def find_child(node, table, blocks, tree_index, block):
    """The node of `tree_index` whose edge starts with `block`, or -1."""
    at = _slot(table, tree_index, block)
    while table[at] >= 0:
        candidate = node[table[at]]
        if candidate.tree == tree_index and blocks[candidate.start] == block:
            return table[at]
        at = (at + 1) & (table.shape[0] - 1)
    return -1


@jit
def table_add(node, table, blocks, index):
    """Enters a node under its tree and the first page id of its edge."""
    at = _slot(table, node[index].tree, blocks[node[index].start])
    while table[at] >= 0:
        at = (at + 1) & (table.shape[0] - 1)
    table[at] = index


@jit
def _table_locate(node, table, blocks, index):
    at = _slot(table, node[index].tree, blocks[node[index].start])
    while table[at] != index:
        at = (at + 1) & (table.shape[0] - 1)
    return at


@jit
def _table_remove(node, table, blocks, index):
    """Removes a node; later entries of the probe run shift back so that no tombstones are needed."""
    hole = _table_locate(node, table, blocks, index)
    mask = table.shape[0] - 1
    at = hole
    while True:
        at = (at + 1) & mask
        entry = table[at]
        if entry < 0:
            break
        home = _slot(table, node[entry].tree, blocks[node[entry].start])
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = entry
            hole = at
    table[hole] = -1


@jit
def _unlink(tree, node, tree_index, index):
    older, newer = node[index].older, node[index].newer
    if older >= 0:
        node[older].newer = newer
    else:
        tree[tree_index].oldest = newer
    if newer >= 0:
        node[newer].older = older
    else:
        tree[tree_index].newest = older


@jit
def _append(tree, node, tree_index, index):
    last = tree[tree_index].newest
    node[index].older = last
    node[index].newer = -1
    if last >= 0:
        node[last].newer = index
    else:
        tree[tree_index].oldest = index
    tree[tree_index].newest = index


@jit
def _new_node(state, node):
    index = state[0].free_node
    state[0].free_node = node[index].newer
    state[0].free_nodes -= 1
    node[index].used = 1
    node[index].locks = 0
    node[index].children = 0
    return index


@jit
def _free_node(state, node, index):
    node[index].used = 0
    node[index].newer = state[0].free_node
    state[0].free_node = index
    state[0].free_nodes += 1


@jit
def make_tree(state, tree, node, tree_index, capacity):
    """Starts an empty tree of `capacity` pages."""
    root = _new_node(state, node)
    node[root].tree = tree_index
    node[root].parent = -1
    node[root].length = 0
    tree[tree_index].root = root
    tree[tree_index].capacity = capacity
    tree[tree_index].pages = 0
    tree[tree_index].private = 0
    tree[tree_index].locked = 0
    tree[tree_index].oldest = -1
    tree[tree_index].newest = -1
    tree[tree_index].nodes = 0


@jit
def _split(state, tree, node, table, blocks, index, length):
    """Cuts the first `length` pages of a node off into a new parent; the node keeps its index (and so its locks)."""
    upper = _new_node(state, node)
    tree_index = node[index].tree
    at = _table_locate(node, table, blocks, index)
    node[upper].tree = tree_index
    node[upper].parent = node[index].parent
    node[upper].start = node[index].start
    node[upper].length = length
    node[upper].locks = node[index].locks
    node[upper].children = 1
    table[at] = upper
    node[index].parent = upper
    node[index].start += length
    node[index].length -= length
    table_add(node, table, blocks, index)
    tree[tree_index].nodes += 1
    if node[upper].locks == 0:
        _append(tree, node, tree_index, upper)
    return upper


@jit
def touch(tree, node, tree_index, index):
    """Makes the path from `index` to the root the most recently used, the deepest node first."""
    root = tree[tree_index].root
    while index != root:
        if node[index].locks == 0 and tree[tree_index].newest != index:
            _unlink(tree, node, tree_index, index)
            _append(tree, node, tree_index, index)
        index = node[index].parent


@jit
def peek(tree, node, table, blocks, tree_index, start, count):
    """Pages of `blocks[start : start + count]` that the tree holds; changes nothing."""
    matched = 0
    while matched < count:
        child = find_child(node, table, blocks, tree_index, blocks[start + matched])
        if child < 0:
            return matched
        length = node[child].length
        first = node[child].start
        step = 1
        while step < length and matched + step < count and blocks[first + step] == blocks[start + matched + step]:
            step += 1
        matched += step
        if step < length:
            return matched
    return matched


@jit
def _walk(state, tree, node, table, blocks, tree_index, start, count):
    """Deepest node on the path of the pages, splitting the last edge where they part: (pages matched, node)."""
    matched = 0
    index = tree[tree_index].root
    while matched < count:
        child = find_child(node, table, blocks, tree_index, blocks[start + matched])
        if child < 0:
            return matched, index
        length = node[child].length
        first = node[child].start
        step = 1
        while step < length and matched + step < count and blocks[first + step] == blocks[start + matched + step]:
            step += 1
        matched += step
        if step < length:
            return matched, _split(state, tree, node, table, blocks, child, step)
        index = child
    return matched, index


@jit
def match(state, tree, node, table, blocks, tree_index, start, count):
    """Longest cached prefix of the pages: (pages, deepest node); the path becomes the most recently used."""
    matched, index = _walk(state, tree, node, table, blocks, tree_index, start, count)
    touch(tree, node, tree_index, index)
    return matched, index


@jit
def insert(state, tree, node, table, blocks, tree_index, start, count):
    """Adds the pages that are missing: (pages already present, deepest node). The path becomes the newest.

    The caller has made room and takes the added pages off its private pages.
    """
    present, index = _walk(state, tree, node, table, blocks, tree_index, start, count)
    if present < count:
        leaf = _new_node(state, node)
        node[leaf].tree = tree_index
        node[leaf].parent = index
        node[leaf].start = start + present
        node[leaf].length = count - present
        node[index].children += 1
        table_add(node, table, blocks, leaf)
        tree[tree_index].nodes += 1
        tree[tree_index].pages += count - present
        _append(tree, node, tree_index, leaf)
        index = leaf
    touch(tree, node, tree_index, index)
    return present, index


@jit
def lock(tree, node, tree_index, index):
    """Protects the path from `index` to the root from eviction; locks count."""
    root = tree[tree_index].root
    while index != root:
        if node[index].locks == 0:
            _unlink(tree, node, tree_index, index)
            tree[tree_index].locked += node[index].length
        node[index].locks += 1
        index = node[index].parent


@jit
def unlock(tree, node, tree_index, index):
    """Takes one lock off the path; what no lock holds any more becomes the most recently used."""
    root = tree[tree_index].root
    while index != root:
        node[index].locks -= 1
        if node[index].locks == 0:
            _append(tree, node, tree_index, index)
            tree[tree_index].locked -= node[index].length
        index = node[index].parent


@jit
def evict_run(state, tree, node, table, blocks, tree_index, wanted):
    """Evicts up to `wanted` pages from the end of the least recently used leaf; returns how many (0: nothing to evict).

    The pages that went are `blocks[run_start : run_start + run]` of the tree's row.
    """
    index = tree[tree_index].oldest
    if index < 0:
        return 0
    taken = min(wanted, node[index].length)
    tree[tree_index].run = taken
    tree[tree_index].run_start = node[index].start + node[index].length - taken
    tree[tree_index].pages -= taken
    if taken < node[index].length:
        node[index].length -= taken
        return taken
    _table_remove(node, table, blocks, index)
    _unlink(tree, node, tree_index, index)
    node[node[index].parent].children -= 1
    tree[tree_index].nodes -= 1
    _free_node(state, node, index)
    return taken


@jit
def free_pages(tree, tree_index):
    """Pages that are neither cached nor private."""
    return tree[tree_index].capacity - tree[tree_index].pages - tree[tree_index].private


@jit
def obtainable_pages(tree, tree_index):
    """Pages that are free or could be evicted."""
    return tree[tree_index].capacity - tree[tree_index].locked - tree[tree_index].private
