"""`preble`: exploit long matches, explore by the load of a window.

Source: Preble (arXiv 2407.00023), E2 scheduling; code WukLab/preble @8e7906a3, `preble/global_scheduler_with_time.py`.
Of the paper's text a summary was read.
Rule: the load of a prefill instance is the seconds of prefill that were sent to it within the last `window_s`.
  * Exploit, where the longest predicted hit is longer than the rest of the prompt: the instances with that hit, of
    those the least loaded. Ties at random.
  * Explore otherwise: the least loaded of all.
  * Rebalance: once `warmup_requests` an instance have been sent, and the heaviest load exceeds `balance` x the
    lightest, what would go to the heaviest goes to the lightest.
Decode: the fewest requests in flight, ties at random. No pull.
Parameters:
  window_s (s): what counts as load
  balance (ratio): heaviest to lightest beyond which requests are redirected; 0 = never
  warmup_requests (requests): an instance, before the first redirection
State: seconds sent to each of 256 instances in each of 12 parts of the window; further instances share.
Ours: the sum over prefixes of miss rate x hits x prefill time / holders is taken as what it stands for, the predicted
prefill seconds of the requests that were sent. Of equal loads a random instance, where the code takes the first.
Deviations: hits are the index's, where Preble keeps a tree of its own; the window moves in twelfths; the term of
decoding (active requests x median output x median time a token) is left to the decode choice, where it is the number of
requests; the cost of what an eviction would lose is left out; rebalancing redirects requests one by one instead of
moving the cheapest prefixes, and a single dominating prefix is not replicated on purpose (a redirected request does).
Quirk kept: load is history; what waits now is not looked at.
"""

from __future__ import annotations

from cacheenv.policy import jit, least, policy, route
from cacheenv_baselines.rules import fewest_requests_decode

PARTS, INSTANCES = 12, 256
NOW, FIRST = 3, 4  # behind the parameters: the part that is written, the seconds


@jit
def advance(params, part):
    """Empties the parts of the window that have passed since the last request."""
    passed = int(min(float(PARTS), part - params[NOW]))
    for back in range(passed):
        at = FIRST + (part - back) % PARTS * INSTANCES
        params[at : at + INSTANCES] = 0.0
    params[NOW] = float(part)


@jit
def window_load_s(params, instance):
    """Seconds of prefill that were sent to an instance within the window."""
    total_s = 0.0
    for part in range(PARTS):
        total_s += params[FIRST + part * INSTANCES + instance % INSTANCES]
    return total_s


@jit
def lightest_with(view, rng, params, hit_tokens):
    """Prefill instance with the least load among those with this hit (-1: all), ties at random."""
    best, count, best_load = -1, 0, 0.0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        if hit_tokens < 0 or view.prefill[i].hit_tokens == hit_tokens:
            load = window_load_s(params, i)
            take, count = least(rng, best, count, load, best_load)
            if take:
                best, best_load = i, load
    return best


@jit
def is_heaviest(view, params, prefill, balance, warmup_requests):
    """Whether an instance has the heaviest load, and that is beyond the balance."""
    sent, lightest_s, heaviest_s = 0, 1e300, 0.0
    for i in range(view.cluster[0].num_prefill):
        load = window_load_s(params, i)
        lightest_s, heaviest_s = min(lightest_s, load), max(heaviest_s, load)
        sent += view.prefill[i].dispatched_requests
    if balance <= 0.0 or sent < warmup_requests * view.cluster[0].num_prefill:
        return False
    return heaviest_s > balance * lightest_s and window_load_s(params, prefill) == heaviest_s


@policy(
    params={"window_s": 180.0, "balance": 1.5, "warmup_requests": 50},
    state_size=1 + PARTS * INSTANCES,
)
def preble(view, rng, params):
    """Preble E2: long matches to their holders, others to the least load of three minutes, and a balance of both."""
    part = int(view.cluster[0].now_s / params[0] * PARTS)
    advance(params, part)
    longest = 0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        longest = max(longest, view.prefill[i].hit_tokens)
    exploits = 2 * longest > view.request[0].prompt_tokens
    prefill = lightest_with(view, rng, params, longest if exploits else -1)
    if is_heaviest(view, params, prefill, params[1], params[2]):
        prefill = lightest_with(view, rng, params, -1)
    params[FIRST + part % PARTS * INSTANCES + prefill % INSTANCES] += view.prefill[prefill].prefill_s
    return route(view, prefill, fewest_requests_decode(view, rng), 0)
