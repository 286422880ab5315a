"""Intervals of differences between policies that met the same arrivals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95


def paired_difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Mean of `first - second` and half the width of its 95 % interval (Student's t over the pairs).

    Args:
        first: A metric of one policy, an entry a seed or a block of time.
        second: The same of the other policy, in the same order; at least two pairs.
    """
    from scipy.special import stdtrit  # here, since it takes longer to import than all the rest of the command

    differences = [one - other for one, other in zip(first, second, strict=True)]
    count = len(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    return statistics.fmean(differences), float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * error
