"""Lengths of prompts and outputs: their limit, and what is left of an output on average."""

from __future__ import annotations

from typing import Any

import numpy as np

from cacheenv.errors import InputError
from cacheenv.sim.state.codes import REFRESH_TOKENS

MAX_TOKENS = 2**40
#: 20 million generated tokens: one absurd length must not make the table of mean residuals fill the memory.
MAX_RESIDUAL_ENTRIES = 2**20


def mean_residual_tokens(output_tokens: Any) -> np.ndarray:
    """Mean tokens still to come after g generated ones, of the outputs longer than g.

    Args:
        output_tokens: Output lengths of a population, tokens, any order.

    Returns:
        Float64 array: `m(g) = E[n - g | n > g]` at g = 0, 20, 40, ... (:data:`MAX_RESIDUAL_ENTRIES` at most); the
        last entry also stands for larger g.
    """
    lengths = np.sort(np.asarray(output_tokens, dtype=np.int64))
    if lengths.size == 0 or lengths[0] < 1:
        raise InputError("mean residual length: expected at least one output length, all of them >= 1")
    generated = np.arange(0, min(lengths[-1], MAX_RESIDUAL_ENTRIES * REFRESH_TOKENS), REFRESH_TOKENS)
    longer_from = np.searchsorted(lengths, generated, side="right")
    tail_sums = np.cumsum(lengths[::-1], dtype=np.float64)[::-1]
    return np.asarray(tail_sums[longer_from] / (lengths.size - longer_from) - generated)
