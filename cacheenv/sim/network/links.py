"""Flows between NICs: every instance has one full-duplex NIC that all its flows share (`sharing.py`).

After the last byte of a flow come its fixed costs (set-up, pages), which use no bandwidth.

A flow whose gate is closed has more to send than is there yet: a hand-over behind a prefill. It is given more bytes as
they are computed; its last part, the last layer, is sent when the prefill has ended and the gate opens. While it waits
it uses no bandwidth.
"""

from __future__ import annotations

from cacheenv.sim.cache.pages import pages_of
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import clear_timer
from cacheenv.sim.network.sharing import arm_flow, join_links, leave_links, send_more, unsent_bytes
from cacheenv.sim.state.codes import (
    PHASE_FREE,
    PHASE_GATED,
    PHASE_LAST,
    PHASE_LATENCY,
    PHASE_MAIN,
    PHASE_WAIT,
)
from cacheenv.sim.state.ids import flow_timer, nic_of_holder, prefill_nic


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
def new_flow(w, kind, source, sink, request, tokens):
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
    flow.main_bytes = tokens * token_bytes(w, source, sink)
    flow.last_bytes = 0.0
    flow.latency_s = fixed_seconds(w, source, sink, tokens)
    flow.number = state.flow_number
    state.flow_number += 1
    return index


@inner
def setup_seconds(w, source, sink):
    """Set-up of a transfer between two NICs: that of the end which takes longer."""
    return max(w.nic[source].setup_s, w.nic[sink].setup_s)


@inner
def fixed_seconds(w, source, sink, tokens):
    """What a transfer of `tokens` tokens takes besides its bytes: set-up, and a cost a page."""
    return setup_seconds(w, source, sink) + pages_of(w, tokens) * w.config[0].per_block_s


@inner
def token_bytes(w, source, sink):
    """Bytes that a transfer between two NICs moves for a token, as its sender holds the KV.

    Where a tensor-parallel group has more GPUs than the model has KV heads, some of them hold the same KV. Between
    groups of one size each GPU sends what it holds to the one of its rank, so every copy moves (vLLM, SGLang). Between
    groups of different sizes ranks do not correspond: one of those that hold the same KV sends it, and the others are
    idle (SGLang's dummy ranks); the receiver makes its copies over its own links. The store keeps what it is sent.
    """
    sender, receiver = w.nic[source], w.nic[sink]
    if sender.tensor_parallel < 0:
        return receiver.kv_bytes
    if receiver.tensor_parallel < 0 or receiver.tensor_parallel == sender.tensor_parallel:
        return sender.kv_bytes
    return sender.kv_copy_bytes


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
def close_gate(w, index):
    """More bytes will be there to be sent later than those that the flow has been given."""
    w.flow[index].gate_open = 0


@once
def hold_bytes(w, index, byte_count):
    """The last part of a flow whose gate is closed."""
    w.flow[index].last_bytes = byte_count


@once
def add_latency(w, index, seconds):
    """Lets a flow that has not started end `seconds` later."""
    w.flow[index].latency_s += seconds


@inner
def set_latency(w, index, seconds):
    """What passes from a flow's last byte to its end."""
    w.flow[index].latency_s = seconds


@inner
def release_flow(w, index):
    """Returns a flow to the pool."""
    state = w.state[0]
    w.flow[index].phase = PHASE_FREE
    w.flow[index].next_free = state.free_flow
    state.free_flow = index
    state.free_flows += 1


@inner
def start_flow(w, index):
    """Starts transmitting now; a flow without bytes has only its latency."""
    flow = w.flow[index]
    if flow.main_bytes > 0.0:
        flow.phase = PHASE_MAIN
        join_links(w, index, flow.main_bytes)
    else:
        _after_main(w, index)


@inner
def start_flow_at(w, index, time_s):
    """Starts transmitting at a later time."""
    w.flow[index].phase = PHASE_WAIT
    arm_flow(w, index, time_s)


@inner
def _start_latency(w, index):
    w.flow[index].phase = PHASE_LATENCY
    arm_flow(w, index, w.state[0].now_s + w.flow[index].latency_s)


@inner
def _after_main(w, index):
    """The main part is sent (and the flow is off the links)."""
    flow = w.flow[index]
    if not flow.gate_open:
        flow.phase = PHASE_GATED
        clear_timer(w, flow_timer(w, index))
    elif flow.last_bytes > 0.0:
        flow.phase = PHASE_LAST
        join_links(w, index, flow.last_bytes)
    else:
        _start_latency(w, index)


@inner
def extend_flow(w, index, byte_count):
    """A flow whose gate is closed has `byte_count` bytes more that may be sent."""
    flow = w.flow[index]
    if flow.phase == PHASE_MAIN:
        flow.main_bytes += byte_count
        send_more(w, index, byte_count)
    else:
        flow.phase = PHASE_MAIN
        flow.main_bytes = byte_count
        join_links(w, index, byte_count)


@once
def open_gate(w, index):
    """The prefill has ended: the last layer may be sent."""
    flow = w.flow[index]
    flow.gate_open = 1
    if flow.phase == PHASE_GATED:
        flow.phase = PHASE_LAST
        join_links(w, index, flow.last_bytes)


@once
def flow_event(w, index):
    """A flow's timer: True when the flow is complete (the caller acts on it and releases it)."""
    flow = w.flow[index]
    if flow.phase == PHASE_WAIT:
        start_flow(w, index)
    elif flow.phase == PHASE_MAIN:
        leave_links(w, index, flow.main_bytes)
        _after_main(w, index)
    elif flow.phase == PHASE_LAST:
        leave_links(w, index, flow.last_bytes)
        _start_latency(w, index)
    else:
        clear_timer(w, flow_timer(w, index))
        return True
    return False


@inner
def cancel_flow(w, index):
    """Stops a flow wherever it is; what it has sent stays counted."""
    flow = w.flow[index]
    clear_timer(w, flow_timer(w, index))
    if flow.phase == PHASE_MAIN or flow.phase == PHASE_LAST:
        whole = flow.main_bytes if flow.phase == PHASE_MAIN else flow.last_bytes
        leave_links(w, index, whole - unsent_bytes(w, index))
    release_flow(w, index)


@once
def pull_seconds(w, holder, p, tokens):
    """Estimate of moving prefix KV from a holder to a prefill part now: one more flow beside those on both NICs.

    An equal part of each is what the flow has at least.
    """
    start, end = nic_of_holder(w, holder), prefill_nic(w, p)
    source, sink = w.nic[start], w.nic[end]
    rate = min(source.bytes_per_s / (source.flows_out + 1), sink.bytes_per_s / (sink.flows_in + 1))
    return fixed_seconds(w, start, end, tokens) + tokens * token_bytes(w, start, end) / rate


@once
def send_seconds(w, nic, tokens):
    """Estimate of sending KV out of a NIC now, to one like it: one more flow beside those that leave it."""
    source = w.nic[nic]
    rate = source.bytes_per_s / (source.flows_out + 1)
    return fixed_seconds(w, nic, nic, tokens) + tokens * source.kv_bytes / rate
