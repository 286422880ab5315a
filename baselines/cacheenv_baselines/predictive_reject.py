"""`predictive_reject`: early rejection on the decode load at the time when the request would get there.

Source: Mooncake (arXiv 2407.00079 section 7.4), Early Rejection Based on Prediction, at system level.
Rule: every request is assumed to decode for the same time t_d. For the moment t at which this one would leave prefill:
  1. Add the requests that the prefill pool finishes by t, this one included, spread evenly over the decode instances.
  2. Remove the requests whose decode time exceeds t_d by then.
  3. Decode load = mean over the decode instances of the step time of that batch / SLO between tokens.
  4. Accept while the larger of it and the prefill load (predicted TTFT / SLO) is at most `threshold`.
Parameters:
  threshold (ratio): largest load that is accepted; OURS, the paper gives none
  decode_time_s (s): t_d, to be set to the mean decode time of the workload; OURS, the paper gives none: the 343 output
    tokens of Mooncake's conversation trace at 29 ms
Ours: the requests in flight on a prefill instance are taken to leave it evenly over its backlog, so of a backlog b the
share min(1, t/b) has left by t; those that left more than t_d before t are gone from decode too; without a backlog all
are in hand-over and count. Requests that wait at a decode instance (or were preempted) count in its batch, with the
mean prompt of its requests that are not running. Growth of the KV until t is left out.
"""

from __future__ import annotations

import numpy as np

from cacheenv.policy import jit, policy, proposed_route
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
        waiting = row.waiting_requests + row.preempted_requests
        not_running = row.waiting_requests + row.pending_requests
        requests[d] = waiting + added_requests / num_decode
        tokens[d] = added_tokens / num_decode
        if not_running > 0:
            tokens[d] += waiting * row.pending_tokens / not_running
    for j in range(view.cluster[0].num_running):
        running = view.running[j]
        if running.elapsed_s + ahead_s <= decode_time_s:
            requests[running.instance] += 1.0
            tokens[running.instance] += running.kv_tokens


@policy(kind="admission", params={"threshold": 1.0, "decode_time_s": 10.0}, needs_running=True)
def predictive_reject(view, rng, params):
    """Mooncake's early rejection on the decode load predicted for the end of the request's prefill."""
    threshold, decode_time_s = params[0], params[1]
    prefill, _, pull = proposed_route(view)
    if prefill < 0:
        return 0
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
