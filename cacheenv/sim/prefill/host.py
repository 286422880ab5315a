"""Host memory behind the GPUs of a prefill instance: what it holds, what is loaded from it, what is written to it.

It is a tree of its own, which is always `lru`. What a prompt finds there beyond the GPU is loaded for its first batch
and enters the GPU's tree at once, so that others of the batch share it. Writing takes no time: it uses the other
direction of the host link, behind computing that takes much longer.
"""

from __future__ import annotations

from cacheenv.sim.cache.pages import full_pages, reusable_pages
from cacheenv.sim.cache.radix import forest_of, match, often_used
from cacheenv.sim.compute.cost import load_seconds, prompt_seconds
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.index.feed import add_what_fits
from cacheenv.sim.state.ids import has_host, host_tree_of, prefill_instance, tree_of


@once
def match_host(w, index, p):
    """Longest prefix of a prompt in host memory: (pages, deepest node); it becomes the most recently used."""
    return match(forest_of(w), host_tree_of(w, p), w.workload[index].block_start, reusable_pages(w, index))


@once
def count_load(w, p, tokens):
    """The batch that is being formed loads so many tokens more."""
    w.prefill[p].load_tokens += tokens


@once
def with_load(w, p, compute_s):
    """Time of the batch that is formed: computing, and loading for all of its prompts over the one host link."""
    row = w.prefill[p]
    tokens = row.load_tokens
    row.load_tokens = 0
    return load_seconds(w.config[0], w.instance[prefill_instance(w, p)], compute_s, tokens)


@once
def write_to_host(w, index, node):
    """A prompt is computed: what the policy of writing selects of its path, which ends at `node`, goes to the host."""
    config = w.config[0]
    p = w.request[index].prefill_instance
    if not has_host(w, p) or config.host_write_back:
        return
    count = full_pages(w, index)
    if config.host_after_hits > 0:
        count = often_used(forest_of(w), tree_of(w, p), node, config.host_after_hits + 1)  # the first use is no hit
    if count > 0:
        host = host_tree_of(w, p)
        add_what_fits(w, host, w.tree[host].root, w.workload[index].block_start, count)


@inner
def expected_seconds(w, p, prompt_tokens, cached, gpu_cached):
    """Time of a batch of one prompt of which `cached` tokens are there, `gpu_cached` of them on the GPU."""
    return prompt_seconds(w.config[0], w.instance[prefill_instance(w, p)], prompt_tokens, cached, gpu_cached)


@inner
def gpu_hit_tokens(w, p, hit_tokens):
    """Of a hit on prefill part `p`, the tokens that the index places on its GPU; all where there is one tier."""
    return w.hit[p].gpu_pages * w.config[0].page_tokens if has_host(w, p) else hit_tokens
