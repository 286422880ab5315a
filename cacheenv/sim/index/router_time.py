"""How long the router computes: a single server that decides on one request after the other, in their order.

What is decided, it decides at the arrival, with what is known then. Its answer is out when it has also decided on
whoever came before, a time for the decision and for each page of the prompt later; until then the request can neither
be batched nor pull. Who is refused has taken its time too, though the refusal is known at once.
"""

from __future__ import annotations

from cacheenv.sim.cache.pages import pages_of
from cacheenv.sim.core.jit import once


@once
def decided_at(w, index):
    """When the decision on a request that has arrived is out."""
    config = w.config[0]
    state = w.state[0]
    if not config.router_works:
        return state.now_s
    seconds = config.decide_s + config.decide_s_per_block * pages_of(w, w.request[index].prompt_tokens)
    state.router_free_s = max(state.now_s, state.router_free_s) + seconds
    return state.router_free_s
