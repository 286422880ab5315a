"""Progress of a training on stderr: a bar on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any


class Progress:
    """Shows decisions, speed and the last episodes' result.

    Args:
        total: Decisions of the whole training.
        start: Decisions made earlier.
    """

    def __init__(self, total: int, start: int) -> None:
        self._total, self._start, self._text = total, start, ""
        self._start_s = time.monotonic()
        self._next = start
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=start, desc="train", unit="dec", unit_scale=True, file=sys.stderr,
                dynamic_ncols=True,
            )  # fmt: skip

    def note(self, text: str) -> None:
        """Shown beside the count from now on."""
        self._text = text

    def advance_to(self, timesteps: int) -> None:
        """`timesteps` decisions are done in all."""
        if self._bar is not None:
            self._bar.set_postfix_str(self._text, refresh=False)
            self._bar.update(min(timesteps, self._total) - self._bar.n)
        elif timesteps >= self._next:
            self._next += max(1, self._total // 10)
            speed = (timesteps - self._start) / max(1e-9, time.monotonic() - self._start_s)
            share = min(100, 100 * timesteps / self._total)
            line = f"cacheenv: {timesteps:,} of {self._total:,} decisions ({share:.0f} %), {speed:,.0f} a second"
            print(f"{line}, {self._text}" if self._text else line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leaves the screen clean."""
        if self._bar is not None:
            self._bar.close()
