"""When two numbers of the two simulators are the same."""

from __future__ import annotations

import math
from typing import Any

RELATIVE = 1e-9


def close(left: Any, right: Any, scale: float = 0.0) -> bool:
    """Equality: of floats to RELATIVE (of the larger one or of `scale`), of everything else exactly."""
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(close(a, b, scale) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) or isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return abs(left - right) <= RELATIVE * max(abs(left), abs(right), scale)
    return bool(left == right)
