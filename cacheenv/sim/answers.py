"""Answers that return: the pages that an answer has filled go from the decode instance back to the prefill cache.

The next turn of a session continues prompt and answer. When a request with known output ids has made its last token,
the pages of its answer that the cache of its prefill instance lacks are sent there over both NICs. They enter the tree
when they have arrived, as far as room can be made and as far as nothing before them is missing by then.

The last token's KV is never computed, so a page that ends with it is not there to be sent (SGLang caches
`(prompt + output)[:-1]` too).
"""

from __future__ import annotations

from cacheenv.sim.cache.pages import full_pages
from cacheenv.sim.cache.radix import forest_of, lock, match, match_below, obtainable_pages, peek, unlock
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.feed import add_below, add_what_fits, make_room
from cacheenv.sim.network.links import new_flow, start_flow
from cacheenv.sim.state.codes import FLOW_ANSWER
from cacheenv.sim.state.ids import decode_nic, has_host, host_tree_of, prefill_nic, tree_of


@inner
def answer_pages(w, index):
    """Pages behind those of the prompt that the answer has filled, where the workload names them."""
    load = w.workload[index]
    filled = (load.prompt_tokens + load.output_tokens - 1) // w.config[0].page_tokens - full_pages(w, index)
    return min(load.answer_pages, filled)


@once
def send_answer(w, index):
    """Sends what the prefill cache lacks of a complete answer; nothing where the prompt before it is gone."""
    pages = answer_pages(w, index)
    if pages <= 0:
        return
    load, request, config = w.workload[index], w.request[index], w.config[0]
    forest, tree = forest_of(w), tree_of(w, request.prefill_instance)
    full = full_pages(w, index)
    matched, _ = match(forest, tree, load.block_start, full)
    if matched < full:
        return
    missing = pages - peek(forest, tree, load.answer_start, pages)  # the look-up has cut the edge there
    if missing <= 0:
        return
    source, sink = decode_nic(w, request.decode_instance), prefill_nic(w, request.prefill_instance)
    tokens = missing * config.page_tokens
    start_flow(w, new_flow(w, FLOW_ANSWER, source, sink, index, tokens))


@once
def answer_arrived(w, flow_index):
    """An answer's pages are back: they enter the tree behind what is still there of prompt and answer."""
    flow = w.flow[flow_index]
    index = flow.request
    load = w.workload[index]
    forest, tree = forest_of(w), tree_of(w, w.request[index].prefill_instance)
    full, pages = full_pages(w, index), answer_pages(w, index)
    matched, node = match(forest, tree, load.block_start, full)
    if matched < full:
        return
    present, node = match_below(forest, tree, node, load.answer_start, pages)
    if present < pages - flow.tokens // w.config[0].page_tokens:
        return  # what was there when the rest was sent is gone
    lock(forest, tree, node)
    added = min(pages - present, obtainable_pages(forest, tree))
    if added > 0:
        make_room(w, tree, added)
        add_below(w, tree, node, load.answer_start + present, added)
    unlock(forest, tree, node)
    if has_host(w, w.request[index].prefill_instance):
        _write_to_host(w, index, full, present + added)


@once
def _write_to_host(w, index, full, pages):
    """Where host memory is written at once, it has an answer that came to the GPU too, if it has the prompt."""
    config = w.config[0]
    if config.host_write_back or config.host_after_hits > 0 or pages <= 0:
        return
    load, host = w.workload[index], host_tree_of(w, w.request[index].prefill_instance)
    matched, node = match(forest_of(w), host, load.block_start, full)
    if matched == full:
        add_what_fits(w, host, node, load.answer_start, pages)
