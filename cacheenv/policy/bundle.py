"""Policies that decide together in a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cacheenv.errors import InputError
from cacheenv.policy.definition import KINDS, Policy


@dataclass(frozen=True)
class PolicyBundle:
    """What decides in a run: a router, and optionally a decode choice, an admission policy and a rescheduler.

    Instead of a compiled router and rescheduler, `actor` may be a Python object with `act(view, mask) -> int`. Where
    the object `plans`, it takes all decisions, and the compiled policies are what it asks and looks ahead with.
    """

    name: str
    router: Policy | None = None
    decode_choice: Policy | None = None
    admission: Policy | None = None
    rescheduler: Policy | None = None
    actor: Any = None

    @property
    def plans(self) -> bool:
        """Whether the object decides everything and the compiled policies are its base."""
        return bool(getattr(self.actor, "plans", False))

    def parts(self) -> list[Policy]:
        """The compiled policies that are present."""
        return [part for kind in KINDS if (part := getattr(self, kind))]

    def requires(self) -> dict[str, Any]:
        """Scenario overrides of all parts; two parts that ask for different values of a key are refused."""
        return self._merged("requires")

    def brings(self) -> dict[str, Any]:
        """What the routers of all parts keep, as scenario overrides; two different values of a key are refused."""
        return self._merged("brings")

    def _merged(self, attribute: str) -> dict[str, Any]:
        merged: dict[str, Any] = dict(getattr(self.actor, attribute, {}) or {})
        for part in self.parts():
            for key, value in getattr(part, attribute).items():
                if key in merged and merged[key] != value:
                    raise InputError(f"policy {self.name}: its parts need different values of {key}")
                merged[key] = value
        return merged

    def joined(self, part: Policy) -> PolicyBundle:
        """This bundle with one part more; a second one of its kind is refused."""
        if getattr(self, part.kind) is not None:
            raise InputError(f"policy {self.name}: two parts of kind {part.kind}")
        changes: dict[str, Any] = {part.kind: part}
        return replace(self, **changes)


def as_decode_choice(part: Policy | PolicyBundle) -> Policy:
    """A part used behind '/': a decode choice as it is, or a router of which only the decode instance is taken."""
    piece = part.router if isinstance(part, PolicyBundle) else part
    if piece is None or piece.kind not in ("decode_choice", "router"):
        raise InputError(f"policy {part.name}: cannot choose a decode instance")
    return replace(piece, kind="decode_choice")


def bundle_of(made: Any) -> PolicyBundle:
    """A bundle from a :class:`Policy`, a bundle, or a Python object with `act(view, mask)`."""
    if isinstance(made, PolicyBundle):
        return made
    if isinstance(made, Policy):
        return PolicyBundle(made.name, **{made.kind: made})
    if callable(getattr(made, "act", None)):
        return PolicyBundle(getattr(made, "name", type(made).__name__), actor=made)
    raise InputError(f"expected a policy name, a compiled policy or an object with act(view, mask), got {made!r}")
