"""In which order waiting prompts are batched: a file a kind.

A kind has `order(w, p)`: puts the queue of prefill part `p` in order before a batch is formed. Of `queue.py` it takes
`list_queue` or `list_by_arrival`, and then `rank` and `sort_queue`, or `swap_listed` and `link_queue`. `peek` of
`cache/radix.py` looks a prompt up and changes nothing; `match` refreshes recency and may split nodes, which
`pool_margin` of `run/fill.py`, or `matches_all` there, must allow for. Waiting requests of which a pull is under way
are passed over by the batch. The first line of a kind's docstring is its line in `docs/simulator.md`.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import once
from cacheenv.sim.core.kinds import by_code
from cacheenv.sim.prefill.discipline import dfs_weight, fcfs, lpm, lpm_aged, random

#: Value of `cluster.prefill.queue` -> the kind. New ones go to the end: the place is the code.
DISCIPLINES = {"fcfs": fcfs, "lpm": lpm, "dfs_weight": dfs_weight, "random": random, "lpm_aged": lpm_aged}

_order = by_code([kind.order for kind in DISCIPLINES.values()])


@once
def order_queue(w, p):
    """Brings the queue into the order of its discipline."""
    _order(w.prefill[p].queue, w, p)
