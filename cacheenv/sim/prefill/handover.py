"""The hand-over of a computed prompt's KV from its prefill to its decode instance."""

from __future__ import annotations

import numpy as np

from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.network.links import hold_last_layer, new_flow, open_gate, start_flow, start_flow_at
from cacheenv.sim.prefill.pages import release_pages
from cacheenv.sim.prefill.wake import wake
from cacheenv.sim.requests import leave_prefill
from cacheenv.sim.state.codes import FLOW_HANDOVER, NONE
from cacheenv.sim.state.ids import decode_nic, prefill_nic


@inner
def _new_handover(w, index):
    request = w.request[index]
    source, sink = prefill_nic(w, request.prefill_instance), decode_nic(w, request.decode_instance)
    flow = new_flow(w, FLOW_HANDOVER, source, sink, index, request.prompt_tokens, w.config[0].prefill_kv_bytes)
    request.handover_flow = flow
    return flow


@once
def announce_handover(w, index, batch_s):
    """The prompt's last batch, of `batch_s` seconds, starts: with overlap, layers are sent as they are computed."""
    if w.config[0].overlap and w.request[index].output_tokens > 1:
        flow = _new_handover(w, index)
        hold_last_layer(w, flow)
        start_flow_at(w, flow, w.state[0].now_s + batch_s / w.config[0].layers)


@once
def start_handover(w, index):
    """The prompt is computed: what is left to send may go."""
    if w.config[0].overlap:
        open_gate(w, np.int64(w.request[index].handover_flow))
    else:
        start_flow(w, _new_handover(w, index))


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
