"""Reasoning: short prompts with hardly any reuse, and outputs from a hundred to 32,000 tokens.

The output mix has the shares published for ShareGPT prompts on DeepSeek-R1-Distill-Qwen-7B (STAR): 29.2 % below 1,000
tokens, 17.3 % above 30,000; within a part lengths are log-uniform (the last one uniform), which is an assumption.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from cacheenv.errors import InputError
from cacheenv.workload.draws import POPULATION, arrival_times, log_normal, stream, whole_tokens
from cacheenv.workload.lengths import mean_residual_tokens
from cacheenv.workload.params import check_fields, real, whole
from cacheenv.workload.sessions import Sessions, number_blocks
from cacheenv.workload.workload import Workload, assemble


@dataclass(frozen=True)
class ReasoningParams:
    """Parameters of the reasoning generator.

    Attributes:
        system_tokens: Length of the system prompt that all requests share, tokens.
        prompt_median_tokens: Median of the prompt behind it, tokens.
        prompt_sigma: Its log-normal sigma.
        max_prompt_tokens: Longest prompt, tokens.
        output_short_share: Share of outputs from `output_min_tokens` to `output_short_tokens`, log-uniform.
        output_long_share: Share of outputs from `output_long_tokens` to `output_max_tokens`, uniform; the rest lies
            between short and long, log-uniform.
        output_min_tokens: Shortest output, tokens.
        output_short_tokens: Upper end of the short part, tokens.
        output_long_tokens: Lower end of the long part, tokens.
        output_max_tokens: Longest output, tokens.
        gap_cv: Standard deviation over mean of the gaps between arrivals (1: Poisson).
    """

    system_tokens: int = whole(32, 0, 10**6)
    prompt_median_tokens: float = real(70.0, 1.0, 1e6)
    prompt_sigma: float = real(1.3, 0.0, 4.0)
    max_prompt_tokens: int = whole(8192, 16, 10**7)
    output_short_share: float = real(0.292, 0.0, 1.0)
    output_long_share: float = real(0.173, 0.0, 1.0)
    output_min_tokens: int = whole(100, 1, 10**7)
    output_short_tokens: int = whole(1000, 1, 10**7)
    output_long_tokens: int = whole(30_000, 1, 10**7)
    output_max_tokens: int = whole(32_000, 1, 10**7)
    gap_cv: float = real(1.0, 0.05, 20.0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.output_short_share + self.output_long_share > 1.0:
            raise InputError("output_short_share: expected output_short_share + output_long_share <= 1")
        ends = (self.output_min_tokens, self.output_short_tokens, self.output_long_tokens, self.output_max_tokens)
        if sorted(ends) != list(ends):
            raise InputError(f"output_min_tokens: expected min <= short <= long <= max output tokens, got {ends}")
        if self.system_tokens >= self.max_prompt_tokens:
            raise InputError(f"system_tokens: expected less than max_prompt_tokens = {self.max_prompt_tokens}")


def _outputs(uniforms: np.ndarray, params: ReasoningParams) -> np.ndarray:
    """Output lengths from uniforms (the inverse of the distribution function), int64 tokens."""
    low, short = float(params.output_min_tokens), float(params.output_short_tokens)
    long, high = float(params.output_long_tokens), float(params.output_max_tokens)
    levels = np.array([0.0, params.output_short_share, 1.0 - params.output_long_share])
    log_tokens = np.interp(uniforms, levels, np.log([low, short, long]))
    beyond = uniforms - levels[2]
    width = (high - long) / max(params.output_long_share, 1e-12)
    tokens = np.where(beyond >= 0, long + width * beyond, np.exp(log_tokens))
    return whole_tokens(tokens, params.output_min_tokens, params.output_max_tokens)


@functools.lru_cache(maxsize=64)
def _residual(params: ReasoningParams) -> np.ndarray:
    return mean_residual_tokens(_outputs((np.arange(POPULATION) + 0.5) / POPULATION, params))


def generate(
    seed: int | np.random.SeedSequence, requests: int, rate_rps: float, page_tokens: int, params: ReasoningParams
) -> Workload:
    """A reasoning workload of independent requests.

    Args:
        seed: Same seed, same workload, in any process.
        requests: Number of requests.
        rate_rps: Mean arrival rate, requests/s; with another rate the same requests come at scaled times.
        page_tokens: Tokens of a page.
        params: Parameters.
    """
    generator = stream(seed)
    output = _outputs(generator.random(requests), params)
    text = log_normal(generator.standard_normal(requests), params.prompt_median_tokens, params.prompt_sigma)
    prompt = whole_tokens(params.system_tokens + text, params.system_tokens + 1, params.max_prompt_tokens)
    alone = np.full(requests, -1, dtype=np.int64)
    sessions = Sessions(prompt, alone, alone, np.zeros(requests, dtype=np.int64))
    blocks, different = number_blocks(sessions, np.array([params.system_tokens]), page_tokens)
    columns = {
        "arrival_s": arrival_times(generator, requests, rate_rps, params.gap_cv),
        "prompt_tokens": prompt,
        "output_tokens": output,
    }
    return assemble(columns, blocks, page_tokens, different, "reasoning", _residual(params))
