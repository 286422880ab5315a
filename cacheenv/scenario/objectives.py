"""The objectives of a scenario in words, for tables and plots."""

from __future__ import annotations

from collections.abc import Mapping

#: Key of the section `slo` -> its name in tables. The values are seconds.
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "tbt_tail_s": "TBT tail", "e2e_s": "E2E"}


def objectives_text(slo: Mapping[str, float | None]) -> str:
    """One line with the objectives that are checked: `objectives: TTFT <= 10 s, TBT tail <= 0.2 s`.

    Args:
        slo: The section `slo` of a scenario; null is not checked.
    """
    named = [f"{name} <= {slo[key]:g} s" for key, name in NAMES.items() if slo.get(key) is not None]
    return f"objectives: {', '.join(named)}" if named else "objectives: none, so every completed request meets them"
