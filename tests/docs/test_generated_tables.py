"""The docs say what the code says: generated tables, record fields, parameters of baselines, links."""

import re
from types import SimpleNamespace

import baseline_docs
import doc_tables
import pytest
from doc_tables import BLOCK, GENERATED, PAGES, ROOT, WIDTH

from cacheenv.files.yaml_text import parse_yaml
from cacheenv.run.metrics import METRICS
from cacheenv.run.records import INSTANCE_DTYPE, RECORD_DTYPE
from cacheenv.scenario import Scenario, list_scenarios, load_scenario
from cacheenv.workload import workload_stats
from cacheenv_baselines.registry import PLACES

DOCS = ROOT / "docs"


def text_of(page):
    return (DOCS / page).read_text(encoding="utf-8")


def section(text, heading):
    """Text below a heading line, up to the next heading of the same or a higher level."""
    lines = text.split("\n")
    at = lines.index(heading)
    level = len(heading.split(" ")[0])
    kept = []
    for line in lines[at + 1 :]:
        if re.match(rf"#{{1,{level}}} ", line):
            break
        kept.append(line)
    return "\n".join(kept)


def tables(text):
    """Tables of a text, each a list of rows of cells, header first."""
    found, rows = [], []
    for line in [*text.split("\n"), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if set("".join(cells)) - set("- "):
                rows.append(cells)
        elif rows:
            found.append(rows)
            rows = []
    return found


def blocks():
    return [
        (page.name, found["name"], found["body"])
        for page in PAGES
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def test_generated_tables_are_up_to_date():
    stale = [
        f"{page}: {name}" for page, name, body in blocks() if name in GENERATED and body != GENERATED[name]()
    ]  # fmt: skip
    assert not stale, f"run python tests/docs/doc_tables.py: {stale}"


def test_every_generated_table_is_shown():
    assert set(GENERATED) <= {name for _, name, _ in blocks()}


def test_scenario_keys_load_as_the_defaults():
    document = doc_tables.scenario_yaml().removeprefix("```yaml\n").removesuffix("```\n")
    assert parse_yaml(document) == {**Scenario().to_dict(), "description": Scenario().description}
    assert load_scenario(parse_yaml(document)) == Scenario()


def test_packaged_scenarios_and_yaml_examples_load():
    for document in re.findall(r"```yaml\n(.*?)```", text_of("workloads.md"), re.DOTALL):
        load_scenario(parse_yaml(document))
    assert set(re.findall(r"^\* \*\*`([a-z-]+)`\*\*", text_of("workloads.md"), re.MULTILINE)) == set(list_scenarios())


def test_every_metric_is_named():
    page = text_of("metrics.md")
    assert [name for name in METRICS if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    "heading, dtype",
    [("## Records: `result.requests`", RECORD_DTYPE), ("## Totals: `result.instances`", INSTANCE_DTYPE)],
)
def test_record_fields(heading, dtype):
    rows = tables(section(text_of("metrics.md"), heading))[0][1:]
    kinds = {"i": "int", "f": "float"}
    assert [(row[0].strip("`"), row[1]) for row in rows] == [(name, kinds[dtype[name].kind]) for name in dtype.names]
    for name, _, unit, _ in rows:
        if name.strip("`").endswith("_tokens"):
            assert unit == "tokens"
        if name.strip("`").endswith("_s") and "per_s" not in name:
            assert unit == "s"


def baseline_sections():
    """Names of a section's heading -> its text."""
    page = text_of("baselines.md")
    return {
        tuple(re.findall(r"`(\w+)`", line)): section(page, line) for line in page.split("\n") if line.startswith("### ")
    }


def test_every_baseline_has_a_section_with_rule_and_source():
    sections = baseline_sections()
    assert sorted(name for names in sections for name in names) == sorted(PLACES)
    for names, text in sections.items():
        assert re.search(r"^\* Rule: ", text, re.MULTILINE), names
        assert re.search(r"^\* Source: ", text, re.MULTILINE), names


GOOD = """`one`, `two`: a summary.

Source: OURS, see docs/policies.md#state.
Rule: as follows:
  1. First, this is
    continued.
  2. Second.
Parameters:
  a (s): first
    line
  b (requests): second
"""


def test_a_docstring_becomes_markdown(monkeypatch):
    params = {"one": {"a": 1500.0, "b": 0.25}, "two": {"a": 1500.0, "b": 3}}
    monkeypatch.setattr(baseline_docs, "policy_of", lambda name: SimpleNamespace(params=params[name]))
    names, summary, parts = baseline_docs.parse(GOOD)
    assert (names, summary) == (["one", "two"], "a summary.")
    assert [label for label, _ in parts] == ["Source", "Rule", "Parameters"]
    assert baseline_docs.bullet(*parts[0]) == "* Source: **ours**, see [policies.md](policies.md#state)."
    assert baseline_docs.bullet(*parts[1]) == "* Rule: as follows:\n  1. First, this is continued.\n  2. Second."
    assert baseline_docs.parameter_table(names, parts[2][1]).split("\n") == [
        "| parameter | unit | `one` | `two` | meaning |",
        "| --- | --- | --- | --- | --- |",
        "| `a` | s | 1,500 | 1,500 | first line |",
        "| `b` | requests | 0.25 | 3 | second |",
    ]
    params["two"] = {"b": 3, "a": 1.0}
    with pytest.raises(ValueError, match=r"two: the docstring describes \['a', 'b'\], the code has \['b', 'a'\]"):
        baseline_docs.parameter_table(names, parts[2][1])


@pytest.mark.parametrize(
    ("docstring", "message"),
    [
        ("A summary.\n\nSource: x.\nRule: y.", "expected '`name`, `name`: summary.'"),
        ("`one`: x.\n\nSource: x.", "no Rule"),
        ("`one`: x.\n\nSource: x.\nRule: y.\nCaveat: z.", "expected one of the labels .* got 'Caveat: z.'"),
        ("`one`: x.\n\nfree text\nRule: y.", "expected one of the labels .* got 'free text'"),
    ],
)
def test_a_docstring_of_another_form_is_refused(docstring, message):
    with pytest.raises(ValueError, match=message):
        baseline_docs.parse(docstring)


def test_predictor_constants():
    from cacheenv.run.fill import NOISE, TAU_SHARE

    rows = tables(section(text_of("simulator.md"), "## Prediction of output lengths"))[1][1:]
    for name, a0, s0, s_inf, tau in rows:
        kind = name.strip("`")
        assert (float(a0), float(s0), float(s_inf)) == NOISE[kind]
        assert f" {TAU_SHARE[kind]:g} x mean output" in tau


def test_event_order():
    from cacheenv.sim.state import codes

    rows = tables(section(text_of("simulator.md"), "## Order of events and determinism"))[0][1:]
    order = ["FLOW", "PREFILL_END", "DECODE", "INDEX", "ARRIVAL", "PREFILL_START", "TICK"]
    assert [int(row[0]) for row in rows] == [getattr(codes, f"EVENT_{kind}") for kind in order]


def test_decorator_arguments_of_policies():
    import inspect

    from cacheenv.policy import policy

    rows = tables(section(text_of("policies.md"), "## A router"))[0][1:]
    named = [row[0].strip("`") for row in rows]
    assert named == [name for name in inspect.signature(policy).parameters if name != "function"]


def test_workload_statistics():
    rows = tables(text_of("workloads.md").split("<!-- workload-stats -->")[1].split("\n##")[0])[0][1:]
    assert {row[0].strip("`") for row in rows} == set(list_scenarios())
    for name, *shown in rows:
        scenario = load_scenario(name.strip("`"))
        stats = [workload_stats(scenario.make_workload(seed)) for seed in range(3)]
        measured = (
            [item["prompt_tokens"]["mean"] for item in stats],
            [item["output_tokens"]["mean"] for item in stats],
            [100 * item["reuse"]["infinite"]["token_hit_rate"] for item in stats],
        )
        for text, values in zip(shown, measured, strict=True):
            low, high = (float(part.replace(",", "")) for part in text.split(" to "))
            resolution = 0.051 if "." in text else 0.51
            assert abs(min(values) - low) < resolution and abs(max(values) - high) < resolution, (name, text, values)


def anchors(text):
    """Anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        goal = page.parent / path if path else page
        assert goal.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(goal.read_text(encoding="utf-8")), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_width(page):
    text = re.sub(r"```text\n.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    wide = [line for line in text.split("\n") if len(line) > WIDTH and not line.startswith("|")]
    assert not wide
