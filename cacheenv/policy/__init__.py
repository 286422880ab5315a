"""Policies: what schedulers are written with, what they are made of, and how they are found.

Everything that a policy needs is here; the rooms behind it are nobody's business outside `cacheenv`.
"""

from cacheenv.policy.actions import least, move, proposed_route, reject, route, split_move, split_route, stay
from cacheenv.policy.bundle import PolicyBundle
from cacheenv.policy.definition import KINDS, Policy, policy
from cacheenv.policy.names import PolicyProvider, as_bundle, available_policies, make_policy
from cacheenv.sim.core.jit import jit
from cacheenv.sim.core.rng import random_below, uniform
from cacheenv.sim.view.columns import (
    DECISION_ADMIT,
    DECISION_MIGRATE,
    DECISION_NONE,
    DECISION_ROUTE,
    ROLE_PRE_PREFILL,
    ROLE_PREFILL,
    View,
)

__all__ = [
    "DECISION_ADMIT",
    "DECISION_MIGRATE",
    "DECISION_NONE",
    "DECISION_ROUTE",
    "KINDS",
    "ROLE_PREFILL",
    "ROLE_PRE_PREFILL",
    "Policy",
    "PolicyBundle",
    "PolicyProvider",
    "View",
    "as_bundle",
    "available_policies",
    "jit",
    "least",
    "make_policy",
    "move",
    "policy",
    "proposed_route",
    "random_below",
    "reject",
    "route",
    "split_move",
    "split_route",
    "stay",
    "uniform",
]
