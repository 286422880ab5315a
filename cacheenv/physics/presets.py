"""Named latency coefficients of models on hardware, and of links, with where each number comes from.

The numbers lie in `presets.yaml` beside this file, which is read once a process and only when a preset is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from cacheenv.errors import InputError, suggestion


@dataclass(frozen=True)
class Preset:
    """Latency coefficients and sizes of one model on one tensor-parallel group of GPUs.

    Attributes:
        name: Key in `presets.yaml`, or a name made from model and GPU.
        model: Model architecture.
        gpu: GPU type.
        tensor_parallel: GPUs of the instance.
        layers: Layers of the model.
        prefill_a_s: Fixed time of a prefill batch, seconds.
        prefill_b_s: Seconds for each new token.
        prefill_c_s: Seconds for each unit of `n^2 + 2*max(n, n_tile)*p` (n new, p cached tokens).
        min_prefill_s: Shortest prefill batch, seconds (one decode step).
        n_tile: New tokens below which attention over a cached prefix gets no cheaper.
        decode_d_s: Fixed time of a decode step, seconds.
        decode_e_s: Seconds a step for each request of the batch.
        decode_f_s: Seconds a step for each context token of the batch.
        kv_bytes_per_token: Bytes of keys and values of one token.
        kv_copies: Copies of them that the group holds (above 1 when it has more GPUs than KV heads).
        weight_bytes: Bytes of the weights, all GPUs together.
        capacity_tokens: KV tokens that fit beside the weights.
        min_load_gbytes_per_s: Rate above which loading a prefix beats computing it (no setup cost), decimal GB/s.
        source: Origin of the data.
        error: How well the coefficients meet the data.
        confidence: Kind of evidence: measured, fitted, composed or derived.
    """

    name: str
    model: str
    gpu: str
    tensor_parallel: int
    layers: int
    prefill_a_s: float
    prefill_b_s: float
    prefill_c_s: float
    min_prefill_s: float
    n_tile: int
    decode_d_s: float
    decode_e_s: float
    decode_f_s: float
    kv_bytes_per_token: int
    kv_copies: int
    weight_bytes: int
    capacity_tokens: int
    min_load_gbytes_per_s: float
    source: str
    error: str
    confidence: str

    @property
    def moved_bytes_per_token(self) -> int:
        """Bytes that a transfer of one token moves, all copies together."""
        return self.kv_bytes_per_token * self.kv_copies


@dataclass(frozen=True)
class Link:
    """A link of a whole instance.

    Attributes:
        name: Key in `presets.yaml`.
        gbytes_per_s: Measured rate, decimal GB/s (not the line rate).
        setup_s: Fixed time of a transfer, seconds.
        source: Origin of the data.
        error: How well the numbers meet the data.
        confidence: Kind of evidence.
    """

    name: str
    gbytes_per_s: float
    setup_s: float
    source: str
    error: str
    confidence: str


@dataclass(frozen=True)
class BlockCost:
    """Fixed cost of each block that is moved: `blocks * per_block_s + bytes / rate`.

    Attributes:
        name: Key in `presets.yaml`.
        per_block_s: Seconds a block.
        gbytes_per_s: Rate without that cost, decimal GB/s.
        source: Origin of the data.
        error: How well the numbers meet the data.
        confidence: Kind of evidence.
    """

    name: str
    per_block_s: float
    gbytes_per_s: float
    source: str
    error: str
    confidence: str


@functools.cache
def _tables() -> Mapping[str, Mapping[str, dict[str, Any]]]:
    """The parsed `presets.yaml`: section -> name -> fields."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = resources.files("cacheenv.physics").joinpath("presets.yaml").read_text(encoding="utf-8")
    tables: Mapping[str, Mapping[str, dict[str, Any]]] = yaml.load(text, Loader=loader)
    return tables


def _entry(section: str, kind: str, name: str) -> dict[str, Any]:
    table = _tables()[section]
    if not isinstance(name, str) or name not in table:
        raise InputError(f"unknown {kind} '{name}'{suggestion(str(name), table)}; known: {', '.join(table)}")
    return table[name]


def list_presets() -> list[str]:
    """Names of all model-on-hardware presets."""
    return list(_tables()["presets"])


def list_links() -> list[str]:
    """Names of all links."""
    return list(_tables()["links"])


def list_block_costs() -> list[str]:
    """Names of all per-block costs."""
    return list(_tables()["block_costs"])


def load_preset(name: str) -> Preset:
    """The preset of that name; an unknown one is an :class:`InputError` with a suggestion."""
    return Preset(name=name, **_entry("presets", "physics preset", name))


def load_link(name: str) -> Link:
    """The link of that name; an unknown one is an :class:`InputError` with a suggestion."""
    return Link(name=name, **_entry("links", "link", name))


def load_block_cost(name: str) -> BlockCost:
    """The per-block cost of that name; an unknown one is an :class:`InputError` with a suggestion."""
    return BlockCost(name=name, **_entry("block_costs", "block cost", name))
