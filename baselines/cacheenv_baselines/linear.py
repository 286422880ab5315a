"""`linear`: a weighted sum of cache and load.

Source: none that is complete. Weighted sums are what gateways mostly have and what LMetric (OSDI'26, arXiv 2603.15202)
is compared with; terms and weights of those are not published.
Rule: score(i) = `unmatched` x share of the prompt that i does not have, as predicted
+ `requests` x requests in flight on i / the most on any
+ `tokens` x new tokens that wait or are being computed on i / the most on any.
The smallest wins, ties at random. No pull.
Decode: the smallest `decode_requests` x requests in flight / the most on any + `decode_tokens` x resident and promised
KV tokens / the most on any; ties at random.
Parameters:
  unmatched (weight): of the share of the prompt that is not cached; OURS
  requests (weight): of the requests in flight; OURS
  tokens (weight): of the new tokens in flight; OURS
  decode_requests (weight): of the requests of a decode instance; OURS
  decode_tokens (weight): of its KV tokens; OURS
Ours: the terms, and weights that are to be tuned for each scenario and rate.
"""

from __future__ import annotations

from cacheenv.policy import jit, least, policy, route
from cacheenv_baselines.rules import promised_tokens


@jit
def linear_prefill(view, rng, unmatched, requests, tokens):
    """Prefill instance with the smallest sum, ties at random."""
    most_requests, most_tokens = 1, 1
    for i in range(view.cluster[0].num_prefill):
        most_requests = max(most_requests, view.prefill[i].inflight_requests)
        most_tokens = max(most_tokens, view.prefill[i].inflight_new_tokens)
    best, count, best_score = -1, 0, 0.0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        row = view.prefill[i]
        score = unmatched * (1.0 - row.hit_tokens / view.request[0].prompt_tokens)
        score += requests * row.inflight_requests / most_requests + tokens * row.inflight_new_tokens / most_tokens
        take, count = least(rng, best, count, score, best_score)
        if take:
            best, best_score = i, score
    return best


@jit
def linear_decode(view, rng, requests, tokens):
    """Decode instance with the smallest sum, ties at random."""
    most_requests, most_tokens = 1, 1
    for d in range(view.cluster[0].num_decode):
        most_requests = max(most_requests, view.decode[d].inflight_requests)
        most_tokens = max(most_tokens, promised_tokens(view, d))
    best, count, best_score = -1, 0, 0.0
    for d in range(view.cluster[0].num_decode):
        if view.decode[d].accepts == 0:
            continue
        score = requests * view.decode[d].inflight_requests / most_requests
        score += tokens * promised_tokens(view, d) / most_tokens
        take, count = least(rng, best, count, score, best_score)
        if take:
            best, best_score = d, score
    return best


@policy(params={"unmatched": 0.5, "requests": 0.0, "tokens": 0.5, "decode_requests": 1.0, "decode_tokens": 0.0})
def linear(view, rng, params):
    """Smallest weighted sum of unmatched prompt, requests and waiting tokens; of requests and KV for decode."""
    prefill = linear_prefill(view, rng, params[0], params[1], params[2])
    return route(view, prefill, linear_decode(view, rng, params[3], params[4]), 0)
