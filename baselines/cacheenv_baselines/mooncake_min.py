"""`mooncake_min`: Mooncake's costs, and a pull only where it saves time.

Source: none, OURS: a stronger form of Algorithm 1 of Mooncake (arXiv 2407.00079 section 6), whose ratio test never
compares transfer with computing.
Rule: for each prefill instance cost = T_queue + the smaller of T_prefill(prompt, local) and
transfer + T_prefill(prompt, best); the prefix is pulled where the second is smaller. The cheapest instance is taken,
ties at random.
Decode: as `least_tbt`, which is `mooncake`'s.
Brings: an index that learns at the assignment, as `mooncake` does.
Ours: all of it. Forecasts are those of `mooncake`; the wait for the schedule counts where it is longer than the
backlog. The estimate of a transfer is for the flows that links have now.
"""

from __future__ import annotations

from cacheenv.policy import least, policy, route
from cacheenv_baselines.rules import least_tbt_decode, pull_helps, ttft_forecast_s


@policy(brings={"cluster.index.learns": "assigned"})
def mooncake_min(view, rng, params):
    """Least predicted TTFT, pulling where that is faster than computing; least predicted decode step."""
    prefill, pull, count, ttft_s = -1, 0, 0, 0.0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        pull_here = 1 if pull_helps(view, i) else 0
        cost_s = ttft_forecast_s(view, i, pull_here)
        take, count = least(rng, prefill, count, cost_s, ttft_s)
        if take:
            prefill, pull, ttft_s = i, pull_here, cost_s
    return route(view, prefill, least_tbt_decode(view, rng), pull)
