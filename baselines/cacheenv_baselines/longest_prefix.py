"""`longest_prefix`: affinity and nothing else.

Source: the limiting case of cache-aware routing; the example proxy of Mooncake's open Conductor scores like this.
Rule: the prefill instance with the longest predicted prefix hit, whatever its load; equal hits, none at all included,
go to the lowest index. The decode instance has the fewest requests in flight, ties at random. No pull.
Deviations: the example proxy rotates among equal hits and round-robins where nothing matches, which hides the collapse:
where all prompts share their first block, a new conversation then goes to a random holder of that block. It also
round-robins decode.
See: docs/simulator.md#longest_prefix-on-the-conversation-trace for the collapse.
"""

from __future__ import annotations

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import fewest_requests_decode


@policy
def longest_prefix(view, rng, params):
    """Longest predicted prefix hit, whatever the load."""
    best = 0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].hit_tokens > view.prefill[best].hit_tokens:
            best = i
    return route(view, best, fewest_requests_decode(view, rng), 0)
