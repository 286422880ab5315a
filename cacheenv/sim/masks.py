"""Which actions are legal in a filled view."""

from __future__ import annotations

from cacheenv.sim.jit import jit
from cacheenv.sim.migration import move_is_legal


@jit
def route_mask(view, mask):
    """Fills `mask[((p * D) + d) * 2 + pull]` and the reject entry `mask[2 P D]`."""
    decodes = view.decode.shape[0]
    at = 0
    for p in range(view.prefill.shape[0]):
        pullable = view.prefill[p].pull_tokens > 0
        for _ in range(decodes):
            mask[at] = True
            mask[at + 1] = pullable
            at += 2
    mask[at] = view.cluster[0].allow_reject == 1


@jit
def migrate_mask(view, mask):
    """Fills `mask[((s * K) + k) * D + d]` and the stay entry `mask[D K D]`, which is always legal."""
    decodes = view.decode.shape[0]
    at = 0
    for row in range(view.candidate.shape[0]):
        if view.candidate[row].valid == 1:
            for d in range(decodes):
                mask[at + d] = move_is_legal(view, row, d)
        else:
            for d in range(decodes):
                mask[at + d] = False
        at += decodes
    mask[at] = True
