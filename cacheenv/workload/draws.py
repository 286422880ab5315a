"""Random draws of the generators: whole arrays at a time, always in the same order, from one seeded stream."""

from __future__ import annotations

import numpy as np

#: Sample size of a nominal distribution (residual lengths, running contexts); its seed never changes.
POPULATION = 100_000
POPULATION_SEED = 20250225


def stream(seed: int | np.random.SeedSequence) -> np.random.Generator:
    """The stream of a seed."""
    return np.random.Generator(np.random.PCG64(seed))


def log_normal(normals: np.ndarray, median: float, sigma: float) -> np.ndarray:
    """Log-normal values from standard normals."""
    return median * np.exp(sigma * normals)


def two_log_normals(
    uniforms: np.ndarray,
    normals: np.ndarray,
    short_share: float,
    short: tuple[float, float],
    long: tuple[float, float],
) -> np.ndarray:
    """Values that are log-normal(`short`) with probability `short_share`, else log-normal(`long`); (median, sigma)."""
    is_short = uniforms < short_share
    median = np.where(is_short, short[0], long[0])
    sigma = np.where(is_short, short[1], long[1])
    return np.asarray(median * np.exp(sigma * normals))


def whole_tokens(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Values cut to `low..high` and rounded down, int64."""
    return np.minimum(np.maximum(values, low), high).astype(np.int64)


def zipf(uniforms: np.ndarray, count: int, exponent: float) -> np.ndarray:
    """Ranks 0..count-1 with weights `1 / (rank + 1)**exponent`, int64."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    bounds = np.cumsum(weights / weights.sum())[:-1]
    return np.searchsorted(bounds, uniforms, side="right")


def arrival_times(generator: np.random.Generator, requests: int, rate_rps: float, gap_cv: float) -> np.ndarray:
    """Arrival times in seconds at a mean rate; the gaps are gamma distributed (exponential for `gap_cv` 1).

    Args:
        generator: The stream.
        requests: Number of times.
        rate_rps: Requests/s; only scales the times.
        gap_cv: Standard deviation of a gap over its mean.
    """
    if gap_cv == 1.0:
        gaps = generator.standard_exponential(requests)
    else:
        shape = gap_cv**-2.0
        gaps = generator.standard_gamma(shape, requests) / shape
    return np.asarray(np.cumsum(gaps) / rate_rps)
