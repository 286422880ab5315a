"""The latency form fitted to measurements, and how well it meets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from cacheenv.errors import InputError
from cacheenv.physics.measurements import Measurement

#: Values of `n_tile` that are tried where short suffixes over cached prefixes were measured.
TILES = (1, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True)
class Errors:
    """Relative errors of a form on measurements, as shares.

    Attributes:
        rows: Measurements.
        median: Median of their absolute values.
        mean: Mean of these.
        p90: 90th percentile of these.
        bias: Mean of the signed ones; above 0 where the form is too slow.
        worst: Row of the largest one.
        largest: Its size.
    """

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    worst: str
    largest: float


@dataclass(frozen=True)
class Fit:
    """Coefficients of one phase, named as in :class:`cacheenv.physics.Preset`.

    Attributes:
        coefficients: Field -> value.
        errors: How well they meet the measurements.
        notes: What the measurements cannot tell, a line each.
    """

    coefficients: dict[str, float]
    errors: Errors
    notes: tuple[str, ...]


def relative_errors(predicted: ArrayLike, measured: ArrayLike, places: Sequence[str]) -> Errors:
    """Errors of predictions.

    Args:
        predicted: What a form says, shape `(rows,)`.
        measured: What was measured, shape `(rows,)`.
        places: Names of the rows.
    """
    signed = np.asarray(predicted, dtype=float) / np.asarray(measured, dtype=float) - 1.0
    size = np.abs(signed)
    worst = int(np.argmax(size))
    return Errors(
        rows=len(size),
        median=float(np.median(size)),
        mean=float(np.mean(size)),
        p90=float(np.quantile(size, 0.9)),
        bias=float(np.mean(signed)),
        worst=places[worst],
        largest=float(signed[worst]),
    )


def fit_prefill(rows: Sequence[Measurement], n_tile: int, floor_s: float) -> Fit:
    """a, b, c and n_tile from times to the first token.

    Args:
        rows: Those with a TTFT.
        n_tile: Taken where no cached prefix was measured.
        floor_s: Shortest batch (one decode step), as the simulator will use it; at most the shortest TTFT.

    Raises:
        InputError: Less than three different sizes.
    """
    measured = np.array([row.ttft_s for row in rows], dtype=float)
    with_prefix = any(row.cached and row.prompt - row.cached < TILES[-1] for row in rows)
    best: tuple[float, int, np.ndarray] | None = None
    for tile in TILES if with_prefix else (n_tile,):
        table = np.array([[1.0, *_prefill_units(row, tile)] for row in rows])
        if best is None and np.linalg.matrix_rank(table / table.max(axis=0)) < 3:
            raise InputError("expected TTFT of at least three different numbers of computed tokens")
        values, distance = nnls(table / measured[:, None], np.ones_like(measured))
        if best is None or distance < best[0] - 1e-12:
            best = (float(distance), tile, values)
    assert best is not None
    _, tile, (a_s, b_s, c_s) = best
    predicted = [
        max(floor_s, float(a_s + b_s * tokens + c_s * attention))
        for tokens, attention in (_prefill_units(row, tile) for row in rows)
    ]
    notes = [] if with_prefix else [f"no short suffix over a cached prefix was measured: n_tile stays {tile}"]
    if b_s == 0.0 or c_s == 0.0:
        notes.append(f"the data ask for {'b' if b_s == 0.0 else 'c'} = 0: too few lengths, or not this form")
    return Fit(
        {"prefill_a_s": float(a_s), "prefill_b_s": float(b_s), "prefill_c_s": float(c_s), "n_tile": tile},
        relative_errors(predicted, measured, [row.place for row in rows]),
        tuple(notes),
    )


def _prefill_units(row: Measurement, n_tile: int) -> tuple[float, float]:
    """New tokens, and units of attention, of a batch of equal requests."""
    new = row.prompt - row.cached
    return row.batch * new, row.batch * (new * new + 2.0 * max(new, n_tile) * row.cached)


def fit_decode(rows: Sequence[Measurement], known: Sequence[float]) -> Fit:
    """d, e, f from mean gaps between tokens.

    Args:
        rows: Those with a TPOT.
        known: d, e, f of the preset below; what the measurements cannot tell stays as it is there.

    Raises:
        InputError: Known parts that are longer than what was measured.
    """
    measured = np.array([row.tpot_s for row in rows], dtype=float)
    table = np.array([[1.0, row.batch, row.context] for row in rows])
    names = ("decode_d_s", "decode_e_s", "decode_f_s")
    used, notes, full = [0], [], np.array(known, dtype=float)
    for column, what in ((2, "context"), (1, "batch")):
        trial = sorted([*used, column])
        scaled = table[:, trial] / table[:, trial].max(axis=0)
        if np.linalg.matrix_rank(scaled, tol=1e-3 * np.sqrt(len(rows))) == len(trial):
            used = trial
        else:
            notes.append(f"the {what} never changes by itself: {names[column]} stays {full[column]:.4g}")
    full[used] = 0.0
    left = measured - table @ full
    if left.min() <= 0:
        place = rows[int(np.argmin(left))].place
        raise InputError(f"{place}: column tpot: shorter than the parts that stay as they are ({'; '.join(notes)})")
    full[used], _ = nnls(table[:, used] / measured[:, None], left / measured)
    return Fit(
        dict(zip(names, (float(value) for value in full), strict=True)),
        relative_errors(table @ full, measured, [row.place for row in rows]),
        tuple(notes),
    )
