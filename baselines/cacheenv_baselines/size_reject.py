"""`size_reject`: refuse by forecast, and long prompts while the cluster is short.

Source: none, OURS. Probes of learned admission gained mostly by whom they refused: long prompts while promised KV was
near the capacity. This rule can say that in a few numbers, so that a learned gain is not taken for scheduling.
Rule: with the forecasts for the proposed route refuse where
  1. predicted TTFT > `ttft` x its SLO, or predicted step > `tbt` x the SLO between tokens, or KV tokens of the decode
     instance, resident or promised, + prompt + `reserve_tokens` > `kv` x capacity;
  2. prompt > `size` x mean prompt / pressure^`steepness`, where pressure is the largest of backlog / TTFT SLO, the used
     share of what the SLO between tokens leaves above an empty step, and resident and promised KV / capacity.
Parameters:
  ttft (ratio): see the rule; OURS
  tbt (ratio): see the rule; OURS
  kv (ratio): see the rule; OURS
  size (mean prompts): longest prompt that is accepted at pressure 1; 0 = rule 1 alone; OURS
  steepness (exponent): how fast that grows while pressure is below 1; OURS
State: number and tokens of the prompts so far.
Ours: all of it. The step counts all that is assigned to the instance, as in `least_tbt`; the SLO between tokens is the
tail SLO, else TPOT. Objectives that are not set are not checked. Without this request there is no pressure on an idle
cluster, so the longest prompt is accepted there if it can be served in time. Where admission is asked again after a
prefill, it accepts. The parameters are meant to be tuned for each scenario, on seeds that are not judged on.
"""

from __future__ import annotations

import math

from cacheenv.policy import DECISION_ADMIT, jit, policy, proposed_route
from cacheenv_baselines.rules import promised_tokens, step_forecast_s, tbt_forecast_s, tbt_slo_s, ttft_forecast_s

PROMPTS, TOKENS = 5, 6  # behind the parameters


@jit
def pressure_on(view, prefill, decode):
    """How short the two instances are of time and memory without this request; 1 is full."""
    row, slo_s = view.decode[decode], tbt_slo_s(view)
    promised = promised_tokens(view, decode)
    pressure = max(view.prefill[prefill].backlog_s / view.cluster[0].slo_ttft_s, promised / row.capacity_tokens)
    if slo_s < math.inf:
        spare_s = max(1e-9, slo_s - row.decode_d_s)
        used_s = step_forecast_s(view, decode, row.inflight_requests, promised) - row.decode_d_s
        pressure = max(pressure, used_s / spare_s)
    return pressure


@policy(
    kind="admission",
    params={"ttft": 1.0, "tbt": 1.0, "kv": 1.0, "size": 2.0, "steepness": 2.0},
    state_size=2,
)
def size_reject(view, rng, params):
    """Refuses what is predicted to be late, and under pressure the longer prompts first."""
    prefill, decode, pull = proposed_route(view)
    cluster, prompt = view.cluster[0], view.request[0].prompt_tokens
    if cluster.decision == DECISION_ADMIT:
        return 1 if prefill >= 0 else 0
    params[PROMPTS] += 1.0
    params[TOKENS] += prompt
    if prefill < 0:
        return 0
    needed = promised_tokens(view, decode) + prompt + view.decode[decode].reserve_tokens
    if ttft_forecast_s(view, prefill, pull) > params[0] * cluster.slo_ttft_s:
        return 0
    if tbt_forecast_s(view, decode) > params[1] * tbt_slo_s(view):
        return 0
    if needed > params[2] * view.decode[decode].capacity_tokens:
        return 0
    size, pressure = params[3], pressure_on(view, prefill, decode)
    if size <= 0.0 or pressure <= 0.0:
        return 1
    limit = size * params[TOKENS] / params[PROMPTS]
    return 1 if prompt * pressure ** params[4] <= limit else 0
