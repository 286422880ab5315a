"""`least_kv`: the fewest KV tokens.

Source: current-load balancing of the decode pool (the "current KV load" baseline of the STAR paper, FlowKV).
Rule: the decode instance with the smallest sum of resident KV tokens of the batch and prompt tokens of the requests
that are assigned to it but not running (in prefill, hand-over, or waiting). Ties at random. Used behind a router, as in
`mooncake/least_kv`.
Ours: promised tokens count from the decision on. With resident tokens alone, all requests of one instant would choose
the same instance, a fault that was reported of several routers. KV of preempted requests is freed and not counted.
"""

from __future__ import annotations

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import fewest_tokens_decode


@policy(kind="decode_choice")
def least_kv(view, rng, params):
    """Decode instance with the fewest resident and promised KV tokens."""
    return route(view, 0, fewest_tokens_decode(view, rng), 0)
