"""Parameters of generators: frozen dataclasses whose fields carry their range, checked when they are made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from cacheenv.errors import InputError, suggestion

Params = TypeVar("Params")


def whole(default: int, low: int, high: int = 10**9) -> Any:
    """A field that takes whole numbers from `low` to `high`."""
    return dataclasses.field(default=default, metadata={"whole": True, "low": low, "high": high})


def real(default: float, low: float, high: float = math.inf) -> Any:
    """A field that takes finite numbers from `low` to `high`."""
    return dataclasses.field(default=default, metadata={"whole": False, "low": low, "high": high})


def check_fields(params: Any) -> None:
    """Checks every field of a parameter dataclass against its range."""
    for entry in dataclasses.fields(params):
        value, rule = getattr(params, entry.name), entry.metadata
        kinds = (int,) if rule["whole"] else (int, float)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
        if not fits or not rule["low"] <= value <= rule["high"]:
            kind = "a whole number" if rule["whole"] else "a number"
            bound = f"from {rule['low']:g} to {rule['high']:g}" if rule["high"] < math.inf else f">= {rule['low']:g}"
            raise InputError(f"{entry.name}: expected {kind} {bound}, got {value!r}")


def make_params(params_type: type[Params], values: Mapping[str, Any] | None) -> Params:
    """Parameters from a mapping; unknown names are refused with a suggestion."""
    known = [entry.name for entry in dataclasses.fields(params_type)]  # type: ignore[arg-type]
    for key in values or {}:
        if key not in known:
            raise InputError(f"{key}: unknown parameter{suggestion(str(key), known)}; expected: {', '.join(known)}")
    return params_type(**(values or {}))
