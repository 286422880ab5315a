"""Where a cluster is full: an estimate of the highest rate that its prefill and its decode instances could serve.

It is a ceiling for orientation, no forecast: every instance works all the time, in proportion to how fast it is, and
nobody looks at an objective.

* Prefill: each prompt in a batch of its own, in pieces of `chunk_tokens`, nothing cached:
  `max(d, a * pieces + b * n + c * n^2)`, averaged over the workload's prompts.
* Decode: batches as full as `max_batch` and memory allow, of requests that hold their prompt and on average half of
  their output: B requests take `d + e * B + f * B * held` a step, and each needs as many steps as it has output tokens
  but one.
"""

from __future__ import annotations

import numpy as np

from cacheenv.scenario.resolve import ClusterSpec, DecodeSpec, PrefillSpec
from cacheenv.workload import Workload


def prefill_rps(row: PrefillSpec, prompt_tokens: np.ndarray) -> float:
    """Requests/s of one prefill instance that computes all of their prompts."""
    pieces = np.ceil(prompt_tokens / row.chunk_tokens) if row.chunk_tokens > 0 else 1.0
    compute_s = row.prefill_a_s * pieces + row.prefill_b_s * prompt_tokens + row.prefill_c_s * prompt_tokens**2
    mean_s = float(np.maximum(row.min_prefill_s, compute_s).mean())
    return 1.0 / mean_s if mean_s > 0.0 else float("inf")


def decode_rps(row: DecodeSpec, prompt_tokens: np.ndarray, output_tokens: np.ndarray) -> float:
    """Requests/s of one decode instance with a full batch."""
    steps = np.maximum(output_tokens - 1.0, 0.0)
    if not steps.sum() > 0.0:
        return float("inf")
    held = float((steps * (prompt_tokens + output_tokens / 2)).sum() / steps.sum())  # of those found in a batch
    batch = max(1.0, min(row.max_batch, row.kv_tokens / (held + row.reserve_tokens)))
    step_s = row.decode_d_s + row.decode_e_s * batch + row.decode_f_s * batch * held
    return batch / (step_s * float(steps.mean())) if step_s > 0.0 else float("inf")


def saturation_rps(spec: ClusterSpec, workload: Workload) -> tuple[float, float]:
    """(prefill, decode): requests/s of the whole pools."""
    prompts = workload.requests["prompt_tokens"].astype(np.float64)
    outputs = workload.requests["output_tokens"].astype(np.float64)
    prefill = {row: prefill_rps(row, prompts) for row in set(spec.prefill)}
    decode = {row: decode_rps(row, prompts, outputs) for row in set(spec.decode)}
    return sum(prefill[row] for row in spec.prefill), sum(decode[row] for row in spec.decode)
