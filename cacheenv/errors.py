"""The one exception type that users see for bad input, and the words that its messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Bad input: a one-line message that names the place and what was expected there."""


class ConfigError(InputError):
    """Bad configuration value.

    Attributes:
        place: Dotted key of the value, e.g. `cluster.prefill.count`; empty where the whole file is meant.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


def kind_of(value: Any) -> str:
    """What a value read from YAML is, in words."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", type(None): "nothing (null)"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns `` (did you mean 'x'?)`` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(str(word), [str(name) for name in known], n=1, cutoff=0.55)
    return f" (did you mean '{close[0]}'?)" if close else ""
