"""`lpm`: longest real match first, stable, as SGLang orders its queue.

Looking a prompt up touches its path. A request whose match is at most `lpm_check_tokens`, and whose first
`lpm_defer_tokens` tokens (rounded up to a page) are those of an earlier such request, goes behind all others. Above
`lpm_fallback` waiting requests the order is left as it is.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import pages_of, reusable_pages
from cacheenv.sim.cache.radix import forest_of, match
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.prefill.pages import hold_prefix
from cacheenv.sim.prefill.queue import list_queue, rank, rounds_waited, sort_queue
from cacheenv.sim.state.codes import NONE
from cacheenv.sim.state.ids import tree_of

MOST = np.int64(2**31 - 1)  # what a rank can be


@inner
def order(w, p):
    """Stable sort by match, in-batch duplicates of a cold prefix last."""
    order_by_match(w, p, np.int64(0))


@inner
def order_by_match(w, p, ageing_tokens):
    """The same with `ageing_tokens` more of a match for each round that a request has waited.

    Matching refreshes recency, so waiting requests protect their prefixes; above `lpm_fallback` waiting requests the
    order is left as it is.
    """
    config = w.config[0]
    row = w.prefill[p]
    if row.queued > row.lpm_fallback or row.queued < 1:
        return
    forest, tree = forest_of(w), tree_of(w, p)
    probe = pages_of(w, row.lpm_defer_tokens) - 1
    count = list_queue(w, p)
    for at in range(count):
        index = w.queue_order[at]
        start = w.workload[index].block_start
        pages, node = match(forest, tree, start, reusable_pages(w, index))
        if config.protect_queued:
            hold_prefix(w, index, node)
        matched = pages * config.page_tokens
        low_match = matched <= row.lpm_check_tokens
        cold = low_match and 0 <= probe < pages_of(w, w.request[index].prompt_tokens)
        deferred = cold and _cold_one_before(w, w.blocks[start + probe], probe, at)
        # Others defer to the first cold one; those that defer go last, of those that have waited as long.
        aged = ageing_tokens * rounds_waited(w, index)
        rank(w, index, min(aged + (NONE if deferred else matched), MOST), cold and not deferred)
    sort_queue(w, p, count)


@once
def _cold_one_before(w, block, probe, count):
    """Whether one of the first `count` requests is cold and has the same page at the probed place."""
    for earlier in range(count):
        other = w.queue_order[earlier]
        if w.request[other].queue_cold and w.blocks[w.workload[other].block_start + probe] == block:
            return True
    return False
