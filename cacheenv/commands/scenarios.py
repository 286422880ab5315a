"""`cacheenv scenarios list | show NAME | validate FILE`."""

from __future__ import annotations

import argparse
import json

from cacheenv.commands.arguments import check_policies
from cacheenv.commands.resolved import resolved
from cacheenv.commands.text import align, number
from cacheenv.files.plain import json_ready
from cacheenv.files.yaml_text import dump_yaml
from cacheenv.scenario import TRACE_KIND, list_scenarios, load_scenario
from cacheenv.scenario.keys import parse_assignment

help = "list, show and validate scenarios"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the packaged scenarios")
    listing.add_argument("--json", action="store_true", help="print one JSON document")
    for name, meaning in (
        ("show", "all keys of a scenario, defaults included"),
        ("validate", "check a YAML file, and say what it resolves to"),
    ):
        action = actions.add_parser(name, help=meaning)
        action.add_argument("scenario", metavar="NAME|FILE", help="packaged name or YAML file")
        action.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="dotted.key=value")
        if name == "show":
            action.add_argument("--json", action="store_true", help="print JSON instead of YAML")


def run(arguments: argparse.Namespace) -> int:
    """Lists, shows or validates."""
    if arguments.action == "list":
        _list(arguments.json)
        return 0
    scenario = load_scenario(arguments.scenario, dict(parse_assignment(text) for text in arguments.set))
    if arguments.action == "show":
        tree = json_ready(scenario.to_dict())
        print(json.dumps(tree) if arguments.json else dump_yaml(tree).rstrip())
        return 0
    check_policies(scenario)
    workload = scenario.make_workload(0)
    size = f"{scenario.cluster.prefill.count}P+{scenario.cluster.decode.count}D"
    print(f"{arguments.scenario}: valid; {scenario.name}, {size}, {len(workload)} requests")
    print()
    print(resolved(scenario, workload))
    return 0


def _list(as_json: bool) -> None:
    scenarios = [load_scenario(name) for name in list_scenarios()]
    if as_json:
        print(json.dumps([{"name": item.name, "description": item.description} for item in scenarios]))
        return
    rows = []
    for item in scenarios:
        size = f"{item.cluster.prefill.count}P+{item.cluster.decode.count}D"
        rate = "trace" if item.workload.kind == TRACE_KIND else number(item.workload.rate_rps)
        rows.append([item.name, size, item.workload.kind, number(item.workload.requests), rate])
    print(align(["scenario", "cluster", "workload", "requests", "rate [req/s]"], rows))
    print()
    for item in scenarios:
        print(f"{item.name}: {item.description}")
