"""Two files of digests side by side: which cases differ, in which columns, from which row on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def compare_files(first: Path, second: Path, rounded: bool = False) -> int:
    """Prints every case; 1 where a case or column of `first` differs in `second` or is missing there, else 0.

    Cases and columns that only `second` has are reported and do not count.
    """
    before, after = (json.loads(file.read_text(encoding="utf-8")) for file in (first, second))
    different = 0
    for name, old in before.items():
        places = _values(first, before, name), _values(second, after, name)
        lines, differs = compare_case(old, after.get(name), rounded, *places)
        different += differs
        print("\n    ".join([f"{'different' if differs else 'equal    '}  {name}", *lines]))
    for name in after:
        if name not in before:
            print(f"added      {name}")
    print(f"{len(before)} cases, {different} different")
    return 1 if different else 0


def _values(file: Path, document: Mapping[str, Any], case: str) -> Path | None:
    """The file with the values of a case, if it was kept."""
    name = document.get(case, {}).get("values")
    path = file.with_suffix(".values") / name if name else None
    return path if path is not None and path.is_file() else None


def compare_case(
    old: Mapping[str, Any],
    new: Mapping[str, Any] | None,
    rounded: bool,
    old_values: Path | None = None,
    new_values: Path | None = None,
) -> tuple[list[str], bool]:
    """Lines about a case, and whether it differs."""
    if new is None:
        return ["missing in the second file"], True
    if "skipped" in old or "skipped" in new:
        one_only = ("skipped" in old) != ("skipped" in new)
        return [f"skipped: {old.get('skipped') or new.get('skipped')}"], one_only
    lines, differs = [], False
    part = 1 if rounded else 0
    for name, value in old["columns"].items():
        other = new["columns"].get(name)
        if other == value:
            continue
        if other is None:
            lines.append(f"{name}: missing in the second file")
            differs = True
            continue
        counts = value.split()[part] != other.split()[part]
        differs |= counts
        within = "" if value.split()[1] != other.split()[1] else " (equal after rounding)"
        lines.append(f"{name}{within}: {first_difference(name, old_values, new_values)}")
    lines += [f"{name}: added" for name in new["columns"] if name not in old["columns"]]
    common = [name for name in old["columns"] if name in new["columns"]]
    if common != [name for name in new["columns"] if name in old["columns"]]:
        lines.append("the columns are in another order")
    return lines, differs


def first_difference(name: str, old_file: Path | None, new_file: Path | None) -> str:
    """Where a column begins to differ, and by how much."""
    if old_file is None or new_file is None:
        return "differs (the values of both files are not at hand)"
    with np.load(old_file) as old_values, np.load(new_file) as new_values:
        old, new = old_values[name], new_values[name]
    if old.dtype != new.dtype or old.shape != new.shape:
        return f"{old.dtype}{old.shape} became {new.dtype}{new.shape}"
    unequal = different_elements(old, new)
    places = np.argwhere(unequal)
    at = tuple(int(index) for index in places[0])
    rows = len(np.unique(places[:, 0]))
    text = f"first differs at row {at[0]}{f', place {at[1:]}' if at[1:] else ''}: {old[at]!r} became {new[at]!r}"
    return f"{text}; {rows} of {len(old)} rows{largest_change(old, new)}"


def different_elements(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Where two arrays of one type differ in any bit."""
    size = old.dtype.itemsize
    shape = (*old.shape, size)
    pairs = [np.frombuffer(values.tobytes(), np.uint8).reshape(shape) for values in (old, new)]
    return np.asarray((pairs[0] != pairs[1]).any(axis=-1))


def largest_change(old: np.ndarray, new: np.ndarray) -> str:
    """The largest relative change of a column of floats."""
    if old.dtype.kind != "f":
        return ""
    both = np.isfinite(old) & np.isfinite(new)
    if not both.any():
        return ""
    one, two = old[both].astype(np.float64), new[both].astype(np.float64)
    scale = np.maximum(np.abs(one), np.abs(two))
    change = np.abs(one - two)[scale > 0] / scale[scale > 0]
    return f", largest relative change {change.max(initial=0.0):.1e}"
