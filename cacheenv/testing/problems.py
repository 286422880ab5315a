"""What a check finds: one line that says where, what was expected, what came and what to do."""

from __future__ import annotations

from cacheenv.errors import InputError


class PolicyCheckError(InputError):
    """The policy is wrong: in some cluster its decisions are not what it means, or harm the run."""


class PolicyCheckWarning(UserWarning):
    """The policy is legal and does something that is rarely meant."""
