"""`random`: a uniformly random prefill instance and a uniformly random decode instance.

Source: the policy of that name of the usual gateways; "random" in the scheduling figures of the Mooncake paper.
Rule: both instances are drawn independently from the policy's own random stream. No pull, no rejection.
"""

from __future__ import annotations

from cacheenv.policy import policy, random_below, route
from cacheenv_baselines.rules import nth_decode, nth_prefill


@policy(name="random")
def random_router(view, rng, params):
    """Uniformly random prefill and decode instance."""
    prefill = nth_prefill(view, random_below(rng, view.cluster[0].accepting_prefill))
    return route(view, prefill, nth_decode(view, random_below(rng, view.cluster[0].accepting_decode)), 0)
