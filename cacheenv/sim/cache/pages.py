"""Pages of prompts: how many tokens fill, and how many a cache may serve."""

from __future__ import annotations

from cacheenv.sim.core.jit import inner


@inner
def pages_of(w, tokens):
    """Pages that `tokens` tokens occupy, the last one perhaps in part."""
    page = w.config[0].page_tokens
    return (tokens + page - 1) // page


@inner
def full_pages(w, index):
    """Full pages of a request's prompt: those that can be cached."""
    return w.workload[index].prompt_tokens // w.config[0].page_tokens


@inner
def reusable_pages(w, index):
    """Full pages of a request's prompt that a cache may serve: at least one token is always computed."""
    return (w.workload[index].prompt_tokens - 1) // w.config[0].page_tokens
