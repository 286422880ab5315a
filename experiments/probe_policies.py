"""Routers that only the experiments need: a variant of `lmetric`, and routing that sees no load.

They are no baselines: `lmetric_prefilling` stands for a batch that a request leaves with its hand-over; `blind_store`
for engines that query a cluster store behind a router that sees neither caches nor loads.
"""

from __future__ import annotations

from cacheenv.policy import least, policy, random_below, route
from cacheenv_baselines.rules import fewest_requests_decode, power_of_two_decode, store_helps


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
