"""`least_tbt`: the smallest predicted time between tokens.

Source: Mooncake (arXiv 2407.00079 section 6), Algorithm 1, which asks for load balancing in the decode pool such that
the SLO between tokens is met; it gives no formula. This is the decode choice of `mooncake`, for use behind other
routers, as in `least_backlog/least_tbt`.
Rule: step(d) = fixed time + time a request x (requests in flight on d + 1) + time a token x (KV tokens of d, resident
or promised, + prompt), with the coefficients of d. The smallest wins, ties at random.
Ours: the formula, with all that is assigned to the instance counted from its decision on. KV of preempted requests is
freed and not counted.
"""

from __future__ import annotations

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import least_tbt_decode


@policy(kind="decode_choice")
def least_tbt(view, rng, params):
    """Decode instance with the smallest predicted step once all that is assigned to it runs there."""
    return route(view, 0, least_tbt_decode(view, rng), 0)
