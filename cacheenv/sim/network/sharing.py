"""Who shares which NIC, and at what rate: the flows in transmission.

A NIC has two ends that do not disturb each other: what leaves it and what enters it. `max_min` is progressive filling
(Bertsekas and Gallager, Data Networks, section 6.5.2): all rates rise together, and where an end is full the flows
through it stay at that rate, until every flow is held by a full end. Nothing that somebody could use stays idle.
Rates change when a flow starts or ends, and only those of flows that compete with it, directly or through others.

`equal_split` gives a flow from s to t min(bandwidth_s / flows out of s, bandwidth_t / flows into t). What a flow cannot
use at one end because of the other is lost.
"""

from __future__ import annotations

import math

import numpy as np

from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import set_timer
from cacheenv.sim.state.codes import EVENT_FLOW, NONE, SHARING_EQUAL_SPLIT
from cacheenv.sim.state.ids import flow_timer

ROUNDING = 1e-13  # of the present time: seconds that mean nothing
SAME_RATE = 1e-13  # of a rate: the difference that rounding makes


@inner
def arm_flow(w, index, time_s):
    """Lets the flow's present phase end at a time."""
    set_timer(w, flow_timer(w, index), time_s, EVENT_FLOW, w.flow[index].number)


@inner
def _expect_end(w, index):
    """Arms the timer for the last byte. What is left but for rounding is nothing."""
    flow = w.flow[index]
    now_s = w.state[0].now_s
    left_s = flow.remaining_bytes / flow.rate_bytes_per_s
    if left_s < ROUNDING * now_s:
        left_s = 0.0
    arm_flow(w, index, now_s + left_s)


@inner
def _settle(w, index, rate):
    """Gives a transmitting flow its present rate; if that is another one, books what it has sent until now.

    Equal flows end together, in the order in which they were created: a flow whose rate stays as it is keeps its end
    to the last bit.
    """
    flow = w.flow[index]
    if abs(rate - flow.rate_bytes_per_s) <= SAME_RATE * rate:
        return
    now_s = w.state[0].now_s
    flow.remaining_bytes -= flow.rate_bytes_per_s * (now_s - flow.updated_s)
    flow.updated_s = now_s
    flow.rate_bytes_per_s = rate
    _expect_end(w, index)


# -- max-min ---------------------------------------------------------------------------------------------------------


@inner
def _append(w, index, first, last):
    """Puts a flow at the end of a list: (first, last) of the list."""
    w.flow[index].next_shared = NONE
    if last < 0:
        return index, index
    w.flow[last].next_shared = index
    return first, index


@inner
def _list_out(w, nic, first, last):
    """Puts the flows out of a NIC on the list of competitors, unless they are there: (first, last) of the list."""
    row = w.nic[nic]
    number = w.state[0].share_number
    if row.shared_out == number:
        return first, last
    row.shared_out = number
    row.left_out = row.bytes_per_s
    row.open_out = row.flows_out
    index = row.first_out
    while index >= 0:
        if w.flow[index].shared != number:
            w.flow[index].shared = number
            first, last = _append(w, index, first, last)
        index = w.flow[index].next_out
    return first, last


@inner
def _list_in(w, nic, first, last):
    """The same for the flows into a NIC."""
    row = w.nic[nic]
    number = w.state[0].share_number
    if row.shared_in == number:
        return first, last
    row.shared_in = number
    row.left_in = row.bytes_per_s
    row.open_in = row.flows_in
    index = row.first_in
    while index >= 0:
        if w.flow[index].shared != number:
            w.flow[index].shared = number
            first, last = _append(w, index, first, last)
        index = w.flow[index].next_in
    return first, last


@once
def _list_competitors(w, source, sink):
    """Lists the flows out of `source`, those into `sink`, and all that share an end with one of the list."""
    w.state[0].share_number += 1
    first, last = _list_out(w, source, NONE, NONE)
    first, last = _list_in(w, sink, first, last)
    index = first
    while index >= 0:
        first, last = _list_out(w, w.flow[index].source, first, last)
        first, last = _list_in(w, w.flow[index].sink, first, last)
        index = w.flow[index].next_shared
    return first


