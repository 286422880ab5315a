"""Coding agents: long shared contexts (repositories), warm and cold sessions, several turns, short answers.

After Together's cache-aware disaggregation benchmark (contexts of about 100K tokens, mixed warm and cold requests) and
its later coding-agent figures (prompts from 45K to 200K tokens, about 450 output tokens). The warm share, the number
of turns, the length of a tool result and the time that a tool takes (`think_s`) were not published; they are
assumptions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from cacheenv.errors import InputError
from cacheenv.workload.draws import (
    POPULATION,
    POPULATION_SEED,
    arrival_times,
    log_normal,
    stream,
    whole_tokens,
    zipf,
)
from cacheenv.workload.lengths import mean_residual_tokens
from cacheenv.workload.params import check_fields, real, whole
from cacheenv.workload.sessions import (
    NO_TEMPLATE,
    SessionDraws,
    link_sessions,
    number_answers,
    number_blocks,
    old_due_slots,
    old_stream,
    think_column,
    turn_gaps,
)
from cacheenv.workload.workload import Workload, assemble


@dataclass(frozen=True)
class CodingAgentParams:
    """Parameters of the coding-agent generator.

    Attributes:
        repositories: Number of shared contexts.
        repository_zipf: Zipf exponent of their popularity.
        warm_share: Share of sessions that start from one of them; the others (cold) have a context of their own.
        context_median_tokens: Median length of a context, tokens.
        context_sigma: Its log-normal sigma.
        context_min_tokens: Shortest context, tokens.
        context_max_tokens: Longest context, tokens.
        task_median_tokens: Median of a session's first text behind the context, tokens.
        result_median_tokens: Median of what each later turn adds (tool results), tokens.
        text_sigma: Log-normal sigma of both.
        continue_probability: Probability that a session goes on after a request.
        think_s: Mean time from the last token of a turn to the session's next turn, s; log-normal.
        turn_gap_requests: Median number of requests until the next turn, in place of `think_s` (0: not given).
        turn_gap_sigma: Log-normal sigma of the think time, or of that number.
        output_mean_tokens: Mean answer length, tokens.
        output_sigma: Its log-normal sigma.
        output_max_tokens: Longest answer, tokens.
        max_prompt_tokens: Longest prompt, tokens; a session ends before it.
        gap_cv: Standard deviation over mean of the gaps between arrivals (1: Poisson).
    """

    repositories: int = whole(8, 1, 100_000)
    repository_zipf: float = real(0.8, 0.0, 10.0)
    warm_share: float = real(0.6, 0.0, 1.0)
    context_median_tokens: float = real(95_000.0, 1.0, 1e7)
    context_sigma: float = real(0.3, 0.0, 3.0)
    context_min_tokens: int = whole(45_000, 1, 10**7)
    context_max_tokens: int = whole(180_000, 1, 10**7)
    task_median_tokens: float = real(600.0, 1.0, 1e6)
    result_median_tokens: float = real(1200.0, 1.0, 1e6)
    text_sigma: float = real(1.0, 0.0, 3.0)
    continue_probability: float = real(0.7, 0.0, 0.95)
    think_s: float = real(5.0, 0.0, 1e6)
    turn_gap_requests: float = real(0.0, 0.0, 1e6)
    turn_gap_sigma: float = real(0.8, 0.0, 3.0)
    output_mean_tokens: float = real(450.0, 1.0, 1e5)
    output_sigma: float = real(0.9, 0.0, 3.0)
    output_max_tokens: int = whole(8192, 1, 10**7)
    max_prompt_tokens: int = whole(200_000, 16, 10**7)
    gap_cv: float = real(1.0, 0.05, 20.0)

    def __post_init__(self) -> None:
        check_fields(self)
        ends = (self.context_min_tokens, self.context_max_tokens, self.max_prompt_tokens)
        if sorted(ends) != list(ends) or ends[1] == ends[2]:
            raise InputError(f"context_min_tokens: expected context min <= context max < prompt max, got {ends}")


def _answers(normals: np.ndarray, params: CodingAgentParams) -> np.ndarray:
    median = params.output_mean_tokens / np.exp(params.output_sigma**2 / 2.0)
    return whole_tokens(log_normal(normals, median, params.output_sigma), 1, params.output_max_tokens)


def _contexts(normals: np.ndarray, params: CodingAgentParams) -> np.ndarray:
    tokens = log_normal(normals, params.context_median_tokens, params.context_sigma)
    return whole_tokens(tokens, params.context_min_tokens, params.context_max_tokens)


def _draw(
    generator: np.random.Generator, requests: int, rate_rps: float, params: CodingAgentParams, in_progress: bool
) -> tuple[SessionDraws, np.ndarray]:
    """What the sessions are made of, and the think time behind each request, s."""
    which, warm, go_on = generator.random((3, requests))
    text, gap, answer, own = generator.standard_normal((4, requests))
    repository_tokens = _contexts(generator.standard_normal(params.repositories), params)
    repository = zipf(which, params.repositories, params.repository_zipf)
    is_warm = warm < params.warm_share
    context = np.where(is_warm, repository_tokens[repository], _contexts(own, params))
    answers = _answers(answer, params)
    gaps, think_s = turn_gaps(gap, answers, rate_rps, params.think_s, params.turn_gap_requests, params.turn_gap_sigma)
    longest = params.max_prompt_tokens
    old_due = old_held = old_template = np.empty(0, dtype=np.int64)
    if in_progress:
        started = old_stream(generator, params.turn_gap_requests)
        old_due = old_due_slots(
            started, params.continue_probability, params.turn_gap_requests, params.turn_gap_sigma, gaps
        )
        olds = len(old_due)
        beyond = _beyond_context(params)
        rank = zipf(started.random(olds), params.repositories, params.repository_zipf)
        old_warm = started.random(olds) < params.warm_share
        old_context = np.where(old_warm, repository_tokens[rank], _contexts(started.standard_normal(olds), params))
        old_held = old_context + beyond[(started.random(olds) * len(beyond)).astype(np.int64)]
        old_template = np.where(old_warm, rank, NO_TEMPLATE)
    draws = SessionDraws(
        np.minimum(context + whole_tokens(log_normal(text, params.task_median_tokens, params.text_sigma), 1, longest),
                   longest),
        whole_tokens(log_normal(text, params.result_median_tokens, params.text_sigma), 1, longest),
        answers,
        np.where(is_warm, repository, NO_TEMPLATE),
        go_on < params.continue_probability,
        gaps,
        repository_tokens,
        old_due,
        old_held,
        old_template,
        longest,
    )  # fmt: skip
    return draws, think_s


@functools.lru_cache(maxsize=64)
def _beyond_context(params: CodingAgentParams) -> np.ndarray:
    """Tokens behind the context that running sessions hold: a long run with contexts of no length."""
    draws, _ = _draw(stream(POPULATION_SEED), 12_000, 1.0, params, in_progress=False)
    nothing = np.zeros_like(draws.template_tokens)
    task = whole_tokens(draws.follow_tokens * (params.task_median_tokens / params.result_median_tokens), 1, 10**7)
    # The gaps do not matter for the mix of lengths, only for how long it takes to settle.
    draws = draws._replace(first_tokens=task, template_tokens=nothing, gap_requests=np.ones_like(draws.gap_requests))
    return (link_sessions(draws).prompt_tokens + draws.output_tokens)[2_000:]


@functools.lru_cache(maxsize=64)
def _residual(params: CodingAgentParams) -> np.ndarray:
    return mean_residual_tokens(_answers(stream(POPULATION_SEED).standard_normal(POPULATION), params))


def generate(
    seed: int | np.random.SeedSequence, requests: int, rate_rps: float, page_tokens: int, params: CodingAgentParams
) -> Workload:
    """A coding-agent workload.

    Args:
        seed: Same seed, same workload, in any process.
        requests: Number of requests.
        rate_rps: Mean arrival rate where nobody is slowed down, requests/s, first and later turns together; with
            another rate the slots come at scaled times.
        page_tokens: Tokens of a page.
        params: Parameters.
    """
    generator = stream(seed)
    draws, think_s = _draw(generator, requests, rate_rps, params, in_progress=True)
    sessions = link_sessions(draws)
    blocks, different = number_blocks(sessions, draws.template_tokens, page_tokens)
    blocks, answer_pages, different = number_answers(sessions, draws.output_tokens, page_tokens, blocks, different)
    columns = {
        "arrival_s": arrival_times(generator, requests, rate_rps, params.gap_cv),
        "prompt_tokens": sessions.prompt_tokens,
        "output_tokens": draws.output_tokens,
        "session": sessions.session,
        "answer_pages": answer_pages,
        "think_s": think_column(sessions, think_s),
    }
    return assemble(columns, blocks, page_tokens, different, "coding_agent", _residual(params), "closed")
