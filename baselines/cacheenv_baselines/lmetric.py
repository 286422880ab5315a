"""`lmetric`: new prefill tokens times batch size.

Source: LMetric (arXiv 2603.15202, abstract): the instance with the smallest product of the new prefill tokens that the
request would have there and the instance's current batch size. No parameters, which is its point.
Rule: score(i) = (prompt - predicted hit on i) x requests in flight on prefill instance i; equal scores: fewer new
tokens, then the lowest index. Decode: the fewest requests in flight, of equal ones the lowest index. No pull.
Ours: the paper's instances do both phases. In a disaggregated cluster the product chooses the prefill instance, with
the requests in flight (waiting, running, handing over) as batch size; nothing is prefilled on a decode instance, where
the other factor alone is left. Tokens of waiting requests do not count as new tokens.
Quirk kept: an idle instance scores 0 whatever it has cached, so it beats any busy instance with a full hit.
"""

from __future__ import annotations

from cacheenv.policy import policy, route


@policy
def lmetric(view, rng, params):
    """Smallest product of new prefill tokens and requests in flight."""
    prefill, best_score, best_new = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        new = view.request[0].prompt_tokens - view.prefill[i].hit_tokens
        score = new * view.prefill[i].inflight_requests
        if prefill < 0 or score < best_score or (score == best_score and new < best_new):
            prefill, best_score, best_new = i, score, new
    decode = 0
    for d in range(1, view.cluster[0].num_decode):
        if view.decode[d].inflight_requests < view.decode[decode].inflight_requests:
            decode = d
    return route(view, prefill, decode, 0)
