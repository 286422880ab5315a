"""Seeds: whole numbers, and the separate streams that are drawn from one."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from cacheenv.errors import InputError


def checked_seed(seed: Any, place: str = "seed") -> int:
    """A seed as an integer; anything but a whole number >= 0 is an :class:`InputError`."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"{place}: expected a whole number >= 0, got {seed!r}")
    return number


def split_seed(seed: int | np.random.SeedSequence) -> tuple[int, np.random.SeedSequence, np.random.SeedSequence]:
    """Separate streams for workload, predictor noise and policies, so that every policy meets the same arrivals.

    Returns:
        (workload seed, seed sequence of the predictor, seed sequence of the policies).
    """
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    key = root.spawn_key
    streams = [np.random.SeedSequence(root.entropy, spawn_key=(*key, part)) for part in range(3)]
    return int(streams[0].generate_state(1, np.uint64)[0] >> 1), streams[1], streams[2]
