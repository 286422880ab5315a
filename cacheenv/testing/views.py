"""Views and random streams for calling a policy by hand, and guarded copies of views."""

from __future__ import annotations

import numpy as np

from cacheenv.policy import DECISION_MIGRATE, View
from cacheenv.sim.core.rng import seed_words
from cacheenv.sim.view.columns import allocate_view

#: Rows before and behind each table of a copy, and numbers around `params`, that nobody may touch.
GUARD = 4

# Kinds of noise: numbers that mean nothing, with which no decision may change.
OUTSIDE, RUNNING, CANDIDATE = "outside", "running", "candidate"
NOISE = (OUTSIDE, RUNNING, CANDIDATE)


def empty_view(num_prefill: int = 2, num_decode: int = 2, candidates: int = 4, running: int = 32) -> View:
    """A view of that shape, to be filled by a test: all instances accept the request, every other number is 0.

    Args:
        num_prefill: P, rows of `view.prefill`.
        num_decode: D, rows of `view.decode`.
        candidates: K, so that `view.candidate` has D x K rows; their `source` is set.
        running: Rows of `view.running`, none of them valid.
    """
    view = View(*(table[0] for table in allocate_view(1, num_prefill, num_decode, candidates, running)))
    cluster = view.cluster[0]
    cluster.num_prefill, cluster.num_decode, cluster.num_candidates = num_prefill, num_decode, candidates
    cluster.accepting_prefill, cluster.accepting_decode = num_prefill, num_decode
    view.prefill["accepts"] = view.decode["accepts"] = 1
    view.candidate["source"] = np.arange(num_decode * candidates) // candidates
    return view


def random_stream(seed: int = 0) -> np.ndarray:
    """A policy's random stream at its start: int64 (4), what `random_below` and `uniform` draw from."""
    return seed_words(np.random.SeedSequence(seed))


class GuardedView:
    """A private copy of a view: changes of it are noticed, and numbers in it that mean nothing can be replaced.

    Args:
        like: A view of the same shape.
        noise: Kinds of :data:`NOISE`: ones stand there instead of zeros or of what the last decision left.
    """

    def __init__(self, like: View, noise: frozenset[str]) -> None:
        self.noise = noise
        # As plain arrays too: attribute access of record arrays takes most of the time here.
        self._rows = [np.zeros(len(table) + 2 * GUARD, table.dtype) for table in like]
        if OUTSIDE in noise:
            for rows in self._rows:
                _scribble(rows)
        inside = [rows[GUARD:-GUARD] for rows in self._rows]
        self.view = View(*(rows.view(np.recarray) for rows in inside))
        self._plain = dict(zip(View._fields, inside, strict=True))
        self._bytes = [rows.view(np.uint8) for rows in inside]
        self._source: View | None = None
        self._source_bytes: list[np.ndarray] = []
        self._before: list[bytes] = []

    def take(self, view: View, proposed: int | None = None) -> View:
        """The copy with the numbers of `view`, and with another proposed route where one is given."""
        if view is not self._source:
            self._source, self._source_bytes = view, [np.asarray(table).view(np.uint8) for table in view]
        for mine, theirs in zip(self._bytes, self._source_bytes, strict=True):
            mine[:] = theirs
        cluster = self._plain["cluster"][0]
        if proposed is not None:
            cluster["proposed"] = proposed
        if RUNNING in self.noise:
            _scribble(self._plain["running"][cluster["num_running"] :])
        if CANDIDATE in self.noise:
            self._scribble_candidates(ticking=cluster["decision"] == DECISION_MIGRATE)
        self._before = [rows.tobytes() for rows in self._rows]
        return self.view

    def _scribble_candidates(self, ticking: bool) -> None:
        """Candidates are good at ticks, where they are valid; which slots there are is always said."""
        table = self._plain["candidate"]
        stale = table["valid"] == 0 if ticking else np.ones(len(table), np.bool_)
        rows = table[stale]
        kept = rows.copy()
        _scribble(rows)
        rows["source"] = kept["source"]
        if ticking:
            rows["valid"] = 0
        table[stale] = rows

    def changed(self) -> str | None:
        """Name of a table that was changed since :meth:`take`, rows around it included."""
        for name, rows, before in zip(View._fields, self._rows, self._before, strict=True):
            if rows.tobytes() != before:
                return name
        return None


def _scribble(rows: np.ndarray) -> None:
    """Small numbers that would change a decision, and that are legal indices nearly everywhere."""
    for field in rows.dtype.names or ():
        rows[field] = 1


class GuardedNumbers:
    """A policy's `params` with numbers around them that nobody may touch."""

    def __init__(self, length: int, noise: frozenset[str]) -> None:
        self._buffer = np.full(length + 2 * GUARD, 1.0 if OUTSIDE in noise else 0.0)
        self._guard = self._buffer.copy()
        self.values = self._buffer[GUARD:-GUARD]

    def overrun(self) -> int | None:
        """Index into `values` of the first number outside that was changed (negative: in front)."""
        apart = self._buffer != self._guard
        apart[GUARD:-GUARD] = False
        return int(np.flatnonzero(apart)[0]) - GUARD if apart.any() else None
