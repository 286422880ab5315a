"""Block ids: one number for the tokens of a page *and all tokens before them* and the namespace.

So equal ids at the head of two prompts are exactly their common prefix, and prompts of different namespaces never
share an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MAX_INT32 = 2**31 - 1
CHAIN_RULE = "a block id follows another block than where it first appeared; expected ids that name all before them"


def first_chain_break(
    blocks: np.ndarray,
    starts: np.ndarray,
    pages: np.ndarray,
    namespace: np.ndarray,
    num_blocks: int,
    answers: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> int:
    """First request with an id that does not name one prefix, or -1.

    Args:
        blocks: Int32 ids of all prompts, one after the other, dense; then those of the answers.
        starts: Offset of each prompt.
        pages: Ids of each prompt.
        namespace: Namespace of each prompt.
        num_blocks: Number of different ids.
        answers: Offset of the ids of each answer, their number, and the full pages of each prompt, which they follow.
    """
    before = np.empty(len(blocks), dtype=np.int64)
    before[1:] = blocks[:-1]
    alone = -1 - namespace.astype(np.int64)
    before[starts] = alone
    rows, owners = starts, np.arange(len(starts))
    if answers is not None:
        offsets, counts, full = answers
        answered = np.flatnonzero(counts)
        behind = blocks[starts[answered] + np.maximum(full[answered] - 1, 0)]
        before[offsets[answered]] = np.where(full[answered] > 0, behind, alone[answered])
        rows, owners = np.concatenate([rows, offsets[answered]]), np.concatenate([owners, answered])
    first = np.zeros(num_blocks, dtype=np.int64)
    first[blocks[::-1]] = before[::-1]
    broken = np.flatnonzero(first[blocks] != before)
    return int(owners[np.searchsorted(rows, broken[0], side="right") - 1]) if broken.size else -1


def dense_blocks(prompts: Iterable[Sequence[int]], namespace: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers block ids 0, 1, 2, ... in order of first appearance, each namespace for itself.

    Args:
        prompts: Block ids of each request, any Python integers.
        namespace: Whole number of each request.

    Returns:
        Int32 ids of all prompts, one after the other, and the number of different ones.
    """
    keys: list[Any] = []
    if np.any(namespace != namespace[0]):
        for space, ids in zip(namespace.tolist(), prompts, strict=True):
            keys.extend((space, int(value)) for value in ids)
    else:
        for ids in prompts:
            keys.extend(ids)
    number_of = dict.fromkeys(keys)
    number_of = dict(zip(number_of, range(len(number_of)), strict=True))
    return np.fromiter(map(number_of.__getitem__, keys), np.int32, len(keys)), len(number_of)


def renumbered(blocks: np.ndarray) -> tuple[np.ndarray, int]:
    """Ids of a part of a workload numbered anew, in order of first appearance: int32 ids, and how many differ."""
    _, first, number = np.unique(blocks, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[number], len(first)
