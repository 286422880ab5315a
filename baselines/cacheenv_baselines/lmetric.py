"""`lmetric`: new prefill tokens times batch size.

Source: LMetric (OSDI'26, arXiv 2603.15202) sections 5.1 and 7; of its text, two notes on the whole paper and one
implementation for the SGLang gateway (wall96/sglang-router-simple-is-better @cace6eff, `policies/lmetric.rs`) were
read, which agree.
Rule: score(i) = P-token(i) x (BS(i) + 1), the smallest wins, ties at random. P-token = new prefill tokens that wait on
instance i or are being computed there + (prompt - predicted hit on i). BS = requests on instance i, waiting or running;
this one is the + 1. No parameters, which is its point. No pull.
Ours: the paper's instances do both phases, and it does not test the score where they are apart. Here the product
chooses the prefill instance, with the requests that were sent there and whose answer has not ended as BS: that is the
load of a prefill worker in the gateway of the implementation (it is held until the stream ends), and on an instance of
both phases it is the batch. Nothing is prefilled on a decode instance, so its P-token is 0 everywhere and the other
factor alone is left: the fewest requests in flight.
Deviations: waiting tokens go when the prefill of their request ends, not chunk by chunk; the paper's detector of hot
prefixes (section 5.2, a filter that it found hardly ever needed) is left out.
"""

from __future__ import annotations

from cacheenv.policy import least, policy, route
from cacheenv_baselines.rules import fewest_requests_decode


@policy
def lmetric(view, rng, params):
    """Smallest product of new prefill tokens, waiting ones included, and batch size with this request."""
    prefill, count, best_score = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        row = view.prefill[i]
        if row.accepts == 0:
            continue
        new_tokens = row.inflight_new_tokens + view.request[0].prompt_tokens - row.hit_tokens
        score = new_tokens * (row.unfinished_requests + 1)
        take, count = least(rng, prefill, count, score, best_score)
        if take:
            prefill, best_score = i, score
    return route(view, prefill, fewest_requests_decode(view, rng), 0)
