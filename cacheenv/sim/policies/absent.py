"""A policy function for the parts that a run does not have."""

from __future__ import annotations

from cacheenv.sim.core.jit import POLICY_OPTIONS, jit_signature
from cacheenv.sim.policies.address import POLICY_SIGNATURE


def _never(view, rng, params):
    return 0


never = jit_signature(POLICY_SIGNATURE, _never, POLICY_OPTIONS)
