"""Progress on stderr: a bar on a terminal; elsewhere nothing, or a line every tenth."""

from __future__ import annotations

import sys
import time
from typing import Any


class Progress:
    """Counts steps and shows how far they are.

    Args:
        total: Steps in all.
        title: What goes on, in front of the bar.
        unit: A step, in the bar's speed.
        start: Steps made earlier.
        steps: What steps are called in lines, e.g. `decisions`: where there is no terminal, a line is printed every
            tenth of them. None: no lines.
        scaled: Whether the bar writes large counts short (`1.2M`).
        quiet: Show nothing at all.
    """

    def __init__(
        self,
        total: int,
        title: str,
        unit: str,
        *,
        start: int = 0,
        steps: str | None = None,
        scaled: bool = False,
        quiet: bool = False,
    ) -> None:
        self._total, self._start, self._count, self._note = total, start, start, ""
        self._steps = None if quiet else steps
        self._next_line = start
        self._start_s = time.monotonic()
        self._bar: Any = None
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=start, desc=title, unit=unit, unit_scale=scaled, file=sys.stderr,
                dynamic_ncols=True,
            )  # fmt: skip

    def note(self, text: str) -> None:
        """Shown beside the count from the next step on."""
        self._note = text

    def advance(self) -> None:
        """One more step is done."""
        self.advance_to(self._count + 1)

    def advance_to(self, count: int) -> None:
        """`count` steps are done in all."""
        self._count = count
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(min(count, self._total) - self._bar.n)
        elif self._steps is not None and count >= self._next_line:
            self._next_line += max(1, self._total // 10)
            speed = (count - self._start) / max(1e-9, time.monotonic() - self._start_s)
            share = min(100, 100 * count / self._total)
            line = f"cacheenv: {count:,} of {self._total:,} {self._steps} ({share:.0f} %), {speed:,.0f} a second"
            print(f"{line}, {self._note}" if self._note else line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leaves the screen clean."""
        if self._bar is not None:
            self._bar.close()
