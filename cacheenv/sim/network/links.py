"""Links: every instance has one full-duplex NIC that all its flows share.

A flow from s to t runs at min(bandwidth_s / flows out of s, bandwidth_t / flows into t); only flows at s or at t change
when one starts or stops. After the last byte come the fixed costs (set-up, pages), which use no bandwidth.

A hand-over behind a layer-wise prefill has two parts: all layers but the last may be sent once the first is computed,
the last one when the prefill has ended (its gate opens). Without contention its visible part is
`setup + max(T_tx - T_prefill (L-1)/L, T_tx / L)`.
"""

from __future__ import annotations

from cacheenv.sim.cache.pages import pages_of
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import clear_timer, set_timer
from cacheenv.sim.state.codes import (
    EVENT_FLOW,
    PHASE_FREE,
    PHASE_GATED,
    PHASE_LAST,
    PHASE_LATENCY,
    PHASE_MAIN,
    PHASE_WAIT,
)
from cacheenv.sim.state.ids import flow_timer, nic_of_holder, prefill_nic

ROUNDING = 1e-13  # of the present time: seconds that mean nothing


@once
def start_pool(w):
    """All flows are free."""
    w.state[0].free_flow = -1
    w.state[0].free_flows = 0
    for index in range(w.flow.shape[0] - 1, -1, -1):
        release_flow(w, index)


@once
def adopt_flows(w, old_count):
    """The pool has become longer: takes the flows from `old_count` on in."""
    for index in range(old_count, w.flow.shape[0]):
        release_flow(w, index)


@inner
def new_flow(w, kind, source, sink, request, tokens, bytes_per_token):
    """Takes a flow of `tokens` tokens between two NICs from the pool; it is not started. Returns its index."""
    state = w.state[0]
    index = state.free_flow
    flow = w.flow[index]
    state.free_flow = flow.next_free
    state.free_flows -= 1
    flow.kind = kind
    flow.phase = PHASE_WAIT
    flow.gate_open = 1
    flow.source = source
    flow.sink = sink
    flow.request = request
    flow.tokens = tokens
    flow.main_bytes = tokens * bytes_per_token
    flow.last_bytes = 0.0
    flow.latency_s = fixed_seconds(w, tokens)
    flow.number = state.flow_number
    state.flow_number += 1
    return index


@inner
def fixed_seconds(w, tokens):
    """What a transfer of `tokens` tokens takes besides its bytes: set-up, and a cost a page."""
    return w.config[0].setup_s + pages_of(w, tokens) * w.config[0].per_block_s


@once
def hold_last_layer(w, index):
    """Sends all layers but the last; the last one waits for :func:`open_gate`."""
    flow = w.flow[index]
    layers = w.config[0].layers
    byte_count = flow.main_bytes
    flow.main_bytes = byte_count * (layers - 1) / layers
    flow.last_bytes = byte_count / layers
    flow.gate_open = 0


@once
def add_latency(w, index, seconds):
    """Lets a flow that has not started end `seconds` later."""
    w.flow[index].latency_s += seconds


@inner
def release_flow(w, index):
    """Returns a flow to the pool."""
    state = w.state[0]
    w.flow[index].phase = PHASE_FREE
    w.flow[index].next_free = state.free_flow
    state.free_flow = index
    state.free_flows += 1


@inner
def _arm(w, index, time_s):
    set_timer(w, flow_timer(w, index), time_s, EVENT_FLOW, w.flow[index].number)


@inner
def _settle(w, index):
    """Gives a transmitting flow its present rate; if that is another one, books what it has sent until now.

    Equal flows end together, in the order in which they were created: a flow whose rate stays as it is keeps its end
    to the last bit, and what is left but for rounding is nothing.
    """
    flow = w.flow[index]
    now_s = w.state[0].now_s
    source, sink = w.nic[flow.source], w.nic[flow.sink]
    rate = min(source.bytes_per_s / source.flows_out, sink.bytes_per_s / sink.flows_in)
    if rate == flow.rate_bytes_per_s:
        return
    flow.remaining_bytes -= flow.rate_bytes_per_s * (now_s - flow.updated_s)
    flow.updated_s = now_s
    flow.rate_bytes_per_s = rate
    left_s = flow.remaining_bytes / rate
    if left_s < ROUNDING * now_s:
        left_s = 0.0
    _arm(w, index, now_s + left_s)


