"""Arguments that `bench` and `goodput` share: which scenarios, which policies, how many seeds and processes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cacheenv.commands.execute import Task
from cacheenv.commands.store import config_hash, program_hash
from cacheenv.errors import InputError
from cacheenv.policy import available_policies, make_policy
from cacheenv.scenario import DEFAULT_SCENARIO, Scenario, load_scenario
from cacheenv.scenario.schema import parse_assignment

LARGEST_NUMBER = 1e15
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


@dataclass(frozen=True)
class Entry:
    """A policy on a scenario.

    Attributes:
        policy: Its name, as given.
        base: The scenario as chosen.
        scenario: The scenario with what the policy's system needs.
        changes: What differs between the two, dotted.
        common_cluster: Whether the needs were left out.
    """

    policy: str
    base: Scenario
    scenario: Scenario
    changes: dict[str, Any]
    common_cluster: bool

    def task(self, seed: int, rate_rps: float | None = None) -> Task:
        """The simulation of this entry with a seed, optionally at another rate."""
        base = self.base if rate_rps is None else self.base.at_rate(rate_rps)
        return Task(base, self.policy, seed, self.common_cluster)

    def identity(self, seed: int, rate_rps: float | None = None) -> dict[str, Any]:
        """The keys by which a finished run is found again."""
        return {
            "scenario": self.base.name,
            "policy": self.policy,
            "seed": seed,
            "rate_rps": rate_rps,
            "base_hash": config_hash(self.base),
            "config_hash": config_hash(self.scenario),
            "program_hash": program_hash(self.policy),
        }


def add_shared_arguments(parser: argparse.ArgumentParser, seeds: int) -> None:
    """Declares scenarios, policies, overrides, seeds, jobs and output."""
    parser.add_argument("--policies", metavar="A,B", help="names, e.g. random,mooncake,mooncake+star,agent:PATH")
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        action="append",
        help=f"packaged name or YAML file; repeatable ({DEFAULT_SCENARIO})",
    )
    parser.add_argument("--trace", metavar="FILE", help="play a trace in Mooncake's JSONL format (.gz too)")
    parser.add_argument("--config", metavar="FILE", help="scenario YAML; with --trace the cluster for the trace")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="dotted.key=value of the scenario; repeatable"
    )
    parser.add_argument("--seeds", metavar="N", type=positive, default=seeds, help=f"seeds 0..N-1 ({seeds})")
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


def positive(text: str) -> int:
    """An integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got '{text}'")
    return value


def positive_number(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < LARGEST_NUMBER:
        raise argparse.ArgumentTypeError(f"expected a number > 0, got '{text}'")
    return value


def chosen_scenarios(arguments: argparse.Namespace) -> list[Scenario]:
    """The scenarios of the command line with `--set` applied, names unique."""
    overrides: dict[str, Any] = {}
    for text in arguments.set:
        key, value = parse_assignment(text)
        if key in overrides:
            raise InputError(f"--set {key} is given twice")
        overrides[key] = value
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


def _trace_scenario(trace: str, config: str | None, overrides: dict[str, Any]) -> Scenario:
    """A trace on the cluster of a YAML file or of the default scenario."""
    path = Path(trace)
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    changes = {"name": name, "workload": {"kind": "mooncake", "trace": str(path)}}
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


def plan(scenarios: Sequence[Scenario], policies: Sequence[str], common_cluster: bool) -> list[Entry]:
    """All scenarios x policies, with each policy's needs applied to the scenario unless the cluster is common."""
    from cacheenv.run.simulate import apply_requirements, complete_bundle

    entries = []
    for scenario in scenarios:
        for name in policies:
            changed = scenario
            if not common_cluster:
                try:
                    changed = apply_requirements(scenario, complete_bundle(name, scenario))
                except InputError as problem:
                    raise InputError(f"policy {name} on scenario {scenario.name}: {problem}") from None
            before, after = flat(scenario.to_dict()), flat(changed.to_dict())
            changes = {key: value for key, value in after.items() if before.get(key) != value}
            entries.append(Entry(name, scenario, changed, changes, common_cluster))
    return entries


def flat(tree: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Leaves of a nested mapping by dotted key."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves.update(flat(value, f"{place}{key}."))
        else:
            leaves[f"{place}{key}"] = value
    return leaves


def changes_by_policy(entries: Sequence[Entry]) -> dict[str, Any]:
    """Policy -> scenario -> what was changed for it, as it is kept with the results."""
    changes: dict[str, Any] = {}
    for entry in entries:
        changes.setdefault(entry.policy, {})[entry.base.name] = {"changes": entry.changes}
    return changes
