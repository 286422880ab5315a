"""What a run shows: a table on the screen, CSV, JSON, YAML and plots, all made from the same rows."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import math
import platform
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cacheenv.commands.store import json_ready
from cacheenv.run.metrics import METRICS

#: Columns of the table: metric, title, unit, factor. Those of the second list are shown where any value is not zero.
COLUMNS = [
    ("ttft_mean_s", "TTFT mean", "s", 1.0),
    ("ttft_p99_s", "TTFT p99", "s", 1.0),
    ("tpot_mean_s", "TPOT mean", "ms", 1e3),
    ("tbt_tail_p99_s", "TBT tail p99", "ms", 1e3),
    ("slo_attainment", "SLO met", "%", 100.0),
    ("goodput_rps", "goodput", "req/s", 1.0),
    ("hit_rate", "cache hits", "% tokens", 100.0),
    ("load_imbalance_prefill", "P load", "max/mean", 1.0),
    ("load_imbalance_decode", "D load", "max/mean", 1.0),
]
OCCASIONAL_COLUMNS = [
    ("pulled_gbytes", "pulled", "GB", 1.0),
    ("migrations", "migrations", "count", 1.0),
    ("preemptions", "preemptions", "count", 1.0),
    ("rejected", "rejected", "count", 1.0),
    ("too_large", "too large", "count", 1.0),
    ("unfinished", "unfinished", "count", 1.0),
]


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


def bench_table(rows: Sequence[Mapping[str, Any]], notes: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of one scenario.

    Args:
        rows: Results of one scenario, any seeds.
        notes: For policies whose system needs them: the changes applied to the scenario.
    """
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    columns = COLUMNS + [column for column in OCCASIONAL_COLUMNS if any(row.get(column[0]) for row in rows)]
    lines = []
    for policy in policies:
        own = [row for row in rows if row["policy"] == policy]
        mark = "*" if notes.get(policy) else ""
        lines.append(
            [policy + mark, *(mean_and_spread([row[name] for row in own], factor) for name, _, _, factor in columns)]
        )
    text = align(["policy", *(f"{title}\n[{unit}]" for _, title, unit, _ in columns)], lines)
    footnotes = [
        f"* {policy} ran with {', '.join(f'{key}={value}' for key, value in changes.items())}"
        for policy, changes in notes.items()
        if changes and policy in policies
    ]
    if footnotes:
        footnotes.append("  (engine features that the system needs; --common-cluster runs all without)")
    return "\n".join([text, *footnotes])


def bench_title(scenario: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """One line above the table: scenario, size, seeds."""
    cluster, seeds = scenario["cluster"], len({row["seed"] for row in rows})
    size = f"{cluster['prefill']['count']}P+{cluster['decode']['count']}D"
    counted = max((row["requests"] for row in rows), default=0)
    spread = "mean ± standard deviation over" if seeds > 1 else ""
    seeds_text = f"{spread} {seeds} seed{'s' if seeds > 1 else ''}".strip()
    return f"{scenario['name']}: {size}, {counted} requests a run, {seeds_text}"


def csv_text(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Rows as CSV; an empty cell for null."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in names])
    return buffer.getvalue()


def public_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON shows it: scenario, policy, seed and the metrics."""
    return {name: row[name] for name in ("scenario", "policy", "seed", *METRICS)}


def yaml_text(value: Mapping[str, Any]) -> str:
    """YAML with keys in their order."""
    return str(yaml.safe_dump(json_ready(value), sort_keys=False, allow_unicode=True, width=120))


def versions() -> dict[str, str]:
    """Versions of what the results were made with."""
    found = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for name in ("cacheenv", "numpy", "numba", "gymnasium", "torch", "stable-baselines3", "sb3-contrib"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def plot_name(scenario: str) -> str:
    """File name of a scenario's plot."""
    return f"bench-{re.sub(r'[^A-Za-z0-9._-]+', '_', scenario)}.png"


def plot_bench(rows: Sequence[Mapping[str, Any]], title: str, path: Path) -> bool:
    """Bars of TTFT, SLO attainment and hit rate for each policy; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("cacheenv: no plots, matplotlib is not installed: pip install 'cacheenv[plots]'", file=sys.stderr)
        return False
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    figure = Figure(figsize=(11, 1.6 + 0.38 * len(policies)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3, sharey=True)
    for panel, names, label, factor in (
        (panels[0], ("ttft_mean_s", "ttft_p99_s"), "TTFT [s], log scale", 1.0),
        (panels[1], ("slo_attainment",), "requests that meet their SLOs [%]", 100.0),
        (panels[2], ("hit_rate",), "prompt tokens served from cache [%]", 100.0),
    ):
        for offset, name in enumerate(names):
            height = 0.8 / len(names)
            places = [index - 0.4 + height * (offset + 0.5) for index in range(len(policies))]
            samples = [
                [factor * row[name] for row in rows if row["policy"] == each and row[name] is not None]
                for each in policies
            ]
            means = [statistics.fmean(sample) if sample else math.nan for sample in samples]
            spreads = [statistics.stdev(sample) if len(sample) > 1 else 0.0 for sample in samples]
            statistic = "mean" if "mean" in name else "p99" if "p99" in name else None
            panel.barh(places, means, height * 0.9, xerr=spreads if any(spreads) else None, label=statistic, capsize=2)
        panel.set_xlabel(label)
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_xscale("log")
    panels[0].legend(loc="best", fontsize="small")
    panels[0].set_yticks(range(len(policies)), policies)
    panels[0].invert_yaxis()
    figure.suptitle(title, fontsize="medium")
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=130, format="png")
    temporary.replace(path)
    return True
