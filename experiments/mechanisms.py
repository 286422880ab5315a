"""What each mechanism of the simulated world changes: on against off, seed by seed.

    python experiments/mechanisms.py [--only NAME ...] [--seeds 30] [--list] [--out FILE]

Both sides of a row meet the same requests. `difference` is on - off with its 95 % interval (Student's t over the
pairs): pairs are seeds, or on a trace, of which there is but one, twelve blocks of its time, each block's mean over
five seeds of ties. The verdict is computed:

* more / less: `holds` where the interval excludes 0 on the expected side, `does not hold` where it does on the other;
* same: `holds` where the whole interval lies within the margin, `does not hold` where none of it does;
* at most: `holds` where the upper end is below the margin (a share of the first side's mean), `does not hold` where
  the lower end is above it;
* everything else is `not shown`.

`size` compares the interval with what the source states, a tenth more and less: `as stated` where they overlap, else
`smaller`, `larger` or `other sign`. Rows are written one by one; with `--only` the other rows of the file stay as they
are.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from mechanism_claims import AT_MOST, LESS, MORE, SAME, Claim, Side, all_claims, trace_file
from mechanism_metrics import METRICS, capacity, of_blocks, of_run
from mooncake_fig5 import BLOCKS

from cacheenv import load_scenario, simulate
from cacheenv.commands.intervals import paired_difference
from cacheenv.commands.text import csv_text, number
from cacheenv.errors import InputError, suggestion
from cacheenv.files.atomic import write_atomically
from cacheenv.policy import Policy, PolicyBundle, make_policy
from cacheenv.policy.bundle import bundle_of
from cacheenv.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CACHEENV_SHARED", ROOT.parent / "shared"))
RESULTS = ROOT / "experiments" / "results" / "mechanisms.csv"
TRACE_SEEDS = 5
TUNING_SEEDS = range(1000, 1010)
CAPACITY_TTFT_S = 1.0
SLACK = 0.1  # of what a source states, on both sides: figures are read and rounded
FIELDS = (
    "name", "claim", "source", "scenario", "changes", "off", "on", "metric", "unit", "pairs", "off_mean", "on_mean",
    "difference", "half_width", "change_percent", "expected", "stated", "verdict", "size",
)  # fmt: skip
Row = dict[str, Any]


def bundle(name: str, changes: Mapping[str, Any]) -> PolicyBundle:
    """A policy; what it sets itself among the changed keys, it sets as they say."""
    found = probe_policy(name) or make_policy(name)
    parts = {
        part.kind: replace(
            part,
            requires={key: changes.get(key, value) for key, value in part.requires.items()},
            brings={key: changes.get(key, value) for key, value in part.brings.items()},
        )
        for part in found.parts()
    }
    return replace(found, **parts)


def probe_policy(name: str) -> PolicyBundle | None:
    """One of `probe_policies.py`, if the name is of one."""
    import probe_policies

    base, _, inner = name.removesuffix(")").partition("(")
    found = getattr(probe_policies, base, None)
    if not isinstance(found, Policy):
        return None
    values = dict(item.split("=") for item in inner.split(",")) if inner else {}
    return replace(bundle_of(found.with_params(**{key: float(value) for key, value in values.items()})), name=name)


@cache
def trace(path: Path, speed: float) -> Workload:
    """A trace at so many times its speed."""
    return Workload.from_mooncake(path, rate_scale=speed)


def run(claim: Claim, side: Side, policy: str, seed: int, rate_rps: float | None = None) -> Any:
    """One run of a side."""
    changes = {**claim.changes, **side.changes, "warmup_requests": 0, "warmup_share": 0.0}
    if rate_rps is not None:
        changes["workload.rate_rps"] = rate_rps
    workload = claim.workload(seed) if claim.workload else None
    if claim.trace:
        workload = trace(trace_file(SHARED, claim), claim.trace[1])
    return simulate(
        load_scenario(claim.scenario, changes), bundle(policy, side.changes), seed,
        workload=workload, common_cluster=not side.engine, timeline_s=claim.timeline_s,
    )  # fmt: skip


class Measurements:
    """Values of sides; what several rows need is measured once."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self._known: dict[str, list[dict[str, float]]] = {}
        self._tuned: dict[str, str] = {}

    def values(self, claim: Claim, side: Side) -> tuple[list[float], str]:
        """The metric of each pair, and the policy that ran."""
        if side.constant is not None:
            return [side.constant] * self.seeds, ""
        policy = side.policy if isinstance(side.policy, str) else self._best(claim, side)
        return [found[claim.metric] for found in self._pairs(claim, side, policy)], policy

    def _pairs(self, claim: Claim, side: Side, policy: str) -> list[dict[str, float]]:
        key = repr((claim.scenario, claim.changes, side.changes, side.engine, policy, claim.workload, claim.trace))
        key += repr((claim.rates, claim.timeline_s))
        if key not in self._known:
            self._known[key] = self._measure(claim, side, policy)
        return self._known[key]

    def _measure(self, claim: Claim, side: Side, policy: str) -> list[dict[str, float]]:
        if claim.rates:
            return [{"capacity": self._capacity(claim, side, policy, seed)} for seed in range(self.seeds)]
        if claim.trace is None:
            return [of_run(run(claim, side, policy, seed)) for seed in range(self.seeds)]
        runs = [of_blocks(run(claim, side, policy, seed).requests) for seed in range(min(self.seeds, TRACE_SEEDS))]
        return [{claim.metric: float(np.mean([blocks[n][claim.metric] for blocks in runs]))} for n in range(BLOCKS)]

    def _capacity(self, claim: Claim, side: Side, policy: str, seed: int) -> float:
        return capacity(
            lambda rate: of_run(run(claim, side, policy, seed, rate))["TTFT p50"], claim.rates, CAPACITY_TTFT_S
        )

    def _best(self, claim: Claim, side: Side) -> str:
        """The candidate with the smallest metric on seeds that are not measured."""
        key = repr((claim.scenario, claim.changes, claim.metric, side))
        if key not in self._tuned:
            means = {
                policy: np.mean([of_run(run(claim, side, policy, seed))[claim.metric] for seed in TUNING_SEEDS])
                for policy in side.policy
            }
            self._tuned[key] = min(means, key=lambda policy: float(means[policy]))
        return self._tuned[key]


