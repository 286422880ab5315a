"""Each column of the state has one writing room: read from the source text, so that no run can miss a write."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import cacheenv.sim
from cacheenv.sim.state.allocate import ARRAYS, TABLES
from cacheenv.sim.state.columns import CONSTANT
from cacheenv.sim.state.world import World

ROOT = Path(cacheenv.sim.__file__).parent
#: Plain arrays -> their writing room, as the docstring of `World` says; the others are constant.
ARRAY_OWNERS = {
    "heap_position": "core.timers",
    "child_table": "cache.radix",
    "holders": "index.central",
    "stored_on": "index.central",
    "remembered": "index.router_memory",
    "first_sent": "index.router_memory",
    "holder_mask": "index.hits",
    "coming": "arrivals",
    "first_carrier": "index.backlog",
    "carrier_next": "index.backlog",
    "carrier_before": "index.backlog",
    "batch_heap": "decode.batch",
    "slot_gaps": "decode.gaps",
    "step_gaps": "decode.gaps",
    "queue_order": "prefill.queue",
}
#: Column -> the tables that have it.
TABLES_WITH: dict[str, set[str]] = {}
for _name, _table in TABLES.items():
    for _column in _table.owners:
        TABLES_WITH.setdefault(_column, set()).add(_name)


def room(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


class Writes(ast.NodeVisitor):
    """(table or None, column, line) of each assignment to a column, and (array, line) of each to a plain array."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}  # local name -> table, for `row = w.prefill[p]` and `node = forest.node`
        self.columns: list[tuple[str | None, str, int]] = []
        self.arrays: list[tuple[str, int]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self.rows = self.rows, {}
        self.generic_visit(node)
        self.rows = outer

    def table_of(self, node: ast.expr) -> str | None:
        """The table that an expression is, or is a row of."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "view":
            return f"view.{node.attr}"
        if isinstance(node, ast.Attribute) and node.attr in World._fields:
            return node.attr
        return self.rows.get(node.id) if isinstance(node, ast.Name) else None

    def written(self, target: ast.expr, line: int) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.written(part, line)
        elif isinstance(target, ast.Attribute):
            self.columns.append((self.table_of(target.value), target.attr, line))
        elif isinstance(target, ast.Subscript) and (table := self.table_of(target)) is not None:
            self.arrays.append((table, line))

    def remember(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for left, right in zip(target.elts, value.elts, strict=True):
                self.remember(left, right)
        elif isinstance(target, ast.Name):
            self.rows.pop(target.id, None)
            table = self.table_of(value)
            if table is not None:
                self.rows[target.id] = table

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.written(target, node.lineno)
            self.remember(target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.written(node.target, node.lineno)
        self.generic_visit(node)


def violations(source: str, name: str) -> list[str]:
    """Writes of the room `name` to what is not its own."""
    writes = Writes()
    writes.visit(ast.parse(source))
    wrong = []
    for table, column, line in writes.columns:
        candidates = {table} if table is not None else TABLES_WITH.get(column, set())
        owners = {
            TABLES[each].owners[column] for each in candidates if each in TABLES and column in TABLES[each].owners
        }
        if owners and name not in owners:
            wrong.append(f"{name}:{line}: writes {table or '?'}.{column}, which belongs to {', '.join(sorted(owners))}")
    for table, line in writes.arrays:
        owner = ARRAY_OWNERS.get(table, CONSTANT)
        if table in TABLES or owner != name:
            wrong.append(f"{name}:{line}: writes {table}, which belongs to {owner}")
    return wrong


def modules() -> list[Path]:
    # The view has a test of its own; what `state/` does is put start values everywhere.
    return [path for path in sorted(ROOT.rglob("*.py")) if room(path).split(".")[0] not in ("view", "state")]


@pytest.mark.parametrize("path", modules(), ids=room)
def test_a_room_writes_its_own_columns_only(path):
    assert violations(path.read_text(encoding="utf-8"), room(path)) == []


@pytest.mark.parametrize("path", sorted((ROOT / "view").glob("*.py")), ids=room)
def test_filling_a_view_writes_the_view_only(path):
    assert foreign_to_the_view(path.read_text(encoding="utf-8")) == []


def foreign_to_the_view(source: str) -> list[int]:
    """Lines that write something but the view."""
    writes = Writes()
    writes.visit(ast.parse(source))
    named = [(table, line) for table, _, line in writes.columns] + writes.arrays
    return [line for table, line in named if not (table or "").startswith("view.")]


def test_a_view_that_changes_the_world_is_caught():
    assert foreign_to_the_view("def f(w, view):\n    w.hit[0].pages = 1") == [2]
    assert foreign_to_the_view("def f(w, row):\n    row.pages = 1") == [2]
    assert foreign_to_the_view("def f(w, view):\n    entry = view.prefill[0]\n    entry.hit_tokens = 1") == []


def test_every_owner_is_a_room_that_writes():
    written: dict[str, set[str]] = {}
    for path in modules():
        writes = Writes()
        writes.visit(ast.parse(path.read_text(encoding="utf-8")))
        written[room(path)] = {column for _, column, _ in writes.columns}
    for name, table in TABLES.items():
        for column, owner in table.owners.items():
            if owner != CONSTANT:
                assert column in written[owner], f"{owner} never writes {name}.{column}"


def test_every_column_is_read():
    read: set[str] = set()
    for path in ROOT.parent.rglob("*.py"):
        if path.name == "columns.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read |= set(node.value.split())
    for name, table in TABLES.items():
        assert not set(table.owners) - read, f"nothing reads these columns of {name}"


def test_every_field_of_a_world_is_described():
    source = (ROOT / "state" / "world.py").read_text(encoding="utf-8")
    lines = source.split("\n")
    for field in World._fields:
        at = next(number for number, line in enumerate(lines) if line.strip() == f"{field}: np.ndarray")
        comment = []
        while lines[at - 1].strip().startswith("#:"):
            at -= 1
            comment.insert(0, lines[at].strip("#: "))
        said = " ".join(comment)
        assert said, field
        assert "(" in said, f"{field}: its shape is missing"
        if field in ARRAY_OWNERS:
            assert f"`{ARRAY_OWNERS[field]}`" in said, f"{field}: its owner is missing"
    assert {*TABLES, *ARRAYS} == set(World._fields)


def test_start_values_and_types():
    assert TABLES["request"].start["slot"] == -1
    assert np.isneginf(TABLES["request"].start["last_move_s"])
    assert TABLES["state"].dtype["now_s"] == np.float64


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("decode.run", "def f(w, d):\n    w.decode[d].waiting += 1", "decode.queue"),
        ("decode.run", "def f(w, d):\n    row = w.decode[d]\n    row.inflight -= 1", "requests"),
        ("prefill.queue", "def f(w):\n    state = w.state[0]\n    state.now_s = 3.0", "events"),
        ("prefill.queue", "def f(row):\n    row.busy_s = 1.0", "decode.run"),
        ("index.hits", "def f(w):\n    w.holders[3, 0] = 1", "index.central"),
        ("index.hits", "def f(w):\n    row, other = w.slot[0], 3\n    row.request = 1", "decode.batch"),
    ],
)
def test_a_foreign_write_is_caught(name, source, said):
    assert len(violations(source, name)) == 1
    assert said in violations(source, name)[0]


def test_an_own_write_passes():
    assert not violations("def f(w, d):\n    row = w.decode[d]\n    row.planned = 1", "decode.run")
    assert not violations("def f(view, d):\n    count = 1", "decode.run")
