"""What each number of an observation is: its tables, their rows and columns, the space, and the Python entry."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np

from cacheenv.envs.actions import ActionCodec
from cacheenv.envs.features import TABLES, Feature, observe
from cacheenv.policy import View

FORMS = ("flat", "dict")


class ObservationLayout:
    """The observation of a cluster of one shape, for an agent that decides arrivals, ticks or both.

    Args:
        codec: Shape of the cluster, and what is decided.

    Attributes:
        rows: (table, row of the table, feature) of each number of the flat observation, in order; the row as
            `prefill[2]`, or the table's name where it has one row only.
        edges: Table k of :data:`cacheenv.envs.features.TABLES` has the numbers `edges[k]` to `edges[k + 1]`
            (exclusive), none where it is left out: int64.
        scales: Scale of each number, 0 for shares and flags: float32.
    """

    def __init__(self, codec: ActionCodec) -> None:
        counts = {
            "cluster": 1,
            "request": int(codec.routes),
            "prefill": codec.num_prefill * codec.routes,
            "decode": codec.num_decode,
            "candidate": codec.num_decode * codec.candidates * codec.moves,
        }
        self.rows: list[tuple[str, str, Feature]] = [
            (table, f"{table}[{row}]" if counts[table] > 1 else table, feature)
            for table, features in TABLES.items()
            for row in range(counts[table])
            for feature in features
        ]
        sizes = [counts[table] * len(features) for table, features in TABLES.items()]
        self.edges = np.cumsum([0, *sizes], dtype=np.int64)
        self.scales = np.array([feature.scale for _, _, feature in self.rows], np.float32)

    def __len__(self) -> int:
        """Numbers of the flat observation."""
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """Name of each number of the flat observation, as `prefill[2].backlog_s`."""
        return [f"{row}.{feature.name}" for _, row, feature in self.rows]

    @property
    def slices(self) -> dict[str, slice]:
        """The numbers of each table that is in the observation."""
        edges = [int(edge) for edge in self.edges]
        return {table: slice(*ends) for table, ends in zip(TABLES, pairwise(edges), strict=True) if ends[0] < ends[1]}

    def space(self, form: str) -> gym.Space[Any]:
        """Float32 numbers in [0, 1]: one Box (`flat`), or a Dict with one flat Box for each table (`dict`)."""
        if form == "flat":
            return gym.spaces.Box(0.0, 1.0, (len(self),), np.float32)
        sizes = {table: place.stop - place.start for table, place in self.slices.items()}
        return gym.spaces.Dict({table: gym.spaces.Box(0.0, 1.0, (size,), np.float32) for table, size in sizes.items()})

    def shape(self, flat: np.ndarray, form: str) -> Any:
        """A flat observation, or several with the features on the last axis, in one of the forms.

        The array itself is the `flat` form; the tables of the `dict` form are copies.
        """
        if form == "flat":
            return flat
        return {table: flat[..., place].copy() for table, place in self.slices.items()}

    def fill(self, view: View, out: np.ndarray) -> np.ndarray:
        """Computes the flat observation of a view into `out`, float32 (features,), and returns it."""
        observe(view, self.edges, self.scales, out)
        return out
