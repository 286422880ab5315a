"""`aibrix`: the prefix-cache strategy of AIBrix.

Source: vllm-project/aibrix @e3e10f9e (2026-08-22), `pkg/plugins/gateway/algorithms` (`prefix-cache`) and
`pkg/utils/prefixcacheindexer`; the code's defaults, not the README's (16 and 2).
Rule: over the prefill instances, running = requests in flight there:
  1. If most - fewest > `imbalance_requests`, only the instances with the fewest are candidates.
  2. Of the candidates that the router remembers to have sent some of this prefix to, the longest match first and of
     equal ones the fewest running, the first whose running is at most mean + `load_factor` x standard deviation of all.
  3. Where there is none, the fewest running of all. Ties at random.
Decode: the fewest requests in flight (`least-request`), ties at random. No pull.
Parameters:
  imbalance_requests (requests): difference beyond which only load counts
  load_factor (standard deviations): how far above the mean a matched instance may be
Brings: router memory of 800,000 tokens an instance.
Ours: the size of the memory. AIBrix keeps 200,000 blocks of 4 units, of all pods together; a unit is taken for a token.
The decode rule: the strategy is for engines of both phases, its own for separate pools is another (`pd`).
Deviations: the memory works in pages; its entries do not age (AIBrix: 20 minutes).
Quirk kept: any longer match wins over any load below the bound, be it longer by one page of a hundred.
"""

from __future__ import annotations

import math

from cacheenv.policy import jit, least, policy, route
from cacheenv_baselines.rules import ANY_ROLE, fewest_requests_decode, fewest_requests_prefill


@jit
def running_statistics(view):
    """(fewest, most, mean, standard deviation) of the requests in flight on the prefill instances."""
    fewest, most = view.prefill[0].inflight_requests, view.prefill[0].inflight_requests
    total, squares, num_prefill = 0.0, 0.0, view.cluster[0].num_prefill
    for i in range(num_prefill):
        running = view.prefill[i].inflight_requests
        fewest, most = min(fewest, running), max(most, running)
        total += running
        squares += float(running) * running
    mean = total / num_prefill
    return fewest, most, mean, math.sqrt(max(0.0, squares / num_prefill - mean * mean))


@policy(
    params={"imbalance_requests": 8, "load_factor": 1.0},
    brings={"cluster.index.memory_tokens": 200_000 * 4},
)
def aibrix(view, rng, params):
    """AIBrix prefix-cache: longest match among instances that are not loaded beyond the others, else least loaded."""
    fewest, most, mean, deviation = running_statistics(view)
    only_idlest = most - fewest > params[0]
    bound = mean + params[1] * deviation
    prefill, count, match, load = -1, 0, 0, 0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        row = view.prefill[i]
        running, found = row.inflight_requests, row.memory_hit_tokens
        if found == 0 or running > bound or (only_idlest and running > fewest):
            continue
        if prefill >= 0 and found != match:
            take, ties = found > match, 1
        else:
            take, ties = least(rng, prefill, count, running, load)
        if take:
            prefill, match, load = i, found, running
        if take or found == match:
            count = ties
    if prefill < 0:
        prefill = fewest_requests_prefill(view, rng, ANY_ROLE, False)
    return route(view, prefill, fewest_requests_decode(view, rng), 0)
