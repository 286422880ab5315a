"""Routers that only the experiments need: rivals and a variant of `lmetric`, and routing that sees no load.

They are no baselines: `linear_score` stands for "a weighted sum of cache and load, tuned", which LMetric (arXiv
2603.15202) is compared with, and whose terms and weights are not published; `lmetric_prefilling` for a batch that a
request leaves with its hand-over; `blind_store` for engines that query a cluster store behind a router
that sees neither caches nor loads.
"""

from __future__ import annotations

from cacheenv.policy import least, policy, random_below, route
from cacheenv_baselines.cpd import store_helps
from cacheenv_baselines.rules import fewest_requests_decode, power_of_two_decode


@policy(params={"weight": 0.5, "tokens": 0})
def linear_score(view, rng, params):
    """Smallest `weight` x unmatched share of the prompt + (1 - `weight`) x load as a share of the largest load.

    Load: requests in flight, or with `tokens` 1 the new tokens that wait or are being computed. Ties at random.
    """
    weight, by_tokens = params[0], params[1] > 0
    highest = 1
    for i in range(view.cluster[0].num_prefill):
        row = view.prefill[i]
        highest = max(highest, row.inflight_new_tokens if by_tokens else row.inflight_requests)
    prefill, count, best_score = -1, 0, 0.0
    for i in range(view.cluster[0].num_prefill):
        row = view.prefill[i]
        load = row.inflight_new_tokens if by_tokens else row.inflight_requests
        unmatched = 1.0 - row.hit_tokens / view.request[0].prompt_tokens
        score = weight * unmatched + (1.0 - weight) * load / highest
        take, count = least(rng, prefill, count, score, best_score)
        if take:
            prefill, best_score = i, score
    return route(view, prefill, fewest_requests_decode(view, rng), 0)


@policy
def lmetric_prefilling(view, rng, params):
    """As `lmetric`, but a request counts in the batch of its prefill instance until its hand-over has ended only."""
    prefill, count, best_score = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        row = view.prefill[i]
        new_tokens = row.inflight_new_tokens + view.request[0].prompt_tokens - row.hit_tokens
        score = new_tokens * (row.inflight_requests + 1)
        take, count = least(rng, prefill, count, score, best_score)
        if take:
            prefill, best_score = i, score
    return route(view, prefill, fewest_requests_decode(view, rng), 0)


@policy
def blind_store(view, rng, params):
    """A uniformly random prefill instance, which fetches a longer prefix from the store where that saves time."""
    prefill = random_below(rng, view.cluster[0].num_prefill)
    return route(view, prefill, power_of_two_decode(view, rng), 1 if store_helps(view, prefill) else 0)
