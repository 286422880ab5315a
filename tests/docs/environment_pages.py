"""Blocks of docs/environment.md: sections of the environments' docstrings, their arguments, the feature tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable

from markdown_table import table

from cacheenv.envs.env import CacheEnv
from cacheenv.envs.features import TABLES
from cacheenv.envs.registration import IDS
from cacheenv.envs.vector import CacheVectorEnv

#: Rows of the tables in a cluster of P prefill and D decode instances with K candidate slots each.
ROWS = {"cluster": "", "request": "", "prefill": " P", "decode": " D", "candidate": " D K"}
#: Arguments that the registered ids set.
SET_BY_IDS = {name for kwargs in IDS.values() for name in kwargs}


def page_sections(documented: type) -> dict[str, str]:
    """Heading -> text of the sections of a docstring; the text below its first line under an empty heading."""
    _, _, text = (inspect.getdoc(documented) or "").partition("\n")
    text = re.split(r"^Args:$", text, maxsplit=1, flags=re.MULTILINE)[0]
    headings = ["", *re.findall(r"^## (.*)$", text, re.MULTILINE)]
    bodies = re.split(r"^## .*$", text, flags=re.MULTILINE)
    return {heading: body.strip() for heading, body in zip(headings, bodies, strict=True)}


def _section(documented: type, heading: str) -> Callable[[], str]:
    def build() -> str:
        title = f"## {heading}\n\n" if heading else ""
        return f"{title}{page_sections(documented)[heading]}\n"

    return build


def _arguments(documented: type, names: Iterable[str]) -> str:
    """Default and meaning of constructor arguments, from the signature and the docstring."""
    text = (inspect.getdoc(documented) or "").split("Args:\n", 1)[1].split("\n\n", 1)[0]
    meanings = dict(re.findall(r"    (\w+): ((?:.+)(?:\n {8}.+)*)", text))
    parameters = inspect.signature(documented).parameters
    rows = []
    for name in names:
        meaning = " ".join(meanings[name].split()).rstrip(".")
        meaning = re.sub(r":class:`(?:[\w.]+\.)?(\w+)`", r"`\1`", meaning)
        default = parameters[name].default
        default = getattr(default, "value", default)
        rows.append([f"`{name}`", f"`{default!r}`", meaning])
    return table(["argument", "default", "meaning"], rows)


def env_arguments() -> str:
    """Arguments of the environment that an id leaves open."""
    return _arguments(CacheEnv, [name for name in inspect.signature(CacheEnv).parameters if name not in SET_BY_IDS])


def vector_arguments() -> str:
    """Arguments that the batched environment has besides."""
    own = set(inspect.signature(CacheVectorEnv).parameters) - set(inspect.signature(CacheEnv).parameters)
    return _arguments(CacheVectorEnv, [name for name in inspect.signature(CacheVectorEnv).parameters if name in own])


def observation_sizes() -> str:
    """How many numbers each table has."""
    sizes = ", ".join(f"`{name}` {len(features)}{ROWS[name]}" for name, features in TABLES.items())
    return f"Numbers of each table: {sizes}.\n"


def _features(name: str) -> Callable[[], str]:
    def build() -> str:
        rows = []
        for number, feature in enumerate(TABLES[name]):
            form = f"x / (x + {feature.scale:,g})" if feature.scale else "share or flag"
            rows.append([number, f"`{feature.name}`", feature.text, form])
        return table(["#", "feature", "x", "value"], rows)

    return build


def block_name(heading: str) -> str:
    """Name of the block of a section of the environment's docstring."""
    return f"environment_{heading.lower().replace(' ', '_') or 'ids'}"


GENERATED: dict[str, Callable[[], str]] = {
    **{
        block_name(heading): _section(CacheEnv, heading)
        for heading in page_sections(CacheEnv)
        if heading != "Arguments"
    },
    "env_arguments": env_arguments,
    "vector_description": _section(CacheVectorEnv, ""),
    "vector_arguments": vector_arguments,
    "observation_sizes": observation_sizes,
    **{f"{name}_features": _features(name) for name in TABLES},
}