def verdict(claim: Claim, off_mean: float, difference: float, half_width: float) -> str:
    """The rule in the docstring of this file."""
    low, high = difference - half_width, difference + half_width
    if claim.expected == MORE:
        good, bad = low > 0, high < 0
    elif claim.expected == LESS:
        good, bad = high < 0, low > 0
    elif claim.expected == SAME:
        good, bad = max(abs(low), abs(high)) <= claim.margin, low > claim.margin or high < -claim.margin
    else:
        assert claim.expected == AT_MOST
        good, bad = high <= claim.margin * off_mean, low > claim.margin * off_mean
    return "holds" if good else "does not hold" if bad else "not shown"


def size(claim: Claim, off_mean: float, difference: float, half_width: float) -> str:
    """How the difference compares with the one that the source states; empty where it states none."""
    if claim.stated is None:
        return ""
    scale = off_mean if claim.relative else 1.0
    low, high = (difference - half_width) / scale, (difference + half_width) / scale
    least, most = sorted(claim.stated, key=abs)
    least, most = least * (1 - SLACK), most * (1 + SLACK)
    if min(least, most) <= high and max(least, most) >= low:
        return "as stated"
    if difference * (least + most) < 0:
        return "other sign"
    return "smaller" if abs(difference / scale) < abs(least) else "larger"


def stated_text(claim: Claim) -> str:
    """The stated difference as it is shown."""
    if claim.stated is None:
        return ""
    factor, unit = (100.0, " %") if claim.relative else (1.0, "")
    first, last = (f"{factor * value:+g}{unit}" for value in claim.stated)
    return first if first == last else f"{first} to {last}"


def expected_text(claim: Claim) -> str:
    """What is expected, with its margin."""
    if claim.expected == SAME:
        return f"same within {claim.margin:g}"
    return f"at most {claim.margin:.0%} more" if claim.expected == AT_MOST else claim.expected


def side_text(side: Side, policy: str) -> str:
    """A side as it is shown."""
    if side.constant is not None:
        return f"figure: {side.constant:g}"
    tuned = "" if isinstance(side.policy, str) else f", best of {len(side.policy)}"
    return " ".join([policy + tuned, *changes_text(side.changes)])


