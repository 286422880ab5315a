"""`star_placement`: the decode instance with the least predicted workload.

Source: STAR (arXiv 2510.13668), initial placement: when a prefill ends, the decode instance is chosen from the input
length, the first prediction of what is left, and the present load of each instance. No code is public; the workload is
that of :mod:`cacheenv_baselines.star`.
Rule: W is the workload of an instance as in `star`, with the requests on their way to it. Of the instances on which KV
+ prompt + `safety` x predicted output is within the capacity, the one with the least W: it is the one on which the new
request leaves the smallest variance of W. Where it fits nowhere, the least W of all. Ties at random. Used behind a
router and with the rescheduler, as in `least_backlog/star_placement+star`.
Parameters:
  horizon_tokens (steps): see `star`
  first_weight (share): see `star`
  safety (share): see the rule
Deviation: it decides when the request arrives, as all routers here do, and not when its prefill ends. Loads are older
by the time that a prefill takes, and the prediction is the one from the prompt.
Ours: a request that is on its way, waits or was preempted is not listed one by one; it counts with the mean of their
tokens and the population's mean output. The paper does not say how it counts these.
"""

from __future__ import annotations

import math

import numpy as np

from cacheenv.policy import jit, least, policy, route
from cacheenv_baselines.star import fill_workload, horizon_steps, weighted_load


@jit
def promised_load(view, decode, horizon_tokens, first_weight):
    """Workload of the requests that will run on an instance but do not yet."""
    row = view.decode[decode]
    requests = row.pending_requests + row.waiting_requests + row.preempted_requests
    if requests == 0:
        return 0.0
    mean_tokens = (row.pending_tokens + row.preempted_tokens) / requests
    return requests * weighted_load(mean_tokens, view.cluster[0].mean_output_tokens, horizon_tokens, first_weight)


@policy(
    kind="decode_choice",
    params={"horizon_tokens": 0.0, "first_weight": 0.5, "safety": 0.5},
    needs_running=True,
)
def star_placement(view, rng, params):
    """STAR's placement: least predicted workload among the decode instances with room."""
    horizon_tokens, first_weight, safety = horizon_steps(view, params[0]), params[1], params[2]
    num_decode = view.cluster[0].num_decode
    request = view.request[0]
    growth = safety * request.predicted_output_tokens
    workload = np.zeros(num_decode)
    fill_workload(view, horizon_tokens, first_weight, workload)
    best, count, best_load, best_fits = -1, 0, math.inf, False
    for d in range(num_decode):
        row = view.decode[d]
        if row.accepts == 0:
            continue
        load = workload[d] + promised_load(view, d, horizon_tokens, first_weight)
        held = row.kv_tokens + row.reserved_tokens + row.pending_tokens + row.preempted_tokens
        fits = held + request.prompt_tokens + growth <= row.capacity_tokens
        if best >= 0 and fits != best_fits:
            take, ties = fits, 1  # room comes first
        else:
            take, ties = least(rng, best, count, load, best_load)
        if take:
            best, best_load, best_fits = d, load, fits
        if take or fits == best_fits:
            count = ties
    return route(view, 0, best, 0)
