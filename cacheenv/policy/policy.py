"""Policies: one compiled function `(view, rng, params) -> action`, or any Python object with `act(view, mask)`.

A router returns a route action (see :func:`route`), a rescheduler a migration action (:func:`move` or :func:`stay`), an
admission policy 1 (accept) or 0 (reject) for the route in `view.cluster[0].proposed`. A decode choice returns a route
action too, of which only the decode instance is used. `rng` is the policy's own random stream
(:mod:`cacheenv.sim.core.rng`); `params` holds the declared parameters in order, then `state_size` numbers that belong
to the policy and start at 0.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from cacheenv.errors import InputError, suggestion
from cacheenv.sim.actions import move_number, reject_number, route_number, stay_number
from cacheenv.sim.core.jit import POLICY_OPTIONS, jit, jit_signature
from cacheenv.sim.core.rng import random_below, uniform
from cacheenv.sim.policies.address import POLICY_SIGNATURE
from cacheenv.sim.policies.compose import PARTS
from cacheenv.sim.view.columns import DECISION_MIGRATE, DECISION_NONE, DECISION_ROUTE, View

__all__ = [
    "DECISION_MIGRATE",
    "DECISION_NONE",
    "DECISION_ROUTE",
    "KINDS",
    "Policy",
    "PolicyBundle",
    "View",
    "as_bundle",
    "available_policies",
    "least",
    "make_policy",
    "move",
    "policy",
    "random_below",
    "reject",
    "route",
    "stay",
    "uniform",
]

KINDS = PARTS


@jit
def route(view, prefill, decode, pull):
    """The route action `((p * D) + d) * 2 + pull`; `pull` is dropped where there is nothing to pull to `p`."""
    flag = 1 if pull and view.prefill[prefill].pull_tokens > 0 else 0
    return route_number(prefill, decode, flag, view.cluster[0].num_decode)


@jit
def reject(view):
    """The route action that refuses the request (HTTP 429)."""
    return reject_number(view.cluster[0].num_prefill, view.cluster[0].num_decode)


@jit
def move(view, candidate, decode):
    """The migration action `((s * K) + k) * D + d` for the candidate row `s*K + k`."""
    return move_number(candidate, decode, view.cluster[0].num_decode)


@jit
def stay(view):
    """The migration action that moves nothing."""
    return stay_number(view.cluster[0].num_decode, view.cluster[0].num_candidates)


@jit
def least(rng, best, count, value, best_value):
    """Reservoir rule for random ties: returns (take it?, ties so far) when scanning for a minimum.

    Call with `count = 0` at the start; an equal value replaces the best with probability 1/(ties + 1).
    """
    if best < 0 or value < best_value:
        return True, 1
    if value == best_value:
        return random_below(rng, count + 1) == 0, count + 1
    return False, count


@dataclass(frozen=True)
class Policy:
    """A named compiled policy with its parameters.

    Attributes:
        name: Name in tables and on the command line.
        kind: One of :data:`KINDS`.
        function: Compiled with the policy signature (a plain function under `NUMBA_DISABLE_JIT=1`).
        params: Parameter values in the order in which `function` reads them.
        state_size: Float64 numbers of private state behind the parameters in the `params` array.
        requires: Scenario overrides (dotted keys) of engine-side mechanisms that the system needs.
        needs_running: Whether `view.running` must be filled at arrivals too (it always is at rescheduling ticks).
        description: One line for tables.
    """

    name: str
    kind: str
    function: Any
    params: Mapping[str, float] = field(default_factory=dict)
    state_size: int = 0
    requires: Mapping[str, Any] = field(default_factory=dict)
    needs_running: bool = False
    description: str = ""

    def with_params(self, **values: float) -> Policy:
        """This policy with some parameters changed; an unknown name is an :class:`InputError`."""
        for key, value in values.items():
            if key not in self.params:
                known = ", ".join(self.params) or "none"
                raise InputError(
                    f"policy {self.name}: unknown parameter '{key}'{suggestion(key, self.params)}; it has: {known}"
                )
            _check_parameter(self.name, key, value)
        return replace(self, params={**self.params, **values})

    def parameter_array(self) -> np.ndarray:
        """Float64 array: parameters, then zeros for the private state (at least one element)."""
        array = np.zeros(max(1, len(self.params) + self.state_size))
        array[: len(self.params)] = [float(value) for value in self.params.values()]
        return array


def _check_parameter(name: str, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise InputError(f"policy {name}: parameter {key} must be a finite number, got {value!r}")


def policy(
    function: Callable[..., int] | None = None,
    *,
    name: str | None = None,
    kind: str = "router",
    params: Mapping[str, float] | None = None,
    state_size: int = 0,
    requires: Mapping[str, Any] | None = None,
    needs_running: bool = False,
) -> Any:
    """Decorator: compiles `(view, rng, params) -> action` into a :class:`Policy`.

    Args:
        function: The function; given when the decorator is used without arguments.
        name: Defaults to the function's name.
        kind: `router`, `decode_choice`, `admission` or `rescheduler`.
        params: Default parameter values, in the order in which the function indexes `params`.
        state_size: Numbers of private state behind them.
        requires: Scenario overrides that the policy needs.
        needs_running: Fill `view.running` at arrivals too.

    Returns:
        A :class:`Policy`, accepted wherever a policy name is.
    """

    def wrap(target: Callable[..., int]) -> Policy:
        place = f"policy {target.__name__}"
        if kind not in KINDS:
            raise InputError(f"{place}: kind must be one of {', '.join(KINDS)}, got '{kind}'")
        if len(inspect.signature(target).parameters) != len(POLICY_SIGNATURE.args):
            raise InputError(f"{place}: expected (view, rng, params), got {inspect.signature(target)}")
        if type(state_size) is not int or state_size < 0:
            raise InputError(f"{place}: state_size must be a whole number >= 0, got {state_size!r}")
        if not isinstance(params or {}, Mapping):
            raise InputError(f"{place}: params must be a mapping of names to numbers, got {params!r}")
        for key, value in (params or {}).items():
            _check_parameter(target.__name__, key, value)
        options = {**POLICY_OPTIONS, "cache": _stands_in_its_module(target)}
        try:
            compiled = jit_signature(POLICY_SIGNATURE, target, options)
        except KeyError as missing:  # Numba's way to say that a record has no such field
            raise InputError(f"{place}: a table of the view has no column {missing}") from None
        summary = (target.__doc__ or "").strip().split("\n")[0]
        return Policy(
            name or target.__name__, kind, compiled, dict(params or {}), state_size, dict(requires or {}),
            needs_running, summary,
        )  # fmt: skip

    return wrap if function is None else wrap(function)


def _stands_in_its_module(function: Callable[..., int]) -> bool:
    """Whether a process that loads the function's compiled form from disk could import what it names.

    Not where it was typed at a prompt, piped in or built from a string.
    """
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    source = function.__code__.co_filename
    return file is not None and os.path.abspath(file) == os.path.abspath(source) and os.path.isfile(source)


@dataclass(frozen=True)
class PolicyBundle:
    """What decides in a run: a router, and optionally a decode choice, an admission policy and a rescheduler.

    Instead of a compiled router and rescheduler, `actor` may be a Python object with `act(view, mask) -> int`.
    """

    name: str
    router: Policy | None = None
    decode_choice: Policy | None = None
    admission: Policy | None = None
    rescheduler: Policy | None = None
    actor: Any = None

    def parts(self) -> list[Policy]:
        """The compiled policies that are present."""
        return [part for kind in KINDS if (part := getattr(self, kind))]

    def requires(self) -> dict[str, Any]:
        """Scenario overrides of all parts; two parts that ask for different values of a key are refused."""
        merged: dict[str, Any] = dict(getattr(self.actor, "requires", {}) or {})
        for part in self.parts():
            for key, value in part.requires.items():
                if key in merged and merged[key] != value:
                    raise InputError(f"policy {self.name}: its parts need different values of {key}")
                merged[key] = value
        return merged


class PolicyProvider(Protocol):
    """What an entry point of group `cacheenv.policies` resolves to."""

    def names(self) -> list[str]:
        """Names that this provider can make."""

    def make(self, name: str, **params: float) -> Policy | PolicyBundle:
        """The policy of that name."""


def _providers() -> list[PolicyProvider]:
    """The installed providers; one whose optional dependencies are missing provides nothing."""
    found = []
    for point in importlib.metadata.entry_points(group="cacheenv.policies"):
        try:
            found.append(point.load())
        except ImportError:
            continue
    return found


def available_policies() -> list[str]:
    """Names of all installed policies (agents, which are named by a path, left out)."""
    return sorted({name for provider in _providers() for name in provider.names() if not name.endswith(":")})


def make_policy(name: str, **params: float) -> PolicyBundle:
    """The policy that a name stands for: `router`, `router/decode_choice`, `router+rescheduler`, `agent:PATH`.

    `+` also adds an admission policy (`mooncake+early_reject`). `name(key=value,...)` sets parameters of a part.
    """
    if name.startswith("agent:"):
        for provider in _providers():
            if "agent:" in provider.names():
                return as_bundle(provider.make(name, **params))
        raise InputError(f"policy {name}: agents need the extra 'agents' (pip install 'cacheenv[agents]')")
    head, *additions = _split(name, "+")
    if not all(part.strip() for part in (*_split(head, "/"), *additions)):
        raise InputError(f"policy '{name}': expected a name on each side of '/' and '+'")
    router_name, *choices = _split(head, "/")
    if len(choices) > 1:
        raise InputError(f"policy {name}: expected at most one '/' (router/decode_choice)")
    bundle = as_bundle(_make_part(router_name, params))
    if choices:
        bundle = _add(bundle, as_decode_choice(_make_part(choices[0], {})), name)
    for addition in additions:
        part = _make_part(addition, {})
        for piece in part.parts() if isinstance(part, PolicyBundle) else [part]:
            if piece.kind == "router":
                if isinstance(part, PolicyBundle) and part.admission:
                    continue  # an admission policy comes with a default router of its own
                raise InputError(f"policy {name}: '{addition}' is a router; expected a rescheduler or admission policy")
            bundle = _add(bundle, piece, name)
    return replace(bundle, name=name)


def _split(text: str, mark: str) -> list[str]:
    """Splits at `mark` outside parentheses."""
    pieces, depth, current = [], 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == mark and depth == 0:
            pieces.append(current)
            current = ""
        else:
            current += letter
    return [*pieces, current]


def _make_part(text: str, params: Mapping[str, float]) -> Policy | PolicyBundle:
    """Makes `name` or `name(key=value,...)`."""
    base, values = text, dict(params)
    if text.endswith(")") and "(" in text:
        base, inner = text[:-1].split("(", 1)
        for item in filter(None, inner.split(",")):
            key, _, value = item.partition("=")
            if key.strip() in values:
                raise InputError(f"policy {text}: parameter {key.strip()} is given twice")
            try:
                values[key.strip()] = float(value)
            except ValueError:
                raise InputError(f"policy {text}: expected key=number, got '{item}'") from None
    for provider in _providers():
        if base in provider.names():
            return provider.make(base, **values)
    known = available_policies()
    raise InputError(f"unknown policy '{base}'{suggestion(base, known)}; known: {', '.join(known)}")


def _add(bundle: PolicyBundle, part: Policy, name: str) -> PolicyBundle:
    slot = part.kind
    if getattr(bundle, slot) is not None:
        raise InputError(f"policy {name}: two parts of kind {slot}")
    changes: dict[str, Any] = {slot: part}
    return replace(bundle, **changes)


def as_decode_choice(part: Policy | PolicyBundle) -> Policy:
    """A part used behind '/': a decode choice as it is, or a router of which only the decode instance is taken."""
    piece = part.router if isinstance(part, PolicyBundle) else part
    if piece is None or piece.kind not in ("decode_choice", "router"):
        raise InputError(f"policy {part.name}: cannot choose a decode instance")
    return replace(piece, kind="decode_choice")


def as_bundle(policy_or_name: Any) -> PolicyBundle:
    """A bundle from a name, a :class:`Policy`, a bundle, or a Python object with `act(view, mask)`."""
    if isinstance(policy_or_name, PolicyBundle):
        return policy_or_name
    if isinstance(policy_or_name, str):
        return make_policy(policy_or_name)
    if isinstance(policy_or_name, Policy):
        return PolicyBundle(policy_or_name.name, **{policy_or_name.kind: policy_or_name})
    if callable(getattr(policy_or_name, "act", None)):
        name = getattr(policy_or_name, "name", type(policy_or_name).__name__)
        return PolicyBundle(name, actor=policy_or_name)
    raise InputError(
        f"expected a policy name, a compiled policy or an object with act(view, mask), got {policy_or_name!r}"
    )
