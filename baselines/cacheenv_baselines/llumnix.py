"""`llumnix`: migration by freeness, without prediction.

Source: Llumnix (OSDI'24, arXiv 2406.03243), code AlibabaPAI/llumnix 24220fb8: `load_computation.py` (remaining_steps),
`migration_filter.py`, `migration_policy.py` (`defrag`, the default), `local_migration_scheduler.py` (`SR`).
Rule: freeness = (free blocks - blocks wanted by the first waiting request) / (running requests + 1 if any wait),
infinite for an idle instance: the form with defragmentation, in which only the first one who waits counts. A preempted
request waits before the others, with the KV that it had. Sources: freeness below `threshold`, or requests preempted
("killed"). Destinations: freeness above it and nothing preempted. Sources from the least free on, destinations from the
freest on, are paired in order, and of each source the shortest running sequence moves.
Parameters:
  threshold (blocks a request): see the rule; from docs/Arguments.md of the original
  block_tokens (tokens): vLLM's block
Requires: a tick each 0.05 s (its polling interval) and the shortest sequence as first candidate.
Ours: ties at random; a pair whose sequence does not fit is passed over. Instances that already take part in
a migration in that direction are left out of the pairing (one migration at a time, as in the original).
Deviations: no priorities and no draining instances. The sign of the threshold inside the original code (stored negated)
was not traced.
Quirk kept: it looks at memory only. Instances that are unequally loaded but not short of memory are left as they are.
"""

from __future__ import annotations

import math

import numpy as np

from cacheenv.policy import jit, least, move, policy, stay


@jit
def freeness(view, decode, block_tokens):
    """Free blocks for each request of an instance; infinite where there is none."""
    row = view.decode[decode]
    waits = row.waiting_requests + row.preempted_requests > 0
    requests = row.running_requests + (1 if waits else 0)
    if requests == 0:
        return math.inf
    wanted = row.first_waiting_tokens if waits else 0
    return (row.capacity_tokens - row.kv_tokens - row.reserved_tokens - wanted) / block_tokens / requests


@jit
def shortest_candidate(view, rng, source):
    """Candidate row of the shortest running sequence of a source; -1 if there is none."""
    slots = view.cluster[0].num_candidates
    best, count, shortest = -1, 0, 0
    for row in range(source * slots, (source + 1) * slots):
        if view.candidate[row].valid:
            tokens = view.candidate[row].kv_tokens
            take, count = least(rng, best, count, tokens, shortest)
            if take:
                best, shortest = row, tokens
    return best


@jit
def gives(view, decode, free, threshold):
    """Whether an instance is a source: too little free, or requests preempted."""
    return free[decode] < threshold or view.decode[decode].preempted_requests > 0


@jit
def least_free_source(view, rng, free, paired, threshold):
    """The least free source that is not paired yet and can send; -1 if there is none."""
    source, count, least_free = -1, 0, 0.0
    for d in range(view.cluster[0].num_decode):
        if not paired[d] and gives(view, d, free, threshold) and view.decode[d].can_send:
            take, count = least(rng, source, count, free[d], least_free)
            if take:
                source, least_free = d, free[d]
    return source


@jit
def freest_destination(view, rng, free, paired, threshold):
    """The freest destination that is not paired yet and can receive; -1 if there is none."""
    target, count, freest = -1, 0, 0.0
    for d in range(view.cluster[0].num_decode):
        takes = free[d] > threshold and not gives(view, d, free, threshold)
        if not paired[d] and takes and view.decode[d].can_receive:
            take, count = least(rng, target, count, -free[d], -freest)
            if take:
                target, freest = d, free[d]
    return target


@policy(
    kind="rescheduler",
    params={"threshold": 3.0, "block_tokens": 16},
    requires={"reschedule.candidate_order": "shortest_kv", "reschedule.period_s": 0.05},
)
def llumnix(view, rng, params):
    """Llumnix: the shortest sequence of the least free instance moves to the freest one."""
    threshold, block_tokens = params[0], params[1]
    num_decode = view.cluster[0].num_decode
    free, paired = np.zeros(num_decode), np.zeros(num_decode, np.bool_)
    for d in range(num_decode):
        free[d] = freeness(view, d, block_tokens)
    for _ in range(num_decode):
        source = least_free_source(view, rng, free, paired, threshold)
        target = freest_destination(view, rng, free, paired, threshold)
        if source < 0 or target < 0:
            break
        row = shortest_candidate(view, rng, source)
        if row >= 0 and view.candidate[row].kv_tokens <= view.decode[target].room_tokens:
            if view.candidate[row].needed_tokens <= view.decode[target].capacity_tokens:
                return move(view, row, target)
        paired[source], paired[target] = True, True
    return stay(view)
