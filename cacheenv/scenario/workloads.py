"""The requests that a scenario asks for: from a generator, or from a trace that is read once."""

from __future__ import annotations

import functools
import os

import numpy as np

from cacheenv.errors import InputError
from cacheenv.scenario.sections import TRACE_KIND, WorkloadConfig
from cacheenv.workload import Workload, generate

#: Part of a trace's time, from its first request to its last, that a learner trains on; the rest is for tests.
TRAIN_SHARE = 0.8


def make_workload(options: WorkloadConfig, page_tokens: int, seed: int) -> Workload:
    """The requests of one episode.

    Args:
        options: The scenario's section.
        page_tokens: Tokens of a page.
        seed: Seed of the generator, and of the place of a trace's window; a trace without windows ignores it.

    Returns:
        The workload; of a trace without windows the same object on every call (the file is read once).
    """
    if options.kind == TRACE_KIND:
        return _window(played_trace(options, page_tokens), options.window_requests, seed)
    return generate(
        options.kind,
        requests=options.requests,
        rate_rps=options.rate_rps,
        page_tokens=page_tokens,
        seed=seed,
        params=options.params,
    )


def played_trace(options: WorkloadConfig, page_tokens: int) -> Workload:
    """All requests that a scenario with a trace may play: the file's, or those of a split of it."""
    stat = os.stat(str(options.trace))
    return _load_trace(
        str(options.trace), (stat.st_mtime_ns, stat.st_size), options.rate_scale, options.start_s,
        options.duration_s, options.limit, page_tokens, options.split,
    )  # fmt: skip


def _window(trace: Workload, count: int | None, seed: int) -> Workload:
    """`count` requests in a row from a place that the seed draws; all of them where `count` is None."""
    if count is None:
        return trace
    if count > len(trace):
        raise InputError(
            f"workload.window_requests: expected at most {len(trace)}, the requests of {trace.name} to choose from, "
            f"got {count}"
        )
    first = np.random.default_rng(seed).integers(len(trace) - count + 1)
    return trace.window(int(first), count)


def _split(trace: Workload, split: str) -> Workload:
    """The first 80 % of a trace's time (`train`), the rest (`test`), or all of it."""
    if split == "all":
        return trace
    arrival_s = trace.requests["arrival_s"]
    border_s = arrival_s[0] + TRAIN_SHARE * (arrival_s[-1] - arrival_s[0])
    middle = int(np.searchsorted(arrival_s, border_s, side="left"))
    first, last = (0, middle) if split == "train" else (middle, len(trace))
    if first == last:
        raise InputError(f"workload.split: {trace.name} has no request in its part '{split}'")
    return trace.window(first, last - first)


@functools.lru_cache(maxsize=4)
def _load_trace(
    path: str,
    _version: tuple[int, int],
    rate_scale: float,
    start_s: float,
    duration_s: float | None,
    limit: int | None,
    page_tokens: int,
    split: str,
) -> Workload:
    """Reads a trace once a process for each set of options and each state of the file."""
    trace = Workload.from_mooncake(
        path,
        rate_scale=rate_scale,
        start_s=start_s,
        duration_s=duration_s,
        limit=limit,
        page_tokens=page_tokens,
    )
    return _split(trace, split)
