"""Latency model: coefficients with their provenance, and the formulas that use them."""

from cacheenv.physics.architecture import Architecture, list_models, load_architecture
from cacheenv.physics.derive import Gpu, Options, derive_preset, list_efficiencies, list_gpus, load_gpu
from cacheenv.physics.hardware import load_preset
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
)

__all__ = [
    "Architecture",
    "BlockCost",
    "Gpu",
    "Link",
    "Options",
    "Preset",
    "decode_step_seconds",
    "derive_preset",
    "list_block_costs",
    "list_efficiencies",
    "list_gpus",
    "list_links",
    "list_models",
    "list_presets",
    "load_architecture",
    "load_block_cost",
    "load_break_even_tokens",
    "load_gpu",
    "load_link",
    "load_preset",
    "prefill_batch_seconds",
    "prefill_seconds",
    "transfer_seconds",
    "visible_transfer_seconds",
]
