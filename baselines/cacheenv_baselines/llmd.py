"""`llmd_approx`, `llmd_precise`: weighted scorers of llm-d.

Source: llm-d/llm-d-inference-scheduler @520af478 (2026-05-17), `pkg/epp/framework/plugins/`; the weights are those of
its sample configurations (prefill-decode: prefix 2, queue 1; precise prefix: prefix 2, KV utilisation 1, queue 1).
Rule: score(i) = sum of weight x scorer, each scorer from 0 to 1; the largest sum wins, ties at random (`max-score`):
  * prefix: the predicted hit / the prompt, both at most `max_prefix_tokens`;
  * queue: (most waiting - waiting on i) / (most - fewest), 1 where all are equal;
  * KV utilisation: 1 - share of the KV memory in use by requests.
Decode: the same sum without the prefix. Waiting are those whose KV has arrived and those that were preempted.
Parameters:
  prefix_weight (weight): of the prefix scorer
  queue_weight (weight): of the queue scorer
  kv_weight (weight): of the utilisation scorer
  max_prefix_tokens (tokens): prompt that is hashed at most: 256 blocks of 16 tokens; 0 = all of it
Variants: `llmd_approx` goes by what it remembers to have sent (31,250 blocks of 16 tokens an instance) and has no
utilisation scorer; `llmd_precise` by the index, which engines feed.
Brings: `llmd_approx` a router memory of 500,000 tokens an instance.
Ours: on a prefill instance memory is in use by the requests of its batch and in hand-over, at the mean prompt of those
that are there: cached pages that nobody uses are free to an engine.
Deviations: the memory works in pages, and forgets tails before heads (llm-d-router#2661; before it, heads went first
and made the rest useless); it counts unbroken prefixes only, where the approximate index counts blocks behind a gap
that another pod fills; a hit in host memory scores as one on the GPU (llm-d: 0.8); decode pods keep no prefixes here,
so their prefix scorer is 0 everywhere; every prompt is prefilled apart (the decider's default).
Quirks kept: `llmd_approx` cannot tell apart two instances that both have the first 4,096 tokens; the waiting queue of
an engine is all the load that it sees, so a long batch that runs counts for nothing, and where nobody waits decode is
uniformly random; scores are relative, so one waiting request more weighs as much as a hundred.
"""

from __future__ import annotations

from cacheenv.policy import jit, least, policy, route


@jit
def queue_score(waiting, fewest, most):
    """1 for the shortest queue, 0 for the longest."""
    return (most - waiting) / (most - fewest) if most > fewest else 1.0


@jit
def kv_score(used_tokens, capacity_tokens):
    """Share of the KV memory that requests leave free."""
    return max(0.0, 1.0 - used_tokens / capacity_tokens) if capacity_tokens > 0 else 0.0


@jit
def prefix_score(view, prefill, max_prefix_tokens, remembered):
    """Share of the hashed part of the prompt that an instance has."""
    row, prompt = view.prefill[prefill], view.request[0].prompt_tokens
    hit = row.memory_hit_tokens if remembered else row.hit_tokens
    counted = min(float(prompt), max_prefix_tokens) if max_prefix_tokens > 0.0 else float(prompt)
    return min(1.0, hit / counted)


@jit
def best_prefill(view, rng, weights, remembered):
    """Prefill instance with the largest sum; `weights`: prefix, queue, KV, and the longest prefix in tokens."""
    fewest, most = view.prefill[0].queued_requests, view.prefill[0].queued_requests
    for i in range(view.cluster[0].num_prefill):
        fewest, most = min(fewest, view.prefill[i].queued_requests), max(most, view.prefill[i].queued_requests)
    best, count, best_score = -1, 0, 0.0
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        row = view.prefill[i]
        there = max(1, row.inflight_requests)
        used = row.inflight_tokens * (there - min(there, row.queued_requests)) / there
        score = weights[0] * prefix_score(view, i, weights[3], remembered)
        score += weights[1] * queue_score(row.queued_requests, fewest, most)
        score += weights[2] * kv_score(used, row.cache_capacity_tokens)
        take, count = least(rng, best, count, -score, -best_score)
        if take:
            best, best_score = i, score
    return best


@jit
def waiting_at(view, decode):
    """Requests that wait at a decode instance."""
    return view.decode[decode].waiting_requests + view.decode[decode].preempted_requests


@jit
def best_decode(view, rng, queue_weight, kv_weight):
    """Decode instance with the largest sum."""
    fewest, most = waiting_at(view, 0), waiting_at(view, 0)
    for d in range(view.cluster[0].num_decode):
        fewest, most = min(fewest, waiting_at(view, d)), max(most, waiting_at(view, d))
    best, count, best_score = -1, 0, 0.0
    for d in range(view.cluster[0].num_decode):
        if view.decode[d].accepts == 0:
            continue
        row = view.decode[d]
        score = queue_weight * queue_score(waiting_at(view, d), fewest, most)
        score += kv_weight * kv_score(row.kv_tokens, row.capacity_tokens)
        take, count = least(rng, best, count, -score, -best_score)
        if take:
            best, best_score = d, score
    return best


BLOCK_TOKENS = 16
WEIGHTS = {"prefix_weight": 2.0, "queue_weight": 1.0, "kv_weight": 0.0, "max_prefix_tokens": 256.0 * BLOCK_TOKENS}


@policy(params=WEIGHTS, brings={"cluster.index.memory_tokens": 31_250 * BLOCK_TOKENS})
def llmd_approx(view, rng, params):
    """llm-d with its approximate prefix index: prefix 2, queue 1."""
    return route(view, best_prefill(view, rng, params, True), best_decode(view, rng, params[1], params[2]), 0)


@policy(params={**WEIGHTS, "kv_weight": 1.0, "max_prefix_tokens": 0.0})
def llmd_precise(view, rng, params):
    """llm-d with the engines' prefix index: prefix 2, KV utilisation 1, queue 1."""
    return route(view, best_prefill(view, rng, params, False), best_decode(view, rng, params[1], params[2]), 0)
