"""What a request's record says at its milestones, and the reward counters.

A request counts once, as soon as its fate is known: violated when its TTFT is too long (at its first token) or when an
objective is missed at its end, met otherwise, rejected at arrival.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.state.world import COMPLETED, DONE, REJECTED


@inner
def first_token(w, index):
    """The prefill of a request has ended: its first token is out."""
    request = w.request[index]
    config = w.config[0]
    request.prefill_end_s = w.state[0].now_s
    request.last_token_s = w.state[0].now_s
    request.generated = 1
    request.ttft_s = request.prefill_end_s + config.response_overhead_s - request.arrival_s
    if request.counted and request.ttft_s > config.slo_ttft_s:
        request.settled = 1
        w.state[0].violated += 1


@inner
def leave_system(w, index, outcome):
    """A request is over."""
    request = w.request[index]
    state = w.state[0]
    request.outcome = outcome
    request.state = DONE
    state.unfinished -= 1
    state.in_system -= 1
    if request.counted:
        state.counted_in_system -= 1


@inner
def request_done(w, index):
    """The last token of a request is out; its tail TBT has been filled in before."""
    request = w.request[index]
    config = w.config[0]
    state = w.state[0]
    request.finish_s = state.now_s
    request.e2e_s = request.finish_s + config.response_overhead_s - request.arrival_s
    gaps = request.output_tokens - 1
    request.tpot_s = (request.finish_s - request.prefill_end_s) / gaps if gaps > 0 else 0.0
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
    leave_system(w, index, COMPLETED)


@inner
def request_rejected(w, index):
    """A policy refused the request."""
    if w.request[index].counted:
        w.request[index].settled = 1
        w.state[0].rejected += 1
    leave_system(w, index, REJECTED)
