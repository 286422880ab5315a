"""The errors that presets, links and block costs state, computed from the calibration data of the shared folder.

    python tests/support/calibration.py SHARED      # writes the figures into cacheenv/physics/presets.yaml

The docs are made from that file; `tests/physics/test_calibration.py` compares it with these functions.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import vllm_replay

from cacheenv import physics
from cacheenv.physics import Preset, decode_step_seconds, load_block_cost, load_link, load_preset, prefill_batch_seconds
from cacheenv.physics.architecture import read_config
from cacheenv.physics.derive import Options, derive, load_gpu
from cacheenv.physics.fit import Errors, relative_errors

#: KV of one token of Llama-2-70B and of Qwen3-8B, bytes.
LLAMA2_70B_KV = 2 * 80 * 8 * 128 * 2
QWEN3_8B_KV = 2 * 36 * 8 * 128 * 2
#: Sizes of the models of LLM-Inference-Bench: layers, width, MLP, heads, KV heads, vocabulary.
BENCH_MODELS = {
    "meta-llama/Llama-2-7b-hf": (32, 4096, 11008, 32, 32, 32000),
    "Qwen/Qwen2-7B": (28, 3584, 18944, 28, 4, 152064),
    "meta-llama/Meta-Llama-3-8B": (32, 4096, 14336, 32, 8, 128256),
    "mistralai/Mistral-7B-v0.1": (32, 4096, 14336, 32, 8, 32000),
    "meta-llama/Llama-2-70b-hf": (80, 8192, 28672, 64, 8, 32000),
}
CONFIG_KEYS = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size",
)  # fmt: skip

Pairs = Sequence[tuple[float, float]]


def table(shared: Path, name: str) -> list[dict[str, str]]:
    """Rows of a CSV of the calibration data."""
    with (shared / "calibration" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def errors(pairs: Iterable[tuple[float, float]]) -> Errors:
    """Errors of (predicted, measured) pairs."""
    predicted, measured = zip(*pairs, strict=True)
    return relative_errors(predicted, measured, [str(index) for index in range(len(predicted))])


def said(found: Errors) -> str:
    """Median and 90th percentile in words."""
    return f"median {100 * found.median:.1f} %, 90th percentile {100 * found.p90:.1f} %"


# ---- what was measured: (predicted, measured) of a preset


def blog_h100(shared: Path, preset: Preset) -> Pairs:
    """TTFT of Llama-3.1-8B on one H100, 10k to 100k tokens."""
    return [
        (prefill_batch_seconds(preset, [(int(row["prompt_tokens"]), 0)]), float(row["ttft_ms"]) / 1e3)
        for row in table(shared, "vllm_blog_kv_offload/fig1_ttft_gpu_compute.csv")
    ]


def figure_14(shared: Path, preset: Preset, prefix: int = 0) -> Pairs:
    """Prefill of Mooncake's 70B on 8xA800, with a share of the prompt cached, %."""
    pairs = []
    for row in table(shared, f"mooncake_fast25/fig14_breakdown_prefix{prefix}.csv"):
        prompt = int(row["prompt_tokens"])
        cached = prompt * prefix // 100
        pairs.append((prefill_batch_seconds(preset, [(prompt - cached, cached)]), float(row["prefill_s"])))
    return pairs


def figure_14_decode(shared: Path, preset: Preset) -> Pairs:
    """Its 128 decode steps at batch 1."""
    return [
        (decode_step_seconds(preset, 1, int(row["prompt_tokens"]) + 64), float(row["decode_ms_per_token"]) / 1e3)
        for row in table(shared, "mooncake_fast25/fig14_breakdown_prefix0.csv")
    ]


def splitwise(shared: Path, preset: Preset, gpu: str) -> dict[tuple[int, int, int], tuple[float, float, float, float]]:
    """(prompt, batch, output) -> prefill predicted, measured (median of repeats), step predicted, measured."""
    repeats = defaultdict(list)
    for row in table(shared, "splitwise_sim/perf_model_llama2-70b.csv"):
        if row["hardware"] == gpu and row["tensor_parallel"] == "8":
            size = (int(row["prompt_size"]), int(row["batch_size"]), int(row["token_size"]))
            repeats[size].append((float(row["prompt_time"]) / 1e3, float(row["token_time"]) / 1e3))
    return {
        (prompt, batch, output): (
            prefill_batch_seconds(preset, [(prompt, 0)] * batch),
            float(np.median([first for first, _ in times])),
            decode_step_seconds(preset, batch, round(batch * (prompt + output / 2))),
            float(np.median([step for _, step in times])),
        )
        for (prompt, batch, output), times in repeats.items()
    }


