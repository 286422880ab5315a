"""Moving a running request between decode instances, as STAR and Llumnix do.

Its KV is copied while it keeps decoding at the source; room is reserved at the destination from the start. At the first
step boundary after the copy it leaves the source's batch; what it generated meanwhile follows (plus a short stall);
then it joins the destination's batch. If it finishes or is preempted before it leaves, everything is released.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.decode.batch import generated_after, generated_tokens, held_tokens, join_batch, leave_batch
from cacheenv.sim.decode.run import end_run_when_full, resident_tokens, wake_at_boundary
from cacheenv.sim.network.links import add_latency, cancel_flow, new_flow, start_flow
from cacheenv.sim.requests import change_decode, count_migration
from cacheenv.sim.state.codes import (
    FLOW_DELTA,
    FLOW_MIGRATE,
    MOVE_ARRIVED,
    MOVE_COPIED,
    MOVE_COPYING,
    MOVE_DELTA,
    MOVE_NONE,
    NONE,
)
from cacheenv.sim.state.ids import decode_instance, decode_nic


@inner
def capacity_tokens(w, d):
    """KV tokens that the batch may hold: what is not reserved for an incoming migration."""
    return w.instance[decode_instance(w, d)].kv_capacity_tokens - w.decode[d].reserved_tokens


@inner
def room_tokens(w, d):
    """Largest KV of a request that could be moved to the instance now (may be negative)."""
    head_room = w.decode[d].reserve_tokens * (w.decode[d].batch + 1)
    return capacity_tokens(w, d) - resident_tokens(w, d) - head_room


@inner
def can_receive(w, d):
    """No migration is on its way to the instance, and a batch place is free."""
    row = w.decode[d]
    return row.incoming < 0 and row.batch + row.preempted + 1 <= row.max_batch


@inner
def _reserve(w, d, tokens):
    w.decode[d].reserved_tokens += tokens
    end_run_when_full(w, d, capacity_tokens(w, d))


@inner
def _send(w, index, kind, tokens):
    """A flow with `tokens` of the request's KV from its source to its target; it is not started."""
    request = w.request[index]
    source, sink = decode_nic(w, np.int64(request.move_source)), decode_nic(w, np.int64(request.move_target))
    request.move_flow = new_flow(w, kind, source, sink, index, tokens)
    return np.int64(request.move_flow)


@once
def start_migration(w, index, target):
    """Starts copying a running request to another decode instance; the caller has checked that it is legal."""
    request = w.request[index]
    source = request.decode_instance
    tokens = request.prompt_tokens + generated_tokens(w, index)
    request.move_state = MOVE_COPYING
    request.move_source = source
    request.move_target = target
    request.move_kv_tokens = tokens
    request.move_reserved_tokens = tokens + w.decode[target].reserve_tokens
    w.decode[source].outgoing = index
    w.decode[target].incoming = index
    _reserve(w, target, request.move_reserved_tokens)
    start_flow(w, _send(w, index, FLOW_MIGRATE, tokens))


@once
def copy_arrived(w, index):
    """The copy is complete: the request leaves its source at the next step boundary."""
    w.request[index].move_state = MOVE_COPIED
    wake_at_boundary(w, w.request[index].decode_instance)


@once
def leave_source(w, d):
    """A step boundary of the source: the copied request leaves, if the destination has room for what it has grown."""
    index = w.decode[d].outgoing
    if index < 0 or w.request[index].move_state != MOVE_COPIED:
        return
    request = w.request[index]
    target = np.int64(request.move_target)
    tokens = request.prompt_tokens + generated_after(w, index, 0)
    extra = tokens + w.decode[target].reserve_tokens - request.move_reserved_tokens
    if resident_tokens(w, target) + extra > capacity_tokens(w, target):
        drop_migration(w, index)
        return
    leave_batch(w, index, d)
    request.move_state = MOVE_DELTA
    request.move_reserved_tokens += extra
    change_decode(w, index, target)
    _reserve(w, target, extra)
    flow = _send(w, index, FLOW_DELTA, tokens - request.move_kv_tokens)
    add_latency(w, flow, w.config[0].stall_s)
    start_flow(w, flow)


@once
def delta_arrived(w, index):
    """The request is complete at its destination: it joins the batch at the next boundary there."""
    request = w.request[index]
    request.move_state = MOVE_ARRIVED
    w.decode[request.move_source].outgoing = NONE
    w.decode[request.move_target].arrived = index
    wake_at_boundary(w, np.int64(request.move_target))


@once
def admit_arrived(w, d):
    """A step boundary of the destination: the migration that is complete joins the batch."""
    row = w.decode[d]
    index = row.arrived
    if index < 0:
        return
    request = w.request[index]
    row.arrived = NONE
    row.incoming = NONE
    row.reserved_tokens -= request.move_reserved_tokens
    request.move_state = MOVE_NONE
    request.last_move_s = w.state[0].now_s
    count_migration(w, index, held_tokens(w, index))
    join_batch(w, index, d)


@inner
def drop_migration(w, index):
    """Cancels a migration that has not left its source: copy flow, reservation and flags go."""
    request = w.request[index]
    if request.move_state != MOVE_COPYING and request.move_state != MOVE_COPIED:
        return
    if request.move_state == MOVE_COPYING:
        cancel_flow(w, np.int64(request.move_flow))
    target = w.decode[request.move_target]
    target.reserved_tokens -= request.move_reserved_tokens
    target.released += 1
    target.incoming = NONE
    w.decode[request.move_source].outgoing = NONE
    request.move_state = MOVE_NONE
    if target.head >= 0 or target.preempted_head >= 0:
        wake_at_boundary(w, np.int64(request.move_target))
