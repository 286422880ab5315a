"""Chat: sessions of several turns behind a few popular system prompts, with the lengths of an hour of Kimi.

The defaults are fitted to Mooncake's conversation trace (FAST'25): texts as mixtures of two log-normals, answers by
their measured quantiles, Poisson arrivals. The trace's timestamps come in 3-second bursts; `burst_s: 3` does the same.

Two defaults are not the trace's. A session goes on with probability 0.43 (the trace: about 0.35-0.4; an hour cuts
sessions off at both ends) and its user thinks for 100 s on average before the next turn (the trace: a median of 430
other requests, at its rate 130 s, from turn to turn), so that an episode of 2,000 requests holds the turns that belong
together. What a cache without eviction could reuse is then 42 %
of the prompt tokens over 12,031 requests (the trace: 37 %, published for it: 40 %), and 37 % over 2,000, of which those
that continue sessions from before the start are cold.
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
    stream,
    two_log_normals,
    whole_tokens,
    zipf,
)
from cacheenv.workload.lengths import mean_residual_tokens
from cacheenv.workload.params import check_fields, real, whole
from cacheenv.workload.sessions import (
    SessionDraws,
    Sessions,
    link_sessions,
    number_answers,
    number_blocks,
    old_due_slots,
    old_stream,
    think_column,
    turn_gaps,
)
from cacheenv.workload.workload import Workload, assemble

#: Measured quantiles of the answer length in the conversation trace, tokens, and their mean.
ANSWER_LEVELS = np.array(
    [0.0, 0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0]
)
ANSWER_TOKENS = np.array(
    [1, 3, 10, 24, 100, 156.5, 213, 291, 350, 399, 447, 472, 504, 597, 698, 1118.5, 2000, 2000], dtype=np.float64
)
ANSWER_MEAN_TOKENS = 342.6


@dataclass(frozen=True)
class ChatParams:
    """Parameters of the chat generator.

    Attributes:
        system_prompts: Number of shared system prompts.
        system_zipf: Zipf exponent of their popularity.
        system_tokens: Length of each, tokens.
        namespaces: Equally popular namespaces (tenants); each has system prompts of its own.
        continue_probability: Probability that a session goes on after a request.
        think_s: Mean time from the last token of a turn to the session's next turn, s; log-normal.
        turn_gap_requests: Median number of requests until the next turn, in place of `think_s` (0: not given).
        turn_gap_sigma: Log-normal sigma of the think time, or of that number.
        first_short_share: Share of first texts that are short.
        first_short_median_tokens: Median of the short ones, tokens.
        first_short_sigma: Their log-normal sigma.
        first_long_median_tokens: Median of the long ones (documents), tokens.
        first_long_sigma: Their log-normal sigma.
        follow_short_share: Share of follow-up texts that are short.
        follow_short_median_tokens: Median of the short ones, tokens.
        follow_short_sigma: Their log-normal sigma.
        follow_long_median_tokens: Median of the long ones, tokens.
        follow_long_sigma: Their log-normal sigma.
        output_mean_tokens: Mean answer length, tokens; scales the measured distribution.
        max_prompt_tokens: Longest prompt, tokens; a session ends before it.
        gap_cv: Standard deviation over mean of the gaps between arrivals (1: Poisson).
        burst_s: Times of arrival are rounded down to multiples of this, s (0: not at all).
    """

    system_prompts: int = whole(4, 1, 10_000)
    system_zipf: float = real(1.2, 0.0, 10.0)
    system_tokens: int = whole(890, 0, 10**6)
    namespaces: int = whole(1, 1, 10_000)
    continue_probability: float = real(0.43, 0.0, 0.95)
    think_s: float = real(100.0, 0.0, 1e6)
    turn_gap_requests: float = real(0.0, 0.0, 1e6)
    turn_gap_sigma: float = real(0.9, 0.0, 3.0)
    first_short_share: float = real(0.28, 0.0, 1.0)
    first_short_median_tokens: float = real(50.0, 1.0, 1e6)
    first_short_sigma: float = real(1.7, 0.0, 4.0)
    first_long_median_tokens: float = real(8200.0, 1.0, 1e6)
    first_long_sigma: float = real(1.03, 0.0, 4.0)
    follow_short_share: float = real(0.72, 0.0, 1.0)
    follow_short_median_tokens: float = real(18.0, 1.0, 1e6)
    follow_short_sigma: float = real(1.2, 0.0, 4.0)
    follow_long_median_tokens: float = real(2500.0, 1.0, 1e6)
    follow_long_sigma: float = real(1.1, 0.0, 4.0)
    output_mean_tokens: float = real(ANSWER_MEAN_TOKENS, 1.0, 1e5)
    max_prompt_tokens: int = whole(126_000, 16, 10**7)
    gap_cv: float = real(1.0, 0.05, 20.0)
    burst_s: float = real(0.0, 0.0, 3600.0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.system_tokens >= self.max_prompt_tokens:
            raise InputError(f"system_tokens: expected less than max_prompt_tokens = {self.max_prompt_tokens}")


def _answers(uniforms: np.ndarray, params: ChatParams) -> np.ndarray:
    scale = params.output_mean_tokens / ANSWER_MEAN_TOKENS
    return np.maximum(1, np.interp(uniforms, ANSWER_LEVELS, ANSWER_TOKENS * scale).astype(np.int64))


def _draw(
    generator: np.random.Generator, requests: int, rate_rps: float, params: ChatParams, in_progress: bool
) -> tuple[SessionDraws, np.ndarray]:
    """What the sessions are made of, and the think time behind each request, s."""
    kind, which, answer, go_on, space = generator.random((5, requests))
    text, gap = generator.standard_normal((2, requests))
    first = params.system_tokens + two_log_normals(
        kind, text, params.first_short_share,
        (params.first_short_median_tokens, params.first_short_sigma),
        (params.first_long_median_tokens, params.first_long_sigma),
    )  # fmt: skip
    follow = two_log_normals(
        kind, text, params.follow_short_share,
        (params.follow_short_median_tokens, params.follow_short_sigma),
        (params.follow_long_median_tokens, params.follow_long_sigma),
    )  # fmt: skip
    answers = _answers(answer, params)
    gaps, think_s = turn_gaps(gap, answers, rate_rps, params.think_s, params.turn_gap_requests, params.turn_gap_sigma)
    longest = params.max_prompt_tokens
    old_due = old_context = old_template = np.empty(0, dtype=np.int64)
    if in_progress:
        started = old_stream(generator, params.turn_gap_requests)
        old_due = old_due_slots(
            started, params.continue_probability, params.turn_gap_requests, params.turn_gap_sigma, gaps
        )
        contexts = _contexts(params)
        olds = len(old_due)
        old_context = contexts[(started.random(olds) * len(contexts)).astype(np.int64)]
        old_template = _templates(started.random(olds), started.random(olds), params)
    draws = SessionDraws(
        whole_tokens(first, params.system_tokens + 1, longest),
        whole_tokens(follow, 1, longest),
        answers,
        _templates(which, space, params),
        go_on < params.continue_probability,
        gaps,
        np.full(params.system_prompts * params.namespaces, params.system_tokens, dtype=np.int64),
        old_due,
        old_context,
        old_template,
        longest,
    )
    return draws, think_s


def _templates(which: np.ndarray, space: np.ndarray, params: ChatParams) -> np.ndarray:
    ranks = zipf(which, params.system_prompts, params.system_zipf)
    return (space * params.namespaces).astype(np.int64) * params.system_prompts + ranks


@functools.lru_cache(maxsize=64)
def _contexts(params: ChatParams) -> np.ndarray:
    """Prompt and answer tokens of a long run of requests that can go on: what running sessions hold."""
    draws, _ = _draw(stream(POPULATION_SEED), 12_000, 1.0, params, in_progress=False)
    # The gaps do not matter for the mix of lengths, only for how long it takes to settle.
    draws = draws._replace(gap_requests=np.ones_like(draws.gap_requests))
    contexts = (link_sessions(draws).prompt_tokens + draws.output_tokens)[2_000:]
    kept = contexts[contexts < params.max_prompt_tokens]
    return kept if len(kept) else np.array([params.system_tokens + 1])


@functools.lru_cache(maxsize=64)
def _residual(params: ChatParams) -> np.ndarray:
    return mean_residual_tokens(_answers((np.arange(POPULATION) + 0.5) / POPULATION, params))


def generate(
    seed: int | np.random.SeedSequence, requests: int, rate_rps: float, page_tokens: int, params: ChatParams
) -> Workload:
    """A chat workload.

    Args:
        seed: Same seed, same workload, in any process.
        requests: Number of requests.
        rate_rps: Mean arrival rate where nobody is slowed down, requests/s, first and later turns together; with
            another rate the slots come at scaled times (before `burst_s` rounds them).
        page_tokens: Tokens of a page.
        params: Parameters.
    """
    generator = stream(seed)
    draws, think_s = _draw(generator, requests, rate_rps, params, in_progress=True)
    sessions: Sessions = link_sessions(draws)
    blocks, different = number_blocks(sessions, draws.template_tokens, page_tokens)
    blocks, answer_pages, different = number_answers(sessions, draws.output_tokens, page_tokens, blocks, different)
    arrival = arrival_times(generator, requests, rate_rps, params.gap_cv)
    if params.burst_s > 0:
        arrival = np.floor(arrival / params.burst_s) * params.burst_s
    columns = {
        "arrival_s": arrival,
        "prompt_tokens": sessions.prompt_tokens,
        "output_tokens": draws.output_tokens,
        "session": sessions.session,
        "answer_pages": answer_pages,
        "think_s": think_column(sessions, think_s),
        "namespace": sessions.template // params.system_prompts,
    }
    return assemble(columns, blocks, page_tokens, different, "chat", _residual(params), "closed")
