"""Load over time: what each instance has to do at regular moments."""

from __future__ import annotations

import numpy as np

from cacheenv.run.worlds import Worlds
from cacheenv.sim.state.codes import KIND_DECODE, KIND_PREFILL
from cacheenv.sim.state.columns import columns

_PREFILL = "queued_requests running_requests inflight_requests backlog_s cache_used_tokens".split()
_DECODE = (
    "running_requests waiting_requests preempted_requests pending_requests inflight_requests kv_tokens reserved_tokens"
).split()
_BOTH = "outgoing_flows incoming_flows".split()

#: One row an instance and moment; what an instance does not have is 0. The names are those of the view.
TIMELINE_DTYPE = columns(
    """
    f8 time_s backlog_s
    i8 kind index
    i8 queued_requests running_requests waiting_requests preempted_requests pending_requests inflight_requests
    i8 kv_tokens reserved_tokens cache_used_tokens outgoing_flows incoming_flows
    """
).dtype


def sample(worlds: Worlds, index: int) -> np.ndarray:
    """:data:`TIMELINE_DTYPE` rows of the prefill and then the decode instances of a world as it stands."""
    from cacheenv.sim.policies.python_entry import look

    look(worlds.handles, index)
    view = worlds.view(index)
    rows = np.zeros(len(view.prefill) + len(view.decode), TIMELINE_DTYPE)
    rows["time_s"] = view.cluster[0].now_s
    first, last = rows[: len(view.prefill)], rows[len(view.prefill) :]
    for part, table, kind, names in (
        (first, view.prefill, KIND_PREFILL, _PREFILL),
        (last, view.decode, KIND_DECODE, _DECODE),
    ):
        part["kind"], part["index"] = kind, np.arange(len(part))
        for name in (*names, *_BOTH):
            part[name] = table[name]
    return rows
