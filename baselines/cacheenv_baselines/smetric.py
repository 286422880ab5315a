"""`smetric`: the first turn of a session by load, later ones by cache.

Source: SMetric (arXiv 2607.08565), by a secondary summary: the paper was not read, and no code is public.
Rule: the load of a prefill instance is the tokens that are routed there and not prefilled yet.
  * First turn of a session, or none: the least loaded instance, whatever is cached. Ties at random.
  * Later turns: the instance with the longest predicted hit, of equal ones the least loaded; unless its load is beyond
    `overload` x mean load, or the hit is below `hit_share` x what the history should give. Then the least loaded.
Decode: the fewest requests in flight, ties at random. Where the cluster store has more of the prompt, and fetching it
is predicted to save time, it is pulled.
Parameters:
  overload (ratio): to the mean load; "about 2" in the summary
  hit_share (share): of the pages of the session's last prompt; OURS, the summary says "well below"
State: of each of up to 4,096 sessions its number and its last prompt, the later of two that share a place.
Ours: what the history should give is the last prompt of the session, in whole pages, without its answer; the estimate
before a fetch from the store; the decode rule. A session that lost its place begins anew.
"""

from __future__ import annotations

from cacheenv.policy import jit, least, policy, route
from cacheenv_baselines.rules import fewest_requests_decode, store_helps

SESSIONS, FIRST = 4096, 2  # places, and where they begin behind the parameters


@jit
def expected_hit(view, params):
    """Pages of the session's last prompt, in tokens, or -1 on a first turn; this prompt takes its place."""
    request, page = view.request[0], view.cluster[0].page_tokens
    if request.session < 0:
        return -1
    place = FIRST + 2 * (request.session % SESSIONS)
    known = params[place] == request.session + 1.0
    expected = int(params[place + 1]) // page * page if known else -1
    params[place], params[place + 1] = request.session + 1.0, float(request.prompt_tokens)
    return expected


@jit
def least_tokens_prefill(view, rng, hit_tokens):
    """Prefill instance with the fewest tokens to prefill among those with this hit (-1: all), ties at random."""
    best, count, best_load = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        if hit_tokens < 0 or view.prefill[i].hit_tokens == hit_tokens:
            load = view.prefill[i].inflight_new_tokens
            take, count = least(rng, best, count, load, best_load)
            if take:
                best, best_load = i, load
    return best


@policy(params={"overload": 2.0, "hit_share": 0.5}, state_size=2 * SESSIONS)
def smetric(view, rng, params):
    """SMetric: first turns to the least loaded instance, later ones to the longest hit unless it is overloaded."""
    expected = expected_hit(view, params)
    prefill = -1
    if expected >= 0:
        longest, total, num_prefill = 0, 0, view.cluster[0].num_prefill
        for i in range(num_prefill):
            total += view.prefill[i].inflight_new_tokens
            if view.prefill[i].accepts == 1:
                longest = max(longest, view.prefill[i].hit_tokens)
        if longest >= params[1] * expected:
            prefill = least_tokens_prefill(view, rng, longest)
            if view.prefill[prefill].inflight_new_tokens > params[0] * total / num_prefill:
                prefill = -1
    if prefill < 0:
        prefill = least_tokens_prefill(view, rng, -1)
    return route(view, prefill, fewest_requests_decode(view, rng), 1 if store_helps(view, prefill) else 0)
