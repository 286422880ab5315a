"""Pictures of a view: a text table, or an RGB image drawn with NumPy alone."""

from __future__ import annotations

import numpy as np

from cacheenv.policy import View

BAR_WIDTH = 20
CELL = 12  # pixels a bar row is high
WIDTH = 320  # pixels

BACKGROUND = (250, 250, 250)
TRACK = (226, 228, 232)
PREFILL_COLOUR = (38, 110, 184)
CACHE_COLOUR = (120, 170, 220)
DECODE_COLOUR = (200, 92, 40)
KV_COLOUR = (232, 168, 120)
BACKLOG_FULL_S = 10.0


def _bar(share: float) -> str:
    filled = round(min(max(share, 0.0), 1.0) * BAR_WIDTH)
    return "#" * filled + "." * (BAR_WIDTH - filled)


def render_ansi(view: View) -> str:
    """One line for each instance: load, queues and memory."""
    cluster = view.cluster[0]
    lines = [f"t = {cluster.now_s:.3f} s   requests in system: {cluster.requests_in_system}"]
    for i in range(len(view.prefill)):
        row = view.prefill[i]
        share = row.cache_used_tokens / max(1, row.cache_capacity_tokens)
        lines.append(
            f"P{i:<3} backlog {row.backlog_s:7.2f} s {_bar(row.backlog_s / BACKLOG_FULL_S)}  "
            f"queued {row.queued_requests:4d}  cache {_bar(share)} {share:4.0%}"
        )
    for d in range(len(view.decode)):
        row = view.decode[d]
        share = row.kv_tokens / max(1, row.capacity_tokens)
        lines.append(
            f"D{d:<3} batch {row.running_requests:5d}     {_bar(row.running_requests / row.max_batch)}  "
            f"waiting {row.waiting_requests:3d}  KV    {_bar(share)} {share:4.0%}"
        )
    return "\n".join(lines)


def render_rgb(view: View) -> np.ndarray:
    """Uint8 image (height, width, 3): for each instance a load bar over a memory bar."""
    rows = [
        (row.backlog_s / BACKLOG_FULL_S, row.cache_used_tokens / max(1, row.cache_capacity_tokens), 0)
        for row in view.prefill
    ] + [(row.running_requests / row.max_batch, row.kv_tokens / max(1, row.capacity_tokens), 1) for row in view.decode]
    colours = ((PREFILL_COLOUR, CACHE_COLOUR), (DECODE_COLOUR, KV_COLOUR))
    pitch = 2 * CELL + 6
    image = np.full((pitch * len(rows) + 6, WIDTH, 3), BACKGROUND, np.uint8)
    for at, (load, memory, kind) in enumerate(rows):
        top = 6 + at * pitch
        for part, share in enumerate((load, memory)):
            first = top + part * CELL
            image[first : first + CELL - 2, 6 : WIDTH - 6] = TRACK
            filled = int(min(max(share, 0.0), 1.0) * (WIDTH - 12))
            image[first : first + CELL - 2, 6 : 6 + filled] = colours[kind][part]
    return image
