"""The life of a request: what its record says at each milestone, who it counts for, and the reward counters.

A request enters and leaves an instance here and nowhere else, so the counts of an instance's work always fit.

A request counts once for the reward, as soon as its fate is known: violated when its TTFT is too long (at its first
token) or when an objective is missed at its end, met otherwise, rejected when it is refused.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.arrivals import call, expect_arrival
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.state.codes import (
    ABANDONED,
    COMPLETED,
    DONE,
    FIRST_TOKEN_DECODE,
    FUTURE,
    HANDOVER,
    MOVING,
    PREEMPTED,
    PREFILLING,
    QUEUED,
    REJECTED,
    RUNNING,
    TOO_LARGE,
    WAITING,
)

# -- the system ------------------------------------------------------------------------------------------------------


@once
def start_requests(w):
    """The requests of an episode are still to come."""
    w.state[0].unfinished = w.config[0].num_requests


@once
def arrive(w, index):
    """A request enters the system."""
    load = w.workload[index]
    request = w.request[index]
    state = w.state[0]
    if request.retries == 0:  # a refused request has been waiting since it came first
        request.arrival_s = state.now_s
    request.prompt_tokens = load.prompt_tokens
    request.output_tokens = load.output_tokens
    state.in_system += 1
    if index >= w.config[0].warmup_requests:
        request.counted = 1
        state.counted_in_system += 1


@once
def need_room(w, index, tokens):
    """The smallest KV capacity that holds the request when it is whole, below 0 where there is none."""
    w.request[index].needed_tokens = tokens


@inner
def _leave_system(w, index, outcome):
    """A request is over."""
    request = w.request[index]
    state = w.state[0]
    request.outcome = outcome
    request.state = DONE
    state.unfinished -= 1
    state.in_system -= 1
    if request.counted:
        state.counted_in_system -= 1
    if request.prefill_instance >= 0:
        w.prefill[request.prefill_instance].unfinished -= 1
    if w.config[0].users_wait:
        _react(w, index, outcome)


@inner
def _react(w, index, outcome):
    """What users do when a request is over: think, and go on; give up; or come in, where there is room now."""
    following = w.workload[index].next_turn
    if w.config[0].closed and following >= 0:
        if outcome == COMPLETED:
            call(w, following, w.state[0].now_s + w.workload[following].think_s)
        else:
            _abandon(w, following)
    expect_arrival(w)


@once
def _abandon(w, index):
    """A session ends before this turn: it and those behind it never come."""
    while index >= 0:
        w.request[index].outcome = ABANDONED
        w.request[index].state = DONE
        w.state[0].unfinished -= 1
        index = w.workload[index].next_turn


@once
def turn_away(w, index):
    """A request fits on no instance."""
    _leave_system(w, index, TOO_LARGE)


@inner
def reject(w, index, outcome):
    """A policy refused the request, at its arrival or after its prefill: `outcome` says which.

    Who is refused at arrival may come again.
    """
    if outcome == REJECTED and w.request[index].retries < w.config[0].max_retries:
        _send_away(w, index)
        return
    if w.request[index].counted and not w.request[index].settled:
        w.request[index].settled = 1
        w.state[0].rejected += 1
    _leave_system(w, index, outcome)


@once
def _send_away(w, index):
    """A refused request leaves the system until its user tries again."""
    request = w.request[index]
    state = w.state[0]
    request.retries += 1
    request.state = FUTURE
    state.in_system -= 1
    if request.counted:
        state.counted_in_system -= 1
    call(w, index, state.now_s + w.config[0].retry_s)
    expect_arrival(w)


@once
def decide(w, index, time_s, available_tokens):
    """A decision on the request is out at `time_s`; so much of its prompt is cached somewhere now."""
    request = w.request[index]
    request.routed_s = time_s
    request.hit_available_tokens = available_tokens


@inner
def first_token(w, index, time_s):
    """The first token of a request is out, or will be for certain, at `time_s`."""
    request = w.request[index]
    config = w.config[0]
    request.first_token_s = time_s
    request.ttft_s = time_s + config.response_overhead_s - request.arrival_s
    if request.counted and request.ttft_s > config.slo_ttft_s:
        request.settled = 1
        w.state[0].violated += 1


@inner
def complete(w, index, tbt_p99_s, tbt_tail_s):
    """The last token of a request is out."""
    request = w.request[index]
    config = w.config[0]
    state = w.state[0]
    request.tbt_p99_s = tbt_p99_s
    request.tbt_tail_s = tbt_tail_s
    request.finish_s = state.now_s
    request.e2e_s = request.finish_s + config.response_overhead_s - request.arrival_s
    gaps = request.output_tokens - 1
    request.tpot_s = 0.0
    if gaps > 0:
        request.tpot_s = max(request.finish_s - request.first_token_s, 0.0) / gaps  # rounding: the first gap may be 0
        decode_s = request.finish_s - request.decode_start_s
        state.decode_sum_s += decode_s
        state.decode_squares_s2 += decode_s * decode_s
        state.decoded += 1
    met = (
        request.ttft_s <= config.slo_ttft_s
        and request.tpot_s <= config.slo_tpot_s
        and request.tbt_tail_s <= config.slo_tbt_tail_s
        and request.e2e_s <= config.slo_e2e_s
    )
    request.slo_met = 1 if met else 0
    if request.counted and not request.settled:
        request.settled = 1
        if met:
            state.met += 1
        else:
            state.violated += 1
    _leave_system(w, index, COMPLETED)


# -- what is not known -----------------------------------------------------------------------------------------------


@inner
def is_here(w, index):
    """Whether a request is in the system."""
    request = w.request[index]
    if request.arrival_s < 0.0 or request.state == DONE:
        return False
    return request.retries == 0 or request.state != FUTURE or index == w.state[0].deciding


@once
def expect_requests(w, first):
    """The requests that are not over are those in the system, those outside, and those from row `first` on."""
    state = w.state[0]
    state.unfinished = state.in_system + w.config[0].num_requests - first
    index = state.gate_head
    while index >= 0:
        state.unfinished += 1
        index = np.int64(w.request[index].gate_next)


@once
def expect_length(w, index, output_tokens):
    """A request in the system will make this many tokens."""
    w.request[index].output_tokens = output_tokens


# -- a prefill instance ----------------------------------------------------------------------------------------------


@once
def assign_prefill(w, index, p, predicted_hit_tokens):
    """A request is routed to prefill part `p`, where the router expects this much of its prompt to be cached."""
    request = w.request[index]
    request.prefill_instance = p
    request.hit_predicted_tokens = predicted_hit_tokens


@once
def enter_prefill(w, index):
    """A request waits for its prefill instance."""
    request = w.request[index]
    row = w.prefill[request.prefill_instance]
    request.state = QUEUED
    row.inflight += 1
    row.unfinished += 1
    row.inflight_tokens += request.prompt_tokens
    row.inflight_new_tokens += request.predicted_new_tokens
    row.dispatched += 1


@once
def count_pull(w, index, tokens):
    """A prefix of the request has been pulled to its prefill instance."""
    w.request[index].pulled_tokens += tokens


@once
def start_prefill(w, index, gpu_tokens, host_tokens):
    """The first batch with a request's tokens starts; so much of its prompt was cached on the GPU and on the host."""
    request = w.request[index]
    request.hit_tokens = gpu_tokens + host_tokens
    request.hit_gpu_tokens = gpu_tokens
    request.hit_host_tokens = host_tokens
    request.prefill_start_s = w.state[0].now_s
    request.state = PREFILLING


