"""What a preempted request pays when it resumes: a file a kind.

A kind has `resume_seconds(w, d, index, tokens)`: seconds by which the batch of decode part `d` stalls when request
`index` comes back with `tokens` tokens of KV. The first line of a kind's docstring is its line in `docs/simulator.md`.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.core.kinds import by_code
from cacheenv.sim.decode.preemption import recompute, swap

#: Value of `cluster.decode.preemption` -> the kind. New ones go to the end: the place is the code.
PREEMPTIONS = {"recompute": recompute, "swap": swap}

_resume_seconds = by_code([kind.resume_seconds for kind in PREEMPTIONS.values()])


@inner
def resume_seconds(w, d, index, tokens):
    """Stall of the batch when a preempted request resumes with `tokens` tokens of KV."""
    return _resume_seconds(w.decode[d].preemption, w, d, index, tokens)
