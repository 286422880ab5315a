"""`cacheenv bench`: policies x scenarios x seeds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from cacheenv.command_line import EXIT_INTERRUPTED, positive_number
from cacheenv.commands.arguments import add_shared_arguments, chosen_policies, chosen_scenarios, say_what_rates_do
from cacheenv.commands.execute import Runner, warm_up
from cacheenv.commands.identity import row_key
from cacheenv.commands.plan import Entry, changes_by_policy, plan
from cacheenv.commands.plots import plot_bench, plot_name
from cacheenv.commands.report import bench_table, bench_title, public_row
from cacheenv.commands.results import Results
from cacheenv.commands.text import csv_text
from cacheenv.files.plain import json_ready
from cacheenv.files.progress import Progress
from cacheenv.files.versions import versions
from cacheenv.files.yaml_text import dump_yaml
from cacheenv.run.metrics import METRICS
from cacheenv.scenario import TRACE_KIND, Scenario
from cacheenv.scenario.models import cluster_notes

help = "compare schedulers: policies x scenarios x seeds -> table, CSV, JSON, plots"
#: A generator draws other requests for each seed, and three of them mislead by ten points; a trace is what it is.
GENERATOR_SEEDS, TRACE_SEEDS = 30, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_shared_arguments(parser, None, f"{GENERATOR_SEEDS}, with --trace {TRACE_SEEDS}")
    parser.add_argument("--rate", metavar="X", type=positive_number, help="mean arrival rate, requests/s")


def run(arguments: argparse.Namespace) -> int:
    """Runs what is not there yet, then shows everything."""
    scenarios = chosen_scenarios(arguments)
    if arguments.rate is not None:
        scenarios = [scenario.at_rate(arguments.rate) for scenario in scenarios]
        say_what_rates_do(scenarios)
    if arguments.seeds is None:
        arguments.seeds = GENERATOR_SEEDS if any(map(_seeds_matter, scenarios)) else TRACE_SEEDS
    policies = chosen_policies(arguments.policies, scenarios)
    entries = plan(scenarios, policies, arguments.common_cluster)
    files = ["results.csv", "results.json", "config.yaml", *(plot_name(scenario.name) for scenario in scenarios)]
    results = Results(arguments.out, "results", files, arguments.fresh)
    for scenario in scenarios:
        results.refuse_other_configurations(scenario)
    cells = [(entry, seed, entry.identity(seed)) for entry in entries for seed in range(arguments.seeds)]
    missing = [cell for cell in cells if results.get(cell[2]) is None]
    if not _compute(missing, results, arguments, total=len(cells)):
        return EXIT_INTERRUPTED
    rows = [results.rows[row_key(cell[2])] for cell in cells]
    config = _config(entries, arguments)
    if results.folder is not None:
        _write_files(results, rows, config)
    if arguments.json:
        document = {"results": [public_row(row) for row in rows], "config": config, "version": versions()["cacheenv"]}
        print(json.dumps(json_ready(document), allow_nan=False))
    else:
        _show(entries, rows, results)
    return 0


def _seeds_matter(scenario: Scenario) -> bool:
    """Whether each seed has requests of its own: not where a trace is played as it is."""
    return scenario.workload.kind != TRACE_KIND or scenario.workload.window_requests is not None


def _compute(missing: Sequence[Any], results: Results, arguments: argparse.Namespace, total: int) -> bool:
    """Runs the missing cells; False when interrupted."""
    if not missing:
        return True
    tasks = [entry.task(seed) for entry, seed, _ in missing]
    if len(missing) < total:
        print(f"cacheenv: {total - len(missing)} of {total} results are in {results.path}", file=sys.stderr)
    progress = None
    try:
        warm_up(tasks)
        progress = Progress(len(tasks), "bench", "run", quiet=arguments.json)
        with Runner(arguments.jobs) as runner:
            for position, summary in runner.run(tasks):
                entry, seed, identity = missing[position]
                results.add({**identity, **summary})
                progress.note(f"{entry.policy} on {entry.base.name}, seed {seed}")
                progress.advance()
    except KeyboardInterrupt:
        results.say_interrupted("results")
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


def _write_files(results: Results, rows: Sequence[dict[str, Any]], config: dict[str, Any]) -> None:
    """CSV, JSON, configuration and plots."""
    assert results.folder is not None
    results.write("results.csv", csv_text(rows, ("scenario", "policy", "seed", *METRICS)))
    document = {"results": [public_row(row) for row in rows], "config": config, "version": versions()["cacheenv"]}
    results.write("results.json", json.dumps(json_ready(document), indent=1, allow_nan=False) + "\n")
    results.write("config.yaml", dump_yaml({**config, "versions": versions()}))
    for name, scenario in config["scenarios"].items():
        own = [row for row in rows if row["scenario"] == name]
        if not plot_bench(own, bench_title(scenario, own), results.folder / plot_name(name)):
            break


def _show(entries: Sequence[Entry], rows: Sequence[dict[str, Any]], results: Results) -> None:
    for name in dict.fromkeys(entry.base.name for entry in entries):
        own = [row for row in rows if row["scenario"] == name]
        notes = {entry.policy: entry.changes for entry in entries if entry.base.name == name}
        scenario = next(entry.base for entry in entries if entry.base.name == name)
        print(bench_title(scenario.to_dict(), own))
        reference = scenario.router if _seeds_matter(scenario) else None
        print(bench_table(own, notes, reference))
        print("".join(f"! {note}\n" for note in cluster_notes(scenario.cluster)), end="")
        print()
    if results.folder is not None:
        print(f"written to {results.folder}: results.csv, results.json, config.yaml and a plot a scenario")
