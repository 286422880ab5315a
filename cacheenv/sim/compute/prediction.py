"""Predicted remaining output length: all that a policy ever learns about it.

The noisy predictors follow the error of STAR's (arXiv 2510.13668): at first little more than the population's mean
residual length m(g), later close to the truth, refreshed every 20 generated tokens:

    r_hat = max(1, ((1 - a) m + a r) exp(sigma z - sigma^2 / 2)),
    a = 1 - (1 - a0) exp(-g / tau),  sigma = s0 exp(-g / tau) + s_inf.

z is correlated along a request: it is interpolated between independent normals 10 refreshes apart (and scaled back to
unit variance), each a hash of (seed, request, knot). So a prediction does not depend on when, or how often, it is
looked at, and is the same for every policy.
"""

from __future__ import annotations

import math

from cacheenv.sim.core.jit import inner, jit
from cacheenv.sim.core.rng import hashed_normal
from cacheenv.sim.state.codes import PREDICT_NONE, PREDICT_ORACLE, REFRESH_TOKENS

KNOT_REFRESHES = 10


@jit
def noise(seed, request, refresh):
    """Standard normal for refresh number `refresh` of a request."""
    knot = refresh // KNOT_REFRESHES
    share = (refresh % KNOT_REFRESHES) / KNOT_REFRESHES
    left = hashed_normal(seed, request, knot)
    if share == 0.0:
        return left
    right = hashed_normal(seed, request, knot + 1)
    return ((1.0 - share) * left + share * right) / math.sqrt((1.0 - share) ** 2 + share**2)


@inner
def predicted_remaining(w, index, generated):
    """Predicted output tokens still to come of a request that has generated `generated`, at least 1."""
    config = w.config[0]
    refresh = generated // REFRESH_TOKENS
    since = generated - refresh * REFRESH_TOKENS
    true_left = w.workload[index].output_tokens - refresh * REFRESH_TOKENS
    if config.prediction == PREDICT_ORACLE:
        return max(1.0, float(true_left - since))
    mean_left = w.mean_residual_tokens[min(refresh, w.mean_residual_tokens.shape[0] - 1)]
    if config.prediction == PREDICT_NONE:
        return max(1.0, mean_left - since)
    decay = math.exp(-refresh * REFRESH_TOKENS / config.prediction_tau)
    weight = 1.0 - (1.0 - config.prediction_a0) * decay
    sigma = config.prediction_s0 * decay + config.prediction_s_inf
    z = noise(config.prediction_seed, index, refresh)
    guess = ((1.0 - weight) * mean_left + weight * true_left) * math.exp(sigma * z - 0.5 * sigma * sigma)
    return max(1.0, max(1.0, guess) - since)
