"""Policies by name: `router/decode_choice+rescheduler+admission`, each part with `(key=value,...)` where wanted."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from cacheenv.errors import InputError, suggestion
from cacheenv.policy.bundle import PolicyBundle, as_decode_choice, bundle_of
from cacheenv.policy.definition import Policy


class PolicyProvider(Protocol):
    """What an entry point of group `cacheenv.policies` resolves to."""

    def names(self) -> list[str]:
        """Names that this provider can make."""

    def make(self, name: str, **params: Any) -> Policy | PolicyBundle:
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
                return bundle_of(provider.make(name, **params))
        raise InputError(f"policy {name}: agents need the extra 'agents' (pip install 'cacheenv[agents]')")
    head, *additions = _split(name, "+")
    if not all(part.strip() for part in (*_split(head, "/"), *additions)):
        raise InputError(f"policy '{name}': expected a name on each side of '/' and '+'")
    router_name, *choices = _split(head, "/")
    if len(choices) > 1:
        raise InputError(f"policy {name}: expected at most one '/' (router/decode_choice)")
    bundle = replace(bundle_of(_make_part(router_name, params)), name=name)
    if choices:
        bundle = bundle.joined(as_decode_choice(_make_part(choices[0], {})))
    for addition in additions:
        part = _make_part(addition, {})
        for piece in part.parts() if isinstance(part, PolicyBundle) else [part]:
            if piece.kind == "router":
                if isinstance(part, PolicyBundle) and part.admission:
                    continue  # an admission policy comes with a default router of its own
                raise InputError(f"policy {name}: '{addition}' is a router; expected a rescheduler or admission policy")
            bundle = bundle.joined(piece)
    return bundle


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
    base, inner = text, ""
    if text.endswith(")") and "(" in text:
        base, inner = text[:-1].split("(", 1)
    for provider in _providers():
        if base in provider.names():
            return provider.make(base, **_parameters(text, inner, params, _text_parameters(provider, base)))
    known = available_policies()
    raise InputError(f"unknown policy '{base}'{suggestion(base, known)}; known: {', '.join(known)}")


def _text_parameters(provider: Any, name: str) -> Collection[str]:
    """Parameters of a policy that are no numbers: what a provider's `text_parameters(name)`, if it has one, says."""
    ask = getattr(provider, "text_parameters", None)
    return () if ask is None else ask(name)


def _parameters(text: str, inner: str, given: Mapping[str, Any], texts: Collection[str]) -> dict[str, Any]:
    """The parameters in the parentheses of `text`, added to the given ones."""
    values = dict(given)
    for item in filter(None, _split(inner, ",")):
        key, _, value = (piece.strip() for piece in item.partition("="))
        if key in values:
            raise InputError(f"policy {text}: parameter {key} is given twice")
        if key in texts:
            values[key] = value
            continue
        try:
            values[key] = float(value)
        except ValueError:
            raise InputError(f"policy {text}: expected key=number, got '{item}'") from None
    return values


def as_bundle(policy_or_name: Any) -> PolicyBundle:
    """A bundle from a name, a :class:`Policy`, a bundle, or a Python object with `act(view, mask)`."""
    return make_policy(policy_or_name) if isinstance(policy_or_name, str) else bundle_of(policy_or_name)
