"""`none`: who fits is let in, also at the first boundary after a preemption.

Who comes back at once has the fewest outputs of all and is the next victim.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner


@inner
def preempted(w, d):
    """Nothing changes."""


@inner
def admits(w, d, index):
    """Room is all that it takes."""
    return True