def whole_batch(preset: Preset, batch: int, tokens: int) -> float:
    """Seconds of a batch of prompts of `tokens` tokens that are answered with as many."""
    context = tokens + np.arange(1, tokens)
    steps = preset.decode_d_s + preset.decode_e_s * batch + preset.decode_f_s * batch * context
    return prefill_batch_seconds(preset, [(tokens, 0)] * batch) + float(steps.sum())


def inference_bench(shared: Path, make: Callable[[str, int], Preset | None]) -> Pairs:
    """Whole-batch latencies of vLLM on A100 of 40 GB that fit into the KV memory.

    Args:
        shared: The shared folder.
        make: The preset of a model on so many GPUs; None where there is none.
    """
    pairs = []
    for row in table(shared, "llm_inference_bench/all_results_a100.csv"):
        if row["Framework"] != "vLLM" or row["Model"] not in BENCH_MODELS or not row["Latency"]:
            continue
        group, batch, tokens = int(row["Num of Hardware"]), int(row["Batch Size"]), int(row["Input Output Length"])
        preset = make(row["Model"], group)
        small = bench_preset(row["Model"], group, "a100-40", None)
        if preset is not None and small is not None and 2 * batch * tokens <= small.capacity_tokens:
            pairs.append((whole_batch(preset, batch, tokens), float(row["Latency"])))
    return pairs


def bench_preset(model: str, group: int, gpu: str, efficiencies: str | None) -> Preset | None:
    """One of the models of LLM-Inference-Bench, derived."""
    config = dict(zip(CONFIG_KEYS, BENCH_MODELS[model], strict=True))
    architecture = read_config(config, model, model, model)
    return derive(architecture, load_gpu(gpu), Options(tp=group, efficiencies=efficiencies))


def aggregated(shared: Path, path: str, model: str, backend: str) -> Pairs:
    """TPOT of FP8 models on H100 in aggregated serving: a step, and the prompts that come in beside its tokens."""
    pairs = []
    for row in table(shared, "aiconfigurator/silicon_sample_h100.csv"):
        if (row["model_path"], row["backend"], row["mode"], row["precision"]) != (path, backend, "agg", "fp8"):
            continue
        preset = load_preset({"model": model, "gpu": "h100-sxm", "tp": int(row["tp_size"]), "weights": "fp8"})
        batch, prompt, output = int(row["batch_size"]), int(row["isl"]), int(row["osl"])
        step_s = decode_step_seconds(preset, batch, round(batch * (prompt + output / 2)))
        prompts_s = batch / output * (preset.prefill_b_s * prompt + preset.prefill_c_s * prompt**2)
        pairs.append((step_s + prompts_s, float(row["silicon_tpot_ms"]) / 1e3))
    return pairs


# ---- the texts of the presets


def h100_text(shared: Path) -> str:
    """Of `llama3-8b_1xH100`."""
    found = errors(blog_h100(shared, load_preset("llama3-8b_1xH100")))
    return (
        f"prefill: {said(found)} of {found.rows} prompt lengths from 10k to 100k; decode d and f are the published fit"
    )


def a100_text(shared: Path) -> str:
    """Of `llama3-8b_1xA100`."""
    own, wide = load_preset("llama3-8b_1xA100"), "a100_vllm2024"

    def make(model: str, group: int) -> Preset | None:
        return own if model == "meta-llama/Meta-Llama-3-8B" and group == 1 else None

    mine = errors(inference_bench(shared, make))
    form = errors(inference_bench(shared, lambda model, group: bench_preset(model, group, "a100-80", wide)))
    return (
        f"whole batches of this model: {said(mine)} of {mine.rows}; the derived form on all: {said(form)} of "
        f"{form.rows} (5 models, 1, 2 and 4 GPUs, batch 1-64, 128-2048 tokens in and out, where the KV fits)"
    )


def rtx4090_text(shared: Path) -> str:
    """Of `llama3-8b_1xRTX4090`."""
    tpot, ttft = vllm_replay.replay_errors(shared, load_preset("llama3-8b_1xRTX4090"), "RTX4090")
    return f"replay of a {ttft.rows}-request vLLM run that preempts: TPOT {said(tpot)}; TTFT {said(ttft)}"


