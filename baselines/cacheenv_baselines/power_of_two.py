"""`power_of_two`: the less loaded of two random instances, in each pool.

Source: SGLang gateway `power_of_two`; Mitzenmacher, "The power of two choices in randomized load balancing" (2001).
Rule: draw two distinct instances of a pool; take the one with fewer requests in flight, the first drawn on equality.
With one instance, that one. The pools are drawn independently. No pull.
Deviations: the gateway compares polled token loads where it has them for both; here always request counts. Those of a
prefill instance fall at the end of the hand-over, the gateway's at the end of the answer (see `sglang`).
"""

from __future__ import annotations

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import nth_prefill, power_of_two_decode, two_choices


@policy
def power_of_two(view, rng, params):
    """The less loaded of two random instances, in each pool."""
    first, second = two_choices(rng, view.cluster[0].accepting_prefill)
    first, second = nth_prefill(view, first), nth_prefill(view, second)
    prefill = first if view.prefill[first].inflight_requests <= view.prefill[second].inflight_requests else second
    return route(view, prefill, power_of_two_decode(view, rng), 0)
