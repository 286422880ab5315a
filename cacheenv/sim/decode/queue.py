"""Who waits for a decode batch: requests whose KV has arrived, and preempted ones, each in their order."""

from __future__ import annotations

from cacheenv.sim.core.jit import once
from cacheenv.sim.decode.batch import expect_tokens, held_tokens
from cacheenv.sim.decode.run import wake_at_boundary
from cacheenv.sim.requests import preempt, reach_decode
from cacheenv.sim.state.codes import NONE


@once
def enter_waiting(w, index):
    """The KV of a request has arrived: it waits for admission."""
    request = w.request[index]
    d = request.decode_instance
    row = w.decode[d]
    reach_decode(w, index)
    expect_tokens(w, index)
    request.wait_next = NONE
    alone = row.head < 0
    if alone:
        row.head = index
    else:
        w.request[row.tail].wait_next = index
    row.tail = index
    row.waiting += 1
    row.waiting_tokens += held_tokens(w, index)
    if alone:
        wake_at_boundary(w, d)


@once
def leave_waiting(w, d):
    """The first waiting request is admitted."""
    row = w.decode[d]
    row.waiting_tokens -= held_tokens(w, row.head)
    row.head = w.request[row.head].wait_next
    if row.head < 0:
        row.tail = NONE
    row.waiting -= 1


@once
def enter_preempted(w, index, d):
    """A request was thrown out of the batch: it resumes behind those thrown out before it."""
    row = w.decode[d]
    preempt(w, index)
    w.request[index].wait_next = NONE
    row.preemptions += 1
    row.preempted_tokens += held_tokens(w, index)
    if row.preempted_tail >= 0:
        w.request[row.preempted_tail].wait_next = index
    else:
        row.preempted_head = index
    row.preempted_tail = index
    row.preempted += 1


@once
def leave_preempted(w, d):
    """The first preempted request resumes."""
    row = w.decode[d]
    row.preempted_tokens -= held_tokens(w, row.preempted_head)
    row.preempted_head = w.request[row.preempted_head].wait_next
    if row.preempted_head < 0:
        row.preempted_tail = NONE
    row.preempted -= 1
