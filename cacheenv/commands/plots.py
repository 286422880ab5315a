"""Plots of a bench, where matplotlib is installed."""

from __future__ import annotations

import io
import math
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cacheenv.files.atomic import write_atomically


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
    image = io.BytesIO()
    figure.savefig(image, dpi=130, format="png")
    write_atomically(path, image.getvalue())
    return True