@once
def end_prefill(w, index):
    """A prompt is computed: the first token is out, unless the decode instance delivers it (of several tokens)."""
    request = w.request[index]
    w.prefill[request.prefill_instance].inflight_new_tokens -= request.predicted_new_tokens
    request.prefill_end_s = w.state[0].now_s
    if w.config[0].first_token != FIRST_TOKEN_DECODE or request.output_tokens <= 1:
        first_token(w, index, request.prefill_end_s)
    request.state = HANDOVER


@once
def leave_prefill(w, index):
    """The prefill instance is done with a request."""
    request = w.request[index]
    row = w.prefill[request.prefill_instance]
    row.inflight -= 1
    row.inflight_tokens -= request.prompt_tokens


# -- a decode instance -----------------------------------------------------------------------------------------------


@once
def assign_decode(w, index, d):
    """A request is routed to decode part `d`: it is on its way there from now on."""
    request = w.request[index]
    row = w.decode[d]
    request.decode_instance = d
    row.pending += 1
    row.pending_tokens += request.prompt_tokens
    row.inflight += 1
    row.dispatched += 1


@inner
def skip_decode(w, index):
    """A request of one token, or one that is refused after its prefill, never comes to its decode instance."""
    request = w.request[index]
    row = w.decode[request.decode_instance]
    row.pending -= 1
    row.pending_tokens -= request.prompt_tokens
    row.inflight -= 1


@once
def reach_decode(w, index):
    """The KV of a request has arrived at its decode instance."""
    request = w.request[index]
    request.transfer_end_s = w.state[0].now_s
    request.state = WAITING
    w.decode[request.decode_instance].pending -= 1


@once
def start_decode(w, index):
    """A request enters the batch of its decode instance for the first time."""
    request = w.request[index]
    request.decode_start_s = w.state[0].now_s
    w.decode[request.decode_instance].pending_tokens -= request.prompt_tokens


@once
def run(w, index):
    """A request is in the batch."""
    w.request[index].state = RUNNING


@once
def preempt(w, index):
    """A request was thrown out of the batch for lack of KV room."""
    w.request[index].state = PREEMPTED
    w.request[index].preemptions += 1


@once
def count_rework(w, index, tokens):
    """Tokens of a request are computed again."""
    w.request[index].rework_tokens += tokens


@once
def leave_decode(w, index):
    """A request has made its last token at its decode instance."""
    w.decode[w.request[index].decode_instance].inflight -= 1


@once
def change_decode(w, index, target):
    """A migrating request leaves its decode instance for another."""
    request = w.request[index]
    w.decode[request.decode_instance].inflight -= 1
    w.decode[target].inflight += 1
    request.decode_instance = target
    request.state = MOVING


@once
def count_migration(w, index, tokens):
    """A migrating request joins its destination, with this much KV."""
    w.request[index].migrations += 1
    w.request[index].migrated_tokens += tokens
