"""Views made by hand: every number that a policy may read is set here or in the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cacheenv.policy import DECISION_ROUTE, Policy, View, split_move, split_route
from cacheenv.testing import empty_view, random_stream

RESERVE_TOKENS = 512


def _build(num_prefill: int = 2, num_decode: int = 2, candidates: int = 4, running: int = 32, **request: Any) -> View:
    """An idle cluster: no SLO, prompts of 1000 tokens, round physics, nothing cached."""
    view = empty_view(num_prefill, num_decode, candidates, running)
    cluster = view.cluster[0]
    cluster.decision, cluster.proposed = DECISION_ROUTE, 0
    cluster.mean_output_tokens = 2000.0
    cluster.page_tokens, cluster.allow_reject = 100, 1
    for name in ("slo_ttft_s", "slo_tpot_s", "slo_tbt_tail_s", "slo_e2e_s"):
        cluster[name] = np.inf
    settings = {"prompt_tokens": 1000, "best_holder": -1, "memory_instance": -1, **request}
    for name, value in settings.items():
        view.request[0][name] = value
    for row in view.prefill:
        row.prefill_s, row.prefill_pull_s = 1.0, 1.0
    for row in view.decode:
        row.capacity_tokens, row.max_batch, row.room_tokens = 100_000, 64, 99_000
        row.can_send, row.can_receive = 1, 1
        row.reserve_tokens = RESERVE_TOKENS
        row.decode_d_s, row.decode_e_s, row.decode_f_s = 0.02, 0.001, 1e-6
        row.step_s, row.step_after_s = 0.02, 0.022
    return view


def _fill(table: np.recarray, **columns: Any) -> None:
    """Sets columns of a table, one value a row (or one for all)."""
    for name, values in columns.items():
        table[name] = values


def _add_running(view: View, rows: list[Mapping[str, float]]) -> None:
    """Running requests, each also a candidate of its instance (remaining tokens 5000 unless given)."""
    slots = view.cluster[0].num_candidates
    for number, given in enumerate(rows):
        values = {"predicted_remaining_tokens": 5000.0, **given}
        instance = int(values["instance"])
        view.running[number].request = number
        for name, value in values.items():
            if name in view.running.dtype.names:
                view.running[number][name] = value
        used = int(view.candidate.valid[instance * slots : (instance + 1) * slots].sum())
        if used < slots and not values.get("migrating", 0):
            slot = view.candidate[instance * slots + used]
            slot.valid, slot.request = 1, number
            slot.migrate_s, slot.since_move_s = 0.1, np.inf
            for name, value in values.items():
                if name in view.candidate.dtype.names:
                    slot[name] = value
        view.decode[instance].running_requests += 1
        view.decode[instance].kv_tokens += int(values["kv_tokens"])
    view.cluster[0].num_running = len(rows)


class Decider:
    """One policy with its own stream and state; answers as (prefill, decode, pull) or (candidate row, decode)."""

    def __init__(self, policy: Policy, seed: int = 0) -> None:
        self.policy = policy
        self.rng = random_stream(seed)
        self.state = policy.parameter_array()

    def act(self, view: View) -> int:
        return int(self.policy.function(view, self.rng, self.state))

    def route(self, view: View) -> tuple[int, int, int] | str:
        prefill, decode, pull = split_route(view, self.act(view))
        return "reject" if prefill < 0 else (prefill, decode, pull)

    def move(self, view: View) -> tuple[int, int] | str:
        row, decode = split_move(view, self.act(view))
        return "stay" if row < 0 else (row, decode)


@pytest.fixture
def build():
    return _build


@pytest.fixture
def fill():
    return _fill


@pytest.fixture
def add_running():
    return _add_running


@pytest.fixture
def decider():
    from cacheenv_baselines import make

    def create(name: str, seed: int = 0, **params: float) -> Decider:
        made = make(name, **params)
        return Decider(made if isinstance(made, Policy) else made.admission, seed)

    return create
