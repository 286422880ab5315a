"""Small worlds in which policies have gone wrong: odd clusters, odd prompts, too much load."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cacheenv.scenario import Scenario, load_scenario
from cacheenv.workload import Workload

REQUESTS = 60

#: The coefficients of a large model stand for those of a small one.
SLOW = {"preset": "llama2-70b_8xA800_mooncake", "model": "qwen2-7b", "layers": 28, "kv_bytes_per_token": 57344}

SMALL = {
    "cluster.page_tokens": 64,
    "cluster.prefill.count": 3,
    "cluster.prefill.preset": "r1-distill-qwen-7b_1xH800",
    "cluster.prefill.cache_tokens": 20_000,
    "cluster.decode.count": 2,
    "cluster.decode.preset": "r1-distill-qwen-7b_1xH800",
    "cluster.decode.kv_tokens": 20_000,
    "cluster.decode.max_batch": 16,
    "cluster.decode.reserve_tokens": 16,
    "cluster.network.link": "rdma_1x200g",
    "cluster.network.layers": 28,
    "reschedule.period_s": 0.5,
    "slo.ttft_s": 30.0,
    "slo.tbt_tail_s": 0.1,
    "horizon_s": 120.0,
}


@functools.cache
def chats(page_tokens: int, rate_rps: float = 20.0, outputs: tuple[int, int] = (1, 100)) -> Workload:
    """Twelve dialogues of growing prompts behind one system prompt of two pages, turns in random order."""
    draws = np.random.default_rng(7)
    dialogue = draws.integers(0, 12, REQUESTS)
    prompts, blocks, spoken = [], [], dict.fromkeys(range(12), 0)
    for owner in map(int, dialogue):
        spoken[owner] += int(draws.integers(40, 400))
        tokens = 2 * page_tokens + spoken[owner]
        prompts.append(tokens)
        own = [1_000 * (owner + 1) + page for page in range(-(-tokens // page_tokens) - 2)]
        blocks.append([0, 1, *own])
    return Workload.from_arrays(
        np.cumsum(draws.exponential(1.0 / rate_rps, REQUESTS)),
        prompts,
        draws.integers(*outputs, REQUESTS),
        blocks,
        page_tokens=page_tokens,
        session=dialogue,
        name="chats",
    )


@functools.cache
def one_prompt(page_tokens: int) -> Workload:
    """One prompt of four whole pages again and again: after the first, all of it but the last page is a hit."""
    return Workload.from_arrays(
        0.3 * np.arange(REQUESTS), [4 * page_tokens] * REQUESTS, [20] * REQUESTS,
        [[0, 1, 2, 3]] * REQUESTS, page_tokens=page_tokens, name="one prompt",
    )  # fmt: skip


@functools.cache
def short_prompts(page_tokens: int) -> Workload:
    """Prompts shorter than a page."""
    draws = np.random.default_rng(8)
    return Workload.from_arrays(
        np.cumsum(draws.exponential(0.05, REQUESTS)), draws.integers(1, max(2, page_tokens), REQUESTS),
        draws.integers(1, 40, REQUESTS), page_tokens=page_tokens, name="short prompts",
    )  # fmt: skip


def long_outputs(page_tokens: int) -> Workload:
    """Outputs up to 3000 tokens."""
    return chats(page_tokens, 10.0, (20, 3000))


def flood(page_tokens: int) -> Workload:
    """All requests within a quarter of a second."""
    return chats(page_tokens, 240.0)


@dataclass(frozen=True)
class World:
    """A cluster and its requests.

    Attributes:
        name: What is odd in it, for messages.
        changes: Overrides over :data:`SMALL`.
        requests: The workload for pages of so many tokens; None: the base's own.
        base: What the changes are made to.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    requests: Callable[[int], Workload] | None = chats
    base: Any = field(default_factory=dict)

    def scenario(self) -> Scenario:
        """Without what a policy requires."""
        return load_scenario(self.base, {**(SMALL if self.requests else {}), **self.changes})

    def workload(self, scenario: Scenario) -> Workload | None:
        """The requests, in pages of the scenario."""
        return self.requests(scenario.cluster.page_tokens) if self.requests else None


WORLDS = (
    World("a small cluster"),
    World("nothing to pull", {"cluster.network.peer_pulls": False}),
    World("rejecting is not allowed", {"admission.allow_reject": False}),
    World("one instance of each kind", {"cluster.prefill.count": 1, "cluster.decode.count": 1}),
    World("70 prefill instances", {"cluster.prefill.count": 70}),
    World(
        "pulls that vanish",
        {
            "cluster.index.delay_s": 0.5, "cluster.prefill.cache_tokens": 3_000, "cluster.store.capacity_tokens": 3_000,
            "cluster.network.nic_gbytes_per_s": 0.5,
        },
    ),
    World("prompts shorter than a page", {}, short_prompts),
    World("no SLO", {f"slo.{key}": None for key in ("ttft_s", "tpot_s", "tbt_tail_s", "e2e_s")}),
    World("hits of whole prompts", {}, one_prompt),
    World(
        "preempted requests",
        {
            "cluster.decode.count": 3, "cluster.decode.kv_tokens": 6_000, "cluster.decode.reserve_tokens": 1,
            "reschedule.period_s": 0.2,
        },
        long_outputs,
    ),
    World("long outputs", {"cluster.decode.count": 4, "cluster.decode.max_batch": 32}, long_outputs),
    World(
        "overload",
        {
            "cluster.prefill.preset": SLOW, "cluster.prefill.chunk_tokens": 256, "slo.ttft_s": 0.5,
        },
        flood,
    ),
)  # fmt: skip
