"""Static estimates of NVIDIA's `aiconfigurator` (PyPI) beside derived presets.

    python tests/support/aiconfigurator_check.py        # needs `aiconfigurator` on the PATH; a few seconds a row

Both are models: it sums kernels that were measured on the GPU (vLLM), without an engine's fixed costs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from cacheenv.physics import decode_step_seconds, load_architecture, load_preset, prefill_batch_seconds


@dataclass(frozen=True)
class Point:
    """A batch of equal prompts of a model on a GPU: names here and there, sizes in GPUs, requests and tokens."""

    model: str
    gpu: str
    tp: int
    path: str
    system: str
    prompt: int
    batch: int = 1
    output: int = 128


POINTS = (
    Point("qwen3-32b", "h100-sxm", 4, "Qwen/Qwen3-32B", "h100_sxm", 4096),
    Point("qwen3-32b", "h100-sxm", 4, "Qwen/Qwen3-32B", "h100_sxm", 16384),
    Point("qwen3-32b", "h100-sxm", 4, "Qwen/Qwen3-32B", "h100_sxm", 1024, 64),
    Point("qwen3-32b", "h200", 2, "Qwen/Qwen3-32B", "h200_sxm", 4096),
    Point("qwen3-32b", "b200", 2, "Qwen/Qwen3-32B", "b200_sxm", 4096),
    Point("qwen3-32b", "a100-80", 4, "Qwen/Qwen3-32B", "a100_sxm", 4096),
    Point("qwen2.5-7b", "l40s", 1, "Qwen/Qwen2.5-7B", "l40s", 4096),
    Point("qwen3-235b-a22b", "h200", 4, "Qwen/Qwen3-235B-A22B", "h200_sxm", 4096),
    Point("qwen3-235b-a22b", "h200", 4, "Qwen/Qwen3-235B-A22B", "h200_sxm", 1024, 64),
    Point("deepseek-v3", "h200", 8, "deepseek-ai/DeepSeek-V3", "h200_sxm", 4096),
    Point("deepseek-v3", "h200", 8, "deepseek-ai/DeepSeek-V3", "h200_sxm", 1024, 64),
)


def installed() -> bool:
    """Whether the command is there."""
    return shutil.which("aiconfigurator") is not None


def estimate(point: Point) -> tuple[float, float]:
    """Its seconds of the prefill, and of a decode step."""
    experts = load_architecture(point.model).experts > 0
    split = ["--moe-tp-size", str(point.tp), "--moe-ep-size", "1"] if experts else []
    command = [
        "aiconfigurator", "cli", "estimate", "--backend", "vllm", "--perf-db-version", "current", "--estimate-mode",
        "static", "--no-color", "--model-path", point.path, "--system", point.system, "--tp-size", str(point.tp),
        "--batch-size", str(point.batch), "--isl", str(point.prompt), "--osl", str(point.output), *split,
    ]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    values = [re.search(rf"{name}:\s+([\d.,]+) ms", said) for name in ("TTFT", "TPOT")]
    first, step = (float(found[1].replace(",", "")) / 1e3 for found in values if found)
    return first, step


def ours(point: Point) -> tuple[float, float]:
    """The same of the derived preset."""
    preset = load_preset({"model": point.model, "gpu": point.gpu, "tp": point.tp})
    context = round(point.batch * (point.prompt + point.output / 2))
    return (
        prefill_batch_seconds(preset, [(point.prompt, 0)] * point.batch),
        decode_step_seconds(preset, point.batch, context),
    )


def main() -> None:
    """Prints a row a point."""
    rows = []
    for point in POINTS:
        try:
            theirs = estimate(point)
        except (subprocess.CalledProcessError, ValueError):
            theirs = None
        mine = ours(point)
        cells = [
            "-" if theirs is None else f"{1e3 * other:,.1f} | {100 * (own / other - 1):+.0f} %"
            for own, other in zip(mine, theirs or mine, strict=True)
        ]
        rows.append(
            f"| {point.model} | {point.tp} x {point.gpu} | {point.batch} x {point.prompt:,} | {1e3 * mine[0]:,.1f} | "
            f"{cells[0]} | {1e3 * mine[1]:,.1f} | {cells[1]} |"
        )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
