"""Functions that become a part of their caller have one caller: each further one would compile them once more."""

import ast
from collections import Counter
from pathlib import Path

import cacheenv

ROOT = Path(cacheenv.__file__).parent


def compiled_modules():
    for folder in ("sim", "envs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), ast.parse(path.read_text(encoding="utf-8"))


def once_and_calls(modules):
    """Names of the functions under `@once`, and how often each function is called in the modules."""
    once, calls = set(), Counter()
    for module, tree in modules:
        known = {node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                if any(isinstance(mark, ast.Name) and mark.id == "once" for mark in node.decorator_list):
                    once.add(f"{module}.{node.name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
                calls[known[node.func.id]] += 1
    return once, calls


def test_they_are_called_from_one_place():
    once, calls = once_and_calls(compiled_modules())
    assert len(once) > 80
    wrong = {name: calls[name] for name in once if calls[name] != 1}
    assert not wrong


def test_a_second_call_is_seen():
    source = "@once\ndef f(w):\n    pass\n\ndef g(w):\n    f(w)\n    f(w)\n"
    once, calls = once_and_calls([("m", ast.parse(source))])
    assert once == {"m.f"} and calls["m.f"] == 2
