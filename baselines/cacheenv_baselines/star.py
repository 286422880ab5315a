"""`star`, `star_oracle`, `star_nopred`, `star_variance`: rescheduling of decodes by predicted workload.

Source: STAR (arXiv 2510.13668). The paper's loop, classification, filter, memory check and variance objective; no code
and hardly any constants are public, so all defaults below are OURS.
Rule, at each tick until nothing is gained: the workload of a decode instance is W = sum over its requests and over a
grid of steps h ahead of w_h * (resident tokens + h), as far as a request is predicted to last beyond h. Sources have
W > (1 + theta) * mean, destinations W < (1 - theta_low) * mean. Of all moves of a candidate from a source to a
destination take the one that lowers the variance of W over the instances most, if it
 pays: predicted remaining tokens * step time of the source >= kappa * time to copy its KV,
 fits: KV of the destination + KV of the request + safety * predicted remaining tokens <= capacity,
 is legal now (batch slot, room, one migration a source and one a destination) and its last move ended cooldown_s ago.
Of equal gains the first by source, candidate slot, destination.

Parameters: `theta`, `theta_low` (share of the mean, 0.1); `horizon_tokens` (2000 steps, 8 grid points);
`first_weight` (0.5: weight of h = 0, the others fall geometrically and all add up to 1; 1 = present load only);
`kappa` (3); `safety` (0.5); `gain_min` (squared tokens, 0); `cooldown_s` (5); `cv_trigger` (0: act only while the
coefficient of variation of W exceeds it).
Variants: `star_oracle` with true remaining lengths; `star_nopred` with the present load only (first_weight 1) and the
population mean as remaining length in its two filters; `star_variance` with cv_trigger 0.2, as some summaries put it.
Requires: up to 32 candidate requests of each source.
Ours: a request that is on its way counts at its destination, with what is reserved for it, and not at its source.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from cacheenv.policy import jit, move, policy, stay

GRID_POINTS = 8
CANDIDATES = {"max:reschedule.candidates": 32}


@jit
def weighted_load(kv_tokens, remaining_tokens, horizon_tokens, first_weight):
    """Weighted tokens of one request over the grid of steps ahead."""
    load, left = 0.0, 1.0
    for k in range(GRID_POINTS):
        ahead = horizon_tokens * k / (GRID_POINTS - 1)
        weight = left * first_weight if k < GRID_POINTS - 1 else left
        left -= weight
        if remaining_tokens > ahead:
            load += weight * (kv_tokens + ahead)
    return load


@jit
def fill_workload(view, horizon_tokens, first_weight, workload):
    """Adds each decode instance's W to `workload` and returns its mean."""
    num_decode = view.cluster[0].num_decode
    for j in range(view.cluster[0].num_running):
        row = view.running[j]
        if not row.migrating:
            remaining = row.predicted_remaining_tokens
            workload[row.instance] += weighted_load(row.kv_tokens, remaining, horizon_tokens, first_weight)
    mean = 0.0
    for d in range(num_decode):
        arriving = view.decode[d].reserved_tokens - view.cluster[0].reserve_tokens
        if arriving > 0:
            workload[d] += weighted_load(arriving, math.inf, horizon_tokens, first_weight)
        mean += workload[d] / num_decode
    return mean


@jit
def variation(workload, mean):
    """Coefficient of variation."""
    total = 0.0
    for value in workload:
        total += (value - mean) ** 2
    return math.sqrt(total / len(workload)) / mean if mean > 0.0 else 0.0


@policy(
    kind="rescheduler",
    params={
        "theta": 0.1, "theta_low": 0.1, "horizon_tokens": 2000, "first_weight": 0.5, "kappa": 3.0, "safety": 0.5,
        "gain_min": 0.0, "cooldown_s": 5.0, "cv_trigger": 0.0,
    },
    requires=CANDIDATES,
)  # fmt: skip
def star(view, rng, params):
    """STAR: moves the decode that lowers the variance of the predicted workload most."""
    num_decode, slots = view.cluster[0].num_decode, view.cluster[0].num_candidates
    workload = np.zeros(num_decode)
    mean = fill_workload(view, params[2], params[3], workload)
    if params[8] > 0.0 and variation(workload, mean) <= params[8]:
        return stay(view)
    best_row, best_decode, best_gain = -1, -1, params[6]
    for s in range(num_decode):
        if not view.decode[s].can_send or workload[s] <= (1.0 + params[0]) * mean:
            continue
        for row in range(s * slots, (s + 1) * slots):
            request = view.candidate[row]
            remaining = request.predicted_remaining_tokens
            if not request.valid or request.since_move_s < params[7]:
                continue
            if remaining * view.decode[s].step_s < params[4] * request.migrate_s:
                continue
            load = weighted_load(request.kv_tokens, remaining, params[2], params[3])
            for d in range(num_decode):
                target = view.decode[d]
                if d == s or not target.can_receive or workload[d] >= (1.0 - params[1]) * mean:
                    continue
                needed = target.kv_tokens + target.reserved_tokens + request.kv_tokens + params[5] * remaining
                if needed > target.capacity_tokens or request.kv_tokens > target.room_tokens:
                    continue
                gain = 2.0 * load * (workload[s] - workload[d] - load) / num_decode
                if gain > best_gain:
                    best_row, best_decode, best_gain = row, d, gain
    return move(view, best_row, best_decode) if best_row >= 0 else stay(view)


star_oracle = replace(
    star,
    name="star_oracle",
    requires={**CANDIDATES, "prediction.kind": "oracle"},
    description="STAR with the true remaining lengths.",
)
star_nopred = replace(
    star.with_params(first_weight=1.0),
    name="star_nopred",
    requires={**CANDIDATES, "prediction.kind": "none"},
    description="STAR on the present load only.",
)
star_variance = replace(
    star.with_params(cv_trigger=0.2),
    name="star_variance",
    description="STAR that acts only while the coefficient of variation of the workload exceeds 0.2.",
)
