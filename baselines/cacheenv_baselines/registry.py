"""Names of the baselines, and where each one is."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cacheenv.errors import InputError, suggestion
from cacheenv.policy import Policy, PolicyBundle

#: Name -> (module of this package, attribute). The module is imported when the policy is made.
PLACES = {
    "aibrix": ("aibrix", "aibrix"),
    "bf_io": ("bf_io", "bf_io"),
    "cpd": ("cpd", "cpd"),
    "cpd_balanced": ("cpd", "cpd_balanced"),
    "dynamo": ("dynamo", "dynamo"),
    "early_reject": ("early_reject", "early_reject"),
    "hash_ring": ("hash_ring", "hash_ring"),
    "kv_reject": ("kv_reject", "kv_reject"),
    "late_reject": ("late_reject", "late_reject"),
    "least_backlog": ("least_backlog", "least_backlog"),
    "least_kv": ("least_kv", "least_kv"),
    "least_requests": ("least_requests", "least_requests"),
    "least_tbt": ("least_tbt", "least_tbt"),
    "linear": ("linear", "linear"),
    "llmd_approx": ("llmd", "llmd_approx"),
    "llmd_precise": ("llmd", "llmd_precise"),
    "llumnix": ("llumnix", "llumnix"),
    "llumnix_dispatch": ("llumnix_dispatch", "llumnix_dispatch"),
    "lmetric": ("lmetric", "lmetric"),
    "longest_prefix": ("longest_prefix", "longest_prefix"),
    "mooncake": ("mooncake", "mooncake"),
    "mooncake_local": ("mooncake", "mooncake_local"),
    "mooncake_min": ("mooncake_min", "mooncake_min"),
    "power_of_two": ("power_of_two", "power_of_two"),
    "preble": ("preble", "preble"),
    "predicted_kv": ("predicted_kv", "predicted_kv"),
    "predictive_reject": ("predictive_reject", "predictive_reject"),
    "prefix_hash": ("prefix_hash", "prefix_hash"),
    "random": ("random_router", "random_router"),
    "round_robin": ("round_robin", "round_robin"),
    "session": ("session", "session"),
    "sglang": ("sglang", "sglang"),
    "sglang_struct": ("sglang", "sglang_struct"),
    "size_reject": ("size_reject", "size_reject"),
    "smetric": ("smetric", "smetric"),
    "star": ("star", "star"),
    "star_nopred": ("star", "star_nopred"),
    "star_oracle": ("star", "star_oracle"),
    "star_placement": ("star_placement", "star_placement"),
    "star_variance": ("star", "star_variance"),
}

#: Planners: they try actions on copies of the world, with a base policy of any name.
PLANNERS = ("hindsight", "lookahead")

#: The router under an admission policy that is asked for by its own name.
ADMISSION_ROUTER = "mooncake"


def names() -> list[str]:
    """Names that :func:`make` knows, sorted."""
    return sorted(PLACES)


def make(name: str, **params: float) -> Policy | PolicyBundle:
    """The baseline of that name.

    Args:
        name: One of :func:`names`.
        **params: Parameter values that replace the defaults.

    Returns:
        A :class:`Policy`; for an admission policy a bundle of it and the default router (:data:`ADMISSION_ROUTER`).

    Raises:
        InputError: Unknown name or parameter, or a value that is not a finite number.
    """
    if name not in PLACES:
        raise InputError(f"unknown policy '{name}'{suggestion(name, PLACES)}; known: {', '.join(names())}")
    module, attribute = PLACES[name]
    made: Policy = getattr(import_module(f"cacheenv_baselines.{module}"), attribute).with_params(**params)
    if made.kind != "admission":
        return made
    router = make(ADMISSION_ROUTER)
    assert isinstance(router, Policy)
    return PolicyBundle(name, router=router, admission=made)


class Provider:
    """What the entry point of group `cacheenv.policies` resolves to."""

    def names(self) -> list[str]:
        """Names of the baselines and the planners."""
        return sorted([*names(), *PLANNERS])

    def make(self, name: str, **params: Any) -> Policy | PolicyBundle:
        """The baseline or planner of that name."""
        if name in PLANNERS:
            planner: PolicyBundle = import_module("cacheenv_baselines.lookahead").make(name, **params)
            return planner
        return make(name, **params)

    def text_parameters(self, name: str) -> tuple[str, ...]:
        """Parameters of a policy that are no numbers."""
        return ("base", "future") if name in PLANNERS else ()


provider = Provider()
