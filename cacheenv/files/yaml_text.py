"""YAML, read strictly: nothing is guessed, converted or silently repaired; and written with keys in their order.

Refused with one line each: duplicate keys, base-60 and octal integers, unreadable text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cacheenv.errors import ConfigError, InputError, kind_of
from cacheenv.files.plain import json_ready


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
        raise InputError(f"{path}: expected a mapping at the top, got {kind_of(value)}")
    return value


def dump_yaml(value: Mapping[str, Any]) -> str:
    """YAML text with keys in their order; NaN and infinity become null."""
    return str(yaml.safe_dump(json_ready(value), sort_keys=False, allow_unicode=True, width=120))
