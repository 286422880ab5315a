"""Pieces that several schedulers share: who is least loaded, cache_aware, forecasts of TTFT and TBT.

An instance's load as a router counts it is `inflight_requests`: raised inside the decision, so that requests of the
same instant see each other, and lowered once, when the hand-over (prefill) or the request (decode) ends. The SGLang
gateway lowers that of a prefill instance when the request ends: `unfinished_requests`.
"""

from __future__ import annotations

import math

from cacheenv.policy import jit, least, random_below

ANY_ROLE = -1


@jit
def two_choices(rng, count):
    """Two distinct random numbers below `count`, or (0, 0) where there is only one."""
    first = random_below(rng, count)
    if count == 1:
        return first, first
    second = random_below(rng, count - 1)
    if second >= first:
        second += 1
    return first, second


@jit
def nth_prefill(view, place):
    """The prefill instance at this place among those that accept the request; mostly all do."""
    if view.cluster[0].accepting_prefill == view.cluster[0].num_prefill:
        return place
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 1:
            if place == 0:
                return i
            place -= 1
    return -1


@jit
def nth_decode(view, place):
    """The same of the decode instances."""
    if view.cluster[0].accepting_decode == view.cluster[0].num_decode:
        return place
    for d in range(view.cluster[0].num_decode):
        if view.decode[d].accepts == 1:
            if place == 0:
                return d
            place -= 1
    return -1


@jit
def has_role(view, prefill, role):
    """Whether a prefill instance accepts the request and has this role (`ANY_ROLE`: all have)."""
    row = view.prefill[prefill]
    return row.accepts == 1 and (role == ANY_ROLE or row.role == role)


@jit
def fewest_requests_prefill(view, rng, role, unfinished):
    """Prefill instance of this role with the fewest requests, ties at random; -1 if there is none.

    `unfinished`: those whose answer has not ended, else those whose hand-over has not.
    """
    best, count, best_load = -1, 0, 0
    for i in range(view.cluster[0].num_prefill):
        if has_role(view, i, role):
            load = view.prefill[i].unfinished_requests if unfinished else view.prefill[i].inflight_requests
            take, count = least(rng, best, count, load, best_load)
            if take:
                best, best_load = i, load
    return best


@jit
def least_backlog_prefill(view, rng, role):
    """Prefill instance of this role with the smallest backlog in seconds, ties at random; -1 if there is none."""
    best, count, best_load = -1, 0, 0.0
    for i in range(view.cluster[0].num_prefill):
        if has_role(view, i, role):
            load = view.prefill[i].backlog_s
            take, count = least(rng, best, count, load, best_load)
            if take:
                best, best_load = i, load
    return best


@jit
def fewest_requests_decode(view, rng):
    """Decode instance with the fewest requests assigned and not finished, ties at random."""
    best, count, best_load = -1, 0, 0
    for d in range(view.cluster[0].num_decode):
        if view.decode[d].accepts == 0:
            continue
        load = view.decode[d].inflight_requests
        take, count = least(rng, best, count, load, best_load)
        if take:
            best, best_load = d, load
    return best


@jit
def power_of_two_decode(view, rng):
    """The less loaded of two random decode instances, the first drawn on equality."""
    first, second = two_choices(rng, view.cluster[0].accepting_decode)
    first, second = nth_decode(view, first), nth_decode(view, second)
    return first if view.decode[first].inflight_requests <= view.decode[second].inflight_requests else second


@jit
def promised_tokens(view, decode):
    """KV tokens of a decode instance: resident in the batch, or promised by requests that are on their way."""
    return view.decode[decode].kv_tokens + view.decode[decode].pending_tokens


@jit
def fewest_tokens_decode(view, rng):
    """Decode instance with the fewest resident and promised KV tokens, ties at random."""
    best, count, best_load = -1, 0, 0
    for d in range(view.cluster[0].num_decode):
        if view.decode[d].accepts == 0:
            continue
        load = promised_tokens(view, d)
        take, count = least(rng, best, count, load, best_load)
        if take:
            best, best_load = d, load
    return best


