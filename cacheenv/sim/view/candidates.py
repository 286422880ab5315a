"""Fills the view's tables of what may be moved: the candidates of each decode instance, and all running requests."""

from __future__ import annotations

import numpy as np

from cacheenv.sim.compute.prediction import predicted_remaining
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.decode.batch import generated_after, request_at
from cacheenv.sim.decode.migration import can_receive, room_tokens
from cacheenv.sim.decode.run import steps_done
from cacheenv.sim.network.links import send_seconds
from cacheenv.sim.state.codes import MOVE_NONE, ORDER_SHORTEST_KV
from cacheenv.sim.state.ids import decode_nic

NO_ROOM = -(1 << 60)


@inner
def fill_candidates(w, view):
    """The K candidates of every source: the requests whose move is worth most by `candidate_order`, or all of them.

    Returns whether any move is legal. Rows of a source are in falling order of worth; ties go to the lowest request.
    Where all are candidates they stand by request.
    """
    slots = w.config[0].candidates
    roomiest, second, best = _roomiest(w)
    legal = False
    at = np.int64(0)
    if w.config[0].all_candidates:
        fill_running(w, view)
    for source in range(w.decode.shape[0]):
        first = source * slots
        if w.config[0].all_candidates:
            filled, at = _fill_whole_batch(w, view, source, first, at)
        else:
            filled = _fill_source(w, view, source, first)
        if w.decode[source].outgoing < 0:
            room = second if source == best else roomiest
            for k in range(filled):
                if view.candidate[first + k].kv_tokens <= room:
                    legal = legal or w.config[0].equal_decode == 1 or _has_target(w, view, first + k)
    return legal


@once
def _roomiest(w):
    """(most room of all destinations, second most, which has most): largest KV that may be moved there, tokens."""
    most, second, best = NO_ROOM, NO_ROOM, -1
    for d in range(w.decode.shape[0]):
        if can_receive(w, d):
            room = room_tokens(w, d)
            if room > most:
                most, second, best = room, most, d
            elif room > second:
                second = room
    return most, second, best


@once
def _has_target(w, view, row):
    """Whether a candidate may be moved anywhere, where instances differ in size."""
    candidate = view.candidate[row]
    for d in range(w.decode.shape[0]):
        if d != candidate.source and can_receive(w, d) and candidate.needed_tokens <= view.decode[d].capacity_tokens:
            if candidate.kv_tokens <= room_tokens(w, d):
                return True
    return False


@once
def _fill_whole_batch(w, view, source, first, at):
    """Fills the slots of one source with all that may be moved, from row `at` of the running ones on.

    Returns how many are valid, and the running row behind those of the source.
    """
    for row in range(first, first + w.config[0].candidates):
        view.candidate[row].valid = 0
        view.candidate[row].source = source
    row = first
    while at < view.cluster[0].num_running and view.running[at].instance == source:
        runs = view.running[at]
        if not runs.migrating:
            _fill_entry(w, view, row, runs.request, runs.generated_tokens, runs.predicted_remaining_tokens)
            row += 1
        at += 1
    return row - first, at


@inner
def _fill_entry(w, view, row, index, generated, left_tokens):
    """One candidate."""
    request = w.request[index]
    entry = view.candidate[row]
    tokens = request.prompt_tokens + generated
    entry.valid = 1
    entry.request = index
    entry.kv_tokens = tokens
    entry.prompt_tokens = request.prompt_tokens
    entry.generated_tokens = generated
    entry.predicted_remaining_tokens = left_tokens
    entry.needed_tokens = request.needed_tokens
    entry.migrate_s = send_seconds(w, decode_nic(w, entry.source), tokens)
    entry.since_move_s = w.state[0].now_s - request.last_move_s
    entry.migrations = request.migrations


@once
def _fill_source(w, view, source, first):
    """Fills the slots of one source from row `first` on; returns how many are valid."""
    slots = w.config[0].candidates
    for k in range(slots):
        view.candidate[first + k].valid = 0
        view.candidate[first + k].source = source
    filled = 0
    steps = steps_done(w, source)
    for at in range(w.decode[source].batch):
        index = request_at(w, source, at)
        request = w.request[index]
        if request.move_state != MOVE_NONE:
            continue
        generated = generated_after(w, index, steps)
        if generated >= request.output_tokens:
            continue  # its last token came at this very instant
        tokens = request.prompt_tokens + generated
        left_tokens = predicted_remaining(w, index, generated)
        worth = _worth(w, tokens, left_tokens)
        place = filled
        while place > 0 and _goes_before(w, view, worth, index, first + place - 1):
            if place < slots:
                _copy(view, first + place - 1, first + place)
            place -= 1
        if place >= slots:
            continue
        filled = min(filled + 1, slots)
        _fill_entry(w, view, first + place, index, generated, left_tokens)
    return filled


@inner
def _worth(w, kv_tokens, left_tokens):
    """What a move is worth: little KV, or much predicted work for each token of it."""
    if w.config[0].candidate_order == ORDER_SHORTEST_KV:
        return -float(kv_tokens)
    return left_tokens / kv_tokens


@once
def _goes_before(w, view, worth, index, row):
    """Whether a request of this worth stands before the candidate of a row."""
    other = view.candidate[row]
    other_worth = _worth(w, other.kv_tokens, other.predicted_remaining_tokens)
    return not (worth < other_worth or (worth == other_worth and index > other.request))


@once
def _copy(view, source, target):
    old, new = view.candidate[source], view.candidate[target]
    new.valid = old.valid
    new.request = old.request
    new.kv_tokens = old.kv_tokens
    new.prompt_tokens = old.prompt_tokens
    new.generated_tokens = old.generated_tokens
    new.predicted_remaining_tokens = old.predicted_remaining_tokens
    new.needed_tokens = old.needed_tokens
    new.migrate_s = old.migrate_s
    new.since_move_s = old.since_move_s
    new.migrations = old.migrations


@once
def _sort_by_request(view, first, last):
    """Sorts the column `request` of the running rows `first` to `last` (exclusive): Shell's method."""
    gap = (last - first) // 2
    while gap > 0:
        for at in range(first + gap, last):
            request = view.running[at].request
            place = at
            while place - gap >= first and view.running[place - gap].request > request:
                view.running[place].request = view.running[place - gap].request
                place -= gap
            view.running[place].request = request
        gap //= 2


@inner
def fill_running(w, view):
    """One row for each request in a decode batch, by instance and then by request.

    The batches themselves are heaps by finishing time; their order would tell which request ends first.
    """
    count = np.int64(0)
    for d in range(w.decode.shape[0]):
        steps = steps_done(w, d)
        first = count
        for at in range(w.decode[d].batch):
            index = request_at(w, d, at)
            if generated_after(w, index, steps) < w.request[index].output_tokens:
                view.running[count].request = index
                count += 1
        _sort_by_request(view, first, count)
        for at in range(first, count):
            entry = view.running[at]
            request = w.request[entry.request]
            generated = generated_after(w, entry.request, steps)
            entry.instance = d
            entry.kv_tokens = request.prompt_tokens + generated
            entry.prompt_tokens = request.prompt_tokens
            entry.generated_tokens = generated
            entry.predicted_remaining_tokens = predicted_remaining(w, entry.request, generated)
            entry.elapsed_s = w.state[0].now_s - request.decode_start_s
            entry.migrating = 1 if request.move_state != MOVE_NONE else 0
    view.cluster[0].num_running = count
