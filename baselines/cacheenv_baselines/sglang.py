"""`sglang`, `sglang_struct`: cache_aware of the SGLang gateway, power of two for decode.

Source: SGLang model gateway, `policies/cache_aware.rs` and `tree.rs` (as of 2026); the combination with `power_of_two`
for decode is the documented example of its prefill-decode mode.
Rule over the prefill pool, load = requests in flight as the router counts them:
 1 if max - min > balance_abs and max > balance_rel * min: the least loaded, affinity is ignored;
 2 else if matched / prompt > cache_threshold: the instance that the router remembers sending this prefix to;
 3 else the least loaded. Ties of load at random. All comparisons are strict.
In every case the router remembers the prompt as sent to the chosen instance. Decode: `power_of_two`, independently.

| parameter       | unit              | `sglang` (command line) | `sglang_struct` (struct) |
| cache_threshold | share of prompt   | 0.3                     | 0.5                      |
| balance_abs     | requests          | 64                      | 32                       |
| balance_rel     | ratio             | 1.5                     | 1.1                      |
| max_tree_size   | characters an instance | 2^26               | 10,000                   |

Requires on the cluster: router memory of max_tree_size an instance, at 4 characters a token (OURS: 16,777,216 and 2,500
tokens); the engine's queue in `lpm` order with its fall-back at 128 waiting requests.
Deviations: the memory works in pages, not characters; it evicts at once, where the gateway lets a tree grow between
sweeps (every 120 s or 30 s); it keeps least recently used prefixes, where the gateway refreshes a match only one time
in eight; load falls at the end of the hand-over, where older gateways held it until the client's stream ended.
Among equal remembered prefixes the memory names the instance (the gateway: the last tenant of the node).
Quirks kept: past the imbalance test the prefix does not even break ties among least loaded instances; the memory is
not told about evictions in the engine; a remembered instance is taken however loaded it is below the imbalance test.
"""

from __future__ import annotations

from dataclasses import replace

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import ANY_ROLE, cache_aware, power_of_two_decode

CHARACTERS_PER_TOKEN = 4
ENGINE = {"cluster.prefill.queue": "lpm", "cluster.prefill.lpm_fallback": 128}


@policy(
    params={"cache_threshold": 0.3, "balance_abs": 64, "balance_rel": 1.5},
    requires={**ENGINE, "cluster.index.memory_tokens": 2**26 // CHARACTERS_PER_TOKEN},
)
def sglang(view, rng, params):
    """SGLang gateway cache_aware with the command line's defaults, power of two for decode."""
    cache_threshold, balance_abs, balance_rel = params[0], params[1], params[2]
    prefill = cache_aware(view, rng, ANY_ROLE, cache_threshold, balance_abs, balance_rel)
    return route(view, prefill, power_of_two_decode(view, rng), 0)


sglang_struct = replace(
    sglang.with_params(cache_threshold=0.5, balance_abs=32, balance_rel=1.1),
    name="sglang_struct",
    requires={**ENGINE, "cluster.index.memory_tokens": 10_000 // CHARACTERS_PER_TOKEN},
    description="SGLang gateway cache_aware with the struct's defaults, power of two for decode.",
)
