"""Makes the blocks of the docs that repeat what the code says.

    python tests/docs/doc_tables.py      # writes them into README.md and docs/*.md

A table stands between `<!-- generated: NAME -->` and `<!-- end -->`; `test_generated_tables.py` compares it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import baseline_docs
import environment_pages
import experiment_tables
from baseline_docs import policy_of, quantity
from markdown_table import table

from cacheenv import physics
from cacheenv.physics.derive import load_efficiencies
from cacheenv.run.metrics import LATENCIES, METRICS
from cacheenv.scenario import Scenario, list_scenarios, load_scenario
from cacheenv.scenario.resolve import resolve
from cacheenv.sim.cache.eviction import EVICTIONS
from cacheenv.sim.decode.damping import DAMPINGS
from cacheenv.sim.decode.preemption import PREEMPTIONS
from cacheenv.sim.prefill.discipline import DISCIPLINES
from cacheenv.sim.view import columns as view_types
from cacheenv.workload.generators import GENERATORS
from cacheenv_baselines.registry import PLACES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WIDTH = 120
BLOCK = re.compile(r"(<!-- generated: (?P<name>[a-z_]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)

#: Units of view columns that their names do not say.
VIEW_UNITS = {
    "prefill_b_s": "s/token",
    "prefill_c_s": "s/token²",
    "decode_e_s": "s/request",
    "decode_f_s": "s/token",
    "n_tile": "tokens",
    "kv_bytes_per_token": "bytes",
    "max_batch": "requests",
    "requests_in_system": "requests",
}
#: Meanings of view columns that carry no comment in the code because their names say them.
VIEW_MEANINGS = {
    "now_s": "simulated time",
    "num_prefill": "P, prefill instances",
    "num_decode": "D, decode instances",
    "page_tokens": "tokens of a page",
    "reserve_tokens": "head-room for growth of each request at admission to a decode batch",
    "slo_tpot_s": "SLO on the mean gap between tokens",
    "slo_tbt_tail_s": "SLO on the mean of the worst tenth of the gaps",
    "slo_e2e_s": "SLO on the time to the last token",
    "allow_reject": "1 where a request may be rejected",
    "store_enabled": "1 where there is a cluster store",
    "requests_in_system": "arrived and neither finished nor rejected, this one included",
    "index": "position in the workload; -1 at a tick",
    "session": "session number, -1 for none",
    "namespace": "namespace number",
    "priority": "as in the workload; the engine ignores it",
    "arrival_s": "time of arrival",
    "prompt_tokens": "length of the prompt",
    "predicted_output_tokens": "predicted output length",
    "store_hit_tokens": "predicted prefix hit in the cluster store",
    "cache_used_tokens": "cached or reserved by running prompts",
    "cache_capacity_tokens": "capacity of the prefix cache",
    "outgoing_flows": "flows that the NIC is sending",
    "incoming_flows": "flows that the NIC is receiving",
    "nic_gbytes_per_s": "bandwidth of the NIC, each direction",
    "prefill_a_s": "fixed time of a batch",
    "prefill_b_s": "time of each new token",
    "prefill_c_s": "time of each unit of attention, see simulator.md",
    "min_prefill_s": "shortest batch",
    "n_tile": "new tokens below which attention over a cached prefix gets no cheaper",
    "preempted_requests": "preempted, waiting to resume",
    "capacity_tokens": "KV capacity",
    "max_batch": "requests in the batch at most",
    "preemptions": "preemptions since the start",
    "decode_d_s": "fixed time of a step",
    "decode_e_s": "time a step of each request of the batch",
    "decode_f_s": "time a step of each resident token",
    "preempted_tokens": "KV tokens that the preempted requests had and will need",
    "first_waiting_tokens": "KV tokens that the first one to be admitted needs, a preempted one before others",
    "mean_output_tokens": "mean output length of the population that the requests come from",
    "valid": "1 where the slot holds a candidate",
    "request": "index of the request",
    "kv_tokens": "its KV, prompt and generated tokens",
    "generated_tokens": "tokens generated so far, the first one included",
    "predicted_remaining_tokens": "predicted tokens still to come",
    "migrations": "times that it was moved",
    "instance": "decode instance",
    "migrating": "1 while it is being moved",
    "dispatched_requests": "assigned since the start",
}


def plain(value: Any) -> str:
    """A value as it is written in YAML."""
    return value if isinstance(value, str) and value[0].isalpha() else json.dumps(value)


def metrics() -> str:
    """Names of the summary; the statistics of a latency share a row."""
    rows: dict[str, list[str]] = {}
    for name, (unit, text) in METRICS.items():
        family = next((latency for latency in LATENCIES if name.startswith(f"{latency}_")), None)
        meaning = f"over completed requests: {LATENCIES[family]}" if family else text
        if meaning in rows:
            rows[meaning][0] += f" `{name}`"
        else:
            rows[meaning] = [f"`{name}`", unit, meaning]
    return table(["name", "unit", "meaning"], rows.values())


def _leaves(schema: Any, place: str) -> Iterable[tuple[str, dataclasses.Field[Any]]]:
    for item in dataclasses.fields(schema):
        name = f"{place}{item.name}"
        if "section" in item.metadata:
            yield from _leaves(item.metadata["section"], f"{name}.")
        else:
            yield name, item


def _expected(rule: Any) -> str:
    """Range or choices of a key, for its comment."""
    if rule.kind == "choice":
        return " | ".join(rule.choices)
    limits = ((">=", rule.low), (">", rule.above), ("<=", rule.high))
    return ", ".join(f"{sign} {bound:,}" for sign, bound in limits if bound is not None)


def scenario_yaml() -> str:
    """The whole schema of a scenario as a commented YAML document with the defaults."""
    lines: list[str] = []

    def write(schema: Any, depth: int) -> None:
        for item in dataclasses.fields(schema):
            indent = "  " * depth
            if "section" in item.metadata:
                inner = item.metadata["section"]
                title = (inner.__doc__ or "").strip().splitlines()[0].rstrip(".")
                lines.append(f"{indent}{item.name}:".ljust(34) + f"# {title}")
                write(inner, depth + 1)
                continue
            rule = item.metadata["rule"]
            default = item.default_factory() if item.default is dataclasses.MISSING else item.default  # type: ignore
            written = f"{indent}{item.name}: {plain(default)}"
            choices = _expected(rule)
            comment = textwrap.wrap(rule.doc + (f" ({choices})" if choices else ""), WIDTH - 36)
            lines.append(f"{written:<33} # {comment[0]}")
            lines.extend(" " * 34 + f"# {rest}" for rest in comment[1:])

    write(Scenario, 0)
    return "```yaml\n" + "\n".join(lines) + "\n```\n"


def _attributes(schema: Any) -> dict[str, str]:
    """`Attributes:` section of a docstring: name -> text."""
    text = inspect.getdoc(schema).split("Attributes:\n", 1)[1]  # type: ignore[union-attr]
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            name = start.group(1)
            found[name] = start.group(2)
        elif line.strip():
            found[name] += " " + line.strip()
    return found


def _generator(kind: str) -> Callable[[], str]:
    def build() -> str:
        schema = GENERATORS[kind][0]
        texts = _attributes(schema)
        rows = []
        for item in dataclasses.fields(schema):
            rule = item.metadata
            top = f" to {quantity(rule['high'])}" if rule["high"] != float("inf") else " or more"
            kind_of = "whole, " if rule["whole"] else ""
            meaning = texts[item.name].rstrip(".")
            rows.append([f"`{item.name}`", quantity(item.default), f"{kind_of}{quantity(rule['low'])}{top}", meaning])
        return table(["parameter", "default", "range", "meaning"], rows)

    return build


def scenarios() -> str:
    """The packaged scenarios."""
    rows = []
    for name in list_scenarios():
        item = load_scenario(name)
        slo = dataclasses.asdict(item.slo)
        limits = ", ".join(f"`{key}` {value:g}" for key, value in slo.items() if value is not None)
        rows.append(
            [
                f"`{name}`",
                f"{item.workload.requests:,} from `{item.workload.kind}` at {item.workload.rate_rps:g}/s",
                f"{item.cluster.prefill.count}P+{item.cluster.decode.count}D, `{item.cluster.prefill.preset}`",
                f"{resolve(item).prefill[0].cache_tokens:,}",
                f"{item.cluster.prefill.host_cache_tokens:,}",
                f"{item.cluster.store.capacity_tokens:,}",
                f"`{item.cluster.network.link}`",
                limits,
                f"`{item.router}`, `{item.rescheduler}`",
            ]
        )
    header = [
        "scenario",
        "requests",
        "instances",
        "cache [tokens]",
        "host [tokens]",
        "store [tokens]",
        "link",
        "SLOs [s]",
    ]
    return table([*header, "router, rescheduler"], rows)


def _need(key: str, value: Any) -> str:
    name = key.removeprefix("max:")
    return f"{name}={plain(value)}" if name == key else f"{name}>={plain(value)}"


def baselines() -> str:
    """Names, kinds, parameters, engine-side needs and router-side state of the registered baselines."""
    rows = []
    for name in sorted(PLACES):
        made = policy_of(name)
        params = ", ".join(f"`{key}` {quantity(value)}" for key, value in made.params.items()) or "-"
        needs = ", ".join(f"`{_need(key, value)}`" for key, value in made.requires.items()) or "-"
        keeps = ", ".join(f"`{_need(key, value)}`" for key, value in made.brings.items()) or "-"
        rows.append([f"`{name}`", made.kind.replace("_", " "), params, needs, keeps])
    header = ["name", "kind", "parameters and defaults", "what it asks of the engines", "what its router keeps"]
    return table(header, rows)


def _baseline_sections(kind: str) -> Callable[[], str]:
    return lambda: baseline_docs.sections(kind)


def _view_unit(name: str) -> str:
    if name in VIEW_UNITS:
        return VIEW_UNITS[name]
    for suffix, unit in (("gbytes_per_s", "GB/s"), ("_s", "s"), ("_tokens", "tokens"), ("_requests", "requests")):
        if name.endswith(suffix):
            return unit
    return "-"


def _view(dtype_name: str) -> Callable[[], str]:
    def build() -> str:
        source = inspect.getsource(view_types)
        body = source.split(f"\n{dtype_name} = record(\n", 1)[1].split("\n)\n", 1)[0]
        rows = []
        for name, comment in re.findall(r'\(\s*"(\w+)",\s*"\w+",?\s*\),(?:  # (.*))?', body):
            rows.append([f"`{name}`", _view_unit(name), comment or VIEW_MEANINGS[name]])
        assert [row[0].strip("`") for row in rows] == list(getattr(view_types, dtype_name).names)
        return table(["column", "unit", "meaning"], rows)

    return build


def presets() -> str:
    """Coefficients of the presets."""
    rows = []
    for name in physics.list_presets():
        item = physics.load_preset(name)
        rows.append(
            [
                f"`{name}`", f"{item.prefill_a_s:.4g}", f"{item.prefill_b_s:.4g}", f"{item.prefill_c_s:.4g}",
                f"{item.min_prefill_s:.4g}", item.n_tile, f"{item.decode_e_s:.4g}", f"{item.decode_f_s:.4g}",
                f"{item.kv_bytes_per_token:,}", f"{item.capacity_tokens:,}",
            ]
        )  # fmt: skip
        assert item.min_prefill_s == item.decode_d_s, f"{name}: the table has one column for both"
    header = ["preset", "a [s]", "b [s/token]", "c [s/token²]", "d [s]", "n_tile", "e [s/request]", "f [s/token]"]
    return table([*header, "KV [bytes/token]", "capacity [tokens]"], rows)


def _provenance(names: Iterable[str], load: Callable[[str], Any]) -> str:
    lines = []
    for name in names:
        item = load(name)
        text = f"* `{name}`: {item.confidence}. Source: {item.source}. Error: {item.error}."
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def preset_sources() -> str:
    """Origin and error of the presets."""
    return _provenance(physics.list_presets(), physics.load_preset)


def efficiencies() -> str:
    """Origin of the efficiencies, and the error of presets derived with them."""
    rows = [load_efficiencies(name) for name in physics.list_efficiencies()]
    gpus = [physics.load_gpu(name) for name in physics.list_gpus()]
    lines = []
    for row in rows:
        own = [gpu.name for gpu in gpus if gpu.efficiencies == row.name and gpu.efficiencies_of_gpu]
        others = [gpu.name for gpu in gpus if gpu.efficiencies == row.name and not gpu.efficiencies_of_gpu]
        used = f" Used for {', '.join(own)}." if own else " Used where it is named."
        used += f" Carried over, not measured: {', '.join(others)}." if others else ""
        text = f"* `{row.name}`: {row.source}. Error: {row.error}.{used}"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def links() -> str:
    """Bandwidth and set-up time of the links."""
    loaded = [physics.load_link(name) for name in physics.list_links()]
    return table(
        ["link", "GB/s", "set-up [s]"], [[f"`{i.name}`", f"{i.gbytes_per_s:g}", f"{i.setup_s:g}"] for i in loaded]
    )


def link_sources() -> str:
    """Origin and error of the links."""
    return _provenance(physics.list_links(), physics.load_link)


def _kinds(registry: Mapping[str, Any]) -> Callable[[], str]:
    """A list of the kinds of a mechanism: the docstrings of their modules."""

    def build() -> str:
        items = [" ".join(inspect.cleandoc(kind.__doc__).split()) for kind in registry.values()]
        return "".join(textwrap.fill(f"* {item}", WIDTH, subsequent_indent="  ") + "\n" for item in items)

    return build


GENERATED: dict[str, Callable[[], str]] = {
    "evictions": _kinds(EVICTIONS),
    "disciplines": _kinds(DISCIPLINES),
    "preemptions": _kinds(PREEMPTIONS),
    "dampings": _kinds(DAMPINGS),
    "metrics": metrics,
    "scenario_yaml": scenario_yaml,
    "chat": _generator("chat"),
    "reasoning": _generator("reasoning"),
    "coding_agent": _generator("coding_agent"),
    "scenarios": scenarios,
    "baselines": baselines,
    "routers": _baseline_sections("router"),
    "decode_choices": _baseline_sections("decode_choice"),
    "admission_policies": _baseline_sections("admission"),
    "reschedulers": _baseline_sections("rescheduler"),
    "cluster_view": _view("CLUSTER_VIEW"),
    "request_view": _view("REQUEST_VIEW"),
    "prefill_view": _view("PREFILL_VIEW"),
    "decode_view": _view("DECODE_VIEW"),
    "candidate_view": _view("CANDIDATE_VIEW"),
    "running_view": _view("RUNNING_VIEW"),
    **environment_pages.GENERATED,
    **experiment_tables.GENERATED,
    "presets": presets,
    "preset_sources": preset_sources,
    "efficiencies": efficiencies,
    "links": links,
    "link_sources": link_sources,
}


def main() -> None:
    """Writes all tables into the pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fresh = BLOCK.sub(
            lambda found: (
                found[1] + (GENERATED[found["name"]]() if found["name"] in GENERATED else found["body"]) + found[4]
            ),
            text,
        )
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"rewrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
