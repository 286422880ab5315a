"""`mooncake`, `mooncake_local`: Algorithm 1 of Mooncake, with and without pulling prefixes.

Source: Mooncake (arXiv 2407.00079 section 6; FAST'25 section 4), Algorithm 1. There is no reference code of it.
Rule: for each prefill instance i, with the longest prefix match anywhere, `best`, and the match on i, `local`:
  * best / local > `threshold`: cost = transfer + T_queue + T_prefill(prompt, best), and the prefix is pulled;
  * else: cost = T_queue + T_prefill(prompt, local).
  * The cheapest instance is taken, of equal ones a random one. A pulled copy stays there, which is how hot prefixes
    spread.
Decode: the smallest predicted time between tokens, so that the SLO is met if any instance meets it. The predicted step
counts the running batch, every request that is assigned to the instance, and this one; of equal ones a random one.
Parameters:
  threshold (ratio): see the rule; OURS, the paper tunes it by hand and gives no value
  reject (0 or 1): 1 refuses a request whose predicted TTFT or step is beyond its SLO, as Algorithm 1 does
  pulls (0 or 1): 0 is the paper's "local cache aware"
Ours: where the paper leaves it open, ties are broken at random, local = 0 < best means an infinite ratio (pull), 0 / 0
means no pull; the ratio test is strict, as in the FAST version; T_queue is `backlog_s`: predicted prefill time of the
waiting requests, what is left of the running batch, and of a prompt that runs in chunks.
Deviations: Algorithm 1 refuses requests, by default this one does not, because admission is a policy of its own here
(`mooncake+early_reject`); the sources of a pull include the cluster store where the scenario has one.
Brings: an index that learns at the assignment, as the paper's Conductor changes its view of an instance's cache when
it assigns a request to it. A prefix that is still in an instance's queue counts as a hit there; the wait for it is in
T_queue. How such an entry ends, and that `best` is of pages that are stored and could be sent, is ours
(`docs/simulator.md`).
Quirk kept: transfer is never compared with computing, so over a slow link the rule can be worse than not pulling.
"""

from __future__ import annotations

from dataclasses import replace

from cacheenv.policy import jit, least, policy, reject, route
from cacheenv_baselines.rules import least_tbt_decode, tbt_forecast_s, tbt_slo_s, ttft_forecast_s


@jit
def wants_pull(view, prefill, threshold):
    """Algorithm 1's test best / local > threshold; infinite for local = 0 < best, false for 0 / 0."""
    row = view.prefill[prefill]
    return row.hit_tokens + row.pull_tokens > threshold * row.hit_tokens


@policy(params={"threshold": 1.5, "reject": 0, "pulls": 1}, brings={"cluster.index.learns": "assigned"})
def mooncake(view, rng, params):
    """Mooncake's Algorithm 1: least predicted TTFT, pulling prefixes; least predicted decode step."""
    threshold, may_reject, pulls = params[0], params[1], params[2]
    prefill, pull, count, ttft_s = -1, 0, 0, 0.0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        pull_here = 1 if pulls > 0 and wants_pull(view, i, threshold) else 0
        cost_s = ttft_forecast_s(view, i, pull_here)
        take, count = least(rng, prefill, count, cost_s, ttft_s)
        if take:
            prefill, pull, ttft_s = i, pull_here, cost_s
    decode = least_tbt_decode(view, rng)
    if may_reject > 0 and view.cluster[0].allow_reject:
        if ttft_s > view.cluster[0].slo_ttft_s or tbt_forecast_s(view, decode) > tbt_slo_s(view):
            return reject(view)
    return route(view, prefill, decode, pull)


mooncake_local = replace(
    mooncake.with_params(pulls=0),
    name="mooncake_local",
    description="Mooncake's Algorithm 1 without transfers: each instance counts its own cache only.",
)
