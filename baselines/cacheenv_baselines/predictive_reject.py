"""`predictive_reject`: early rejection on the decode load at the time when the request would get there.

Source: Mooncake (arXiv 2407.00079 section 7.4), Early Rejection Based on Prediction, at system level.
Rule: every request is assumed to decode for the same time t_d. For the moment t at which this one would leave prefill:
  1. Add the requests that the prefill pool finishes by t, this one included, spread evenly over the decode instances.
  2. Remove the requests whose decode time exceeds t_d by then.
  3. Decode load = mean over the decode instances of the step time of that batch / SLO between tokens.
  4. Accept while the larger of it and the prefill load (predicted TTFT / SLO) is at most `threshold`.
Parameters:
  threshold (ratio): largest load that is accepted; OURS, the paper gives none
  decode_time_s (s): t_d; OURS, the paper gives none: 0 takes what has been observed
Ours: the requests in flight on a prefill instance are taken to leave it evenly over its backlog, so of a backlog b the
share min(1, t/b) has left by t; those that left more than t_d before t are gone from decode too; without a backlog all
are in hand-over and count. Requests that wait at a decode instance (or were preempted) count in its batch. Growth of
the KV until t is left out. The observed t_d is the decode time of the requests that one finds decoding: of those that
have ended the sum of the squares over the sum. With their plain mean the rule takes long ones for gone that run on, as
the short ones among those of their age have left already, and it refuses next to nothing. Until one has ended nobody is
taken to leave. Where admission is asked again after a prefill, it accepts.
"""

from __future__ import annotations

import math

import numpy as np

from cacheenv.policy import DECISION_ADMIT, jit, policy, proposed_route
from cacheenv_baselines.rules import step_forecast_s, tbt_slo_s, ttft_forecast_s


@jit
def share_decoding(backlog_s, ahead_s, decode_time_s):
    """Share of the requests in flight on a prefill instance that will be decoding `ahead_s` from now."""
    if backlog_s <= 0.0:
        return 1.0 if ahead_s <= decode_time_s else 0.0
    left_by = min(backlog_s, ahead_s)
    gone_by = min(backlog_s, max(0.0, ahead_s - decode_time_s))
    return (left_by - gone_by) / backlog_s


@jit
def forecast_batches(view, ahead_s, decode_time_s, requests, tokens):
    """Fills each decode instance's batch `ahead_s` from now, this request in it: requests and their KV tokens."""
    num_decode = view.cluster[0].num_decode
    added_requests, added_tokens = 1.0, float(view.request[0].prompt_tokens)
    for i in range(view.cluster[0].num_prefill):
        share = share_decoding(view.prefill[i].backlog_s, ahead_s, decode_time_s)
        added_requests += share * view.prefill[i].inflight_requests
        added_tokens += share * view.prefill[i].inflight_tokens
    for d in range(num_decode):
        row = view.decode[d]
        requests[d] = row.waiting_requests + row.preempted_requests + added_requests / num_decode
        tokens[d] = row.waiting_tokens + row.preempted_tokens + added_tokens / num_decode
    for j in range(view.cluster[0].num_running):
        running = view.running[j]
        if running.elapsed_s + ahead_s <= decode_time_s:
            requests[running.instance] += 1.0
            tokens[running.instance] += running.kv_tokens


@policy(kind="admission", params={"threshold": 1.0, "decode_time_s": 0.0}, needs_running=True)
def predictive_reject(view, rng, params):
    """Mooncake's early rejection on the decode load predicted for the end of the request's prefill."""
    threshold, decode_time_s = params[0], params[1]
    prefill, _, pull = proposed_route(view)
    if prefill < 0:
        return 0
    if view.cluster[0].decision == DECISION_ADMIT:
        return 1
    if decode_time_s <= 0.0:
        decode_time_s = view.cluster[0].decode_time_s if view.cluster[0].decoded_requests > 0 else math.inf
    num_decode = view.cluster[0].num_decode
    ahead_s = ttft_forecast_s(view, prefill, pull)
    requests, tokens = np.zeros(num_decode), np.zeros(num_decode)
    forecast_batches(view, ahead_s, decode_time_s, requests, tokens)
    step_s = 0.0
    for d in range(num_decode):
        step_s += step_forecast_s(view, d, requests[d], tokens[d])
    decode_load = step_s / num_decode / tbt_slo_s(view)
    prefill_load = ahead_s / view.cluster[0].slo_ttft_s
    return 1 if max(prefill_load, decode_load) <= threshold else 0
