"""`longest_prefix`: affinity and nothing else.

Source: the example proxy of Mooncake's open Conductor (the instance with the longest match wins).
Rule: the prefill instance with the longest predicted prefix hit, whatever its load; equal hits, none at all included,
are decided at random. The decode instance has the fewest requests in flight, ties at random. No pull.
Parameters: none.
Deviations: the example proxy rotates among equal hits and round-robins where nothing matches; a draw has the same
shares and needs no state. It round-robins decode.
"""

from __future__ import annotations

from cacheenv.policy import least, policy, route
from cacheenv_baselines.rules import fewest_requests_decode


@policy
def longest_prefix(view, rng, params):
    """Longest predicted prefix hit, whatever the load."""
    best, count, best_value = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        value = -view.prefill[i].hit_tokens
        take, count = least(rng, best, count, value, best_value)
        if take:
            best, best_value = i, value
    return route(view, best, fewest_requests_decode(view, rng), 0)
