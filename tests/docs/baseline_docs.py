"""Sections of docs/baselines.md out of the docstrings of the baselines' modules.

A docstring is a line "`name`, `name`: summary.", and then parts that begin with a label at the left margin:

    Source: text, on as many lines as it takes.
    Rule: text; a list stands indented below it.
    Parameters:
      name (unit): meaning

Defaults come from the code. OURS becomes **ours**; docs/PAGE.md#anchor becomes a link.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable

from cacheenv.policy import Policy
from cacheenv_baselines.registry import PLACES

WIDTH = 120
LABELS = (
    "Source", "Rule", "Decode", "Parameters", "State", "Variants", "Brings", "Requires", "Ours", "Deviation",
    "Deviations", "Quirk kept", "Quirks kept", "Published", "See",
)  # fmt: skip
NEEDED = ("Source", "Rule")
ITEM = re.compile(r"(\*|\d+\.) ")


def quantity(value: float) -> str:
    """A number with its thousands apart and without a needless fraction."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 1000 else f"{value:g}"


def modules(kind: str) -> list[str]:
    """Modules of the baselines of a kind, sorted."""
    return sorted({module for name, (module, _) in PLACES.items() if policy_of(name).kind == kind})


def policy_of(name: str) -> Policy:
    """The registered policy of that name."""
    module, attribute = PLACES[name]
    made: Policy = getattr(importlib.import_module(f"cacheenv_baselines.{module}"), attribute)
    return made


def parse(docstring: str) -> tuple[list[str], str, list[tuple[str, list[str]]]]:
    """(names, summary, parts) of a docstring; a part is its label and its lines, the label cut off the first."""
    first, _, rest = docstring.partition("\n")
    head = re.fullmatch(r"(`\w+`(?:, `\w+`)*): (.*)", first)
    if head is None:
        raise ValueError(f"expected '`name`, `name`: summary.', got {first!r}")
    parts: list[tuple[str, list[str]]] = []
    for line in filter(str.strip, rest.split("\n")):
        label, colon, text = line.partition(":")
        if colon and label in LABELS:
            parts.append((label, [text.strip()]))
        elif re.match(r"[A-Z]\w*( kept)?:", line) or not parts:
            raise ValueError(f"{first}: expected one of the labels {', '.join(LABELS)}, got {line!r}")
        else:
            parts[-1][1].append(line)
    missing = [label for label in NEEDED if label not in dict(parts)]
    if missing:
        raise ValueError(f"{first}: no {' and no '.join(missing)}")
    return re.findall(r"`(\w+)`", head[1]), head[2], parts


def parameters(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Name -> (unit, meaning)."""
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in filter(str.strip, lines):
        start = re.fullmatch(r"  (\w+) \(([^)]*)\): (.*)", line)
        if start:
            name = start[1]
            found[name] = (start[2], start[3])
        else:
            unit, meaning = found[name]
            found[name] = (unit, f"{meaning} {line.strip()}")
    return found


def markup(text: str) -> str:
    """Markdown of a piece of a docstring."""
    text = re.sub(r"\bOURS\b", "**ours**", text)
    return re.sub(r"docs/([\w]+\.md)(#[\w-]+)", r"[\1](\1\2)", text)


def filled(text: str, first: str, later: str) -> str:
    """Text in lines of the page's width, hyphenated words and long links whole."""
    return textwrap.fill(
        markup(text), WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def bullet(label: str, lines: list[str]) -> str:
    """A part as a list item, with its own list below it."""
    pieces: list[list[str]] = [[lines[0]]]
    for line in lines[1:]:
        inside = line.startswith("  ") and ITEM.match(line.strip())
        if inside:
            pieces.append([line.strip()])
        else:
            pieces[-1].append(line.strip())
    shown = "**Ours**" if label == "Ours" else label
    out = [filled(f"{shown}: {' '.join(pieces[0])}", "* ", "  ")]
    for piece in pieces[1:]:
        mark, _, text = " ".join(piece).partition(" ")
        out.append(filled(text, f"  {mark} ", "  " + " " * (len(mark) + 1)))
    return "\n".join(out)


def parameter_table(names: list[str], lines: Iterable[str]) -> str:
    """Units and meanings from the docstring, values from the code; a column for each different set of values."""
    described = parameters(lines)
    sets: dict[tuple[float, ...], list[str]] = {}
    for name in names:
        params = policy_of(name).params
        if list(described) != list(params):
            raise ValueError(f"{name}: the docstring describes {list(described)}, the code has {list(params)}")
        sets.setdefault(tuple(params.values()), []).append(f"`{name}`")
    columns = ["default"] if len(sets) == 1 else [", ".join(same) for same in sets.values()]
    rows = [["parameter", "unit", *columns, "meaning"], ["---"] * (3 + len(columns))]
    for place, (name, (unit, meaning)) in enumerate(described.items()):
        rows.append([f"`{name}`", unit, *(quantity(values[place]) for values in sets), markup(meaning)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def section(module: str) -> str:
    """The section of a module's policies."""
    docstring = inspect.getdoc(importlib.import_module(f"cacheenv_baselines.{module}")) or ""
    names, summary, parts = parse(docstring)
    registered = [name for name, (place, _) in PLACES.items() if place == module]
    if sorted(names) != sorted(registered):
        raise ValueError(f"{module}: the docstring names {names}, the registry {registered}")
    if "Parameters" not in dict(parts) and policy_of(names[0]).params:
        raise ValueError(f"{module}: the docstring describes no parameters")
    text = [f"### {', '.join(f'`{name}`' for name in names)}\n\n{summary[0].upper()}{summary[1:]}\n"]
    for label, lines in parts:
        if label == "Parameters":
            text.append(f"\n{parameter_table(names, lines)}\n")
        else:
            text.append(("\n" if text[-1].endswith("|\n") or len(text) == 1 else "") + bullet(label, lines))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(text))


def sections(kind: str) -> str:
    """All sections of a kind."""
    return "\n" + "\n\n".join(section(module).rstrip("\n") for module in modules(kind)) + "\n\n"
