"""Names of the generators and their parameters, as scenarios refer to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cacheenv.errors import InputError, suggestion
from cacheenv.workload import chat, coding_agent, reasoning
from cacheenv.workload.params import make_params
from cacheenv.workload.workload import Workload

#: kind -> (parameter dataclass, generator).
GENERATORS: dict[str, tuple[Any, Any]] = {
    "chat": (chat.ChatParams, chat.generate),
    "reasoning": (reasoning.ReasoningParams, reasoning.generate),
    "coding_agent": (coding_agent.CodingAgentParams, coding_agent.generate),
}


def _look_up(kind: str) -> tuple[Any, Any]:
    if kind not in GENERATORS:
        raise InputError(f"unknown generator '{kind}'{suggestion(kind, GENERATORS)}; known: {', '.join(GENERATORS)}")
    return GENERATORS[kind]


def check_params(kind: str, params: Mapping[str, Any] | None) -> Any:
    """The parameters of a generator, made and checked; what is wrong is an :class:`InputError` naming the key."""
    return make_params(_look_up(kind)[0], params)


def generate(
    kind: str,
    *,
    requests: int,
    rate_rps: float,
    page_tokens: int,
    seed: int | np.random.SeedSequence = 0,
    params: Mapping[str, Any] | None = None,
) -> Workload:
    """A workload from a named generator.

    Args:
        kind: `chat`, `reasoning` or `coding_agent`.
        requests: Number of requests.
        rate_rps: Mean arrival rate where nobody is slowed down, requests/s, all turns together.
        page_tokens: Tokens of a page.
        seed: Same seed, same workload, in any process.
        params: Parameters that differ from their defaults; see the dataclass of the generator.
    """
    for name, value in (("requests", requests), ("page_tokens", page_tokens)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InputError(f"{kind}: {name}: expected a whole number >= 1, got {value!r}")
    if not np.isfinite(rate_rps) or rate_rps <= 0:
        raise InputError(f"{kind}: rate_rps: expected a positive number of requests/s, got {rate_rps!r}")
    params_type, function = _look_up(kind)
    workload: Workload = function(
        seed, int(requests), float(rate_rps), int(page_tokens), make_params(params_type, params)
    )
    return workload
