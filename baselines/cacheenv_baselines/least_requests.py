"""`least_requests`: join the shortest queue, counted in requests.

Source: `least_request` / join-the-shortest-queue of the usual gateways (vLLM production-stack, AIBrix).
Rule: the prefill instance with the fewest requests in flight (routed there, hand-over not ended), and the decode
instance with the fewest requests in flight (assigned there, not finished). Ties at random. No pull.
Quirk kept: all requests weigh the same, however long they are; the cache is ignored.
"""

from __future__ import annotations

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import ANY_ROLE, fewest_requests_decode, fewest_requests_prefill


@policy
def least_requests(view, rng, params):
    """Fewest requests in flight, in either pool."""
    prefill = fewest_requests_prefill(view, rng, ANY_ROLE, False)
    return route(view, prefill, fewest_requests_decode(view, rng), 0)
