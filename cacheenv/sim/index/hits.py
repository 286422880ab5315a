"""Look-ups: how much of a prompt each holder has, by one pass over its pages.

The answer stands in `lookup` and `hit` until the next look-up, for the view and for the decision's consequences.
"""

from __future__ import annotations

from cacheenv.sim.cache.pages import reusable_pages
from cacheenv.sim.cache.radix import forest_of, peek
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.central import BITS, catch_up
from cacheenv.sim.state.codes import LEARNS_ASSIGNED
from cacheenv.sim.state.ids import host_holder, store_holder, tree_of_holder


@once
def look_up(w, index):
    """Asks the index for a request's prompt: the best source to pull from, and pages on every holder.

    The best holder has the longest hit; ties go to the store, then to the lowest instance. It has what is stored there:
    what is only believed to be on a holder counts for requests that are sent there.
    """
    if w.config[0].index_shards > 0:
        catch_up(w)
    if w.config[0].index_learns == LEARNS_ASSIGNED:
        _find(w, index, w.stored_on)
        _choose_source(w)
        _find(w, index, w.holders)
    else:
        _find(w, index, w.holders)
        _choose_source(w)


@inner
def _longest_hit(w):
    longest = 0
    for holder in range(w.hit.shape[0]):
        longest = max(longest, w.hit[holder].pages)
    return longest


@inner
def _find(w, index, holders_of):
    """Pages of a request's prompt on every holder, by a bit set of holders of each page."""
    config = w.config[0]
    start, count = w.workload[index].block_start, reusable_pages(w, index)
    holders = w.hit.shape[0]
    for holder in range(holders):
        w.hit[holder].pages = 0
    words = config.holder_words
    for word in range(words):
        w.holder_mask[word] = (1 << min(BITS, holders - word * BITS)) - 1
    depth = 0
    while depth < count:
        block = w.blocks[start + depth]
        left = 0
        for word in range(words):
            kept = w.holder_mask[word] & holders_of[block, word]
            if kept != w.holder_mask[word]:
                _record(w, word, w.holder_mask[word] & ~kept, depth)
                w.holder_mask[word] = kept
            left |= kept
        if left == 0:
            break
        depth += 1
    for word in range(words):
        _record(w, word, w.holder_mask[word], depth)
    if config.host_enabled:
        _join_tiers(w)


@inner
def _record(w, word, bits, depth):
    """Holders whose bits are set in `bits` have exactly the first `depth` pages."""
    if depth == 0:
        return
    holder = word * BITS
    while bits:
        if bits & 1:
            w.hit[holder].pages = depth
        bits >>= 1
        holder += 1


@once
def _join_tiers(w):
    """The hit on an instance is the longest over its tiers: what one has beyond the other is loaded."""
    for p in range(w.prefill.shape[0]):
        w.hit[p].gpu_pages = w.hit[p].pages
        w.hit[p].pages = max(w.hit[p].pages, w.hit[host_holder(w, p)].pages)


@inner
def _choose_source(w):
    config = w.config[0]
    best, holder = 0, -1
    if config.peer_pulls:
        for p in range(w.prefill.shape[0]):
            if w.hit[p].pages > best:
                best, holder = w.hit[p].pages, p
    store = store_holder(w)
    if config.store_enabled and w.hit[store].pages >= best and w.hit[store].pages > 0:
        best, holder = w.hit[store].pages, store
    lookup = w.lookup[0]
    lookup.best_pages = best
    lookup.best_holder = holder
    lookup.stored_pages = _longest_hit(w)


@once
def available_pages(w, index):
    """Longest prefix of the prompt looked up that is really cached anywhere at this moment."""
    if not w.config[0].index_late:  # what the news say is exact
        return w.lookup[0].stored_pages
    longest = 0
    start, count = w.workload[index].block_start, reusable_pages(w, index)
    forest = forest_of(w)
    for holder in range(w.hit.shape[0]):
        if holder == store_holder(w) and not w.config[0].store_enabled:
            continue
        tree = tree_of_holder(w, holder)
        if tree >= 0:  # else an instance without host memory
            longest = max(longest, peek(forest, tree, start, count))
    return longest