def mooncake_text(shared: Path) -> str:
    """Of `llama2-70b_8xA800_mooncake`."""
    preset = load_preset("llama2-70b_8xA800_mooncake")
    cold, warm = errors(figure_14(shared, preset)), errors(figure_14(shared, preset, 95))
    step = errors(figure_14_decode(shared, preset))
    return (
        f"prefill from 8k to 128k tokens: {said(cold)}; with 95 % of the prompt cached {-100 * warm.bias:.0f} % too "
        f"short in the mean ({said(warm)}); decode at batch 1: {said(step)}; e was not measured on this system"
    )


def splitwise_text(shared: Path, name: str, gpu: str) -> str:
    """Of the two presets of the software of 2023."""
    rows = splitwise(shared, load_preset(name), gpu)
    step = errors((predicted, measured) for _, _, predicted, measured in rows.values())
    first = errors((predicted, measured) for predicted, measured, _, _ in rows.values())
    above = [row[0] / row[1] - 1.0 for (prompt, batch, _), row in rows.items() if prompt * batch > 4096]
    return (
        f"decode {said(step)}; prefill {said(first)} of {first.rows} configurations; above 4,096 batched tokens, where "
        f"the data jump, {-100 * float(np.median(above)):.0f} % too short in the median"
    )


def deepseek_text(_shared: Path) -> str:
    """Of `deepseek-v3_h800_ep_rank`: against the published throughputs of a node of eight."""
    preset = load_preset("deepseek-v3_h800_ep_rank")
    prefill = 8 * 8 * 2048 / prefill_batch_seconds(preset, [(2048, 0)] * 8)
    wide = 8 * 256 / decode_step_seconds(preset, 256, 256 * 2050)
    narrow = 8 * 88 / decode_step_seconds(preset, 88, 88 * 4989)
    return (
        f"against published tokens/s of a node: prefill of 2k prompts {100 * (prefill / 52_300 - 1):+.1f} % (52.3k), "
        f"decode at batch 256 {100 * (wide / 22_300 - 1):+.1f} % (22.3k), at about 88 "
        f"{100 * (narrow / 14_800 - 1):+.1f} % (14.8k), after scaling to them by 1.15 and 0.74"
    )


PRESETS: dict[str, Callable[[Path], str]] = {
    "llama3-8b_1xH100": h100_text,
    "llama3-8b_1xA100": a100_text,
    "llama3-8b_1xRTX4090": rtx4090_text,
    "llama2-70b_8xA800_mooncake": mooncake_text,
    "deepseek-v3_h800_ep_rank": deepseek_text,
    "llama2-70b_8xA100_splitwise2023": lambda shared: splitwise_text(
        shared, "llama2-70b_8xA100_splitwise2023", "a100-80gb"
    ),
    "llama2-70b_8xH100_splitwise2023": lambda shared: splitwise_text(
        shared, "llama2-70b_8xH100_splitwise2023", "h100-80gb"
    ),
}

# ---- the texts of the efficiencies: presets derived with them


def _derived(model: str, gpu: str, tp: int = 1, **more: Any) -> Preset:
    return load_preset({"model": model, "gpu": gpu, "tp": tp, **more})


def _replayed(shared: Path, gpu: str, run: str, **more: Any) -> str:
    tpot, ttft = vllm_replay.replay_errors(shared, _derived("llama3-8b", gpu, **more), run)
    named = (("TPOT", tpot), ("TTFT", ttft))
    both = [f"{name} {said(found)} ({100 * found.bias:+.0f} % in the mean)" for name, found in named]
    return f"replay of a {ttft.rows}-request vLLM run of an 8B model: {'; '.join(both)}"


def form_a100(shared: Path) -> str:
    """Kernels on an A100: against Mooncake's engine, and against vLLM of 2024."""
    cold = errors(figure_14(shared, _derived("llama2-70b", "a800", 8)))
    step = errors(figure_14_decode(shared, _derived("llama2-70b", "a800", 8)))
    old = errors(inference_bench(shared, lambda model, group: bench_preset(model, group, "a100-80", None)))
    return (
        f"70B on 8xA800 (Mooncake): prefill {said(cold)}, decode at batch 1 {-100 * step.bias:.0f} % too fast; vLLM of "
        f"2024: whole batches {-100 * old.bias:.0f} % too fast"
    )


