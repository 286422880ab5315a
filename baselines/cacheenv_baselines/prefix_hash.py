"""`prefix_hash`: the first page on a hash ring, with a bound on the load.

Source: `prefix_hash` of the SGLang model gateway (nokiaMS/sglang @30cb848d of 2026-08-11, `policies/`): the first 256
tokens on a ring of 150 virtual nodes a worker, with a bound of 1.25.
Rule: the owner is the prefill instance of the first virtual node clockwise from the place of the prompt's first page,
the load of an instance its requests whose answer has not ended.
  1. The owner, where its load is at most `load_factor` x (load of all + 1) / instances.
  2. Else the least loaded of the instances within that bound, ties at random.
  3. Else, where none is, the owner.
Decode: as `power_of_two`, the documented example of the gateway's prefill-decode mode.
Parameters:
  virtual_nodes (count): places of an instance on the ring
  load_factor (ratio): bound on an instance's load, in mean loads
Ours: ties of rule 2, the hash function. A prompt shorter than a page gets a place of its own.
Deviation: the key is the first page (`cluster.page_tokens`), not the first 256 tokens: longer pages tell more prompts
apart, shorter ones fewer.
Quirks kept: a request past its owner goes to the least loaded one and not to the next on the ring, so a hot prefix is
cached everywhere; a prefill instance counts as loaded until the client has its last token, as in `sglang`.
"""

from __future__ import annotations

from cacheenv.policy import jit, least, policy, route
from cacheenv_baselines.ring import prefix_place, ring_owner
from cacheenv_baselines.rules import power_of_two_decode


@jit
def least_loaded_within(view, rng, bound):
    """Prefill instance with the fewest unfinished requests among those within a bound, ties at random; -1: none."""
    best, count, best_load = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        load = view.prefill[i].unfinished_requests
        if load <= bound:
            take, count = least(rng, best, count, load, best_load)
            if take:
                best, best_load = i, load
    return best


@policy(params={"virtual_nodes": 150, "load_factor": 1.25})
def prefix_hash(view, rng, params):
    """SGLang gateway prefix_hash: the first page's owner on a ring unless that is overloaded."""
    virtual_nodes, load_factor = int(params[0]), params[1]
    num_prefill, total = view.cluster[0].num_prefill, 1
    for i in range(num_prefill):
        total += view.prefill[i].unfinished_requests
    bound = load_factor * total / num_prefill
    prefill = ring_owner(view, prefix_place(view), virtual_nodes)
    if view.prefill[prefill].unfinished_requests > bound:
        other = least_loaded_within(view, rng, bound)
        prefill = other if other >= 0 else prefill
    return route(view, prefill, power_of_two_decode(view, rng), 0)
