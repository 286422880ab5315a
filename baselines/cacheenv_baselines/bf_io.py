"""`bf_io`: the decode instance that keeps the largest load of the next steps smallest.

Source: BF-IO (arXiv 2601.17855; code Echoscd/Load-Balancing-Release, `simlib/strategies/strategy_balance_future.py`),
by a summary and the constants of the code (horizon cap 72, ALPHA 1, BETA 43, DECAY 0.86), whose use was not traced.
Rule: with L_g(h) the KV tokens on decode instance g after h more steps, of the requests that are predicted to last
beyond h, and this one on instance d, the imbalance is the sum over h = 0 ... `horizon_steps` - 1 of (G x max over g of
L_g(h) - sum over g of L_g(h)). The d with the smallest imbalance takes the request; of equal ones that with the
smallest sum over h of L_d(h), then a random one. Instances whose batch is full are passed over where another is not.
Parameters:
  horizon_steps (steps): steps ahead; the paper finds 40 enough, and more no better
Ours: the second key, needed because a request on any instance but the fullest leaves the maximum as it is; requests
that are on their way, wait or were preempted count from now on and beyond the horizon.
Deviations: BF-IO assigns the requests that wait when slots free up, all at once and late; a router places each one when
it arrives, alone, so this is its objective and not its algorithm. Its workers step together at a barrier, so that the
largest load is everybody's step time; instances here do not wait for each other, and the imbalance costs less.
"""

from __future__ import annotations

import math

import numpy as np

from cacheenv.policy import jit, policy, random_below, route


@jit
def fill_loads(view, tokens, requests):
    """KV tokens on each decode instance after each of so many steps: (instances, steps + 1), the last unused.

    `requests`: room of the same shape. Both are handed in as zeros.
    """
    steps = tokens.shape[1] - 1
    for j in range(view.cluster[0].num_running):
        running = view.running[j]
        last = int(max(0, math.ceil(min(float(steps), running.predicted_remaining_tokens))))
        tokens[running.instance, last] += running.kv_tokens  # until `last` steps have passed
        requests[running.instance, last] += 1.0
    for d in range(len(tokens)):
        row = view.decode[d]
        tokens[d, steps] += row.pending_tokens + row.preempted_tokens + row.reserved_tokens
        requests[d, steps] += row.pending_requests + row.waiting_requests + row.preempted_requests
        kv, lasting = 0.0, 0.0
        for h in range(steps - 1, -1, -1):
            kv += tokens[d, h + 1]
            lasting += requests[d, h + 1]
            tokens[d, h + 1] = kv + lasting * h
        for h in range(steps):
            tokens[d, h] = tokens[d, h + 1]


@policy(kind="decode_choice", params={"horizon_steps": 40}, needs_running=True)
def bf_io(view, rng, params):
    """BF-IO's objective for one request: least sum of the largest loads over the next steps."""
    steps, num_decode = max(1, int(params[0])), view.cluster[0].num_decode
    request = view.request[0]
    tokens, largest = np.zeros((num_decode, steps + 1)), np.zeros(steps)
    fill_loads(view, tokens, np.zeros((num_decode, steps + 1)))
    for d in range(num_decode):
        for h in range(steps):
            largest[h] = max(largest[h], tokens[d, h])
    best, count, best_peak, best_own, best_full = -1, 0, 0.0, 0.0, True
    for d in range(num_decode):
        row = view.decode[d]
        if row.accepts == 0:
            continue
        full = row.inflight_requests >= row.max_batch
        peak, own = 0.0, 0.0
        for h in range(steps):
            joined = request.prompt_tokens + h if request.predicted_output_tokens > h else 0
            peak += max(tokens[d, h] + joined, largest[h])
            own += tokens[d, h]
        better = peak < best_peak or (peak == best_peak and own < best_own)
        same = peak == best_peak and own == best_own
        if best < 0 or (best_full and not full) or (full == best_full and better):
            best, count, best_peak, best_own, best_full = d, 1, peak, own, full
        elif full == best_full and same:
            count += 1
            if random_below(rng, count) == 0:
                best = d
    return route(view, 0, best, 0)
