"""Think times: seconds from the last token of a turn to the next turn of its session."""

from __future__ import annotations

import numpy as np

from cacheenv.workload.turns import turn_columns

#: How long an answer takes on a cluster that is not crowded, where a recording does not say: an estimate of ours,
#: 1 s to the first token and 30 ms for each token after it.
FIRST_TOKEN_S = 1.0
NEXT_TOKEN_S = 0.03


def answer_seconds(output_tokens: np.ndarray) -> np.ndarray:
    """Estimated seconds from a request's arrival to its last token, float64."""
    return np.asarray(FIRST_TOKEN_S + NEXT_TOKEN_S * (output_tokens - 1.0))


def recorded_think_s(
    arrival_s: np.ndarray, output_tokens: np.ndarray, session: np.ndarray, told_s: np.ndarray | None = None
) -> np.ndarray:
    """Think time before each request, float64 seconds; 0 before first turns.

    Args:
        arrival_s: Recorded arrivals, s.
        output_tokens: Output tokens.
        session: Session of each request, -1 for none.
        told_s: Think times that the recording itself gives, NaN where it does not.

    Returns:
        What the recording says; else the gap to the turn before less :func:`answer_seconds` of that turn, at least 0.
    """
    turn, following = turn_columns(session)
    before = np.flatnonzero(following >= 0)
    later = following[before]
    think = np.zeros(len(arrival_s))
    think[later] = np.maximum(0.0, arrival_s[later] - arrival_s[before] - answer_seconds(output_tokens[before]))
    if told_s is not None:
        told = (turn > 0) & ~np.isnan(told_s)
        think[told] = told_s[told]
    return think
