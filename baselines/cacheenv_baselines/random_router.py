"""`random`: a uniformly random prefill instance and a uniformly random decode instance.

Source: the policy of that name of the usual gateways; "random" in the scheduling figures of the Mooncake paper.
Rule: both instances are drawn independently from the policy's own random stream. No pull, no rejection.
"""

from __future__ import annotations

from cacheenv.policy import policy, random_below, route


@policy(name="random")
def random_router(view, rng, params):
    """Uniformly random prefill and decode instance."""
    prefill = random_below(rng, view.cluster[0].num_prefill)
    return route(view, prefill, random_below(rng, view.cluster[0].num_decode), 0)
