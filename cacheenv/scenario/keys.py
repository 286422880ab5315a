"""Dotted keys: `cluster.prefill.count` names a leaf of nested mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheenv.errors import ConfigError, InputError
from cacheenv.files.yaml_text import parse_yaml


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


def flat(tree: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Leaves of nested mappings by dotted key; an empty mapping is a leaf.

    Args:
        tree: Nested mappings; keys may be dotted already.
        place: Dotted key of the tree itself.
    """
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{place}.{key}" if place else str(key)
        leaves.update(flat(value, name) if isinstance(value, Mapping) and value else {name: value})
    return leaves


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (value before, value after) of all leaves that differ; None where there is no such leaf."""
    old, new = ({key: value for key, value in flat(tree).items() if value != {}} for tree in (before, after))
    keys = dict.fromkeys([*old, *new])
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}
