"""Blocks of docs/mechanisms.md: what `experiments/mechanisms.py` and `mooncake_splits.py` have written."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from markdown_table import table

from cacheenv.commands.text import decimals, number

RESULTS = Path(__file__).resolve().parents[2] / "experiments" / "results"
#: Block -> beginnings of the names of its rows.
BLOCKS = {
    "mechanisms_index": ("index-",),
    "mechanisms_backlog": ("backlog-",),
    "mechanisms_network": ("max-min-", "chunks-"),
    "mechanisms_star": ("star-",),
    "mechanisms_lmetric": ("lmetric-",),
    "mechanisms_cpd": ("cpd-",),
    "mechanisms_users": ("closed-",),
    "mechanisms_admission": ("trace-", "long-"),
    "mechanisms_caches": ("eviction-", "pulls-"),
    "mechanisms_damping": ("damping-",),
}


def results(name: str) -> list[dict[str, str]]:
    """Rows of a committed table."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def short_side(text: str) -> str:
    """A side of a comparison with the last part of each key."""
    policy, *changes = text.split(" ")
    return " ".join([policy, *(f"`{change.rsplit('.', 1)[-1]}`" if "=" in change else change for change in changes)])


def interval(row: dict[str, str]) -> str:
    """Difference and half of its interval, the digits that the latter allows."""
    difference, half_width = float(row["difference"]), float(row["half_width"])
    digits = min(5, max(decimals(difference), decimals(half_width))) if half_width else decimals(difference)
    return f"{difference:+,.{digits}f} ± {half_width:,.{digits}f}"


def _block(beginnings: tuple[str, ...]) -> Callable[[], str]:
    def build() -> str:
        rows = []
        for row in results("mechanisms"):
            if not row["name"].startswith(beginnings):
                continue
            size = f", {row['size']}" if row["size"] else ""
            rows.append(
                [
                    f"`{row['name']}`",
                    f"{row['claim']} ({row['source']})",
                    f"{short_side(row['off'])} → {short_side(row['on'])}",
                    f"{row['metric']} [{row['unit']}]",
                    f"{number(float(row['off_mean']))} → {number(float(row['on_mean']))}",
                    interval(row),
                    row["stated"] or "-",
                    f"**{row['verdict']}**{size}",
                ]
            )
        return table(["row", "claim", "off → on", "metric", "means", "difference", "stated", "verdict"], rows)

    return build


def counts() -> str:
    """How many rows have which verdict."""
    found = Counter(row["verdict"] for row in results("mechanisms"))
    return (
        f"Of {found.total()} rows {found['holds']} hold, {found['not shown']} are not shown and "
        f"{found['does not hold']} do not hold.\n"
    )


def splits() -> str:
    """The table of `mooncake_splits.py`."""
    rows = [
        [
            f"Fig. {row['figure']}",
            row["setting"],
            "mean TTFT [s]" if row["metric"] == "TTFT" else "share met",
            row["published"],
            number(float(row["simulated"])),
            f"{100 * float(row['difference']):+.1f}",
            f"**{row['verdict']}** {100 * float(row['tolerance']):g}",
            number(float(row["bare"])),
            f"{100 * float(row['bare_difference']):+.1f}",
            row["bare_verdict"],
        ]
        for row in results("mooncake_splits")
    ]
    header = ["figure", "setting", "metric", "published", "simulated", "% or points", "tolerance", "without the terms"]
    return table([*header, "% or points", "tolerance"], rows)


GENERATED: dict[str, Callable[[], str]] = {
    "mechanisms_counts": counts,
    **{name: _block(beginnings) for name, beginnings in BLOCKS.items()},
    "mechanisms_splits": splits,
}
