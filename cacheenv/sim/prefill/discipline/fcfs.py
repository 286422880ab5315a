"""`fcfs`: arrival order."""

from __future__ import annotations

from cacheenv.sim.core.jit import inner


@inner
def order(w, p):
    """Leaves the queue as it is."""
