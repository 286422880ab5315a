"""`longest_prefix`: affinity and nothing else.

Source: the example proxy of Mooncake's open Conductor, kvcache-ai/Mooncake
`mooncake-conductor/example/cache_aware_disagg_proxy.py` (commit 1d9dff9a).
Rule: the prefill instance with the longest predicted prefix hit, whatever its load.
  * Equal hits: the instances that share the longest hit take turns, each set of them with a counter of its own.
  * No hit anywhere: all prefill instances take turns, with one more counter.
  * Decode instances take turns. No pull.
State: the counters: no hit, decode, and one for each set of up to eight instances.
Deviation: the proxy keeps a counter for every set that it has met. Here sets that are equal in their instances modulo
eight share one, so with more than eight prefill instances the turns of different sets mix.
See: docs/simulator.md#longest_prefix-on-the-conversation-trace for what the turns are worth.
"""

from __future__ import annotations

from cacheenv.policy import jit, policy, route
from cacheenv_baselines.rules import nth_decode

SETS = 256  # of eight instances
NO_HIT, DECODE, FIRST_SET = 0, 1, 2


@jit
def next_turn(params, counter):
    """The number of this turn, from 0; the counter moves on."""
    turn = int(params[counter])
    params[counter] += 1.0
    return turn


@jit
def longest_hit(view):
    """(hit in tokens, how many instances have it, the set of them as bits modulo eight)."""
    longest, sharers, members = 0, 0, 0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        hit = view.prefill[i].hit_tokens
        if hit > longest:
            longest, sharers, members = hit, 0, 0
        if hit == longest:
            sharers += 1
            members |= 1 << (i % 8)
    return longest, sharers, members


@jit
def nth_with_hit(view, hit_tokens, place):
    """The prefill instance at this place among those with this hit."""
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 1 and view.prefill[i].hit_tokens == hit_tokens:
            if place == 0:
                return i
            place -= 1
    return -1


@policy(state_size=FIRST_SET + SETS)
def longest_prefix(view, rng, params):
    """Longest predicted prefix hit, whatever the load; equal ones and decode instances in turn."""
    longest, sharers, members = longest_hit(view)
    counter = FIRST_SET + members if longest > 0 else NO_HIT
    prefill = nth_with_hit(view, longest, next_turn(params, counter) % sharers)
    decode = nth_decode(view, next_turn(params, DECODE) % view.cluster[0].accepting_decode)
    return route(view, prefill, decode, 0)
