"""The one exception type that users see for bad input."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: a one-line message that names the place and what was expected there."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns `` (did you mean 'x'?)`` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(str(word), [str(name) for name in known], n=1, cutoff=0.55)
    return f" (did you mean '{close[0]}'?)" if close else ""
