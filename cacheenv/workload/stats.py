"""Statistics of a workload and the most that any cache of prompts could reuse of it.

A hit is a run of blocks from the head of a prompt that an earlier prompt has left in the cache. Prompts count as cached
from their arrival on, in one cache for everything, and at least one token of a prompt is always computed; partial
blocks at the end of a prompt are stored but cannot be hit. Answers count as new text, although caches may hold them.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cacheenv.errors import InputError
from cacheenv.sim.core.jit import inner, jit
from cacheenv.workload.workload import Workload

#: Capacities of the LRU curve in blocks, those of Mooncake's table 1.
DEFAULT_CAPACITIES = (1_000, 10_000, 30_000, 50_000, 100_000)
LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@inner
def _unlink(newer, older, block):
    newer[older[block]] = newer[block]
    older[newer[block]] = older[block]


@inner
def _push(newer, older, end, block):
    """Puts `block` at the fresh end of the ring through `end`."""
    newest = older[end]
    newer[newest] = block
    older[block] = newest
    newer[block] = end
    older[end] = block


@jit
def _lru_hits(blocks, start, prompt_tokens, page_tokens, capacity, newer, older, hits):
    """Fills hits, in blocks; newer/older hold the ring of cached blocks, the last entry is its end (-1: not cached)."""
    end = newer.shape[0] - 1
    for block in range(end):
        newer[block] = -1
    newer[end] = end
    older[end] = end
    used = 0
    for request in range(start.shape[0]):
        pages = (prompt_tokens[request] + page_tokens - 1) // page_tokens
        most = (prompt_tokens[request] - 1) // page_tokens
        first = start[request]
        length = 0
        while length < most and newer[blocks[first + length]] >= 0:
            length += 1
        hits[request] = length
        # Tail first, so that the head of the prompt is the freshest and a block never goes before the one behind it.
        for page in range(pages - 1, -1, -1):
            block = blocks[first + page]
            if newer[block] >= 0:
                _unlink(newer, older, block)
                used -= 1
            _push(newer, older, end, block)
            used += 1
            if used > capacity:
                oldest = newer[end]
                _unlink(newer, older, oldest)
                newer[oldest] = -1
                used -= 1


def lru_hit_blocks(workload: Workload, capacity_blocks: int) -> np.ndarray:
    """Blocks of each prompt that one exact LRU cache of `capacity_blocks` blocks delivers, int64."""
    if isinstance(capacity_blocks, bool) or not isinstance(capacity_blocks, (int, np.integer)) or capacity_blocks < 1:
        raise InputError(f"cache capacity: expected a whole number of blocks >= 1, got {capacity_blocks!r}")
    rows = workload.requests
    newer, older = np.empty((2, workload.num_blocks + 1), dtype=np.int64)
    hits = np.empty(len(rows), dtype=np.int64)
    start = np.ascontiguousarray(rows["block_start"])
    prompt = np.ascontiguousarray(rows["prompt_tokens"])
    capacity = int(capacity_blocks)
    _lru_hits(workload.blocks, start, prompt, workload.page_tokens, capacity, newer, older, hits)
    return hits


def _rates(workload: Workload, hits: np.ndarray) -> dict[str, float]:
    blocks = int(workload.pages().sum())
    tokens = int(workload.requests["prompt_tokens"].sum())
    return {
        "block_hit_rate": float(hits.sum() / blocks),
        "token_hit_rate": float(hits.sum() * workload.page_tokens / tokens),
    }


def hit_ceiling(workload: Workload) -> dict[str, float]:
    """Hit rates of a cache that never evicts: `block_hit_rate` and `token_hit_rate` of all prompts."""
    return _rates(workload, lru_hit_blocks(workload, workload.num_blocks))


def _lengths(values: np.ndarray) -> dict[str, float]:
    quantiles = {name: float(np.quantile(values, level)) for name, level in LEVELS.items()}
    return {"mean": float(values.mean()), "min": int(values.min()), **quantiles, "max": int(values.max())}


def _arrivals(arrival: np.ndarray) -> dict[str, Any]:
    gaps = np.diff(arrival)
    duration = float(arrival[-1] - arrival[0])
    return {
        "duration_s": duration,
        "rate_rps": len(gaps) / duration if duration > 0 else None,
        "gap_cv": float(gaps.std() / gaps.mean()) if duration > 0 else None,
        "distinct_times": len(np.unique(arrival)),
        "largest_burst": int(np.unique(arrival, return_counts=True)[1].max()),
    }


def workload_stats(workload: Workload, capacities: Sequence[int] = DEFAULT_CAPACITIES) -> dict[str, Any]:
    """Counts, lengths, arrivals and reuse of a workload, as Python scalars in nested dictionaries.

    Args:
        workload: The workload.
        capacities: Cache sizes of the LRU curve, blocks.

    Returns:
        `name`, `requests`, `page_tokens`, `sessions`, `namespaces`; `arrivals` (duration_s, rate_rps and gap_cv, both
        None where all requests come at once, distinct_times, largest_burst); `prompt_tokens` and `output_tokens`
        (mean, min, p50, p90, p99, max, and total); `blocks` (total, distinct, share of the distinct ones that are seen
        once, most_shared: prompts that hold the most common one); `reuse`: hit rates, `infinite` and `lru` by capacity.
    """
    rows = workload.requests
    prompts = workload.blocks[: int(workload.pages().sum())]
    seen = np.bincount(prompts, minlength=workload.num_blocks)
    seen = seen[seen > 0]
    sessions = rows["session"][rows["session"] >= 0]
    return {
        "name": workload.name,
        "requests": len(workload),
        "page_tokens": int(workload.page_tokens),
        "sessions": len(np.unique(sessions)),
        "namespaces": len(np.unique(rows["namespace"])),
        "arrivals": _arrivals(rows["arrival_s"]),
        "prompt_tokens": {**_lengths(rows["prompt_tokens"]), "total": int(rows["prompt_tokens"].sum())},
        "output_tokens": {**_lengths(rows["output_tokens"]), "total": int(rows["output_tokens"].sum())},
        "blocks": {
            "total": len(prompts),
            "distinct": len(seen),
            "seen_once_share": float(np.mean(seen == 1)),
            "most_shared": int(seen.max()),
        },
        "reuse": {
            "infinite": hit_ceiling(workload),
            "lru": {int(size): _rates(workload, lru_hit_blocks(workload, size)) for size in capacities},
        },
    }