@once
def _fill_ends(w, first):
    """Rates of the listed flows. Each round fills the ends that are full first, and takes their flows off the list.

    Rates do not depend on the order of the list: all flows of a round get the same rate to the last bit.
    """
    while first >= 0:
        level = math.inf
        index = first
        while index >= 0:
            flow = w.flow[index]
            source, sink = w.nic[flow.source], w.nic[flow.sink]
            flow.share_bytes_per_s = min(source.left_out / source.open_out, sink.left_in / sink.open_in)
            level = min(level, flow.share_bytes_per_s)
            index = flow.next_shared
        limit = level * (1.0 + SAME_RATE)
        index, first, last = first, NONE, NONE
        while index >= 0:
            flow = w.flow[index]
            following = flow.next_shared
            if flow.share_bytes_per_s <= limit:
                source, sink = w.nic[flow.source], w.nic[flow.sink]
                source.left_out -= level
                source.open_out -= 1
                sink.left_in -= level
                sink.open_in -= 1
                _settle(w, index, level)
            else:
                first, last = _append(w, index, first, last)
            index = following


# -- equal split -----------------------------------------------------------------------------------------------------


@inner
def _split(w, index):
    flow = w.flow[index]
    source, sink = w.nic[flow.source], w.nic[flow.sink]
    _settle(w, index, min(source.bytes_per_s / source.flows_out, sink.bytes_per_s / sink.flows_in))


@once
def _split_ends(w, source, sink):
    """Rates of the flows out of `source` and of those into `sink`."""
    index = w.nic[source].first_out
    while index >= 0:
        _split(w, index)
        index = w.flow[index].next_out
    index = w.nic[sink].first_in
    while index >= 0:
        if w.flow[index].source != source:
            _split(w, index)
        index = w.flow[index].next_in


# -- joining and leaving ---------------------------------------------------------------------------------------------


@inner
def _share(w, source, sink):
    """Rates after a change of the flows from `source` to `sink`."""
    out, into = w.nic[source].flows_out, w.nic[sink].flows_in
    if out == 0 and into == 0:
        return
    if out == 1 and into == 1 and w.nic[source].first_out == w.nic[sink].first_in:  # alone, as most of the time
        _settle(w, np.int64(w.nic[source].first_out), min(w.nic[source].bytes_per_s, w.nic[sink].bytes_per_s))
    elif w.config[0].sharing == SHARING_EQUAL_SPLIT:
        _split_ends(w, source, sink)
    else:
        _fill_ends(w, _list_competitors(w, source, sink))


@inner
def join_links(w, index, byte_count):
    """Starts transmitting `byte_count` bytes."""
    flow = w.flow[index]
    source, sink = w.nic[flow.source], w.nic[flow.sink]
    flow.remaining_bytes = byte_count
    flow.rate_bytes_per_s = 0.0
    flow.updated_s = w.state[0].now_s
    flow.shared = 0
    flow.prev_out = -1
    flow.next_out = source.first_out
    if source.first_out >= 0:
        w.flow[source.first_out].prev_out = index
    source.first_out = index
    flow.prev_in = -1
    flow.next_in = sink.first_in
    if sink.first_in >= 0:
        w.flow[sink.first_in].prev_in = index
    sink.first_in = index
    source.flows_out += 1
    sink.flows_in += 1
    _share(w, flow.source, flow.sink)


@inner
def leave_links(w, index, byte_count):
    """Stops transmitting after `byte_count` bytes; others speed up."""
    flow = w.flow[index]
    source, sink = w.nic[flow.source], w.nic[flow.sink]
    if flow.prev_out >= 0:
        w.flow[flow.prev_out].next_out = flow.next_out
    else:
        source.first_out = flow.next_out
    if flow.next_out >= 0:
        w.flow[flow.next_out].prev_out = flow.prev_out
    if flow.prev_in >= 0:
        w.flow[flow.prev_in].next_in = flow.next_in
    else:
        sink.first_in = flow.next_in
    if flow.next_in >= 0:
        w.flow[flow.next_in].prev_in = flow.prev_in
    source.flows_out -= 1
    sink.flows_in -= 1
    source.bytes_out += byte_count
    sink.bytes_in += byte_count
    _share(w, flow.source, flow.sink)


@once
def send_more(w, index, byte_count):
    """A flow in transmission has `byte_count` bytes more to send."""
    flow = w.flow[index]
    now_s = w.state[0].now_s
    sent_bytes = flow.rate_bytes_per_s * (now_s - flow.updated_s)
    flow.remaining_bytes = max(0.0, flow.remaining_bytes - sent_bytes) + byte_count
    flow.updated_s = now_s
    _expect_end(w, index)


@once
def unsent_bytes(w, index):
    """What a flow in transmission has not sent by now."""
    flow = w.flow[index]
    return max(0.0, flow.remaining_bytes - flow.rate_bytes_per_s * (w.state[0].now_s - flow.updated_s))
