"""Seconds of a prefill batch, of a decode step and of a recomputation: the one place of each formula.

`spec` is a row of `w.instance`. The formulas are those of design section 3 and `docs/simulator.md`; fits and their
errors are told with each preset.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner, once


@inner
def attention_work(spec, new, cached):
    """n^2 + 2 max(n, n_tile) p of `new` tokens behind `cached` ones."""
    return float(new) * new + 2.0 * max(float(new), spec.n_tile) * cached


@inner
def batch_seconds(spec, new_tokens, attention):
    """Time of a prefill batch: max(floor, a + b sum(n) + c sum(attention work))."""
    return max(spec.prefill_floor_s, spec.prefill_a_s + spec.prefill_b_s * new_tokens + spec.prefill_c_s * attention)


@inner
def prefill_seconds(spec, new, cached):
    """Time of a batch of one prompt: `new` tokens behind `cached` ones."""
    return batch_seconds(spec, new, attention_work(spec, new, cached))


@inner
def load_seconds(config, spec, compute_s, tokens):
    """Time of a batch that computes for `compute_s` and loads `tokens` tokens from host memory for it.

    `blocking`: one after the other. `layerwise`: a layer is computed when it is loaded and the one before it is
    computed, so of L equal layers the first one's loading, or the last one's computing, stands alone.
    """
    if tokens <= 0:
        return compute_s
    load_s = tokens * spec.host_token_s
    if config.host_blocking:
        return spec.host_setup_s + load_s + compute_s
    return spec.host_setup_s + max(load_s + compute_s / config.layers, compute_s + load_s / config.layers)


@inner
def prompt_seconds(config, spec, prompt_tokens, cached, gpu_cached):
    """Time of a batch of one prompt of which `cached` tokens are there, `gpu_cached` of them on the GPU."""
    return load_seconds(config, spec, prefill_seconds(spec, prompt_tokens - cached, cached), cached - gpu_cached)


@inner
def step_seconds(spec, requests, kv_tokens):
    """Time of a decode step: d + e B + f C."""
    return spec.decode_d_s + spec.decode_e_s * requests + spec.decode_f_s * kv_tokens


@once
def recompute_seconds(spec, tokens):
    """Time of computing the KV of a preempted request again, at least a step's fixed time."""
    compute_s = spec.prefill_a_s + spec.prefill_b_s * tokens + spec.prefill_c_s * (float(tokens) * tokens)
    return max(spec.decode_d_s, compute_s)