@jit
def cache_aware(view, rng, role, cache_threshold, balance_abs, balance_rel):
    """SGLang gateway's cache_aware rule over the prefill instances of one role; see :mod:`cacheenv_baselines.sglang`.

    Returns -1 if no instance has the role.
    """
    lowest, highest, match, owner = -1, -1, 0, -1
    for i in range(view.cluster[0].num_prefill):
        if has_role(view, i, role):
            load = view.prefill[i].unfinished_requests
            lowest = load if lowest < 0 else min(lowest, load)
            highest = max(highest, load)
            if view.prefill[i].memory_hit_tokens > match:
                match, owner = view.prefill[i].memory_hit_tokens, i
    if highest - lowest > balance_abs and highest > lowest * balance_rel:
        return fewest_requests_prefill(view, rng, role, True)
    if owner >= 0 and match > cache_threshold * view.request[0].prompt_tokens:
        remembered = view.request[0].memory_instance
        if remembered >= 0 and has_role(view, remembered, role):
            if view.prefill[remembered].memory_hit_tokens == match:
                return remembered
        return owner
    return fewest_requests_prefill(view, rng, role, True)


@jit
def ttft_forecast_s(view, prefill, pull):
    """Predicted TTFT on a prefill instance: its backlog, the transfer if prefixes are pulled, the prefill.

    The schedule passes while others are computed; a decode instance that delivers the first token takes its time too.
    """
    row = view.prefill[prefill]
    ahead_s = max(row.backlog_s, view.cluster[0].schedule_s) + row.delivery_s
    if pull and row.pull_tokens > 0:
        return ahead_s + row.transfer_s + row.prefill_pull_s
    return ahead_s + row.prefill_s


@jit
def pull_helps(view, prefill):
    """Whether pulling the longest prefix to a prefill instance is predicted to be faster than computing it there."""
    row = view.prefill[prefill]
    return row.pull_tokens > 0 and row.transfer_s + row.prefill_pull_s < row.prefill_s


@jit
def store_helps(view, prefill):
    """Whether the store has more of the prompt than the instance, and fetching it is predicted to save time."""
    return view.request[0].store_hit_tokens > view.prefill[prefill].hit_tokens and pull_helps(view, prefill)


@jit
def step_forecast_s(view, decode, requests, tokens):
    """Decode step time of an instance with that many requests and KV tokens."""
    row = view.decode[decode]
    return row.decode_d_s + row.decode_e_s * requests + row.decode_f_s * tokens


@jit
def tbt_forecast_s(view, decode):
    """Step time once this request and all that are assigned to the instance run there."""
    tokens = promised_tokens(view, decode) + view.request[0].prompt_tokens
    return step_forecast_s(view, decode, view.decode[decode].inflight_requests + 1, tokens)


@jit
def least_tbt_decode(view, rng):
    """Decode instance with the smallest such step, ties at random."""
    best, count, best_s = -1, 0, 0.0
    for d in range(view.cluster[0].num_decode):
        if view.decode[d].accepts == 0:
            continue
        step_s = tbt_forecast_s(view, d)
        take, count = least(rng, best, count, step_s, best_s)
        if take:
            best, best_s = d, step_s
    return best


@jit
def present_step_s(view, decode, joins):
    """Step time of a decode instance with all whose KV is there: in its batch, waiting for it, or thrown out of it.

    `joins`: with the request that is decided, too.
    """
    row = view.decode[decode]
    requests = row.running_requests + row.waiting_requests + row.preempted_requests
    tokens = row.kv_tokens + row.waiting_tokens + row.preempted_tokens
    if joins:
        requests, tokens = requests + 1, tokens + view.request[0].prompt_tokens + 1
    return step_forecast_s(view, decode, requests, tokens)


@jit
def tbt_slo_s(view):
    """The SLO on the time between tokens: on its tail, else on its mean (TPOT), else infinite."""
    cluster = view.cluster[0]
    return cluster.slo_tbt_tail_s if cluster.slo_tbt_tail_s < math.inf else cluster.slo_tpot_s
