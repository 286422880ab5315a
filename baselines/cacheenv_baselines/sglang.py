"""`sglang`, `sglang_struct`: the cache_aware rule of the SGLang gateway, power of two for decode.

Source: SGLang model gateway, `policies/cache_aware.rs`, `policies/tree.rs` and `routers/http/pd_router.rs` of the main
branch on 2026-08-11 (nokiaMS/sglang @30cb848d): after sgl-project/sglang#33138 (random ties), before #39951 (prefill
load). The combination with `power_of_two` for decode is the documented example of its prefill-decode mode. `sglang` has
the defaults of its command line, `sglang_struct` those of its configuration struct.
Rule: over the prefill pool, load = requests sent there whose answer has not ended:
  1. If max - min > `balance_abs` and max > `balance_rel` x min: the least loaded, affinity is ignored.
  2. Else, if matched / prompt > `cache_threshold`: the instance that the router remembers sending this prefix to.
  3. Else the least loaded. Ties of load at random. All comparisons are strict.
Decode: as `power_of_two`, independently. The router remembers the prompt as sent to the chosen instance in every case.
Parameters:
  cache_threshold (share of the prompt): smallest match that counts
  balance_abs (requests): smallest difference of loads that counts as imbalance
  balance_rel (ratio): smallest ratio of loads that counts as imbalance
Brings: router memory of the tree's size, 2^26 characters an instance (`sglang_struct`: 10,000), at 4 characters a token
(OURS).
Requires: the engine's queue in `fcfs` order and its eviction of whole leaves (`lru_node`), the server's defaults.
Deviations: the memory works in pages, not characters; it evicts at once, where the gateway lets a tree grow between
sweeps (every 120 s or 30 s); it keeps least recently used prefixes, where the gateway refreshes a match only one time
in eight; among equal remembered prefixes the memory names the instance (the gateway: the last tenant of the node).
Where that tenant is no candidate any more, the gateway forgets it and takes its first healthy worker: here all
instances are candidates at all times, so it does not happen.
Quirks kept: a prefill instance counts as loaded until the client has its last token, so loads tell what passed through
and is decoding, not what waits there (#39951 reports 15 idle of 24 hidden by it); past the imbalance test the prefix
does not even break ties among least loaded instances; the memory is not told about evictions in the engine; a
remembered instance is taken however loaded it is below the imbalance test.
"""

from __future__ import annotations

from dataclasses import replace

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import ANY_ROLE, cache_aware, power_of_two_decode

CHARACTERS_PER_TOKEN = 4
ENGINE = {"cluster.prefill.queue": "fcfs", "cluster.prefill.eviction": "lru_node"}


@policy(
    params={"cache_threshold": 0.3, "balance_abs": 64, "balance_rel": 1.5},
    requires=ENGINE,
    brings={"cluster.index.memory_tokens": 2**26 // CHARACTERS_PER_TOKEN},
)
def sglang(view, rng, params):
    """SGLang gateway cache_aware with the command line's defaults, power of two for decode."""
    cache_threshold, balance_abs, balance_rel = params[0], params[1], params[2]
    prefill = cache_aware(view, rng, ANY_ROLE, cache_threshold, balance_abs, balance_rel)
    return route(view, prefill, power_of_two_decode(view, rng), 0)


sglang_struct = replace(
    sglang.with_params(cache_threshold=0.5, balance_abs=32, balance_rel=1.1),
    name="sglang_struct",
    brings={"cluster.index.memory_tokens": 10_000 // CHARACTERS_PER_TOKEN},
    description="SGLang gateway cache_aware with the struct's defaults, power of two for decode.",
)
