"""Predicted remaining output length of a running request."""

from __future__ import annotations

import math
from collections.abc import Callable

from .cluster import ReferenceCluster

REFRESH_TOKENS = 20

#: z(request index, refresh index): a standard normal
Noise = Callable[[int, int], float]

# kind -> a0, tau where it is not given (times the mean output length), s0; s_inf is the same for both
LEARNED = {"star": (0.14, 0.6, 0.4), "weak": (0.05, 2.0, 0.6)}
S_INF = 0.03


def predicted_remaining(
    cluster: ReferenceCluster, request: int, output_tokens: int, generated: int, noise: Noise | None
) -> float:
    """Tokens that the predictor expects after `generated` ones; it looks anew every 20 tokens."""
    refresh = generated // REFRESH_TOKENS
    at_refresh = REFRESH_TOKENS * refresh
    true_remaining = float(output_tokens - at_refresh)
    table = cluster.mean_residual_tokens
    mean = table[min(refresh, len(table) - 1)]
    if cluster.prediction == "oracle":
        estimate = true_remaining
    elif cluster.prediction == "none":
        estimate = mean
    else:
        assert noise is not None, "star and weak need the noise function"
        a0, share, s0 = LEARNED[cluster.prediction]
        tau = share * table[0] if cluster.tau_tokens is None else cluster.tau_tokens
        decay = math.exp(-at_refresh / tau)
        seen = 1.0 - (1.0 - a0) * decay
        sigma = s0 * decay + S_INF
        spread = math.exp(sigma * noise(request, refresh) - sigma * sigma / 2.0)
        estimate = max(1.0, ((1.0 - seen) * mean + seen * true_remaining) * spread)
    return max(1.0, estimate - (generated - at_refresh))
