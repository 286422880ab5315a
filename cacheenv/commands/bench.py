"""`cacheenv bench`: policies x scenarios x seeds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from cacheenv.commands.arguments import (
    Entry,
    add_shared_arguments,
    changes_by_policy,
    chosen_policies,
    chosen_scenarios,
    plan,
    positive_number,
)
from cacheenv.commands.execute import Progress, Runner, warm_up
from cacheenv.commands.report import (
    bench_table,
    bench_title,
    csv_text,
    plot_bench,
    plot_name,
    public_row,
    versions,
    yaml_text,
)
from cacheenv.commands.store import ResultStore, json_ready, row_key
from cacheenv.run.metrics import METRICS

help = "compare schedulers: policies x scenarios x seeds -> table, CSV, JSON, plots"
DEFAULT_SEEDS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_shared_arguments(parser, DEFAULT_SEEDS)
    parser.add_argument("--rate", metavar="X", type=positive_number, help="mean arrival rate, requests/s")


def run(arguments: argparse.Namespace) -> int:
    """Runs what is not there yet, then shows everything."""
    scenarios = chosen_scenarios(arguments)
    if arguments.rate is not None:
        scenarios = [scenario.at_rate(arguments.rate) for scenario in scenarios]
    policies = chosen_policies(arguments.policies, scenarios)
    entries = plan(scenarios, policies, arguments.common_cluster)
    files = ["results.csv", "results.json", "config.yaml", *(plot_name(scenario.name) for scenario in scenarios)]
    store = ResultStore(arguments.out, "results", files, arguments.fresh)
    for scenario in scenarios:
        store.refuse_other_configurations(scenario)
    cells = [(entry, seed, entry.identity(seed)) for entry in entries for seed in range(arguments.seeds)]
    missing = [cell for cell in cells if store.get(cell[2]) is None]
    if not _compute(missing, store, arguments, total=len(cells)):
        return 130
    rows = [store.rows[row_key(cell[2])] for cell in cells]
    config = _config(entries, arguments)
    if store.folder is not None:
        _write_files(store, rows, config)
    if arguments.json:
        document = {"results": [public_row(row) for row in rows], "config": config, "version": versions()["cacheenv"]}
        print(json.dumps(json_ready(document), allow_nan=False))
    else:
        _show(entries, rows, store)
    return 0


def _compute(missing: Sequence[Any], store: ResultStore, arguments: argparse.Namespace, total: int) -> bool:
    """Runs the missing cells; False when interrupted."""
    if not missing:
        return True
    tasks = [entry.task(seed) for entry, seed, _ in missing]
    if len(missing) < total:
        print(f"cacheenv: {total - len(missing)} of {total} results are in {store.path}", file=sys.stderr)
    progress = None
    try:
        warm_up(tasks)
        progress = Progress(len(tasks), "bench", arguments.json)
        with Runner(arguments.jobs) as runner:
            for position, summary in runner.run(tasks):
                entry, seed, identity = missing[position]
                store.add({**identity, **summary})
                progress.advance(f"{entry.policy} on {entry.base.name}, seed {seed}")
    except KeyboardInterrupt:
        kept = "nothing is kept without --out"
        if store.folder is not None:
            kept = f"finished results are in {store.path}; the same command goes on from there"
        print(f"\ncacheenv: interrupted; {kept}", file=sys.stderr)
        return False
    finally:
        if progress is not None:
            progress.close()
    return True


def _config(entries: Sequence[Entry], arguments: argparse.Namespace) -> dict[str, Any]:
    """The resolved configuration that goes with the results."""
    return {
        "scenarios": {entry.base.name: entry.base.to_dict() for entry in entries},
        "policies": changes_by_policy(entries),
        "seeds": list(range(arguments.seeds)),
        "common_cluster": arguments.common_cluster,
    }


def _write_files(store: ResultStore, rows: Sequence[dict[str, Any]], config: dict[str, Any]) -> None:
    """CSV, JSON, configuration and plots."""
    assert store.folder is not None
    store.write("results.csv", csv_text(rows, ("scenario", "policy", "seed", *METRICS)))
    document = {"results": [public_row(row) for row in rows], "config": config, "version": versions()["cacheenv"]}
    store.write("results.json", json.dumps(json_ready(document), indent=1, allow_nan=False) + "\n")
    store.write("config.yaml", yaml_text({**config, "versions": versions()}))
    for name, scenario in config["scenarios"].items():
        own = [row for row in rows if row["scenario"] == name]
        if not plot_bench(own, bench_title(scenario, own), store.folder / plot_name(name)):
            break


def _show(entries: Sequence[Entry], rows: Sequence[dict[str, Any]], store: ResultStore) -> None:
    for name in dict.fromkeys(entry.base.name for entry in entries):
        own = [row for row in rows if row["scenario"] == name]
        notes = {entry.policy: entry.changes for entry in entries if entry.base.name == name}
        scenario = next(entry.base for entry in entries if entry.base.name == name)
        print(bench_title(scenario.to_dict(), own))
        print(bench_table(own, notes))
        print()
    if store.folder is not None:
        print(f"written to {store.folder}: results.csv, results.json, config.yaml and a plot a scenario")
