"""`round_robin`: each pool in turn.

Source: SGLang gateway `round_robin` (an atomic counter over the healthy workers, one counter a pool).
Rule: request n goes to prefill instance n mod P and decode instance n mod D, n counting from 0.
State: the counter.
Quirk kept: both counters advance together, so with P = D prefill instance i always feeds decode instance i.
"""

from __future__ import annotations

from cacheenv.policy import policy, route
from cacheenv_baselines.rules import nth_decode, nth_prefill


@policy(state_size=1)
def round_robin(view, rng, params):
    """Prefill and decode instances in turn."""
    turn = int(params[0])
    params[0] += 1.0
    cluster = view.cluster[0]
    prefill = nth_prefill(view, turn % cluster.accepting_prefill)
    return route(view, prefill, nth_decode(view, turn % cluster.accepting_decode), 0)
