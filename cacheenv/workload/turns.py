"""Turns: where a request stands in its session."""

from __future__ import annotations

import numpy as np


def turn_columns(session: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each request's turn, 0 for first ones, and row of the turn behind it, -1 for last ones; int64.

    Args:
        session: Session of each request, -1 for none; turns follow each other in the order of the rows.
    """
    order = np.argsort(session, kind="stable")
    ordered = session[order]
    goes_on = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)
    begins = np.concatenate(([True], ~goes_on))
    places = np.arange(len(session))
    turn = np.empty(len(session), np.int64)
    turn[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    following = np.full(len(session), -1, np.int64)
    following[order[:-1][goes_on]] = order[1:][goes_on]
    return turn, following
