"""Sessions: which request continues which, how long the prompts get, and which block ids they share.

Requests are numbered in the order in which they come where nobody is slowed down: slots, at the times of a stream of
the mean rate asked for. After a request its session goes on with some probability, as many slots later as come while
the answer is made and the user thinks; a slot in which no session is due begins a new one. So first turns have just the
rate that makes, together with the later ones, the rate asked for. The next prompt of a session is the last prompt, its
answer and a new text.

The workload starts in the middle: sessions that began before it fall due in it as well, with nothing cached. Lengths
and mix are therefore the same at its start as at its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cacheenv.errors import InputError
from cacheenv.workload.blocks import MAX_INT32
from cacheenv.workload.draws import log_normal, stream, whole_tokens
from cacheenv.workload.session_kernels import fill_sessions, write_answer_ids, write_block_ids
from cacheenv.workload.think import answer_seconds

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


def turn_gaps(
    normals: np.ndarray, output_tokens: np.ndarray, rate_rps: float, think_s: float, gap_requests: float, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Slots from each request to its session's next turn (int64, >= 1), and the think time before that turn (s).

    Args:
        normals: A standard normal for each request.
        output_tokens: Tokens of its answer.
        rate_rps: Slots a second.
        think_s: Mean of the think times, log-normal, s.
        gap_requests: Median of the slots, log-normal; 0 where the think times say it.
        sigma: Of the log-normal.
    """
    answer_s = answer_seconds(output_tokens)
    if gap_requests > 0:
        gaps = whole_tokens(1.0 + log_normal(normals, gap_requests, sigma), 1, 10**9)
        return gaps, np.maximum(0.0, gaps / rate_rps - answer_s)
    think = log_normal(normals, think_s * np.exp(-(sigma**2) / 2.0), sigma)
    return whole_tokens(1.0 + rate_rps * (think + answer_s), 1, 10**9), think


def think_column(sessions: Sessions, think_s: np.ndarray) -> np.ndarray:
    """Think time before each request, from those behind each request; 0 where a session begins."""
    return np.where(sessions.parent >= 0, think_s[sessions.parent], 0.0)


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


def old_stream(generator: np.random.Generator, gap_requests: float) -> np.random.Generator:
    """The stream of what began before the start, so that what comes later does not depend on how much that is."""
    return generator if gap_requests > 0 else stream(int(generator.integers(2**62)))


def old_due_slots(
    generator: np.random.Generator, goes_on: float, gap_requests: float, sigma: float, gaps: np.ndarray
) -> np.ndarray:
    """Slots in which the sessions fall due that are between two turns when the workload starts.

    Args:
        generator: The stream.
        goes_on: Probability that a session goes on after a request.
        gap_requests: Median of the slots between two turns where that is given, else 0.
        sigma: Its log-normal sigma.
        gaps: Slots between two turns, a sample with one entry a slot of the workload.

    With a median given, Little's law says how many they are, `goes_on * mean gap`; a gap that is under way is
    size-biased (log-normal again, its median times exp(sigma^2)) and what is left of it uniform. Else slot s has one
    with probability `goes_on * P(gap > s)`, which comes to the same.
    """
    if gap_requests <= 0:
        longer = 1.0 - np.searchsorted(np.sort(gaps), np.arange(len(gaps)), side="right") / len(gaps)
        return np.flatnonzero(generator.random(len(gaps)) < goes_on * longer)
    mean_gap = 1.0 + gap_requests * np.exp(sigma**2 / 2.0)
    count = round(goes_on * mean_gap)
    under_way = 1.0 + gap_requests * np.exp(sigma**2 + sigma * generator.standard_normal(count))
    return (under_way * generator.random(count)).astype(np.int64)
