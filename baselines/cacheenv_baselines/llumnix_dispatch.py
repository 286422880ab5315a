"""`llumnix_dispatch`: the freest decode instance.

Source: Llumnix (OSDI'24, arXiv 2406.03243), code AlibabaPAI/llumnix: dispatch policy `load` with the load
`remaining_steps` of `load_computation.py`, in the form without defragmentation.
Rule: freeness = (free blocks - blocks wanted by all waiting requests) / (running + waiting requests), infinite for an
idle instance. The freest instance takes the request; ties at random. Preempted requests wait, with the KV that they
had. Used behind a router and with its rescheduler, as in `least_backlog/llumnix_dispatch+llumnix`.
Parameters:
  block_tokens (tokens): vLLM's block
Ours: requests that are on their way (in prefill or hand-over) wait too, with their prompts. They are known to the
dispatcher from the decision on; in the original a request waits at its instance from its dispatch on.
"""

from __future__ import annotations

import math

from cacheenv.policy import jit, least, policy, route


@jit
def dispatch_freeness(view, decode, block_tokens):
    """Free blocks for each request of an instance, with what all who wait want taken off; infinite when idle."""
    row = view.decode[decode]
    requests = row.running_requests + row.waiting_requests + row.preempted_requests + row.pending_requests
    if requests == 0:
        return math.inf
    wanted = row.pending_tokens + row.preempted_tokens
    return (row.capacity_tokens - row.kv_tokens - row.reserved_tokens - wanted) / block_tokens / requests


@policy(kind="decode_choice", params={"block_tokens": 16})
def llumnix_dispatch(view, rng, params):
    """Decode instance with the most free blocks a request, waiting ones served."""
    best, count, best_free = -1, 0, 0.0
    for d in range(view.cluster[0].num_decode):
        if view.decode[d].accepts == 0:
            continue
        free = dispatch_freeness(view, d, params[0])
        take, count = least(rng, best, count, -free, -best_free)
        if take:
            best, best_free = d, free
    return route(view, 0, best, 0)
