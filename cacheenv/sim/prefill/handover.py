"""The hand-over of a prompt's KV from its prefill to its decode instance: one flow a request.

Kinds of `cluster.network.handover`:

* `chunked`: the KV of each piece of a long prompt is sent when the piece has been computed, that of the cached prefix
  with the first one (SGLang's `send_kv_chunk`). The last piece, which may be the whole prompt, is sent layer by layer
  behind its computing. A piece waits for those before it.
* `last_chunk`: everything is sent layer by layer behind the last piece.
* `blocking`: everything is sent when the prompt is computed.

Layer by layer: all layers but the last may be sent from T / L after the start of the batch on, the last one when the
batch has ended.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.cache.pages import pages_of
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.network.links import (
    cancel_flow,
    close_gate,
    extend_flow,
    hold_bytes,
    hold_last_layer,
    new_flow,
    open_gate,
    set_latency,
    setup_seconds,
    start_flow,
    start_flow_at,
    token_bytes,
)
from cacheenv.sim.prefill.pages import release_pages
from cacheenv.sim.prefill.wake import wake
from cacheenv.sim.requests import leave_prefill
from cacheenv.sim.state.codes import (
    FLOW_HANDOVER,
    FLOW_LAYERS,
    HANDOVER_BLOCKING,
    HANDOVER_CHUNKED,
    HANDOVER_LAST_CHUNK,
    NONE,
)
from cacheenv.sim.state.ids import decode_nic, prefill_nic


@inner
def _ends(w, request):
    """NICs between which a request's hand-over goes."""
    return prefill_nic(w, request.prefill_instance), decode_nic(w, request.decode_instance)


@inner
def _piece_bytes(w, request):
    """KV of the piece of a prompt that is computed."""
    source, sink = _ends(w, request)
    return request.piece_tokens * token_bytes(w, source, sink)


@inner
def _fixed_seconds(w, source, sink, prompt_tokens, tokens):
    """From the last byte to the KV's being in place: fixed costs, of the last `tokens` tokens' pages, and the load."""
    config = w.config[0]
    fixed_s = config.handover_fixed_s
    if fixed_s < 0.0:
        fixed_s = setup_seconds(w, source, sink)
    load_s = prompt_tokens * token_bytes(w, source, sink) / config.handover_load_bytes_per_s
    return fixed_s + pages_of(w, tokens) * config.per_block_s + load_s


@inner
def _new_handover(w, index, tokens):
    """A flow with the KV of the first `tokens` tokens of the prompt; it is not started."""
    request = w.request[index]
    source, sink = _ends(w, request)
    flow = new_flow(w, FLOW_HANDOVER, source, sink, index, tokens)
    set_latency(w, flow, _fixed_seconds(w, source, sink, request.prompt_tokens, tokens))
    request.handover_flow = flow
    return flow


@once
def send_piece(w, index):
    """A piece of a prompt has been computed, and others are to come."""
    request = w.request[index]
    if w.config[0].handover != HANDOVER_CHUNKED or request.output_tokens <= 1:
        return
    if request.handover_flow < 0:
        flow = _new_handover(w, index, request.hit_tokens + request.computed_tokens)
        close_gate(w, flow)
        start_flow(w, flow)
    else:
        extend_flow(w, np.int64(request.handover_flow), _piece_bytes(w, request))


@once
def announce_handover(w, index, batch_s):
    """The prompt's last batch, of `batch_s` seconds, starts: layers are sent as they are computed."""
    config = w.config[0]
    request = w.request[index]
    if config.handover == HANDOVER_BLOCKING or request.output_tokens <= 1:
        return
    if request.handover_flow < 0:
        flow = _new_handover(w, index, request.prompt_tokens)
        hold_last_layer(w, flow)
        start_flow_at(w, flow, w.state[0].now_s + batch_s / config.layers)
    else:
        _announce_rest(w, index, batch_s)


@once
def _announce_rest(w, index, batch_s):
    """The last piece of a prompt whose other pieces are under way."""
    config = w.config[0]
    request = w.request[index]
    flow = np.int64(request.handover_flow)
    source, sink = _ends(w, request)
    hold_bytes(w, flow, _piece_bytes(w, request) / config.layers)
    set_latency(w, flow, _fixed_seconds(w, source, sink, request.prompt_tokens, request.piece_tokens))
    if config.layers > 1:  # an empty flow tells when the first layer is computed
        signal = new_flow(w, FLOW_LAYERS, source, source, index, 0)
        set_latency(w, signal, batch_s / config.layers)
        start_flow(w, signal)


@once
def send_layers(w, index):
    """The first layer of a prompt's last piece is computed: all layers but the last may be sent."""
    config = w.config[0]
    request = w.request[index]
    byte_count = _piece_bytes(w, request)
    extend_flow(w, np.int64(request.handover_flow), byte_count * (config.layers - 1) / config.layers)


@inner
def start_handover(w, index):
    """The prompt is computed: what is left to send may go."""
    request = w.request[index]
    if request.handover_flow >= 0:
        open_gate(w, np.int64(request.handover_flow))
    else:
        start_flow(w, _new_handover(w, index, request.prompt_tokens))


@once
def visible_seconds(w, p, prompt_tokens, new_tokens, prefill_s):
    """Estimate of how long a prompt's hand-over outlasts its prefill of `prefill_s`, as one more flow out of `p`.

    Where it goes is not decided: to an instance with the same link and as many ranks.
    """
    config = w.config[0]
    own = prefill_nic(w, p)
    nic = w.nic[own]
    byte_count = prompt_tokens * nic.kv_bytes
    send_s = byte_count * (nic.flows_out + 1) / nic.bytes_per_s
    fixed_s = _fixed_seconds(w, own, own, prompt_tokens, prompt_tokens)
    if config.handover == HANDOVER_BLOCKING:
        return fixed_s + send_s
    hidden_s = prefill_s * (config.layers - 1) / config.layers
    chunk_tokens = w.prefill[p].chunk_tokens
    if config.handover == HANDOVER_LAST_CHUNK and 0 < chunk_tokens < new_tokens:
        hidden_s *= ((new_tokens - 1) % chunk_tokens + 1) / new_tokens
    return fixed_s + max(send_s - hidden_s, send_s / config.layers)


@once
def cancel_handover(w, index):
    """The KV is not wanted any more; what was sent was sent."""
    flow = np.int64(w.request[index].handover_flow)
    if flow >= 0:
        cancel_flow(w, flow)
        w.request[index].handover_flow = NONE


@once
def end_handover(w, index):
    """All KV has arrived: the prefill instance is done with the request."""
    w.request[index].handover_flow = NONE
    release_prompt(w, index)


@inner
def release_prompt(w, index):
    """The prefill instance is done with a request, and may have room for another."""
    release_pages(w, index)
    leave_prefill(w, index)
    wake(w, w.request[index].prefill_instance)
