"""`swap`: the KV was moved to host memory and is loaded when the request resumes.

The batch stalls for the bytes of the request's tokens over `swap_gbytes_per_s`.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner


@inner
def resume_seconds(w, d, index, tokens):
    """Stall of the batch for loading `tokens` tokens of KV."""
    return tokens * w.config[0].decode_kv_bytes / w.config[0].swap_bytes_per_s
