"""`recompute`: the KV of a preempted request was dropped, and is computed again when it resumes (vLLM, SGLang)."""

from __future__ import annotations

from cacheenv.sim.compute.cost import recompute_seconds
from cacheenv.sim.core.jit import inner
from cacheenv.sim.requests import count_rework
from cacheenv.sim.state.ids import decode_instance


@inner
def resume_seconds(w, d, index, tokens):
    """Stall of the batch for computing `tokens` tokens of KV again."""
    count_rework(w, index, tokens)
    return recompute_seconds(w.instance[decode_instance(w, d)], tokens)
