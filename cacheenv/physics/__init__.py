"""Latency model: coefficients with their provenance, and the formulas that use them."""

from cacheenv.physics.latency import (
    decode_step_seconds,
    load_break_even_tokens,
    prefill_batch_seconds,
    prefill_seconds,
    transfer_seconds,
    visible_transfer_seconds,
)
from cacheenv.physics.presets import (
    BlockCost,
    Link,
    Preset,
    list_block_costs,
    list_links,
    list_presets,
    load_block_cost,
    load_link,
    load_preset,
)

__all__ = [
    "BlockCost",
    "Link",
    "Preset",
    "decode_step_seconds",
    "list_block_costs",
    "list_links",
    "list_presets",
    "load_block_cost",
    "load_break_even_tokens",
    "load_link",
    "load_preset",
    "prefill_batch_seconds",
    "prefill_seconds",
    "transfer_seconds",
    "visible_transfer_seconds",
]
