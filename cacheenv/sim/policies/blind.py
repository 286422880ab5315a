"""A world whose future is not known: who is to come is forgotten, and lengths become what is predicted of them.

For a planner that looks ahead without knowing more than a router does. It is used on copies of a world.
"""

from __future__ import annotations

from cacheenv.sim.arrivals import forget_arrivals
from cacheenv.sim.compute.prediction import predicted_remaining
from cacheenv.sim.core.jit import jit
from cacheenv.sim.decode.batch import expect_ends, generated_after
from cacheenv.sim.decode.run import steps_done, wake_at_boundary
from cacheenv.sim.requests import expect_length, expect_requests, is_here
from cacheenv.sim.state.codes import RUNNING
from cacheenv.sim.state.handle import world_at


@jit
def forget_future(handles, index, first):
    """Forgets what a router cannot know of world `index`, which stands at a decision.

    Only the requests from row `first` on will come, in their order; those in the system will make as many tokens as is
    predicted now. The column `output_tokens` of the workload has to follow that of the requests, which is the caller's
    to do: it is constant here.
    """
    w = world_at(handles, index)
    forget_arrivals(w, first)
    expect_requests(w, first)
    for row in range(first):
        if is_here(w, row):
            request = w.request[row]
            generated = request.generated
            if request.state == RUNNING:
                generated = generated_after(w, row, steps_done(w, request.decode_instance))
            left = int(predicted_remaining(w, row, generated) + 0.5)
            expect_length(w, row, generated + max(1, left))
    for d in range(w.decode.shape[0]):
        if w.decode[d].batch > 0:
            expect_ends(w, d, steps_done(w, d))
            wake_at_boundary(w, d)  # the run of steps was planned up to the end of somebody
