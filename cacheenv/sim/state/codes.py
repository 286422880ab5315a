"""What the numbers in the tables stand for. Each code is written here and nowhere else.

Where a scenario names a choice, the tuple of names stands beside its codes, in their order. Mechanisms that have a file
a kind are numbered by their registries (`core/kinds.py`): evictions, queue disciplines, preemptions.
"""

from __future__ import annotations

import numpy as np

NONE = np.int64(-1)


def _numbers(count: int) -> list[np.int64]:
    """0, 1, ... for codes that are handed to functions: Numba compiles anew for each plain number that it is given."""
    return [np.int64(number) for number in range(count)]


# Event kinds: at equal times the smaller kind comes first, then the smaller id.
EVENT_FLOW, EVENT_PREFILL_END, EVENT_DECODE, EVENT_INDEX, EVENT_ARRIVAL, EVENT_PREFILL_START, EVENT_TICK = _numbers(7)

# Request states, in the order in which a request passes through them.
FUTURE, QUEUED, PREFILLING, HANDOVER, WAITING, RUNNING, PREEMPTED, MOVING, DONE = range(9)

# Outcomes of a request.
UNFINISHED, COMPLETED, REJECTED, TOO_LARGE, REJECTED_LATE, ABANDONED = _numbers(6)

# Migration progress of a request.
MOVE_NONE, MOVE_COPYING, MOVE_COPIED, MOVE_DELTA, MOVE_ARRIVED = range(5)

# Flow kinds and phases.
FLOW_PULL, FLOW_HANDOVER, FLOW_STORE_WRITE, FLOW_MIGRATE, FLOW_DELTA, FLOW_ANSWER = _numbers(6)
FLOW_LAYERS, FLOW_SCHEDULE = np.int64(6), np.int64(7)  # empty ones, which tell that a time has come
FLOW_REPLICA = np.int64(8)
PHASE_FREE, PHASE_WAIT, PHASE_MAIN, PHASE_GATED, PHASE_LAST, PHASE_LATENCY = range(6)

# What the event loop stops for: a decision, or one of these.
DECISION_NONE, DECISION_ROUTE, DECISION_MIGRATE, STOP_HORIZON, STOP_GROW, DECISION_ADMIT = range(6)
STOP_DONE = DECISION_NONE

# What the index is told of a run of pages.
REMOVED, STORED = _numbers(2)

# Roles of prefill instances.
ROLE_PREFILL, ROLE_PRE_PREFILL = range(2)

# Kinds of rows in a run's totals.
KIND_PREFILL, KIND_DECODE, KIND_STORE = range(3)

SHARINGS = ("max_min", "equal_split")
SHARING_MAX_MIN, SHARING_EQUAL_SPLIT = range(2)

HANDOVERS = ("chunked", "last_chunk", "blocking")
HANDOVER_CHUNKED, HANDOVER_LAST_CHUNK, HANDOVER_BLOCKING = range(3)

FIRST_TOKENS = ("prefill", "decode")  # where a request's first token comes out
FIRST_TOKEN_PREFILL, FIRST_TOKEN_DECODE = range(2)
ARRIVALS = ("auto", "open", "closed")
ON_REJECT = ("end_session", "retry")

CANDIDATE_ORDERS = ("remaining_per_kv", "shortest_kv")
ORDER_REMAINING_PER_KV, ORDER_SHORTEST_KV = range(2)

INDEX_LEARNS = ("stored", "assigned")
LEARNS_STORED, LEARNS_ASSIGNED = range(2)

MEMORY_POLICIES = ("lru", "ttl")

BACKLOGS = ("now", "dispatch")
BACKLOG_NOW, BACKLOG_DISPATCH = range(2)

PREDICT_ORACLE, PREDICT_NOISY, PREDICT_NONE = range(3)
REFRESH_TOKENS = 20  # output tokens after which the prediction of a request's length is renewed
