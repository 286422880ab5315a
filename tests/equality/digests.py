"""Digests of what the simulator and the environments do, and their comparison.

python tests/equality/digests.py --all OUT.json       everything; the values beside it in OUT.values/
python tests/equality/digests.py --compare A.json B.json
python tests/equality/digests.py --renew              the small part that stays as a test, into expected.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from compare import compare_files
from equality_cases import Case, all_cases, small_cases

EXPECTED = Path(__file__).with_name("expected.json")
#: Significant digits of float64 values in the rounded digest. A change of the last bit of every arrival turned 2 of 19
#: runs red at 12 digits and none at 11; a change by 1e-9 must show, which 10 digits still do.
DIGITS = 10
TINY = 1e-12  # smaller magnitudes count as 0 there: what is left of two equal terms
LETTERS = 16  # of a column's digest


def exact_bytes(values: np.ndarray) -> bytes:
    """Type, shape and all bits."""
    return f"{values.dtype.str}{values.shape}".encode() + values.tobytes()


def rounded_bytes(values: np.ndarray) -> bytes:
    """Shape and values: float64 to `DIGITS` digits, one NaN, one zero, integers and flags exactly.

    float32 values are exact: they are rounded by themselves, far coarser than the last digits of a math library.
    """
    shape = str(values.shape).encode()
    if values.dtype.kind != "f":
        return shape + values.astype(np.int64).tobytes()
    clean = np.where(np.abs(values) < TINY, 0.0, values)
    if values.dtype == np.float32:
        clean = clean.astype(np.float32)
        clean[np.isnan(clean)] = np.nan
        return shape + clean.tobytes()
    form = f"{{:.{DIGITS - 1}e}}".format
    return shape + ",".join(map(form, clean.ravel().tolist())).encode()


def digest(name: str, content: bytes) -> str:
    """Digest of a column under its name."""
    return hashlib.sha256(name.encode() + b"\0" + content).hexdigest()[:LETTERS]


def rounded_digests(columns: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Column -> rounded digest."""
    return {name: digest(name, rounded_bytes(values)) for name, values in columns.items()}


def together(digests: Mapping[str, str]) -> str:
    """One digest of all columns, by name."""
    return hashlib.sha256("".join(f"{name}={digests[name]}\n" for name in sorted(digests)).encode()).hexdigest()


def digests_of(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Both digests of a case, and those of each column: `exact` and `rounded` in one string."""
    exact = {name: digest(name, exact_bytes(values)) for name, values in columns.items()}
    rounded = rounded_digests(columns)
    return {
        "exact": together(exact),
        "rounded": together(rounded),
        "columns": {name: f"{exact[name]} {rounded[name]}" for name in columns},
    }


def values_folder(file: Path) -> Path:
    """Where the values of the digests in `file` are."""
    return file.with_suffix(".values")


def write_all(file: Path, only: str) -> None:
    """Runs all cases whose id contains `only`; writes their digests, and their values beside them."""
    folder = values_folder(file)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases = [case for case in all_cases() if only in case.id]
    document: dict[str, Any] = {}
    start_s = time.perf_counter()
    for number, case in enumerate(cases):
        if case.id in document:
            raise SystemExit(f"two cases are named {case.id}")
        if case.skip:
            document[case.id] = {"skipped": case.skip}
            continue
        columns = case.columns()
        values = f"{number}.npz"
        np.savez_compressed(folder / values, **columns)
        document[case.id] = {**digests_of(columns), "values": values}
        if number % 50 == 0:
            print(f"{number}/{len(cases)}  {time.perf_counter() - start_s:.0f} s  {case.id}", file=sys.stderr)
    file.write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")
    skipped = sum("skipped" in entry for entry in document.values())
    print(f"{len(document)} cases, {skipped} skipped, {time.perf_counter() - start_s:.0f} s: {file}")


def renew() -> None:
    """Writes the digests of the small part, a case a line."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(rounded_digests(case.columns()), separators=(',', ':'))}"
        for name, case in small_cases().items()
    ]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(lines)} cases: {EXPECTED.name}")


def changes(case: Case, expected: Mapping[str, str]) -> list[str]:
    """Columns of a case whose rounded digests are not as expected, those that are gone included."""
    found = rounded_digests(case.columns())
    return [name for name, value in expected.items() if found.get(name) != value]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--all", metavar="OUT.json", type=Path)
    task.add_argument("--renew", action="store_true")
    task.add_argument("--compare", metavar="FILE", nargs=2, type=Path)
    parser.add_argument("--only", metavar="TEXT", default="", help="with --all: cases whose id contains TEXT")
    parser.add_argument("--rounded", action="store_true", help="with --compare: equal after rounding is equal")
    arguments = parser.parse_args()
    if arguments.compare:
        return compare_files(*arguments.compare, rounded=arguments.rounded)
    if arguments.renew:
        renew()
    else:
        write_all(arguments.all, arguments.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
