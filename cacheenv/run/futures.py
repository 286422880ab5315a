"""What a copied world believes of the future: what will come, nothing, or what the workload's model draws."""

from __future__ import annotations

from typing import Any

from cacheenv.sim.state.world import World


class Future:
    """What the future of a copy holds.

    Attributes:
        kind: Copies of one kind share their room.
    """

    kind = ""

    def room(self, source: World) -> dict[str, Any]:
        """The stacked tables of a copy that cannot have the shape of the world's, or not share the workload's."""
        return {}

    def fits(self, world: World) -> bool:
        """Whether a copy has room for this future."""
        return True

    def enter(self, world: World, handles: Any) -> None:
        """Puts the future into a copy that equals its world."""


class RealFuture(Future):
    """What will come, and the true lengths: hindsight."""

    kind = "real"


class NoFuture(Future):
    """Nobody comes any more, and lengths are as predicted."""

    kind = "none"

    def room(self, source: World) -> dict[str, Any]:
        """The workload is a copy, since lengths in it change."""
        return {"workload": source.workload[None].copy()}

    def enter(self, world: World, handles: Any) -> None:
        """Forgets the arrivals and the true lengths."""
        forget(world, handles, int(world.config[0].num_requests))


def forget(world: World, handles: Any, first: int) -> None:
    """A copy forgets all but the requests from row `first` on, and knows lengths as they are predicted."""
    from cacheenv.sim.policies.blind import forget_future
    from cacheenv.sim.state.codes import PREDICT_NONE, PREDICT_ORACLE

    config = world.config[0]
    config.closed = 0
    forget_future(handles, 0, first)
    known = slice(0, first)
    arrived = world.request["arrival_s"][known] >= 0.0
    lengths = world.request["output_tokens"][known]
    world.workload["output_tokens"][known][arrived] = lengths[arrived]
    if config.prediction != PREDICT_NONE:
        config.prediction = PREDICT_ORACLE  # of the lengths just written, which are predictions