@inner
def _settle_neighbours(w, source, sink):
    index = w.nic[source].first_out
    while index >= 0:
        _settle(w, index)
        index = w.flow[index].next_out
    index = w.nic[sink].first_in
    while index >= 0:
        if w.flow[index].source != source:
            _settle(w, index)
        index = w.flow[index].next_in


@inner
def _join_links(w, index, byte_count):
    """Starts transmitting `byte_count` bytes."""
    flow = w.flow[index]
    source, sink = w.nic[flow.source], w.nic[flow.sink]
    flow.remaining_bytes = byte_count
    flow.rate_bytes_per_s = 0.0
    flow.updated_s = w.state[0].now_s
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
    _settle_neighbours(w, flow.source, flow.sink)


@inner
def _leave_links(w, index, byte_count):
    """Stops transmitting after `byte_count` bytes; the other flows at both ends speed up."""
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
    _settle_neighbours(w, flow.source, flow.sink)


@inner
def start_flow(w, index):
    """Starts transmitting now; a flow without bytes has only its latency."""
    flow = w.flow[index]
    if flow.main_bytes > 0.0:
        flow.phase = PHASE_MAIN
        _join_links(w, index, flow.main_bytes)
    else:
        _after_main(w, index)


@once
def start_flow_at(w, index, time_s):
    """Starts transmitting at a later time."""
    w.flow[index].phase = PHASE_WAIT
    _arm(w, index, time_s)


@inner
def _start_latency(w, index):
    w.flow[index].phase = PHASE_LATENCY
    _arm(w, index, w.state[0].now_s + w.flow[index].latency_s)


@inner
def _after_main(w, index):
    """The main part is sent (and the flow is off the links)."""
    flow = w.flow[index]
    if flow.last_bytes <= 0.0:
        _start_latency(w, index)
    elif flow.gate_open:
        flow.phase = PHASE_LAST
        _join_links(w, index, flow.last_bytes)
    else:
        flow.phase = PHASE_GATED
        clear_timer(w, flow_timer(w, index))


@once
def open_gate(w, index):
    """The prefill has ended: the last layer may be sent."""
    flow = w.flow[index]
    flow.gate_open = 1
    if flow.phase == PHASE_GATED:
        flow.phase = PHASE_LAST
        _join_links(w, index, flow.last_bytes)


@once
def flow_event(w, index):
    """A flow's timer: True when the flow is complete (the caller acts on it and releases it)."""
    flow = w.flow[index]
    if flow.phase == PHASE_WAIT:
        start_flow(w, index)
    elif flow.phase == PHASE_MAIN:
        _leave_links(w, index, flow.main_bytes)
        _after_main(w, index)
    elif flow.phase == PHASE_LAST:
        _leave_links(w, index, flow.last_bytes)
        _start_latency(w, index)
    else:
        clear_timer(w, flow_timer(w, index))
        return True
    return False


@once
def cancel_flow(w, index):
    """Stops a flow wherever it is; what it has sent stays counted."""
    flow = w.flow[index]
    clear_timer(w, flow_timer(w, index))
    if flow.phase == PHASE_MAIN or flow.phase == PHASE_LAST:
        whole = flow.main_bytes if flow.phase == PHASE_MAIN else flow.last_bytes
        left = max(0.0, flow.remaining_bytes - flow.rate_bytes_per_s * (w.state[0].now_s - flow.updated_s))
        _leave_links(w, index, whole - left)
    release_flow(w, index)


@once
def pull_seconds(w, holder, p, tokens):
    """Estimate of moving prefix KV from a holder to a prefill part now: one more flow beside those on both NICs."""
    source, sink = w.nic[nic_of_holder(w, holder)], w.nic[prefill_nic(w, p)]
    rate = min(source.bytes_per_s / (source.flows_out + 1), sink.bytes_per_s / (sink.flows_in + 1))
    return fixed_seconds(w, tokens) + tokens * w.config[0].prefill_kv_bytes / rate


@once
def send_seconds(w, nic, tokens):
    """Estimate of sending decode KV out of a NIC now: one more flow beside those that leave it."""
    source = w.nic[nic]
    rate = source.bytes_per_s / (source.flows_out + 1)
    return fixed_seconds(w, tokens) + tokens * w.config[0].decode_kv_bytes / rate
