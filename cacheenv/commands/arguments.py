"""Arguments that `bench` and `goodput` share: which scenarios, which policies, how many seeds and processes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cacheenv.command_line import add_set_argument, assignments, positive
from cacheenv.errors import InputError
from cacheenv.policy import available_policies, make_policy
from cacheenv.scenario import DEFAULT_SCENARIO, TRACE_KIND, Scenario, load_scenario

DEFAULT_ROUTERS = (
    "random",
    "round_robin",
    "least_requests",
    "longest_prefix",
    "sglang",
    "lmetric",
    "mooncake_local",
    "mooncake",
)


def add_shared_arguments(parser: argparse.ArgumentParser, seeds: int | None, seeds_text: str | None = None) -> None:
    """Declares scenarios, policies, overrides, seeds, jobs and output.

    Args:
        parser: Of the command.
        seeds: How many where none are asked for; None: the command decides.
        seeds_text: What the help says of that.
    """
    parser.add_argument("--policies", metavar="A,B", help="names, e.g. random,mooncake,mooncake+star,agent:PATH")
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        action="append",
        help=f"packaged name or YAML file; repeatable ({DEFAULT_SCENARIO})",
    )
    parser.add_argument("--trace", metavar="FILE", help="play a trace in Mooncake's JSONL format (.gz too)")
    parser.add_argument("--config", metavar="FILE", help="scenario YAML; with --trace the cluster for the trace")
    add_set_argument(parser)
    parser.add_argument(
        "--seeds", metavar="N", type=positive, default=seeds, help=f"seeds 0..N-1 ({seeds_text or seeds})"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=positive, default=1, help="processes (1); results do not depend on it"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for results as they come, tables and plots; resumable")
    parser.add_argument("--fresh", action="store_true", help="set earlier results in --out aside and start anew")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and nothing else")
    parser.add_argument(
        "--common-cluster",
        action="store_true",
        help="run every policy on the scenario as it is, without the engine features that its system needs",
    )


def chosen_scenarios(arguments: argparse.Namespace) -> list[Scenario]:
    """The scenarios of the command line with `--set` applied, names unique."""
    overrides = assignments(arguments.set)
    if arguments.scenario and (arguments.trace or arguments.config):
        raise InputError("expected either --scenario or --trace/--config, not both")
    if arguments.trace:
        scenarios = [_trace_scenario(arguments.trace, arguments.config, overrides)]
    else:
        origins = arguments.scenario or [arguments.config or DEFAULT_SCENARIO]
        scenarios = [load_scenario(origin, overrides) for origin in origins]
    names = [scenario.name for scenario in scenarios]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two scenarios are named '{name}'; give each its own name")
    for scenario in scenarios:
        check_policies(scenario)
    return scenarios


def check_policies(scenario: Scenario) -> None:
    """Refuses a scenario whose own router or rescheduler does not exist, whether or not a run asks for it."""
    for key, name in (("router", scenario.router), ("rescheduler", scenario.rescheduler)):
        if key == "rescheduler" and name == "none":
            continue
        try:
            bundle = make_policy(name)
        except InputError as problem:
            raise InputError(f"scenario {scenario.name}: {key}: {problem}") from None
        if getattr(bundle, key) is None:
            raise InputError(f"scenario {scenario.name}: {key}: expected a {key}, got '{name}'")


def say_what_rates_do(scenarios: Sequence[Scenario]) -> None:
    """One line for each trace with sessions whose turns wait for nobody: another rate moves them towards each other."""
    for scenario in scenarios:
        options = scenario.workload
        if options.kind != TRACE_KIND or options.arrivals == "closed":
            continue
        if (scenario.make_workload().requests["turn"] > 0).any():
            print(
                f"cacheenv: {scenario.name}: another rate scales all arrivals, so that a turn can come before the "
                "answer to the one before; --set workload.arrivals=closed avoids it",
                file=sys.stderr,
            )


def _trace_scenario(trace: str, config: str | None, overrides: dict[str, Any]) -> Scenario:
    """A trace on the cluster of a YAML file or of the default scenario."""
    path = Path(trace)
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    changes = {"name": name, "workload": {"kind": TRACE_KIND, "trace": str(path)}}
    if config is None:
        changes["description"] = f"trace on the cluster of {DEFAULT_SCENARIO}"
    if not path.is_file():
        raise InputError(f"--trace {trace}: {'expected a file' if path.exists() else 'no such file'}")
    return load_scenario(config or DEFAULT_SCENARIO, {**changes, **overrides})


def chosen_policies(text: str | None, scenarios: Sequence[Scenario]) -> list[str]:
    """Policy names of the command line, or a default set; each is made once to see that it exists."""
    if text is None:
        names = _default_policies(scenarios)
    else:
        names = split_names(text)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--policies: '{name}' is given twice")
        make_policy(name)
    return names


def split_names(text: str) -> list[str]:
    """Splits at commas outside parentheses: `a,b(x=1,y=2)` are two names."""
    names, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            names.append("")
        else:
            names[-1] += letter
    names = [name.strip() for name in names]
    if not all(names):
        raise InputError(f"--policies: expected names separated by commas, got '{text}'")
    return names


def _default_policies(scenarios: Sequence[Scenario]) -> list[str]:
    """The default routers; where a scenario has a rescheduler also its router with that one and with llumnix."""
    known = set(available_policies())
    names = [name for name in DEFAULT_ROUTERS if name in known]
    for scenario in scenarios:
        if scenario.rescheduler == "none" or scenario.router not in known:
            continue
        extra = [scenario.router, *(f"{scenario.router}+{name}" for name in (scenario.rescheduler, "llumnix"))]
        names += [name for name in dict.fromkeys(extra) if name not in names and set(name.split("+")) <= known]
    if not names:
        raise InputError("no baseline policies are installed; expected --policies")
    return names
