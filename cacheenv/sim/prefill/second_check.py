"""The second question to admission, at the end of a prefill: the hand-over ends only where the answer is yes.

A batch may complete several prompts: they are asked about one after the other, in the order of the batch, at the same
simulated time and before anything else happens. What is refused has been computed in vain; its pages stay cached.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import once
from cacheenv.sim.prefill.handover import cancel_handover, release_prompt, start_handover
from cacheenv.sim.requests import reject, skip_decode
from cacheenv.sim.state.codes import NONE, REJECTED_LATE


@once
def ask_later(w, index):
    """A prompt is computed: admission is asked about it again before its hand-over goes on."""
    state = w.state[0]
    w.request[index].check_next = NONE
    if state.check_head < 0:
        state.check_head = index
    else:
        w.request[state.check_tail].check_next = index
    state.check_tail = index


@once
def settle_check(w, accepted):
    """What becomes of the prompt in question."""
    state = w.state[0]
    index = state.check_head
    state.check_head = w.request[index].check_next
    if accepted:
        start_handover(w, index)
        return
    cancel_handover(w, index)
    skip_decode(w, index)
    release_prompt(w, index)
    reject(w, index, REJECTED_LATE)
