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
    """A view of that shape, to be filled by a test: the sizes are set, every other number is 0.

    Args:
        num_prefill: P, rows of `view.prefill`.
        num_decode: D, rows of `view.decode`.
        candidates: K, so that `view.candidate` has D x K rows; their `source` is set.
        running: Rows of `view.running`, none of them valid.
    """
    view = View(*(table[0] for table in allocate_view(1, num_prefill, num_decode, candidates, running)))
    cluster = view.cluster[0]
    cluster.num_prefill, cluster.num_decode, cluster.num_candidates = num_prefill, num_decode, candidates
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
        self.buffers = [np.zeros(len(table) + 2 * GUARD, table.dtype).view(np.recarray) for table in like]
        if OUTSIDE in noise:
            for buffer in self.buffers:
                _scribble(buffer)
        self.view = View(*(buffer[GUARD:-GUARD] for buffer in self.buffers))
        self._before: list[bytes] = []

    def take(self, view: View, proposed: int | None = None) -> View:
        """The copy with the numbers of `view`, and with another proposed route where one is given."""
        for mine, theirs in zip(self.view, view, strict=True):
            mine.view(np.uint8)[:] = theirs.view(np.uint8)
        cluster = self.view.cluster[0]
        if proposed is not None:
            cluster.proposed = proposed
        if RUNNING in self.noise:
            _scribble(self.view.running[int(cluster.num_running) :])
        if CANDIDATE in self.noise:
            stale = self.view.candidate["valid"] == 0
            if cluster.decision != DECISION_MIGRATE:
                stale[:] = True
            kept = self.view.candidate[["valid", "source"]].copy()
            rows = self.view.candidate[stale]
            _scribble(rows)
            self.view.candidate[stale] = rows
            self.view.candidate["source"] = kept["source"]
            if cluster.decision == DECISION_MIGRATE:
                self.view.candidate["valid"] = kept["valid"]
        self._before = [buffer.tobytes() for buffer in self.buffers]
        return self.view

    def changed(self) -> str | None:
        """Name of a table that was changed since :meth:`take`, rows around it included."""
        for name, buffer, before in zip(View._fields, self.buffers, self._before, strict=True):
            if buffer.tobytes() != before:
                return name
        return None


def _scribble(rows: np.recarray) -> None:
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
