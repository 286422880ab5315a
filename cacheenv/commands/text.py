"""Numbers and tables as plain text."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def decimals(value: float) -> int:
    """Decimals that leave about three significant digits."""
    size = abs(value)
    if size >= 100 or (value == int(value) and size < 1e6):
        return 0
    return 1 if size >= 10 else 2 if size >= 0.1 else 4


def number(value: float | None) -> str:
    """A number with about three significant digits, `-` for none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.{decimals(value)}f}"


def mean_and_spread(values: Sequence[float | None], factor: float = 1.0) -> str:
    """`mean ± standard deviation` over seeds; the mean alone for one seed or equal values."""
    known = [factor * value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return "-"
    mean = statistics.fmean(known)
    if min(known) == max(known):
        return number(known[0])
    digits = max(decimals(mean), 1 if abs(mean) < 100 else 0)
    return f"{mean:,.{digits}f} ± {statistics.stdev(known):,.{digits}f}"


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain-text table: first column to the left, the others to the right; a header may have several lines."""
    titles = [title.split("\n") for title in header]
    height = max(map(len, titles))
    head = [[title[level] if level < len(title) else "" for title in titles] for level in range(height)]
    widths = [max(len(line[column]) for line in [*head, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        right = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([cells[0].ljust(widths[0]), *right]).rstrip()

    return "\n".join([*map(line, head), "  ".join("-" * width for width in widths), *map(line, rows)])


def csv_text(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Rows as CSV; an empty cell for null."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in names])
    return buffer.getvalue()