def form_h100(shared: Path) -> str:
    """Kernels on an H100: against vLLM and TensorRT-LLM."""
    alone = errors(blog_h100(shared, _derived("llama3-8b", "h100-sxm")))
    large = errors(aggregated(shared, "meta-llama/Llama-3.1-70B", "llama3-70b", "vllm"))
    other = errors(aggregated(shared, "Qwen/Qwen3-32B", "qwen3-32b", "trtllm"))
    return (
        f"8B TTFT in vLLM {said(alone)} ({100 * alone.bias:+.0f} % in the mean); TPOT of aggregated serving in FP8: 70B in "
        f"vLLM {said(large)} of {large.rows}, Qwen3-32B in TensorRT-LLM {said(other)} of {other.rows}"
    )


def form_vllm2024(shared: Path) -> str:
    """vLLM of 2024 on A100."""
    found = errors(inference_bench(shared, lambda model, group: bench_preset(model, group, "a100-80", "a100_vllm2024")))
    return f"whole batches of 5 models on 1, 2 and 4 GPUs: {said(found)} of {found.rows}"


def form_mooncake(shared: Path) -> str:
    """Mooncake on 8xA800."""
    preset = _derived("llama2-70b", "a800", 8, efficiencies="a800_mooncake")
    step = errors(figure_14_decode(shared, preset))
    return (
        f"prefill from 8k to 128k tokens {said(errors(figure_14(shared, preset)))}; its decode was not fitted and is "
        f"{-100 * step.bias:.0f} % too fast"
    )


EFFICIENCIES: dict[str, Callable[[Path], str]] = {
    "a100": form_a100,
    "h100": form_h100,
    "a100_vllm2024": form_vllm2024,
    "a800_mooncake": form_mooncake,
    "rtx4090": lambda shared: _replayed(shared, "rtx4090", "RTX4090", capacity_tokens=41_408),
    "rtxpro6000": lambda shared: _replayed(shared, "rtxpro6000", "RTXPRO6000"),
}

# ---- links and block costs


def _figure_12(link: str, backend: str) -> Callable[[Path], Pairs]:
    def pairs(shared: Path) -> Pairs:
        shape = load_link(link)
        return [
            (shape.setup_s + float(row["size_gb"]) / shape.gbytes_per_s, float(row["latency_s"]))
            for row in table(shared, "mooncake_fast25/fig12_transfer_latency_4x200.csv")
            if row["backend"] == backend
        ]

    return pairs


def _engine_docs(shared: Path) -> Pairs:
    link = load_link("rdma_8x200g_te")
    return [
        (
            link.setup_s + int(row["prompt_tokens"]) * QWEN3_8B_KV / link.gbytes_per_s / 1e9,
            float(row["transfer_ms"]) / 1e3,
        )
        for row in table(shared, "mooncake_docs/vllm_pd_h800_qwen3-8b_tp8.csv")
    ]


def _storage(shared: Path) -> Pairs:
    link = load_link("rdma_4x200g_storage_path")
    return [
        (
            link.setup_s + int(row["prompt_tokens"]) * LLAMA2_70B_KV / link.gbytes_per_s / 1e9,
            float(row["transfer_plus_load_s"]),
        )
        for prefix in (0, 95)
        for row in table(shared, f"mooncake_fast25/fig14_breakdown_prefix{prefix}.csv")
    ]


def _sizes(path: str, size: str, rate: str, fixed_s: float, gbytes_per_s: float) -> Callable[[Path], Pairs]:
    """Blocks of so many KiB that ran at a rate."""

    def pairs(shared: Path) -> Pairs:
        rows = [(float(row[size]) * 1024 / 1e9, float(row[rate])) for row in table(shared, path)]
        return [(fixed_s + gbytes / gbytes_per_s, gbytes / measured) for gbytes, measured in rows]

    return pairs


def _host_h20(shared: Path) -> Pairs:
    link = load_link("pcie5_x16")
    return [
        (link.setup_s + float(row["kv_bytes"]) / link.gbytes_per_s / 1e9, float(row["transfer_ms"]) / 1e3)
        for row in table(shared, "agentic_kvc_h20/pcie_h2d.csv")
    ]


