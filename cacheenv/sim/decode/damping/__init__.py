"""How careful a decode instance is after a preemption, so that nobody is thrown out again at once: a file a kind.

A kind has `preempted(w, d)`: decode part `d` has thrown requests out and its batch is what is left; and `admits(w, d,
index)`: whether request `index`, for which the plain rule of admission has room, may join now. After a refusal nobody
is looked at before somebody has left the batch or a reservation was given back, as in SGLang (`batch_is_full`): steps
between such moments are not looked at one by one. The first line of a kind's docstring is its line in
`docs/simulator.md`.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import once
from cacheenv.sim.core.kinds import by_code
from cacheenv.sim.decode.damping import none, sglang

#: Value of `cluster.decode.damping` -> the kind. New ones go to the end: the place is the code.
DAMPINGS = {"none": none, "sglang": sglang}

_preempted = by_code([kind.preempted for kind in DAMPINGS.values()])
_admits = by_code([kind.admits for kind in DAMPINGS.values()])


@once
def after_preemption(w, d):
    """Requests were thrown out of the batch of decode part `d`."""
    _preempted(w.decode[d].damping, w, d)


@once
def admits(w, d, index):
    """Whether a request for which there is room may join the batch."""
    return _admits(w.decode[d].damping, w, d, index)
