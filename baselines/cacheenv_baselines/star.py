"""`star`, `star_oracle`, `star_nopred`, `star_variance`: rescheduling of decodes by predicted workload.

Source: STAR (arXiv 2510.13668). The paper's loop, classification, filter, memory check and variance objective; no code
and hardly any constants are public, so all defaults are OURS.
Rule: at each tick until nothing is gained: the workload of a decode instance is W = sum over its requests and over a
grid of 8 steps h ahead of w_h x (resident tokens + h), as far as a request is predicted to last beyond h. Sources have
W > (1 + `theta`) x mean, destinations W < (1 - `theta_low`) x mean. Of all moves of a candidate from a source to a
destination take the one that lowers the variance of W over the instances most, if it
  * pays: predicted remaining tokens x step time of the source >= `kappa` x time to copy its KV,
  * fits: KV of the destination + KV of the request + `safety` x predicted remaining tokens <= capacity,
  * is legal now (batch slot, room, one migration a source and one a destination), and
  * its last move ended `cooldown_s` ago. Of equal gains a random one (OURS).
Parameters:
  theta (share of the mean): excess of W that makes a source
  theta_low (share of the mean): lack of W that makes a destination
  horizon_tokens (steps): the last h of the grid; 0 = the population's mean output length
  first_weight (share): weight of h = 0; the others fall geometrically and all add up to 1; 1 = present load only
  kappa (ratio): see the rule
  safety (share): see the rule
  gain_min (squared tokens): a smaller gain is none
  cooldown_s (s): see the rule
  cv_trigger (ratio): act only while the coefficient of variation of W exceeds it
Variants: `star_oracle` with true remaining lengths; `star_nopred` with the present load only (`first_weight` 1) and the
population mean as remaining length in its two filters; `star_variance` with `cv_trigger` 0.2, as some summaries put it.
Requires: all running requests as candidates, as in the paper, and the prediction kind of the variant.
Ours: a request that is on its way counts at its destination, with what is reserved for it, and not at its source.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from cacheenv.policy import jit, least, move, policy, stay

GRID_POINTS = 8
CANDIDATES = {"reschedule.candidates": None}


@jit
def horizon_steps(view, horizon_tokens):
    """The last step of the grid: as long as outputs are on average, where nothing else is asked for."""
    return horizon_tokens if horizon_tokens > 0.0 else view.cluster[0].mean_output_tokens


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
        arriving = view.decode[d].reserved_tokens - view.decode[d].reserve_tokens
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


@jit
def may_move(view, row, kappa, cooldown_s):
    """Whether a candidate's source can send it, moving it pays, and its last move is long enough ago."""
    request = view.candidate[row]
    source = view.decode[request.source]
    if not request.valid or not source.can_send or request.since_move_s < cooldown_s:
        return False
    return request.predicted_remaining_tokens * source.step_s >= kappa * request.migrate_s


@jit
def fits(view, row, decode, safety):
    """Whether a decode instance can take a candidate, with `safety` of its predicted growth."""
    request, target = view.candidate[row], view.decode[decode]
    growth = safety * request.predicted_remaining_tokens
    needed = target.kv_tokens + target.reserved_tokens + request.kv_tokens + growth
    if request.needed_tokens > target.capacity_tokens:
        return False
    return target.can_receive and needed <= target.capacity_tokens and request.kv_tokens <= target.room_tokens


@policy(
    kind="rescheduler",
    params={
        "theta": 0.1, "theta_low": 0.1, "horizon_tokens": 0.0, "first_weight": 0.5, "kappa": 3.0, "safety": 0.5,
        "gain_min": 0.0, "cooldown_s": 5.0, "cv_trigger": 0.0,
    },
    requires=CANDIDATES,
)  # fmt: skip
def star(view, rng, params):
    """STAR: moves the decode that lowers the variance of the predicted workload most."""
    theta, theta_low, horizon_tokens, first_weight = params[0], params[1], horizon_steps(view, params[2]), params[3]
    kappa, safety, gain_min, cooldown_s, cv_trigger = params[4], params[5], params[6], params[7], params[8]
    num_decode = view.cluster[0].num_decode
    workload = np.zeros(num_decode)
    mean = fill_workload(view, horizon_tokens, first_weight, workload)
    if cv_trigger > 0.0 and variation(workload, mean) <= cv_trigger:
        return stay(view)
    best_row, best_decode, count, best_gain = -1, -1, 0, 0.0
    for row in range(num_decode * view.cluster[0].num_candidates):
        request = view.candidate[row]
        source = request.source
        if not may_move(view, row, kappa, cooldown_s) or workload[source] <= (1.0 + theta) * mean:
            continue
        load = weighted_load(request.kv_tokens, request.predicted_remaining_tokens, horizon_tokens, first_weight)
        for d in range(num_decode):
            if d == source or workload[d] >= (1.0 - theta_low) * mean or not fits(view, row, d, safety):
                continue
            gain = 2.0 * load * (workload[source] - workload[d] - load) / num_decode
            if gain <= gain_min:
                continue
            take, count = least(rng, best_row, count, -gain, -best_gain)
            if take:
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
