"""What a bench shows: a table on the screen and rows for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cacheenv.commands.intervals import paired_difference
from cacheenv.commands.text import align, decimals, mean_and_spread
from cacheenv.run.metrics import METRICS
from cacheenv.scenario.objectives import objectives_text

#: Columns of the table: metric, title, unit, factor. Those of the second list are shown where any value is not zero.
COLUMNS = [
    ("ttft_mean_s", "TTFT mean", "s", 1.0),
    ("ttft_p99_s", "TTFT p99", "s", 1.0),
    ("tpot_mean_s", "TPOT mean", "ms", 1e3),
    ("tbt_tail_p99_s", "TBT tail p99", "ms", 1e3),
    ("slo_attainment", "SLO met", "%", 100.0),
    ("goodput_rps", "goodput", "req/s", 1.0),
    ("hit_rate_predicted", "hits promised", "% tokens", 100.0),
    ("hit_rate", "cache hits", "% tokens", 100.0),
    ("load_imbalance_prefill", "P load", "max/mean", 1.0),
    ("load_imbalance_decode", "D load", "max/mean", 1.0),
]
OCCASIONAL_COLUMNS = [
    ("pulled_gbytes", "pulled", "GB", 1.0),
    ("migrations", "migrations", "count", 1.0),
    ("preemptions", "preemptions", "count", 1.0),
    ("rejected", "rejected", "count", 1.0),
    ("rejected_late", "rejected late", "count", 1.0),
    ("too_large", "too large", "count", 1.0),
    ("unfinished", "unfinished", "count", 1.0),
    ("index_events_lost", "index events lost", "count", 1.0),
]


def bench_table(
    rows: Sequence[Mapping[str, Any]], notes: Mapping[str, Mapping[str, Any]], reference: str | None = None
) -> str:
    """The table of one scenario.

    Args:
        rows: Results of one scenario, any seeds.
        notes: For policies whose system needs them: the changes applied to the scenario.
        reference: The policy that the others are compared with, seed by seed; None for no such column.
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
    header = ["policy", *(f"{title}\n[{unit}]" for _, title, unit, _ in columns)]
    if reference is not None and reference in policies and len(policies) > 1:
        place = 1 + [name for name, *_ in columns].index("slo_attainment") + 1
        header.insert(place, f"vs {reference}\n[points]")
        for line, policy in zip(lines, policies, strict=True):
            line.insert(place, _attainment_against(rows, policy, reference))
    text = align(header, lines)
    footnotes = [
        f"* {policy} ran with {', '.join(f'{key}={value}' for key, value in changes.items())}"
        for policy, changes in notes.items()
        if changes and policy in policies
    ]
    if footnotes:
        footnotes.append("  (engine features that the system needs; --common-cluster runs all without)")
    return "\n".join([text, *footnotes])


def _attainment_against(rows: Sequence[Mapping[str, Any]], policy: str, reference: str) -> str:
    """SLO attainment less the reference's on the same seeds, percentage points, with its 95 % interval."""
    by_policy = [
        {row["seed"]: row["slo_attainment"] for row in rows if row["policy"] == name} for name in (policy, reference)
    ]
    first, second = by_policy
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    pairs = [pair for pair in pairs if None not in pair]
    if policy == reference or len(pairs) < 2:
        return "-"
    mean, half_width = (100.0 * value for value in paired_difference(*zip(*pairs, strict=True)))
    digits = max(decimals(mean), 1)
    return f"{mean:+.{digits}f} ± {half_width:.{digits}f}"


def bench_title(scenario: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Two lines above the table: scenario, size, seeds; the objectives."""
    cluster, seeds = scenario["cluster"], len({row["seed"] for row in rows})
    size = f"{cluster['prefill']['count']}P+{cluster['decode']['count']}D"
    counted = max((row["requests"] for row in rows), default=0)
    spread = "mean ± standard deviation over" if seeds > 1 else ""
    seeds_text = f"{spread} {seeds} seed{'s' if seeds > 1 else ''}".strip()
    return f"{scenario['name']}: {size}, {counted} requests a run, {seeds_text}\n{objectives_text(scenario['slo'])}"


def public_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON shows it: scenario, policy, seed and the metrics."""
    return {name: row[name] for name in ("scenario", "policy", "seed", *METRICS)}
