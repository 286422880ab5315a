"""`cacheenv goodput`: the sustainable rate of each policy, by bisection on the arrival rate.

The sustainable rate is the highest rate at which at least `--target` of the requests (mean over seeds) meet all SLOs.
The search brackets it by doubling or halving from the scenario's rate, then bisects until the bracket is narrower than
`--tolerance`; it takes attainment to fall with the rate, which holds up to the noise of the seeds. Where no rate
passes, or none fails, within `SEARCH_FACTOR` of the first one, the row says so in `reason`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cacheenv.command_line import EXIT_INTERRUPTED, positive_number, share
from cacheenv.commands.arguments import add_shared_arguments, chosen_policies, chosen_scenarios, say_what_rates_do
from cacheenv.commands.execute import Runner, warm_up
from cacheenv.commands.plan import Entry, changes_by_policy, plan
from cacheenv.commands.results import Results
from cacheenv.commands.text import align, csv_text, number
from cacheenv.errors import InputError
from cacheenv.files.plain import json_ready
from cacheenv.files.progress import Progress
from cacheenv.files.versions import versions
from cacheenv.files.yaml_text import dump_yaml
from cacheenv.scenario import TRACE_KIND, Scenario
from cacheenv.scenario.models import cluster_notes
from cacheenv.scenario.objectives import objectives_text

help = "sustainable rate of each policy: highest rate at which enough requests meet their SLOs"
#: The bracket is searched within this factor of the scenario's rate.
SEARCH_FACTOR = 64.0
COLUMNS = (
    "scenario", "policy", "sustainable_rps", "attainment", "target", "bracket_high_rps", "seeds", "simulations",
    "reason",
)  # fmt: skip


@dataclass
class Search:
    """Bisection for one policy on one scenario.

    Attributes:
        entry: What is searched for.
        start_rps: First rate.
        low_rps: Highest rate known to be good, 0 if none.
        high_rps: Lowest rate known to be bad, infinite if none.
        attainment: Attainment at `low_rps`.
        failed: Attainment at `high_rps`.
        rates: Rates tried.
    """

    entry: Entry
    start_rps: float
    target: float
    tolerance: float
    low_rps: float = 0.0
    high_rps: float = float("inf")
    attainment: float | None = None
    failed: float | None = None
    rates: int = 0

    def next_rate(self) -> float | None:
        """The rate to try, None when the answer is known."""
        if self.rates == 0:
            return self.start_rps
        if self.low_rps == 0:
            return self.high_rps / 2 if self.high_rps > self.start_rps / SEARCH_FACTOR else None
        if self.high_rps == float("inf"):
            return self.low_rps * 2 if self.low_rps < self.start_rps * SEARCH_FACTOR else None
        if self.high_rps - self.low_rps <= self.tolerance * self.low_rps:
            return None
        return (self.low_rps + self.high_rps) / 2

    def learn(self, rate_rps: float, attainment: float) -> None:
        """Takes in the attainment at a rate."""
        self.rates += 1
        if attainment >= self.target:
            self.low_rps, self.attainment = rate_rps, attainment
        else:
            self.high_rps, self.failed = rate_rps, attainment

    def reason(self) -> str | None:
        """Why there is no sustainable rate, or none that fails above it; None where the answer is between two rates."""
        if self.failed is not None and self.low_rps == 0:
            return f"no rate can pass: {100 * self.failed:.2f} % at the lowest ({self.high_rps:.4g} req/s)"
        if self.attainment is not None and self.high_rps == float("inf"):
            return f"no rate fails: {100 * self.attainment:.2f} % at the highest ({self.low_rps:.4g} req/s)"
        return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_shared_arguments(parser, 1)
    parser.add_argument(
        "--target", metavar="X", type=share, default=0.9, help="share of requests that must comply (0.9)"
    )
    parser.add_argument(
        "--tolerance", metavar="X", type=share, default=0.02, help="width of the last bracket over its lower end (0.02)"
    )
    parser.add_argument(
        "--rate", metavar="X", type=positive_number, help="first rate tried, requests/s (the scenario's)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Searches all policies in lockstep, so that several processes have work."""
    scenarios = chosen_scenarios(arguments)
    for scenario in scenarios:
        if all(value is None for value in scenario.to_dict()["slo"].values()):
            raise InputError(f"scenario {scenario.name}: no SLO is set, so every rate is sustainable")
    entries = plan(scenarios, chosen_policies(arguments.policies, scenarios), arguments.common_cluster)
    files = ["goodput.csv", "goodput.json", "goodput_config.yaml"]
    results = Results(arguments.out, "goodput", files, arguments.fresh)
    say_what_rates_do(scenarios)
    for scenario in scenarios:
        results.refuse_other_configurations(scenario)
    start_rps = {scenario.name: arguments.rate or natural_rate(scenario) for scenario in scenarios}
    searches = [Search(entry, start_rps[entry.base.name], arguments.target, arguments.tolerance) for entry in entries]
    try:
        _search(searches, results, arguments)
    except KeyboardInterrupt:
        results.say_interrupted("simulations")
        return EXIT_INTERRUPTED
    rows = [_row(search, arguments.seeds) for search in searches]
    config = {
        "scenarios": {entry.base.name: entry.base.to_dict() for entry in entries},
        "policies": changes_by_policy(entries),
        "seeds": list(range(arguments.seeds)),
        "target": arguments.target,
        "tolerance": arguments.tolerance,
        "common_cluster": arguments.common_cluster,
    }
    document = json_ready({"results": rows, "config": config, "version": versions()["cacheenv"]})
    results.write("goodput.csv", csv_text(document["results"], COLUMNS))
    results.write("goodput.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    results.write("goodput_config.yaml", dump_yaml({**config, "versions": versions()}))
    if arguments.json:
        print(json.dumps(document, allow_nan=False))
    else:
        _show(entries, rows, arguments, results)
    return 0


def natural_rate(scenario: Scenario) -> float:
    """The rate that a scenario asks for, requests/s."""
    if scenario.workload.kind != TRACE_KIND:
        return scenario.workload.rate_rps
    return scenario.workload.rate_scale / scenario.at_rate(1.0).workload.rate_scale


def _search(searches: Sequence[Search], results: Results, arguments: argparse.Namespace) -> None:
    """Rounds: every unfinished search asks for one rate, all seeds of all of them run together."""
    progress, warm = Progress(len(searches), "goodput", "run", quiet=arguments.json), False
    try:
        with Runner(arguments.jobs) as runner:
            while True:
                asked = [(search, rate) for search in searches if (rate := search.next_rate()) is not None]
                progress.advance_to(len(searches) - len(asked))
                if not asked:
                    return
                cells = [(search.entry, rate, seed) for search, rate in asked for seed in range(arguments.seeds)]
                missing = [cell for cell in cells if results.get(cell[0].identity(cell[2], cell[1])) is None]
                tasks = [entry.task(seed, rate) for entry, rate, seed in missing]
                if tasks and not warm:
                    warm_up(tasks)
                    warm = True
                for position, summary in runner.run(tasks):
                    entry, rate, seed = missing[position]
                    results.add({**entry.identity(seed, rate), "slo_attainment": summary["slo_attainment"]})
                for search, rate in asked:
                    rows = [results.get(search.entry.identity(seed, rate)) for seed in range(arguments.seeds)]
                    search.learn(rate, statistics.fmean(_attainment(row) for row in rows))
    finally:
        progress.close()


def _attainment(row: dict[str, Any] | None) -> float:
    value = None if row is None else row["slo_attainment"]
    return 0.0 if value is None else float(value)


def _row(search: Search, seeds: int) -> dict[str, Any]:
    return {
        "scenario": search.entry.base.name,
        "policy": search.entry.policy,
        "sustainable_rps": search.low_rps or None,
        "attainment": search.attainment,
        "target": search.target,
        "bracket_high_rps": search.high_rps,
        "seeds": seeds,
        "simulations": search.rates * seeds,
        "reason": search.reason(),
    }


def _show(
    entries: Sequence[Entry], rows: Sequence[dict[str, Any]], arguments: argparse.Namespace, results: Results
) -> None:
    seeds = f"{arguments.seeds} seed{'s' if arguments.seeds > 1 else ''}"
    for name in dict.fromkeys(entry.base.name for entry in entries):
        print(f"{name}: highest rate at which {100 * arguments.target:g} % of requests meet their SLOs, {seeds}")
        print(next(objectives_text(entry.base.to_dict()["slo"]) for entry in entries if entry.base.name == name))
        own = [row for row in rows if row["scenario"] == name]
        notes = {entry.policy: entry.changes for entry in entries if entry.base.name == name and entry.changes}
        lines = [
            [
                row["policy"] + ("*" if row["policy"] in notes else ""),
                number(row["sustainable_rps"]),
                number(None if row["attainment"] is None else 100 * row["attainment"]),
                number(row["bracket_high_rps"]),
                str(row["simulations"]),
            ]
            for row in own
        ]
        header = ["policy", "sustainable [req/s]", "SLO met there [%]", "fails at [req/s]", "simulations"]
        print(align(header, lines))
        for row in own:
            if row["reason"]:
                print(f"{row['policy']}: {row['reason']}")
        for policy, changes in notes.items():
            print(f"* {policy} ran with {', '.join(f'{key}={value}' for key, value in changes.items())}")
        cluster = next(entry.base.cluster for entry in entries if entry.base.name == name)
        print("".join(f"! {note}\n" for note in cluster_notes(cluster)))
    if results.folder is not None:
        print(f"written to {results.folder}: goodput.csv, goodput.json, goodput_config.yaml")
