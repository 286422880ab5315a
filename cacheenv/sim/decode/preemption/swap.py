"""`swap`: the KV was moved to host memory and is loaded when the request resumes.

The batch stalls for the bytes of the request's tokens over `swap_gbytes_per_s`.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.state.ids import decode_nic


@inner
def resume_seconds(w, d, index, tokens):
    """Stall of the batch for loading `tokens` tokens of KV."""
    return tokens * w.nic[decode_nic(w, d)].kv_bytes / w.decode[d].swap_bytes_per_s
