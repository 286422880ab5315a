"""A compiled policy: the function `(view, rng, params) -> action` with its name, kind and parameters.

A router returns a route action (:func:`cacheenv.policy.route`), a rescheduler a migration action
(:func:`cacheenv.policy.move` or :func:`cacheenv.policy.stay`), an admission policy 1 (accept) or 0 (reject) for the
route in :func:`cacheenv.policy.proposed_route`. A decode choice returns a route action too, of which only the decode
instance is used. `rng` is the policy's own random stream (:mod:`cacheenv.sim.core.rng`); `params` holds the declared
parameters in order, then `state_size` numbers that belong to the policy and start at 0.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cacheenv.errors import InputError, suggestion
from cacheenv.sim.core.jit import POLICY_OPTIONS, jit_signature
from cacheenv.sim.policies.address import POLICY_SIGNATURE
from cacheenv.sim.policies.compose import PARTS

#: Kinds of policies, in the order in which they decide.
KINDS = PARTS
#: Where the scenario says what a router keeps.
ROUTER_SIDE = "cluster.index."


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
        brings: Scenario overrides below `cluster.index`: what the router itself keeps. They hold on any cluster.
        needs_running: Whether `view.running` must be filled at arrivals too (it always is at rescheduling ticks).
        description: One line for tables.
    """

    name: str
    kind: str
    function: Any
    params: Mapping[str, float] = field(default_factory=dict)
    state_size: int = 0
    requires: Mapping[str, Any] = field(default_factory=dict)
    brings: Mapping[str, Any] = field(default_factory=dict)
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
    brings: Mapping[str, Any] | None = None,
    needs_running: bool = False,
) -> Any:
    """Decorator: compiles `(view, rng, params) -> action` into a :class:`Policy`.

    Args:
        function: The function; given when the decorator is used without arguments.
        name: Defaults to the function's name.
        kind: `router`, `decode_choice`, `admission` or `rescheduler`.
        params: Default parameter values, in the order in which the function indexes `params`.
        state_size: Numbers of private state behind them.
        requires: Scenario overrides of the engines that the policy needs; `--common-cluster` leaves them out.
        brings: Scenario overrides below `cluster.index`, the router's own; they are never left out.
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
        for key in brings or {}:
            if not key.startswith(ROUTER_SIDE):
                raise InputError(f"{place}: brings only keys below {ROUTER_SIDE[:-1]}, got {key}; see requires")
        options = {**POLICY_OPTIONS, "cache": _stands_in_its_module(target)}
        try:
            compiled = jit_signature(POLICY_SIGNATURE, target, options)
        except KeyError as missing:  # Numba's way to say that a record has no such field
            raise InputError(f"{place}: a table of the view has no column {missing}") from None
        summary = (target.__doc__ or "").strip().split("\n")[0]
        return Policy(
            name or target.__name__, kind, compiled, dict(params or {}), state_size, dict(requires or {}),
            dict(brings or {}), needs_running, summary,
        )  # fmt: skip

    return wrap if function is None else wrap(function)


def _stands_in_its_module(function: Callable[..., int]) -> bool:
    """Whether a process that loads the function's compiled form from disk could import what it names.

    Not where it was typed at a prompt, piped in or built from a string.
    """
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    source = function.__code__.co_filename
    return file is not None and os.path.abspath(file) == os.path.abspath(source) and os.path.isfile(source)
