"""The latency formulas, in plain Python: what one batch, one decode step and one transfer take."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cacheenv.physics.presets import Link, Preset


def prefill_batch_seconds(preset: Preset, batch: Iterable[tuple[int, int]]) -> float:
    """Seconds of one prefill batch.

    Args:
        preset: Coefficients of the instance.
        batch: `(new, cached)` tokens of each request; `new` are computed, `cached` are only attended to.

    Returns:
        `max(d, a + b*sum(n) + c*sum(n^2 + 2*max(n, n_tile)*p))`.
    """
    new_tokens = 0
    attention = 0.0
    for new, cached in batch:
        new_tokens += new
        attention += new * new + 2.0 * max(new, preset.n_tile) * cached
    seconds = preset.prefill_a_s + preset.prefill_b_s * new_tokens + preset.prefill_c_s * attention
    return max(preset.min_prefill_s, seconds)


def prefill_seconds(preset: Preset, new: int, cached: int = 0) -> float:
    """Seconds of the prefill of one request: `new` computed tokens behind `cached` ones."""
    return prefill_batch_seconds(preset, ((new, cached),))


def decode_step_seconds(preset: Preset, batch: int, context_tokens: int) -> float:
    """Seconds of one decode step of `batch` requests that hold `context_tokens` together."""
    return preset.decode_d_s + preset.decode_e_s * batch + preset.decode_f_s * context_tokens


def transfer_seconds(preset: Preset, link: Link, tokens: int, flows: int = 1) -> float:
    """Seconds to move the keys and values of `tokens` over a link that `flows` equal transfers share."""
    return link.setup_s + tokens * preset.moved_bytes_per_token * flows / (link.gbytes_per_s * 1e9)


def visible_transfer_seconds(prefill_s: float, transmission_s: float, layers: int, setup_s: float) -> float:
    """Seconds by which a layer-wise hand-over outlasts the prefill that it overlaps.

    Args:
        prefill_s: Time of the prefill.
        transmission_s: Time to move all layers, without setup.
        layers: Layers of the model.
        setup_s: Setup time of the transfer.

    Returns:
        `setup + max(T_tx - T_prefill*(L-1)/L, T_tx/L)`.
    """
    hidden = prefill_s * (layers - 1) / layers
    return setup_s + max(transmission_s - hidden, transmission_s / layers)


def load_break_even_tokens(preset: Preset, link: Link) -> float:
    """Prefix length from which loading over an idle link beats computing it, tokens.

    The positive root of `b*p + c*p^2 = setup + p*bytes/rate`; 0 when loading always wins.
    """
    per_token_s = preset.prefill_b_s - preset.moved_bytes_per_token / (link.gbytes_per_s * 1e9)
    root = math.sqrt(per_token_s**2 + 4.0 * preset.prefill_c_s * link.setup_s)
    return max(0.0, (root - per_token_s) / (2.0 * preset.prefill_c_s))