def changes_text(changes: Mapping[str, Any]) -> list[str]:
    """Overrides as the command line has them."""
    return [f"{key}={'null' if value is None else value}" for key, value in changes.items()]


def described(claim: Claim) -> Row:
    """What a row says before anything runs."""
    played = [f"{claim.trace[0]} x{claim.trace[1]:g}"] if claim.trace else []
    return {
        "name": claim.name,
        "claim": claim.claim,
        "source": claim.source,
        "scenario": claim.scenario,
        "changes": " ".join([*played, *changes_text(claim.changes)]),
        "metric": claim.metric,
        "unit": METRICS[claim.metric][0],
        "expected": expected_text(claim),
        "stated": stated_text(claim),
    }


def measure(claim: Claim, measurements: Measurements) -> Row:
    """One row of the table."""
    off, off_policy = measurements.values(claim, claim.off)
    on, on_policy = measurements.values(claim, claim.on)
    known = [(one, other) for one, other in zip(on, off, strict=True) if np.isfinite(one) and np.isfinite(other)]
    on, off = [pair[0] for pair in known], [pair[1] for pair in known]
    off_mean, on_mean = round(float(np.mean(off)), 5), round(float(np.mean(on)), 5)
    difference, half_width = (round(value, 5) for value in paired_difference(on, off))
    pairs = f"{len(known)} seeds"
    if claim.trace:
        pairs = f"{len(known)} blocks, {min(measurements.seeds, TRACE_SEEDS)} seeds"
    return {
        **described(claim),
        "off": side_text(claim.off, off_policy),
        "on": side_text(claim.on, on_policy),
        "pairs": pairs,
        "off_mean": off_mean,
        "on_mean": on_mean,
        "difference": difference,
        "half_width": half_width,
        "change_percent": round(100.0 * difference / off_mean, 1) if off_mean else "",
        "verdict": verdict(claim, off_mean, difference, half_width),
        "size": size(claim, off_mean, difference, half_width),
    }


def read_rows(path: Path) -> dict[str, Row]:
    """The rows of an earlier run by their names; none where there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["name"]: dict(row) for row in csv.DictReader(file)}


def write_rows(path: Path, rows: Mapping[str, Row], order: Iterable[str]) -> None:
    """Writes the rows that exist, in the order of the table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, csv_text([rows[name] for name in order if name in rows], FIELDS).encode())


def chosen(names: list[str] | None, claims: Mapping[str, Claim]) -> list[Claim]:
    """The rows that were asked for; an unknown name, or a trace that is not there, is refused."""
    for name in names or []:
        if name not in claims:
            raise InputError(f"unknown row '{name}'{suggestion(name, claims)}; --list shows them all")
    rows = [claim for name, claim in claims.items() if not names or name in names]
    for claim in rows:
        if claim.trace and not trace_file(SHARED, claim).exists():
            raise InputError(f"{claim.name} needs {trace_file(SHARED, claim)} ($CACHEENV_SHARED says where to look)")
    return rows


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure only these rows")
    parser.add_argument("--seeds", type=int, default=30, help="seeds, at least 2 (30)")
    parser.add_argument("--list", action="store_true", help="show the names of the rows, and end")
    parser.add_argument("--out", type=Path, default=RESULTS, help="CSV to write")
    options = parser.parse_args()
    claims = all_claims()
    try:
        if options.seeds < 2:
            raise InputError(f"--seeds: expected at least 2, got {options.seeds}")
        rows = chosen(options.only, claims)
    except InputError as error:
        print(f"mechanisms: {error}", file=sys.stderr)
        return 2
    if options.list:
        for claim in rows:
            print(f"{claim.name:28} {claim.claim}")
        return 0
    measurements, found, start_s = Measurements(options.seeds), read_rows(options.out), time.monotonic()
    for position, claim in enumerate(rows, 1):
        row = found[claim.name] = measure(claim, measurements)
        write_rows(options.out, found, claims)
        values = " -> ".join(number(row[name]) for name in ("off_mean", "on_mean"))
        interval = f"{row['difference']:+.4g} +- {row['half_width']:.2g} {row['unit']}"
        print(
            f"{position:2}/{len(rows)} {time.monotonic() - start_s:5.0f} s  {claim.name}: {claim.metric} {values},"
            f" {interval}: {row['verdict']}{row['size'] and ', ' + row['size']}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
