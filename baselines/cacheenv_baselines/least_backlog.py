"""`least_backlog`: the least outstanding work, in seconds of prefill and in tokens of decode.

Source: OURS, as the load-only counterpart of Mooncake ("load balancing" in its scheduling figures): the queue term of
Algorithm 1 (section 6 of the FAST version) without the cache and transfer terms.
Rule: the prefill instance with the smallest `backlog_s` (predicted prefill seconds of waiting requests, what is left
of the running batch and of a chunked prompt), and the decode instance with the fewest KV tokens, resident or promised
(as `least_kv`). Ties at random. No pull.
"""

from __future__ import annotations

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import ANY_ROLE, fewest_tokens_decode, least_backlog_prefill


@policy
def least_backlog(view, rng, params):
    """Least prefill backlog in seconds; fewest resident and promised decode tokens."""
    prefill = least_backlog_prefill(view, rng, ANY_ROLE)
    return route(view, prefill, fewest_tokens_decode(view, rng), 0)
