"""Sessions: which request continues which, how long the prompts get, and which block ids they share.

Requests are numbered in order of arrival. After a request its session goes on with some probability, a drawn number
of requests later; a slot in which no session is due begins a new one. The next prompt of a session is the last prompt,
its answer and a new text. The whole structure is in units of requests, so the arrival rate only scales times.

The workload starts in the middle: sessions that began before it fall due in it as well, with nothing cached. Lengths
and mix are therefore the same at its start as at its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cacheenv.errors import InputError
from cacheenv.workload.blocks import MAX_INT32
from cacheenv.workload.session_kernels import fill_sessions, write_answer_ids, write_block_ids

#: Template of a session that shares its head with no other.
NO_TEMPLATE = -1


class SessionDraws(NamedTuple):
    """Drawn numbers; arrays of the first group have one entry a request slot, only one of first/follow is used.

    Attributes:
        first_tokens: Prompt tokens if the slot begins a session, shared template included.
        follow_tokens: New text if it continues one, tokens.
        output_tokens: Tokens of the answer.
        template: Shared template of a new session, or -1.
        goes_on: Whether the session continues after this request.
        gap_requests: Requests until then, >= 1.
        template_tokens: Tokens of each template.
        old_due: Slots in which sessions from before the start fall due.
        old_context: Tokens that those sessions already hold.
        old_template: Their templates, or -1.
        max_prompt_tokens: A session ends before its prompt would exceed this.
    """

    first_tokens: np.ndarray
    follow_tokens: np.ndarray
    output_tokens: np.ndarray
    template: np.ndarray
    goes_on: np.ndarray
    gap_requests: np.ndarray
    template_tokens: np.ndarray
    old_due: np.ndarray
    old_context: np.ndarray
    old_template: np.ndarray
    max_prompt_tokens: int


class Sessions(NamedTuple):
    """What came out, one entry a request: prompt tokens, request continued (or -1), session and its template."""

    prompt_tokens: np.ndarray
    parent: np.ndarray
    session: np.ndarray
    template: np.ndarray


def link_sessions(draws: SessionDraws) -> Sessions:
    """Strings the drawn requests together to sessions."""
    requests, olds = len(draws.first_tokens), len(draws.old_due)
    prompt, parent, session, template, due = np.empty((5, requests), dtype=np.int64)
    after, ready = np.empty((2, requests + olds), dtype=np.int64)
    fill_sessions(*draws, prompt, parent, session, template, due, after, ready)
    return Sessions(prompt, parent, session, template)


def number_blocks(sessions: Sessions, template_tokens: np.ndarray, page_tokens: int) -> tuple[np.ndarray, int]:
    """Block ids (int32, all prompts one after the other) and the number of different ones."""
    prompt = sessions.prompt_tokens
    total = int(np.sum((prompt + page_tokens - 1) // page_tokens))
    if total > MAX_INT32:
        raise InputError(f"expected at most 2^31 blocks in all, got {total}; use larger pages or fewer requests")
    blocks = np.empty(total, dtype=np.int32)
    start = np.empty(len(prompt), dtype=np.int64)
    owner = np.empty(len(template_tokens), dtype=np.int64)
    different = write_block_ids(
        prompt, sessions.parent, sessions.template, template_tokens, page_tokens, owner, start, blocks
    )
    return blocks, int(different)


def number_answers(
    sessions: Sessions, output_tokens: np.ndarray, page_tokens: int, blocks: np.ndarray, different: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Adds the ids of the answers to those of the prompts: the next turn of a session continues prompt and answer.

    Args:
        sessions: The requests.
        output_tokens: Tokens of each answer.
        page_tokens: Tokens of a page.
        blocks: Ids of the prompts from :func:`number_blocks`.
        different: How many different ones there are.

    Returns:
        Int32 ids of all prompts and then of all answers, ids of each answer, number of different ids.
    """
    prompt = sessions.prompt_tokens
    pages = (prompt + page_tokens - 1) // page_tokens
    total = int(np.sum((prompt + output_tokens) // page_tokens - prompt // page_tokens))
    if len(blocks) + total > MAX_INT32:
        raise InputError(f"expected at most 2^31 blocks in all, got {len(blocks) + total}; use larger pages")
    answers = np.empty(total, dtype=np.int32)
    continued, answer_pages = np.empty((2, len(prompt)), dtype=np.int64)
    start = np.cumsum(pages) - pages
    different = write_answer_ids(
        prompt, output_tokens, sessions.parent, page_tokens, start, different, continued, blocks, answers, answer_pages
    )
    return np.concatenate([blocks, answers]), answer_pages, int(different)


def old_due_slots(generator: np.random.Generator, goes_on: float, median: float, sigma: float) -> np.ndarray:
    """Slots in which the sessions fall due that are between two turns when the workload starts.

    Little's law gives their number, `goes_on * mean gap`; a gap that is under way is size-biased (log-normal again,
    its median times exp(sigma^2)) and what is left of it uniform.
    """
    mean_gap = 1.0 + median * np.exp(sigma**2 / 2.0)
    count = round(goes_on * mean_gap)
    gaps = 1.0 + median * np.exp(sigma**2 + sigma * generator.standard_normal(count))
    return (gaps * generator.random(count)).astype(np.int64)
