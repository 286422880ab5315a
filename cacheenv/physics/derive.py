"""Latency coefficients from a model's architecture and a GPU's data sheet: the physical form.

Source of the formulas: the roofline of `b`, `c`, `d`, `e`, `f` in the compute-bound (prefill) and bandwidth-bound
(decode) regimes, with the shares of peak that were fitted to kernels and engines (`gpus.yaml`); one tensor-parallel
group inside one server. Experts are split as everything else is (tensor parallelism); expert parallelism over servers
is not derived.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from cacheenv.errors import InputError, suggestion
from cacheenv.physics.architecture import BYTES, Architecture, load_architecture
from cacheenv.physics.presets import Preset

#: Share of a GPU's memory that the engine uses, and its work space: vLLM's default and what a real one reported.
MEMORY_SHARE = 0.9
WORK_SPACE_BYTES = 1.3e9
#: A prefill's fixed time over a decode step's: 0.7-1.06 in ten composed configurations.
PREFILL_FIXED_SHARE = 0.8
#: Element-wise kernels move about this many times the residual stream a layer.
ELEMENTWISE_PASSES = 10
#: Sharpness of the bend between reading weights and computing.
BEND = 3
#: Batches over which a decode step is drawn as a line, as far as the memory holds them at so many tokens a request.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REQUEST_TOKENS = 512
#: Tokens from which a prefill touches nearly every expert.
MANY_TOKENS = 512


@dataclass(frozen=True)
class Gpu:
    """A data sheet; rates decimal, TFLOPS dense.

    Attributes:
        name: Key in `gpus.yaml`.
        memory_gib: Memory, GiB.
        memory_gbytes_per_s: Rate of the memory.
        bf16_tflops: Peak with BF16.
        fp8_tflops: Peak with FP8; None where it has none.
        multiprocessors: SMs, or compute units.
        link: Kind of the link between GPUs of a server.
        link_gbytes_per_s: Its rate, both directions.
        all_reduce_gbytes_per_s: What an all-reduce reaches.
        gpus_per_server: GPUs that this link joins.
        nic_gbytes_per_s: One GPU's share of the server's NICs.
        efficiencies: Row of efficiencies.
        efficiencies_of_gpu: Whether they were measured on this GPU's chip.
        source: The sheet.
    """

    name: str
    memory_gib: float
    memory_gbytes_per_s: float
    bf16_tflops: float
    fp8_tflops: float | None
    multiprocessors: int
    link: str
    link_gbytes_per_s: float
    all_reduce_gbytes_per_s: float
    gpus_per_server: int
    nic_gbytes_per_s: float
    efficiencies: str
    efficiencies_of_gpu: bool
    source: str


@dataclass(frozen=True)
class Efficiencies:
    """Shares of peak and fixed costs, as in `gpus.yaml`."""

    name: str
    mfu_gemm: float
    mfu_attention: float
    mbu_weights: float
    mbu_kv: float
    step_s: float
    layer_s: float
    request_s: float
    all_reduce_s: float
    rows_per_multiprocessor: int
    source: str
    error: str


@functools.cache
def _tables() -> Mapping[str, Mapping[str, dict[str, Any]]]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = resources.files("cacheenv.physics").joinpath("gpus.yaml").read_text(encoding="utf-8")
    tables: Mapping[str, Mapping[str, dict[str, Any]]] = yaml.load(text, Loader=loader)
    return tables


def _entry(section: str, kind: str, name: Any) -> dict[str, Any]:
    table = _tables()[section]
    if not isinstance(name, str) or name not in table:
        raise InputError(f"unknown {kind} '{name}'{suggestion(str(name), table)}; known: {', '.join(table)}")
    return table[name]


def list_gpus() -> list[str]:
    """Names of the GPUs with a data sheet."""
    return list(_tables()["gpus"])


def list_efficiencies() -> list[str]:
    """Names of the rows of efficiencies."""
    return list(_tables()["efficiencies"])


def load_gpu(name: str) -> Gpu:
    """The data sheet of that name; an unknown one is an :class:`InputError` with a suggestion."""
    return Gpu(name=name, **_entry("gpus", "GPU", name))


def load_efficiencies(name: str) -> Efficiencies:
    """The row of that name; an unknown one is an :class:`InputError` with a suggestion."""
    return Efficiencies(name=name, **_entry("efficiencies", "efficiencies", name))


@dataclass(frozen=True)
class Options:
    """How a model is run.

    Attributes:
        tp: GPUs of the tensor-parallel group.
        weights: `bf16` or `fp8`; None = as the checkpoint is stored.
        kv: The same of keys and values; they are BF16 by default.
        efficiencies: Row of efficiencies; None = the GPU's.
    """

    tp: int = 1
    weights: str | None = None
    kv: str = "bf16"
    efficiencies: str | None = None


def derive_preset(model: str, gpu: str, options: Options) -> Preset:
    """Coefficients of a model on a GPU.

    Args:
        model: Name of a packaged model, or path of a `config.json`.
        gpu: Name of a data sheet.
        options: Group size and number formats.

    Raises:
        InputError: An unknown name, a config that cannot be read, a group that the model cannot be split over, or
            weights that do not fit.
    """
    return derive(load_architecture(model), load_gpu(gpu), options)


def derive(architecture: Architecture, gpu: Gpu, options: Options) -> Preset:
    """Coefficients of an architecture on a GPU; see :func:`derive_preset`."""
    group = options.tp
    _check_group(architecture, gpu, group)
    made = _Form(architecture, gpu, options)
    copies = _kv_copies(architecture, group)
    kv_bytes = architecture.layers * architecture.kv_values * BYTES[options.kv]
    weight_bytes = architecture.total_params * made.weight_size
    memory = group * (MEMORY_SHARE * gpu.memory_gib * 2**30 - WORK_SPACE_BYTES)
    capacity = int((memory - weight_bytes) // (kv_bytes * copies))
    if capacity < 1:
        raise InputError(
            f"tp: {architecture.name} needs {weight_bytes / 1e9:.0f} GB for its weights, {group} x {gpu.name} offer "
            f"{max(0.0, memory) / 1e9:.0f} GB"
        )
    batches = [batch for batch in BATCHES if batch <= max(2, capacity / REQUEST_TOKENS)]
    step_d_s, step_e_s, bend = _line(made, batches)
    b_s = made.prefill_token_s()
    shown = f"{architecture.name} on {group} x {gpu.name}, weights {made.weights}, KV {options.kv}"
    return Preset(
        name=f"{architecture.name}_{group}x{gpu.name}",
        model=architecture.name,
        gpu=gpu.name,
        tensor_parallel=group,
        layers=architecture.layers,
        prefill_a_s=PREFILL_FIXED_SHARE * step_d_s,
        prefill_b_s=b_s,
        prefill_c_s=made.prefill_pair_s(),
        # Any batch reads the weights; a prompt of an MoE those of nearly all experts.
        min_prefill_s=max(step_d_s, made.fixed_s + made.read_s(MANY_TOKENS)),
        n_tile=max(1, int(made.eff.rows_per_multiprocessor * gpu.multiprocessors * group / architecture.heads)),
        decode_d_s=step_d_s,
        decode_e_s=step_e_s,
        decode_f_s=made.context_token_s(kv_bytes, copies),
        kv_bytes_per_token=kv_bytes,
        kv_copies=copies,
        weight_bytes=weight_bytes,
        capacity_tokens=capacity,
        min_load_gbytes_per_s=kv_bytes * copies / b_s / 1e9,
        source=f"derived: {shown}; {made.eff.source}; {gpu.source}",
        error=_error_text(made, batches[-1], bend),
        confidence="derived",
    )


def _check_group(architecture: Architecture, gpu: Gpu, group: int) -> None:
    if group > gpu.gpus_per_server:
        raise InputError(
            f"tp: expected at most {gpu.gpus_per_server}, the GPUs of a server with {gpu.name}, got {group}"
        )
    if architecture.heads % group:
        raise InputError(
            f"tp: expected a divisor of the {architecture.heads} heads of {architecture.name}, got {group}"
        )
    if architecture.kv_heads % group and group % architecture.kv_heads:
        raise InputError(
            f"tp: expected a divisor or a multiple of the {architecture.kv_heads} KV heads of {architecture.name}, got "
            f"{group}"
        )


def _kv_copies(architecture: Architecture, group: int) -> int:
    """A KV head lies on each GPU that has query heads of it; MLA's latent on all."""
    return max(1, group // architecture.kv_heads)


class _Form:
    """The roofline of a group: seconds of its parts."""

    def __init__(self, architecture: Architecture, gpu: Gpu, options: Options) -> None:
        self.arch, self.gpu, self.group = architecture, gpu, options.tp
        self.eff = load_efficiencies(options.efficiencies or gpu.efficiencies)
        self.weights = options.weights or architecture.weights
        self.weight_size = BYTES[self.weights]
        fp8 = self.weights == "fp8" and gpu.fp8_tflops is not None
        tflops = gpu.fp8_tflops if fp8 and gpu.fp8_tflops is not None else gpu.bf16_tflops
        self.gemm_flops = self.group * tflops * 1e12 * self.eff.mfu_gemm
        self.attention_flops = self.group * gpu.bf16_tflops * 1e12 * self.eff.mfu_attention
        self.weight_rate = self.group * gpu.memory_gbytes_per_s * 1e9 * self.eff.mbu_weights
        messages = 2 * architecture.layers if self.group > 1 else 0
        self.fixed_s = self.eff.step_s + self.eff.layer_s * architecture.layers + messages * self.eff.all_reduce_s

    def token_s(self) -> float:
        """Communication and element-wise work of one token."""
        arch, group = self.arch, self.group
        reduced = 2 * arch.layers * 2 * (group - 1) / group * 2 * arch.hidden
        moved = ELEMENTWISE_PASSES * arch.layers * 2 * arch.hidden
        return reduced / (self.gpu.all_reduce_gbytes_per_s * 1e9) + moved / (
            self.gpu.memory_gbytes_per_s * 1e9 * self.eff.mbu_weights
        )

    def prefill_token_s(self) -> float:
        """b: seconds of each new token."""
        return 2 * self.arch.active_params / self.gemm_flops + self.token_s()

    def prefill_pair_s(self) -> float:
        """c: seconds of each unit of attention."""
        return 2 * self.arch.layers * self.arch.attention_width / self.attention_flops

    def read_s(self, tokens: float) -> float:
        """Reading the weights that `tokens` tokens touch, the head included."""
        arch = self.arch
        params = float(arch.always_params + arch.embedding_params)
        if arch.experts:
            params += arch.routed_params * (1.0 - (1.0 - arch.experts_per_token / arch.experts) ** tokens)
        return params * self.weight_size / self.weight_rate

    def step_s(self, batch: int) -> float:
        """A decode step of `batch` requests, without their context."""
        work_s = 2 * (self.arch.active_params + self.arch.embedding_params) * batch / self.gemm_flops
        gemm_s = (self.read_s(batch) ** BEND + work_s**BEND) ** (1.0 / BEND)
        return self.fixed_s + gemm_s + batch * (self.eff.request_s + self.token_s())

    def context_token_s(self, kv_bytes: int, copies: int) -> float:
        """f: seconds a step of each resident token: reading it, or computing with it (MLA on GPUs short of FLOPS)."""
        rate = self.group * self.gpu.memory_gbytes_per_s * 1e9 * self.eff.mbu_kv
        return max(kv_bytes * copies / rate, 4 * self.arch.layers * self.arch.cached_width / self.attention_flops)


def _line(form: _Form, sizes: Sequence[int]) -> tuple[float, float, float]:
    """d, e of the line that meets the steps of some batches best (relative), and by how much it misses them at most."""
    batches = np.array(sizes, dtype=float)
    steps = np.array([form.step_s(batch) for batch in sizes])
    table = np.stack([np.ones_like(batches), batches], axis=1) / steps[:, None]
    (d_s, e_s), *_ = np.linalg.lstsq(table, np.ones_like(steps), rcond=None)
    return float(d_s), float(e_s), float(np.max(np.abs((d_s + e_s * batches) / steps - 1.0)))


def _error_text(form: _Form, largest: int, bend: float) -> str:
    text = (
        form.eff.error if form.gpu.efficiencies_of_gpu else f"not measured on this GPU; on its model: {form.eff.error}"
    )
    if form.arch.experts:
        text += "; not measured on a mixture of experts"
    return f"{text}; the line through steps of 1-{largest} requests misses the roofline by up to {100 * bend:.0f} %"
