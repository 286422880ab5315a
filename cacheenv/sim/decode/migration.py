"""Moving a running request between decode instances, as STAR and Llumnix do.

Its KV is copied while it keeps decoding at the source; room is reserved at the destination from the start. At the first
step boundary after the copy it leaves the source's batch; what it generated meanwhile follows (plus a short stall);
then it joins the destination's batch. If it finishes or is preempted before it leaves, everything is released.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.decode.steps import (
    drop_migration,
    generated_tokens,
    leave_batch,
    resident_tokens,
    shorten_run,
    wake_at_boundary,
)
from cacheenv.sim.network.links import new_flow, start_flow
from cacheenv.sim.prediction import predicted_remaining
from cacheenv.sim.state.world import (
    FLOW_DELTA,
    FLOW_MIGRATE,
    MOVE_ARRIVED,
    MOVE_COPIED,
    MOVE_COPYING,
    MOVE_DELTA,
    MOVE_NONE,
    MOVING,
    ORDER_SHORTEST_KV,
)


@inner
def room_tokens(w, instance):
    """Largest KV of a request that could be moved to the instance now (may be negative)."""
    row = w.decode[instance]
    head_room = w.config[0].reserve_tokens * (row.batch + 1)
    return row.capacity - row.reserved - resident_tokens(w, instance) - head_room


@inner
def can_receive(w, instance):
    """No migration is on its way to the instance, and a batch place is free."""
    row = w.decode[instance]
    return row.incoming < 0 and row.batch + row.preempted + 1 <= w.config[0].max_batch


@inner
def start_migration(w, index, target):
    """Starts copying a running request to another decode instance; the caller has checked that it is legal."""
    config = w.config[0]
    request = w.request[index]
    source = request.decode_instance
    tokens = request.prompt_tokens + generated_tokens(w, index)
    request.move_state = MOVE_COPYING
    request.move_target = target
    request.move_kv = tokens
    request.move_reserved = tokens + config.reserve_tokens
    w.decode[source].outgoing = index
    row = w.decode[target]
    row.incoming = index
    row.reserved += request.move_reserved
    shorten_run(w, target)
    pages = (tokens + config.page_tokens - 1) // config.page_tokens
    first = config.num_prefill
    byte_count = tokens * config.decode_kv_bytes
    flow = new_flow(w, FLOW_MIGRATE, first + source, first + target, index, tokens, byte_count, pages)
    request.move_flow = flow
    start_flow(w, flow)


@inner
def copy_arrived(w, flow_index):
    """The copy is complete: the request leaves its source at the next step boundary."""
    index = w.flow[flow_index].request
    request = w.request[index]
    request.move_state = MOVE_COPIED
    wake_at_boundary(w, request.decode_instance)


@inner
def leave_source(w, instance):
    """A step boundary of the source: the copied request leaves, if the destination has room for what it has grown."""
    config = w.config[0]
    row = w.decode[instance]
    index = row.outgoing
    if index < 0 or w.request[index].move_state != MOVE_COPIED:
        return
    request = w.request[index]
    target = request.move_target
    tokens = request.prompt_tokens + request.generated + row.step - w.slot[request.slot].join_step
    extra = tokens + config.reserve_tokens - request.move_reserved
    goal = w.decode[target]
    if resident_tokens(w, target) + goal.reserved + extra > goal.capacity:
        drop_migration(w, index)
        return
    leave_batch(w, index, instance)
    request.state = MOVING
    request.move_state = MOVE_DELTA
    request.move_reserved += extra
    request.decode_instance = target
    row.inflight -= 1
    goal.inflight += 1
    goal.reserved += extra
    shorten_run(w, target)
    delta = tokens - request.move_kv
    pages = (delta + config.page_tokens - 1) // config.page_tokens
    first = config.num_prefill
    byte_count = delta * config.decode_kv_bytes
    flow = new_flow(w, FLOW_DELTA, first + instance, first + target, index, delta, byte_count, pages)
    w.flow[flow].latency_s += config.stall_s
    request.move_flow = flow
    start_flow(w, flow)


@inner
def delta_arrived(w, flow_index):
    """The request is complete at its destination: it joins the batch at the next boundary there."""
    flow = w.flow[flow_index]
    request = w.request[flow.request]
    request.move_state = MOVE_ARRIVED
    w.decode[flow.source - w.config[0].num_prefill].outgoing = -1
    w.decode[request.decode_instance].arrived = flow.request
    wake_at_boundary(w, request.decode_instance)


@inner
def fill_candidates(w, view):
    """The K candidates of every source: the requests whose move is worth most by `candidate_order`.

    Returns whether any move is legal. Rows of a source are in falling order of worth; ties go to the lowest request.
    """
    config = w.config[0]
    now_s = w.state[0].now_s
    slots = config.candidates
    roomiest, second, best = -(1 << 60), -(1 << 60), -1
    for d in range(config.num_decode):
        if can_receive(w, d):
            room = room_tokens(w, d)
            if room > roomiest:
                roomiest, second, best = room, roomiest, d
            elif room > second:
                second = room
    legal = False
    for source in range(config.num_decode):
        row = w.decode[source]
        first = source * slots
        for k in range(slots):
            view.candidate[first + k].valid = 0
            view.candidate[first + k].source = source
        filled = 0
        steps = 0
        if row.batch > 0:
            steps = (resident_tokens(w, source) - row.kv) // row.batch
        for at in range(row.batch):
            slot = w.slot[w.batch[source, at]]
            request = w.request[slot.request]
            if request.move_state != MOVE_NONE:
                continue
            generated = request.generated + row.step + steps - slot.join_step
            if generated >= request.output_tokens:
                continue  # its last token came at this very instant
            tokens = request.prompt_tokens + generated
            left = predicted_remaining(w, slot.request, generated)
            worth = -float(tokens) if config.candidate_order == ORDER_SHORTEST_KV else left / tokens
            place = filled
            while place > 0:
                other = view.candidate[first + place - 1]
                if config.candidate_order == ORDER_SHORTEST_KV:
                    other_worth = -float(other.kv_tokens)
                else:
                    other_worth = other.predicted_remaining_tokens / other.kv_tokens
                if worth < other_worth or (worth == other_worth and slot.request > other.request):
                    break
                if place < slots:
                    _copy_candidate(view, first + place - 1, first + place)
                place -= 1
            if place >= slots:
                continue
            filled = min(filled + 1, slots)
            entry = view.candidate[first + place]
            entry.valid = 1
            entry.request = slot.request
            entry.kv_tokens = tokens
            entry.prompt_tokens = request.prompt_tokens
            entry.generated_tokens = generated
            entry.predicted_remaining_tokens = left
            rate = w.nic[config.num_prefill + source].bytes_per_s / (w.nic[config.num_prefill + source].out + 1)
            pages = (tokens + config.page_tokens - 1) // config.page_tokens
            entry.migrate_s = config.setup_s + pages * config.per_block_s + tokens * config.decode_kv_bytes / rate
            entry.since_move_s = now_s - request.last_move_s
            entry.migrations = request.migrations
        if row.outgoing < 0:
            room = second if source == best else roomiest
            for k in range(filled):
                if view.candidate[first + k].kv_tokens <= room:
                    legal = True
    return legal


@inner
def _copy_candidate(view, source, target):
    old, new = view.candidate[source], view.candidate[target]
    new.valid = old.valid
    new.request = old.request
    new.kv_tokens = old.kv_tokens
    new.prompt_tokens = old.prompt_tokens
    new.generated_tokens = old.generated_tokens
    new.predicted_remaining_tokens = old.predicted_remaining_tokens
    new.migrate_s = old.migrate_s
    new.since_move_s = old.since_move_s
    new.migrations = old.migrations
