"""`lpm_aged`: as `lpm`, with `lpm_ageing_tokens` more of a match for each round of waiting.

Every time that the instance forms a batch is a round. So a prompt with a poor match runs after a bounded number of
rounds, however many with better ones keep coming, where under `lpm` it can wait for ever (sgl-project/sglang#31954;
SGLang itself has no such rule). A request that `lpm` puts behind all others goes behind all that have no match and have
waited as long.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.prefill.discipline.lpm import order_by_match
from cacheenv.sim.prefill.queue import count_round


@inner
def order(w, p):
    """Sorts by match and rounds of waiting."""
    count_round(w, p)
    order_by_match(w, p, w.prefill[p].lpm_ageing_tokens)
