"""`session`: sessions stay where they are.

Source: `session` of the vLLM production-stack (vllm-project/production-stack @a6c01db0, `routers/routing_logic.py`): a
hash ring on a header that names the session; without a session the engine with the lowest rate of requests.
Rule: a request of a session goes to the prefill instance of the first virtual node clockwise from the session's place
on a ring, whatever the loads are. One without a session goes to the instance that has been sent the fewest requests, so
one that has never been used wins; ties at random.
Decode: the fewest requests in flight, ties at random. No pull.
Parameters:
  virtual_nodes (count): places of an instance on the ring; OURS, those of the SGLang gateway
Ours: the decode rule. The production-stack pairs no session router with separate pools.
Deviation: the rate without a session is over the whole run, where the production-stack has a window (whose length was
not verified).
Quirk kept: the first turn of a session goes where its hash says, loaded or not, and all later ones follow.
"""

from __future__ import annotations

from cacheenv.policy import jit, least, policy, route
from cacheenv_baselines.ring import ring_owner, session_place
from cacheenv_baselines.rules import fewest_requests_decode


@jit
def least_used_prefill(view, rng):
    """Prefill instance that has been sent the fewest requests, ties at random."""
    best, count, best_rate = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        rate = view.prefill[i].dispatched_requests
        take, count = least(rng, best, count, rate, best_rate)
        if take:
            best, best_rate = i, rate
    return best


@policy(params={"virtual_nodes": 150})
def session(view, rng, params):
    """Each session to its instance of a hash ring; without a session the least used instance."""
    if view.request[0].session >= 0:
        prefill = ring_owner(view, session_place(view), int(params[0]))
    else:
        prefill = least_used_prefill(view, rng)
    return route(view, prefill, fewest_requests_decode(view, rng), 0)
