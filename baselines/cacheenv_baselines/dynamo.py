"""`dynamo`: NVIDIA Dynamo's KV router.

Source: ai-dynamo/dynamo, read in forks: wxsms/dynamo @2a6da14c (2026-08-21, `lib/kv-router/src/scheduling/selector/`)
and michaelfeil/dynamo @fb15e20c (2025-08-20, the older form, the same where the credit does not exceed the load).
Rule: with blocks of B tokens, for each prefill instance
  * load = (new tokens of requests whose prefill has not ended + prompt) / B
  * decay = 1 / (1 + `credit_decay` x (excess of those new tokens over the least / B) / blocks of the prompt)
  * cost = `prefill_scale` x max(0, load - `overlap_weight` x decay x predicted hit / B)
Decode: cost = blocks of the requests that are assigned to the instance and have not finished, with this one +
`request_weight` x their number. The decode router takes no account of the cache, the prefill router none of decode.
In either pool the smallest cost wins, exact ties at random; with `temperature` T > 0 an instance is drawn with a
probability that goes as exp(-(cost - least) / ((largest - least) x T)).
Parameters:
  overlap_weight (ratio): credit for a cached block (`overlap_score_credit`, formerly `overlap_score_weight`)
  credit_decay (ratio): `overlap_score_credit_decay`
  prefill_scale (ratio): `prefill_load_scale`
  request_weight (blocks): `decode_active_request_weight`
  temperature (ratio): `router_temperature`
Ours: the KV of a preempted request counts as it was; requests that wait at a decode instance or are on their way count
from their assignment on, as Dynamo tracks them.
Deviations: a block is the scenario's page, and blocks of decode are not rounded up; a prefix that several running
requests share counts for each of them, where Dynamo counts its blocks once; a hit in host memory earns the full credit
(Dynamo: 0.75), as the view does not tell tiers apart; prefills on decode workers (experimental) are left out.
Quirks kept: generated tokens are not in the decode load (`track_output_blocks` is off), so long answers go unseen; the
cost is cut off at 0, which loses the order of instances whose credit exceeds their load.
"""

from __future__ import annotations

import math

import numpy as np

from cacheenv.policy import jit, least, policy, route, uniform


@jit
def cheapest(rng, costs, temperature):
    """Index of the least cost, ties at random, or at a temperature a random one that prefers small costs.

    Costs below 0 are no costs: those instances do not accept the request.
    """
    lowest, highest = math.inf, 0.0
    for cost in costs:
        if cost >= 0.0:
            lowest, highest = min(lowest, cost), max(highest, cost)
    if temperature <= 0.0 or highest <= lowest:
        best, count, best_cost = -1, 0, 0.0
        for i in range(len(costs)):
            if costs[i] < 0.0:
                continue
            take, count = least(rng, best, count, costs[i], best_cost)
            if take:
                best, best_cost = i, costs[i]
        return best
    total, scale = 0.0, (highest - lowest) * temperature
    for cost in costs:
        if cost >= 0.0:
            total += math.exp((lowest - cost) / scale)
    left, last = uniform(rng) * total, -1
    for i in range(len(costs)):
        if costs[i] < 0.0:
            continue
        last = i
        left -= math.exp((lowest - costs[i]) / scale)
        if left < 0.0:
            return i
    return last


@jit
def fill_prefill_costs(view, overlap_weight, credit_decay, prefill_scale, costs):
    """Blocks to prefill before this request is done, with the credit for what is cached."""
    prompt, block = view.request[0].prompt_tokens, view.cluster[0].page_tokens
    lowest = view.prefill[0].inflight_new_tokens
    for i in range(len(costs)):
        lowest = min(lowest, view.prefill[i].inflight_new_tokens)
    for i in range(len(costs)):
        row = view.prefill[i]
        excess = (row.inflight_new_tokens - lowest) / prompt
        credit = overlap_weight / (1.0 + credit_decay * excess) * row.hit_tokens
        costs[i] = prefill_scale * max(0.0, (row.inflight_new_tokens + prompt - credit) / block)


@jit
def fill_decode_costs(view, request_weight, costs):
    """Blocks of prompts on each decode instance, this one's included."""
    prompt, block = view.request[0].prompt_tokens, view.cluster[0].page_tokens
    for d in range(len(costs)):
        row = view.decode[d]
        tokens = row.pending_tokens + row.preempted_tokens + prompt
        costs[d] = tokens / block + request_weight * row.inflight_requests
    for j in range(view.cluster[0].num_running):
        running = view.running[j]
        costs[running.instance] += running.prompt_tokens / block


@policy(
    params={
        "overlap_weight": 1.0,
        "credit_decay": 0.0,
        "prefill_scale": 1.0,
        "request_weight": 0.0,
        "temperature": 0.0,
    },
    needs_running=True,
)
def dynamo(view, rng, params):
    """NVIDIA Dynamo: least prefill blocks less what is cached; fewest decode blocks; softmax at a temperature."""
    temperature = params[4]
    prefill_costs = np.zeros(view.cluster[0].num_prefill)
    decode_costs = np.zeros(view.cluster[0].num_decode)
    fill_prefill_costs(view, params[0], params[1], params[2], prefill_costs)
    fill_decode_costs(view, params[3], decode_costs)
    for i in range(len(prefill_costs)):
        if view.prefill[i].accepts == 0:
            prefill_costs[i] = -1.0
    for d in range(len(decode_costs)):
        if view.decode[d].accepts == 0:
            decode_costs[d] = -1.0
    return route(view, cheapest(rng, prefill_costs, temperature), cheapest(rng, decode_costs, temperature), 0)
