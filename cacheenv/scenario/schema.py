"""Strict reading of YAML configuration: nothing is guessed, converted or silently repaired.

Refused with one line each: duplicate keys, text where a number belongs (YAML reads `1e-3` as text), base-60 and octal
integers, NaN and infinity, unknown keys (with a suggestion), values out of range.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cacheenv.errors import InputError, suggestion


class ConfigError(InputError):
    """Bad configuration value.

    Attributes:
        place: Dotted key of the value, e.g. `cluster.prefill.count`; empty where the whole file is meant.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class StrictLoader(yaml.SafeLoader):
    """YAML's safe loader without duplicate keys, base-60 integers (`1:30`) and octal integers (`010`)."""


def _mapping(loader: StrictLoader, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
    seen: dict[str, int] = {}
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        line = key_node.start_mark.line + 1
        if key is None or (key_node.tag != "tag:yaml.org,2002:str" and key != "<<"):
            raise ConfigError(f"line {line}: keys must be text, got {key!r}")
        if key in seen:
            raise ConfigError(f"line {line}: key '{key}' stands twice (first in line {seen[key]})", key)
        seen[key] = line
    loader.flatten_mapping(node)
    return {str(key): value for key, value in yaml.SafeLoader.construct_mapping(loader, node, deep=True).items()}


def _integer(loader: StrictLoader, node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "").lstrip("+-")
    if not text.isdecimal() or (len(text) > 1 and text[0] == "0"):
        line = node.start_mark.line + 1
        raise ConfigError(f"line {line}: expected a plain decimal integer, got {node.value!r} (quote it if it is text)")
    return yaml.SafeLoader.construct_yaml_int(loader, node)


def _float(loader: StrictLoader, node: yaml.ScalarNode) -> float:
    if ":" in node.value:
        line = node.start_mark.line + 1
        raise ConfigError(f"line {line}: expected a plain decimal number, got {node.value!r} (quote it if it is text)")
    return yaml.SafeLoader.construct_yaml_float(loader, node)


StrictLoader.add_constructor("tag:yaml.org,2002:map", _mapping)
StrictLoader.add_constructor("tag:yaml.org,2002:int", _integer)
StrictLoader.add_constructor("tag:yaml.org,2002:float", _float)


def parse_yaml(text: str) -> Any:
    """The value of a YAML document.

    Raises:
        ConfigError: With the line of a syntax error, of a duplicate key or of an ambiguous number.
    """
    try:
        return yaml.load(text, Loader=StrictLoader)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        what = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "unreadable"
        raise ConfigError(f"{where}not valid YAML: {what}") from None
    except RecursionError:
        raise ConfigError("not valid YAML: nested too deeply") from None


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """The mapping at the top of a YAML file; every problem is an :class:`InputError` that names the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror or problem}") from None
    try:
        value = parse_yaml(text)
    except ConfigError as problem:
        raise InputError(f"{path}: {problem}") from None
    if value is None:
        raise InputError(f"{path}: empty; expected a mapping of scenario keys")
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a mapping at the top, got {_kind(value)}")
    return value


def parse_assignment(text: str) -> tuple[str, Any]:
    """Splits `dotted.key=value`; the value is read as a YAML value (`null`, `3`, `0.5`, `name`)."""
    key, mark, value = text.partition("=")
    key = key.strip()
    if not mark or not key:
        raise InputError(f"--set {text}: expected dotted.key=value")
    try:
        return key, parse_yaml(value)
    except ConfigError as problem:
        raise InputError(f"--set {text}: {problem}") from None


def nested(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested form of overrides whose keys may be dotted, nested or both; a later key wins."""
    if not isinstance(overrides, Mapping):
        raise ConfigError(f"overrides: expected a mapping of dotted keys to values, got {overrides!r}", "")
    result: dict[str, Any] = {}
    for key, value in overrides.items():
        if not isinstance(key, str) or not all(key.split(".")):
            raise ConfigError(f"override {key!r}: expected a dotted key such as cluster.prefill.count", str(key))
        inner: Any = nested(value) if isinstance(value, Mapping) else value
        for part in reversed(key.split(".")):
            inner = {part: inner}
        result = merged(result, inner)
    return result


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it; mappings are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def dotted_keys(tree: Mapping[str, Any], place: str = "") -> list[str]:
    """Dotted names of all leaves of a nested mapping."""
    keys: list[str] = []
    for key, value in tree.items():
        name = f"{place}.{key}" if place else str(key)
        keys += dotted_keys(value, name) if isinstance(value, Mapping) and value else [name]
    return keys


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", type(None): "nothing (null)"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a configuration value must be.

    Attributes:
        kind: `float`, `int`, `bool`, `text`, `choice` or `mapping`.
        doc: Meaning and unit, one line.
        low: Smallest value allowed.
        above: The value must be larger than this.
        high: Largest value allowed.
        optional: Whether null is allowed.
        choices: The allowed texts of a `choice`.
    """

    kind: str
    doc: str
    low: float | None = None
    above: float | None = None
    high: float | None = None
    optional: bool = False
    choices: tuple[str, ...] = ()

    def check(self, value: Any, place: str) -> Any:
        """`value` in its declared type, or a :class:`ConfigError` naming `place`."""
        if value is None and self.optional:
            return None
        if self.kind in ("float", "int"):
            return self._number(value, place)
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise ConfigError(f"{place}: expected true or false, got {value!r}", place)
        elif self.kind == "mapping":
            if not isinstance(value, Mapping):
                raise ConfigError(f"{place}: expected a mapping, got {_kind(value)}", place)
            return dict(value)
        elif not isinstance(value, str):
            expected = f"one of {', '.join(self.choices)}" if self.choices else "text"
            raise ConfigError(f"{place}: expected {expected}, got {value!r}", place)
        elif self.choices and value not in self.choices:
            hint = suggestion(value, self.choices)
            raise ConfigError(f"{place}: expected one of {', '.join(self.choices)}, got '{value}'{hint}", place)
        elif not value.strip() or "\n" in value.strip():
            raise ConfigError(f"{place}: expected one line of text, got {value!r}", place)
        return value

    def _number(self, value: Any, place: str) -> int | float:
        expected = f"{'an integer' if self.kind == 'int' else 'a number'}{self._range()}"
        if self.optional:
            expected += " or null"
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar in overrides
            value = value.item()
        if isinstance(value, str):
            raise ConfigError(f"{place}: expected {expected}, got the text {value!r}{_yaml_hint(value)}", place)
        wrong_type = isinstance(value, bool) or not isinstance(value, (int, float))
        if wrong_type or (self.kind == "int" and not isinstance(value, int)):
            raise ConfigError(f"{place}: expected {expected}, got {value!r}", place)
        in_range = (
            (not isinstance(value, float) or math.isfinite(value))
            and abs(value) < 2**53
            and (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
        )
        if not in_range:
            raise ConfigError(f"{place}: expected {expected}, got {value!r}", place)
        return value if self.kind == "int" else float(value)

    def _range(self) -> str:
        parts = [
            f"{sign} {bound:g}"
            for sign, bound in ((">=", self.low), (">", self.above), ("<=", self.high))
            if bound is not None
        ]
        return f" {' and '.join(parts)}" if parts else ""


def _yaml_hint(text: str) -> str:
    """For `1e-3`, which YAML reads as text: how to write the number."""
    try:
        float(text)
    except ValueError:
        return ""
    mantissa, mark, exponent = text.lower().partition("e")
    if not mark:
        return " (remove the quotes)"
    return f" (YAML reads it as text; write {mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+d})"


def build(schema: type[Any], tree: Any, place: str = "") -> Any:
    """An instance of the frozen dataclass `schema` from a mapping, defaults filled in.

    Every field carries either a :class:`Rule` (metadata `rule`) or a nested dataclass (metadata `section`).
    """
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{place}: expected a mapping, got {_kind(tree)}", place)
    fields = {item.name: item for item in dataclasses.fields(schema)}
    values: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{place}.{key}" if place else str(key)
        if key not in fields:
            inside = f" in {place}" if place else ""
            begun = [field for field in fields if field.startswith(str(key))]
            hint = suggestion(begun[0] if begun else key, fields) or f"; known{inside}: {', '.join(fields)}"
            raise ConfigError(f"unknown key {name}{hint}", name)
        section = fields[key].metadata.get("section")
        values[key] = build(section, value, name) if section else fields[key].metadata["rule"].check(value, name)
    return schema(**values)


def section(schema: type[Any]) -> Any:
    """Dataclass field that holds a nested section with its defaults."""
    return dataclasses.field(default_factory=schema, metadata={"section": schema})


def number(default: float | None, doc: str, **bounds: Any) -> Any:
    """Float field; bounds `low`, `above`, `high`, `optional`."""
    return dataclasses.field(default=default, metadata={"rule": Rule("float", doc, **bounds)})


def integer(default: int | None, doc: str, **bounds: Any) -> Any:
    """Integer field; bounds `low`, `above`, `high`, `optional`."""
    return dataclasses.field(default=default, metadata={"rule": Rule("int", doc, **bounds)})


def flag(default: bool, doc: str) -> Any:
    """True/false field."""
    return dataclasses.field(default=default, metadata={"rule": Rule("bool", doc)})


def text(default: str | None, doc: str, **options: Any) -> Any:
    """One line of text."""
    return dataclasses.field(default=default, metadata={"rule": Rule("text", doc, **options)})


def choice(default: str, choices: tuple[str, ...], doc: str) -> Any:
    """One of a few texts."""
    return dataclasses.field(default=default, metadata={"rule": Rule("choice", doc, choices=choices)})


def mapping(doc: str) -> Any:
    """Free mapping, checked elsewhere; empty by default."""
    return dataclasses.field(default_factory=dict, metadata={"rule": Rule("mapping", doc)})