def _send_recv(link: str, per_node: str) -> Callable[[Path], Pairs]:
    def pairs(shared: Path) -> Pairs:
        shape = load_link(link)
        return [
            (
                shape.setup_s + int(row["size"]) / shape.gbytes_per_s / 1e9,
                float(row["time_stats.send_recv.median"]) / 1e3,
            )
            for row in table(shared, "vidur/a100_dgx_send_recv.csv")
            if row["devices_per_node"] == per_node and int(row["size"]) >= 1_000_000
        ]

    return pairs


#: Link -> its pairs, and what they are.
LINKS: dict[str, tuple[Callable[[Path], Pairs], str]] = {
    "rdma_8x200g_te": (_engine_docs, "128 to 32k tokens of Qwen3-8B"),
    "rdma_4x200g_te": (
        _figure_12("rdma_4x200g_te", "transfer_engine"),
        "1-100 GB; it does not describe small messages",
    ),
    "rdma_4x200g_storage_path": (_storage, "8k to 128k tokens of a 70B model"),
    "rdma_1x400g": (
        _sizes("uccl_blog/single_message_400g_nixl.csv", "message_kb", "gbytes_per_s", 1.5e-5, 49.4),
        "messages of 4 KiB to 100 MiB, read from a figure to +-0.3 GB/s",
    ),
    "tcp_4x200g": (_figure_12("tcp_4x200g", "tcp"), "1-100 GB"),
    "gloo_4x200g": (_figure_12("gloo_4x200g", "gloo"), "1-68 GB"),
    "nvlink_a100": (_send_recv("nvlink_a100", "2"), "1-67 MB"),
    "pcie5_x16": (_host_h20, "0.1-6.4 GB on an H20"),
    "nccl_cross_node_cloud": (_send_recv("nccl_cross_node_cloud", "1"), "1-67 MB"),
}
FIGURE_4 = "vllm_blog_kv_offload/fig4_h2d_throughput_vs_block.csv"
BLOCK_COSTS: dict[str, tuple[str, str, str, str]] = {
    "h2d_dma_pcie5": (FIGURE_4, "block_kb", "dma_gbytes_per_s", "blocks of 4 KiB to 16 MiB"),
    "h2d_kernel_pcie5": (FIGURE_4, "block_kb", "kernel_gbytes_per_s", "blocks of 4 KiB to 16 MiB"),
    "rdma_single_message_400g": (
        "uccl_blog/single_message_400g_nixl.csv", "message_kb", "gbytes_per_s", "messages of 4 KiB to 100 MiB",
    ),
}  # fmt: skip


def _with_bias(found: Errors, what: str) -> str:
    """Median, 90th percentile, and the bias where it is what one sees."""
    bias = f", {100 * abs(found.bias):.0f} % too {'slow' if found.bias > 0 else 'fast'} in the mean"
    return f"{said(found)} of {found.rows} ({what}){bias if abs(found.bias) > 0.03 else ''}"


def link_text(shared: Path, name: str) -> str:
    """What a link states."""
    pairs, what = LINKS[name]
    return _with_bias(errors(pairs(shared)), what)


def block_cost_text(shared: Path, name: str) -> str:
    """What a block cost states."""
    path, size, rate, what = BLOCK_COSTS[name]
    cost = load_block_cost(name)
    return _with_bias(errors(_sizes(path, size, rate, cost.per_block_s, cost.gbytes_per_s)(shared)), what)


def all_texts(shared: Path) -> dict[str, str]:
    """Name of a preset, link or block cost -> the error that it states."""
    return {
        **{name: text(shared) for name, text in PRESETS.items()},
        **{name: link_text(shared, name) for name in LINKS},
        **{name: block_cost_text(shared, name) for name in BLOCK_COSTS},
    }


def main(shared: Path) -> None:
    """Writes the figures into `presets.yaml` and `gpus.yaml`."""
    folder = Path(physics.__file__).parent
    forms = {name: text(shared) for name, text in EFFICIENCIES.items()}
    for path, texts in ((folder / "presets.yaml", all_texts(shared)), (folder / "gpus.yaml", forms)):
        lines, name = [], ""
        for line in path.read_text(encoding="utf-8").split("\n"):
            start = re.fullmatch(r"  ([\w.-]+):", line)
            name = start[1] if start else name
            found = re.fullmatch(r"( +)error: \".*\"(}?)", line)
            lines.append(f'{found[1]}error: "{texts[name]}"{found[2]}' if found and name in texts else line)
        path.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
