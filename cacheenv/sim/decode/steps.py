"""The step boundaries of a decode instance: who finishes, joins, is preempted, and how far the next run goes."""

from __future__ import annotations

import numpy as np

from cacheenv.sim.answers import send_answer
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.decode.batch import (
    book_steps,
    finish_batch,
    generated_after,
    held_tokens,
    join_batch,
    joined_now,
    leave_batch,
    meter_joiners,
    request_at,
    steps_to_finish,
)
from cacheenv.sim.decode.damping import admits, after_preemption
from cacheenv.sim.decode.load import meter_load
from cacheenv.sim.decode.migration import admit_arrived, capacity_tokens, drop_migration, leave_source
from cacheenv.sim.decode.preemption import resume_seconds
from cacheenv.sim.decode.queue import enter_preempted, leave_preempted, leave_waiting
from cacheenv.sim.decode.run import add_stall, start_run, wake_at_boundary
from cacheenv.sim.requests import complete, leave_decode, start_decode


@inner
def step_boundary(w, d):
    """The steps that ended are booked, the finished and the migrating leave, others join, and the batch runs on."""
    book_steps(w, d)
    while w.decode[d].batch > 0 and steps_to_finish(w, d) == 0:
        _finish(w, request_at(w, d, 0), d)
    if w.config[0].cache_outputs:
        _send_answers(w, d)
    leave_source(w, d)
    admit_arrived(w, d)
    if _resume_preempted(w, d):
        _admit_waiting(w, d)
    _preempt(w, d)
    if w.decode[d].batch > 0:
        start_run(w, d, _steps_ahead(w, d))
        meter_joiners(w, d)
    meter_load(w, d)


@once
def _finish(w, index, d):
    """A request has made its last token."""
    p99_s, tail_s = finish_batch(w, index, d)
    leave_decode(w, index)
    drop_migration(w, index)
    complete(w, index, p99_s, tail_s)
    if w.config[0].cache_outputs and w.workload[index].answer_pages > 0:
        _list_finished(w, index, d)


@once
def _list_finished(w, index, d):
    """Enters a request among those that finish at this boundary, in the order of their numbers."""
    before = -1
    following = w.decode[d].finished_head
    while 0 <= following < index:
        before = following
        following = np.int64(w.request[following].finished_next)
    w.request[index].finished_next = following
    if before >= 0:
        w.request[before].finished_next = index
    else:
        w.decode[d].finished_head = index


@once
def _send_answers(w, d):
    """The answers that are complete at this boundary return to the prefill caches."""
    index = w.decode[d].finished_head
    while index >= 0:
        send_answer(w, index)
        index = np.int64(w.request[index].finished_next)
    w.decode[d].finished_head = -1


@inner
def _departures(w, d):
    """Counts what may make room: requests that left the batch, and reservations that were given back."""
    return w.decode[d].departures + w.decode[d].released


@inner
def _fits(w, index, d):
    """Admission rule: room, and after a preemption what damping asks for. Who is refused for that waits for room."""
    row = w.decode[d]
    if row.refused_at == _departures(w, d) or not _has_room(w, index, d):
        return False
    if row.batch == 0 or admits(w, d, index):
        return True
    row.refused_at = _departures(w, d)
    return False


@inner
def _has_room(w, index, d):
    """Plain rule: a batch place, and KV room with head-room for every request."""
    row = w.decode[d]
    incoming = 1 if row.incoming >= 0 else 0
    if row.batch == 0 and incoming == 0:
        return True
    if row.batch + incoming + 1 > row.max_batch:
        return False
    return row.kv_tokens + held_tokens(w, index) + row.reserve_tokens * (row.batch + 1) <= capacity_tokens(w, d)


@once
def _resume_preempted(w, d):
    """Preempted requests come before new ones; returns whether all of them are back."""
    row = w.decode[d]
    while row.preempted_head >= 0:
        index = row.preempted_head
        if not _fits(w, index, d):
            return False
        leave_preempted(w, d)
        add_stall(w, d, resume_seconds(w, d, index, held_tokens(w, index)))
        join_batch(w, index, d)
    return True


@once
def _admit_waiting(w, d):
    """New requests, in the order in which their KV arrived."""
    row = w.decode[d]
    while row.head >= 0:
        index = row.head
        if not _fits(w, index, d):
            return
        leave_waiting(w, d)
        start_decode(w, index)
        join_batch(w, index, d)


@once
def _victim(w, d):
    """The request to preempt: fewest generated tokens, then the longest prompt, then the latest."""
    best, best_generated = -1, 0
    for at in range(w.decode[d].batch):
        index = request_at(w, d, at)
        request = w.request[index]
        generated = generated_after(w, index, 0)
        if best < 0 or generated < best_generated:
            better = True
        elif generated > best_generated:
            better = False
        else:
            other = w.request[best]
            better = request.prompt_tokens > other.prompt_tokens or (
                request.prompt_tokens == other.prompt_tokens and index > best
            )
        if better:
            best, best_generated = index, generated
    return best


@once
def _preempt(w, d):
    """Frees KV until the next step fits; the last one stays unless room is promised to a migration."""
    row = w.decode[d]
    before = row.preempted
    fewest = 0 if row.incoming >= 0 else 1
    while row.batch > fewest and row.kv_tokens + row.batch > capacity_tokens(w, d):
        index = _victim(w, d)
        if joined_now(w, index):  # it arrived by migration and goes before it has run
            add_stall(w, d, -row.join_stall_s)
        drop_migration(w, index)
        leave_batch(w, index, d)
        enter_preempted(w, index, d)
    if row.preempted > before:
        after_preemption(w, d)
        if row.batch == 0:
            wake_at_boundary(w, d)  # somebody smaller may have room


@once
def _steps_ahead(w, d):
    """Steps up to the boundary at which the batch must change."""
    row = w.decode[d]
    untried = row.refused_at != _departures(w, d)
    if row.preempted_head >= 0 and untried and _has_room(w, row.preempted_head, d):
        return 1  # a later victim has made room for an earlier one
    until_full = (capacity_tokens(w, d) - row.kv_tokens) // row.batch
    return max(1, min(steps_to_finish(w, d), until_full))
