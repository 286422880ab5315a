"""`kv_reject`: refuse at arrival what would wait too long for room in decode memory, or run in steps that are too long.

Source: none, OURS. Admission on loads of time (`early_reject`) does not see decode memory: where a full memory still
steps fast enough, requests are late because they wait for room, or are thrown out of the batch.
Rule: refuse where the predicted TTFT of the proposed route is beyond its SLO. Then, for the proposed decode instance:
  1. Predict who runs there when this request leaves prefill: the running requests that are not done by then, with the
     tokens that they make until then, and all that are preempted, waiting or on their way.
  2. With the step time of that batch and this request, find how long it may wait at most and still meet its TPOT and
     the mean of its worst tenth of gaps, for its predicted output. Refuse where not at all.
  3. Predict the same batch at the end of that wait. Refuse where its tokens, this request's prompt and
     `reserve_tokens` for each exceed `threshold` of the capacity.
Parameters:
  threshold (ratio): share of the capacity that may be filled; OURS
Ours: all of it. Requests that are not running yet are taken to stay until the end of the wait, and their growth is left
out. Objectives that are not set are not checked. Where admission is asked again after a prefill, it accepts.
"""

from __future__ import annotations

import math

from cacheenv.policy import DECISION_ADMIT, jit, policy, proposed_route
from cacheenv_baselines.rules import step_forecast_s, ttft_forecast_s


@jit
def batch_at(view, decode, after_s, step_s):
    """(requests, KV tokens) of an instance after `after_s` seconds in steps of `step_s`, this request left out."""
    row = view.decode[decode]
    not_running = row.waiting_requests + row.preempted_requests + row.pending_requests
    on_their_way = row.pending_tokens - (row.waiting_tokens - row.waiting_requests)  # prompts of the pending ones
    requests, tokens = float(not_running), float(row.waiting_tokens + row.preempted_tokens + on_their_way)
    steps = after_s / step_s
    for j in range(view.cluster[0].num_running):
        running = view.running[j]
        if running.instance == decode and running.predicted_remaining_tokens > steps:
            requests += 1.0
            tokens += running.kv_tokens + steps
    return requests, tokens


@jit
def longest_wait_s(view, step_s):
    """How long this request may wait between its first token and its first step; negative where steps are too long."""
    cluster = view.cluster[0]
    gaps = max(1.0, view.request[0].predicted_output_tokens - 1.0)
    worst = math.ceil(gaps / 10.0)
    for_mean_s = gaps * (cluster.slo_tpot_s - step_s)
    for_tail_s = worst * (cluster.slo_tbt_tail_s - step_s)  # the first gap holds the wait, so it is one of the worst
    return min(for_mean_s, for_tail_s)


@policy(kind="admission", params={"threshold": 1.0}, needs_running=True)
def kv_reject(view, rng, params):
    """Refuses what decode memory would make late."""
    prefill, decode, pull = proposed_route(view)
    if prefill < 0:
        return 0
    cluster, row = view.cluster[0], view.decode[decode]
    if cluster.decision == DECISION_ADMIT:
        return 1
    ahead_s = ttft_forecast_s(view, prefill, pull)
    if ahead_s > cluster.slo_ttft_s:
        return 0
    if math.isinf(cluster.slo_tpot_s) and math.isinf(cluster.slo_tbt_tail_s):
        return 1
    prompt_tokens = view.request[0].prompt_tokens
    step_s = max(row.step_s, step_forecast_s(view, decode, 1, prompt_tokens))
    requests, tokens = batch_at(view, decode, ahead_s, step_s)
    step_s = step_forecast_s(view, decode, requests + 1, min(tokens + prompt_tokens + 1, row.capacity_tokens))
    wait_s = longest_wait_s(view, step_s)
    if wait_s < 0.0:
        return 0
    requests, tokens = batch_at(view, decode, ahead_s + wait_s, step_s)
    needed = tokens + prompt_tokens + 1 + row.reserve_tokens * (requests + 1)
    return 1 if requests == 0 or needed <= params[0] * row.capacity_tokens else 0
