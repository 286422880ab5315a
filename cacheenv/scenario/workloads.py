"""The requests that a scenario asks for: from a generator, or from a trace that is read once."""

from __future__ import annotations

import functools
import os

from cacheenv.scenario.sections import TRACE_KIND, WorkloadConfig
from cacheenv.workload import Workload, generate


def make_workload(options: WorkloadConfig, page_tokens: int, seed: int) -> Workload:
    """The requests of one episode.

    Args:
        options: The scenario's section.
        page_tokens: Tokens of a page.
        seed: Seed of the generator; traces ignore it.

    Returns:
        The workload; of a trace the same object on every call (the file is read once).
    """
    if options.kind == TRACE_KIND:
        stat = os.stat(str(options.trace))
        return _load_trace(
            str(options.trace), (stat.st_mtime_ns, stat.st_size), options.rate_scale, options.start_s,
            options.duration_s, options.limit, page_tokens,
        )  # fmt: skip
    return generate(
        options.kind,
        requests=options.requests,
        rate_rps=options.rate_rps,
        page_tokens=page_tokens,
        seed=seed,
        params=options.params,
    )


@functools.lru_cache(maxsize=4)
def _load_trace(
    path: str,
    _version: tuple[int, int],
    rate_scale: float,
    start_s: float,
    duration_s: float | None,
    limit: int | None,
    page_tokens: int,
) -> Workload:
    """Reads a trace once a process for each set of options and each state of the file."""
    return Workload.from_mooncake(
        path,
        rate_scale=rate_scale,
        start_s=start_s,
        duration_s=duration_s,
        limit=limit,
        page_tokens=page_tokens,
    )
