"""`recompute`: the KV was dropped and is computed again when the request resumes (vLLM, SGLang).

The batch stalls for the prefill time of the request's tokens with the decode instance's coefficients, at least for a
step's fixed time; they count as `rework_tokens`.
"""

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
