"""Mechanisms that have kinds: one function for each, chosen in compiled code by a number.

A registry is a dict from the name of a kind, as scenarios write it, to its module; the code of a kind is its place in
the dict (:func:`code_of`). :func:`by_code` makes the function that calls the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numba.extending import overload


def by_code(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A function `choose(code, *arguments)` that calls `functions[code](*arguments)`, plain or compiled.

    All functions must return the same type. A code without a function is a defect: the last one answers.
    """
    functions = tuple(functions)

    def choose(code: int, *arguments: Any) -> Any:
        return functions[min(code, len(functions) - 1)](*arguments)

    @overload(choose)
    def compiled(code, *arguments):
        last = len(functions) - 1
        lines = ["def chosen(code, *arguments):"]
        for number in range(last):
            lines += [f"    if code == {number}:", f"        return kind_{number}(*arguments)"]
        lines.append(f"    return kind_{last}(*arguments)")
        scope: dict[str, Any] = {f"kind_{number}": function for number, function in enumerate(functions)}
        exec("\n".join(lines), scope)
        return scope["chosen"]

    return choose


def code_of(kinds: Mapping[str, Any], name: str) -> int:
    """The code of a kind of a registry."""
    return list(kinds).index(name)
