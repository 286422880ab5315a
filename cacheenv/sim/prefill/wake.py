"""When a prefill instance forms its next batch."""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.core.timers import is_armed, set_timer
from cacheenv.sim.state.codes import EVENT_PREFILL_START
from cacheenv.sim.state.ids import prefill_instance


@inner
def wake(w, p):
    """An idle instance with something to do forms a batch at this instant, after all arrivals of the instant."""
    row = w.prefill[p]
    instance = prefill_instance(w, p)
    if row.busy == 0 and (row.head >= 0 or row.chunked >= 0) and not is_armed(w, instance):
        set_timer(w, instance, w.state[0].now_s, EVENT_PREFILL_START, instance)
