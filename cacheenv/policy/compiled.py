"""A bundle as the compiled loops take it: addresses, parameters and random streams, a row for each kind of part."""

from __future__ import annotations

from typing import Any

import numpy as np

from cacheenv.policy.bundle import PolicyBundle
from cacheenv.sim.core.rng import seed_words
from cacheenv.sim.policies.address import policy_addresses
from cacheenv.sim.policies.compose import PARTS


def bundle_addresses(bundle: PolicyBundle) -> tuple[Any, int]:
    """(what the compiled loops take for the bundle's policies, bits of the parts that decide by themselves).

    The bundle must stay alive as long as they are used.
    """
    from cacheenv.sim.policies.absent import never

    kinds = [getattr(bundle, kind) for kind in PARTS]
    present = 0 if bundle.plans else sum(1 << row for row, part in enumerate(kinds) if part is not None)
    return policy_addresses([part.function if part else never for part in kinds]), present


def policy_params(bundle: PolicyBundle, width: int = 0) -> np.ndarray:
    """Parameters and then zeros for the private state of each part: float64 (parts, at least `width`)."""
    rows = [part.parameter_array() if (part := getattr(bundle, kind)) else np.zeros(1) for kind in PARTS]
    table = np.zeros((len(PARTS), max(width, *map(len, rows))))
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


def policy_streams(seed: np.random.SeedSequence) -> np.ndarray:
    """Random streams of the parts at the start of an episode: int64 (parts, 4)."""
    return np.stack([seed_words(stream) for stream in seed.spawn(len(PARTS))])
