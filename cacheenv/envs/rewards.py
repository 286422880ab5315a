"""Kinds of reward: what a step's reward is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reward:
    """A kind of reward, as a sum over what happened since the last decision.

    Attributes:
        counts_outcomes: Whether requests count: +1 that met all objectives, and the scenario's prices of violations and
            rejections.
        per_request_s: Price of each request-second in the system.
    """

    counts_outcomes: bool
    per_request_s: float


#: The kinds of :data:`cacheenv.scenario.sections.REWARD_KINDS`.
REWARDS = {
    "slo": Reward(counts_outcomes=True, per_request_s=0.0),
    "latency": Reward(counts_outcomes=False, per_request_s=1.0),
    "shaped": Reward(counts_outcomes=True, per_request_s=0.01),
}
