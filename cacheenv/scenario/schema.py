"""The schema of a configuration: what a value must be, said once beside its default, meaning and unit.

Refused with one line each: unknown keys (with a suggestion), text where a number belongs (YAML reads `1e-3` as text),
NaN and infinity, values out of range.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from cacheenv.errors import ConfigError, kind_of, suggestion


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a configuration value must be.

    Attributes:
        kind: `float`, `int`, `bool`, `text`, `choice`, `mapping`, `text or mapping` or `any` (checked elsewhere).
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
        if self.kind == "any" or (value is None and self.optional):
            return value
        if self.kind in ("float", "int"):
            return self._number(value, place)
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise ConfigError(f"{place}: expected true or false, got {value!r}", place)
        elif self.kind == "mapping":
            if not isinstance(value, Mapping):
                raise ConfigError(f"{place}: expected a mapping, got {kind_of(value)}", place)
            return dict(value)
        elif self.kind == "text or mapping" and not isinstance(value, str):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{place}: expected text or a mapping, got {kind_of(value)}", place)
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


@dataclasses.dataclass(frozen=True)
class KeysRule(Rule):
    """A mapping with any of a few keys.

    Attributes:
        keys: What the value of each key must be.
    """

    keys: Mapping[str, Rule] = dataclasses.field(default_factory=dict)

    def check(self, value: Any, place: str) -> Any:
        """The mapping with all its values checked; keys that are absent stay absent."""
        checked = {}
        for key, inner in super().check(value, place).items():
            name = f"{place}.{key}"
            if key not in self.keys:
                raise _unknown_key(name, key, place, self.keys)
            checked[key] = self.keys[key].check(inner, name)
        return checked


@dataclasses.dataclass(frozen=True)
class GroupsRule(Rule):
    """A list of mappings, of which each says by its `role` which keys it may have.

    Attributes:
        roles: Role -> what the value of each key must be.
        elsewhere: Keys that somebody may look for here -> the key that holds for all groups.
    """

    roles: Mapping[str, Mapping[str, Rule]] = dataclasses.field(default_factory=dict)
    elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def check(self, value: Any, place: str) -> Any:
        """The groups with all their values checked; keys that are absent stay absent."""
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{place}: expected a list of groups, got {kind_of(value)}", place)
        return [self._group(group, f"{place}[{number}]") for number, group in enumerate(value)]

    def _group(self, group: Any, place: str) -> dict[str, Any]:
        if not isinstance(group, Mapping):
            raise ConfigError(f"{place}: expected a mapping, got {kind_of(group)}", place)
        which = Rule("choice", "role", choices=tuple(self.roles))
        if "role" not in group:
            raise ConfigError(f"{place}.role: expected one of {', '.join(which.choices)}, and it is missing", place)
        keys = self.roles[which.check(group["role"], f"{place}.role")]
        checked = {"role": group["role"], "count": 1}
        for key, value in group.items():
            name = f"{place}.{key}"
            if key == "role":
                continue
            if key not in keys:
                common = self.elsewhere.get(f"{group['role']}.{key}")
                if common:
                    raise ConfigError(f"{name}: one value holds for all instances: {common}", name)
                raise _unknown_key(name, key, place, keys)
            checked[key] = keys[key].check(value, name)
        return checked


def _unknown_key(name: str, key: Any, place: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that `place` does not have: with the closest known one, or all of them."""
    inside = f" in {place}" if place else ""
    begun = [field for field in known if field.startswith(str(key))]
    hint = suggestion(begun[0] if begun else key, known) or f"; known{inside}: {', '.join(known)}"
    return ConfigError(f"unknown key {name}{hint}", name)


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

    Every field carries either a :class:`Rule` (metadata `rule`) or a nested dataclass (metadata `section`). A class
    attribute `REPLACED` says of keys that are gone what to write instead.
    """
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{place}: expected a mapping, got {kind_of(tree)}", place)
    fields = {item.name: item for item in dataclasses.fields(schema)}
    values: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{place}.{key}" if place else str(key)
        if key not in fields:
            replacement = getattr(schema, "REPLACED", {}).get(key)
            if replacement:
                raise ConfigError(f"unknown key {name}; it was replaced by {replacement}", name)
            raise _unknown_key(name, key, place, fields)
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


def text_or_mapping(default: str, doc: str) -> Any:
    """A name, or a mapping in its place that is checked elsewhere."""
    return dataclasses.field(default=default, metadata={"rule": Rule("text or mapping", doc)})


def choice(default: str, choices: tuple[str, ...], doc: str) -> Any:
    """One of a few texts."""
    return dataclasses.field(default=default, metadata={"rule": Rule("choice", doc, choices=choices)})


def groups(doc: str, roles: Mapping[str, Mapping[str, Rule]], elsewhere: Mapping[str, str]) -> Any:
    """A list of groups; empty by default."""
    return dataclasses.field(
        default_factory=list, metadata={"rule": GroupsRule("groups", doc, roles=roles, elsewhere=elsewhere)}
    )


def mapping(doc: str, keys: Mapping[str, Rule] | None = None) -> Any:
    """Mapping with some of `keys`, or a free one that is checked elsewhere; empty by default."""
    rule = Rule("mapping", doc) if keys is None else KeysRule("mapping", doc, keys=keys)
    return dataclasses.field(default_factory=dict, metadata={"rule": rule})
