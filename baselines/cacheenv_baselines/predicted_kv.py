"""`predicted_kv`: the fewest KV tokens, with what is predicted to come.

Source: none, OURS, as the counterpart of `least_kv` with a forecast; STAR (arXiv 2510.13668) and others compare present
with predicted load.
Rule: load(d) = sum over the requests that run on d of (KV tokens + `growth` x predicted remaining tokens) + for those
that are on their way, wait or were preempted their tokens + `growth` x the population's mean output. The smallest load
wins, ties at random. Used behind a router, as in `mooncake/predicted_kv`.
Parameters:
  growth (share): of the predicted tokens that counts; 0 = present tokens only, 1 = all KV when requests end
Ours: all of it. A request that is being moved counts where it still runs, and with its reservation where it goes.
"""

from __future__ import annotations

import numpy as np

from cacheenv.policy import least, policy, route


@policy(kind="decode_choice", params={"growth": 1.0}, needs_running=True)
def predicted_kv(view, rng, params):
    """Decode instance with the fewest KV tokens, predicted growth included."""
    growth, num_decode = params[0], view.cluster[0].num_decode
    load = np.zeros(num_decode)
    for j in range(view.cluster[0].num_running):
        running = view.running[j]
        load[running.instance] += running.kv_tokens + growth * running.predicted_remaining_tokens
    best, count, best_load = -1, 0, 0.0
    for d in range(num_decode):
        if view.decode[d].accepts == 0:
            continue
        row = view.decode[d]
        to_come = row.pending_requests + row.waiting_requests + row.preempted_requests
        load[d] += row.pending_tokens + row.preempted_tokens + row.reserved_tokens
        load[d] += growth * to_come * view.cluster[0].mean_output_tokens
        take, count = least(rng, best, count, load[d], best_load)
        if take:
            best, best_load = d, load[d]
    return route(view, 0, best, 0)
