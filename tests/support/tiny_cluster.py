"""Tiny clusters with round coefficients, scripted decisions, and a look inside at every decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cacheenv.physics import load_preset
from cacheenv.policy import DECISION_ROUTE, View, as_bundle
from cacheenv.run.simulate import (
    Result,
    apply_requirements,
    collect,
    complete_bundle,
    drive,
    drive_and_sample,
)
from cacheenv.run.worlds import Worlds
from cacheenv.scenario import Scenario, load_scenario
from cacheenv.scenario.resolve import resolve
from cacheenv.workload import Workload

#: Prefill 1 ms a token, decode steps 10 ms, 1 MB of KV a token; nothing else takes time.
ROUND = {
    "prefill_a_s": 0.0,
    "prefill_b_s": 1e-3,
    "prefill_c_s": 0.0,
    "min_prefill_s": 0.0,
    "n_tile": 0,
    "decode_d_s": 0.01,
    "decode_e_s": 0.0,
    "decode_f_s": 0.0,
    "kv_bytes_per_token": 1_000_000,
    "kv_copies": 1,
}
#: One instance of each kind, token-level pages, everything large, transfers at once and without overlap.
ROOMY = {
    "cluster.page_tokens": 1,
    "cluster.prefill.count": 1,
    "cluster.prefill.cache_tokens": 1_000_000,
    "cluster.prefill.batch_tokens": 1_000_000,
    "cluster.prefill.chunk_tokens": 0,
    "cluster.decode.count": 1,
    "cluster.decode.kv_tokens": 1_000_000,
    "cluster.decode.reserve_tokens": 1,
    "cluster.network.nic_gbytes_per_s": 1e15,
    "cluster.network.setup_s": 0.0,
    "cluster.network.handover": "blocking",
    "prediction.kind": "oracle",
    "slo.ttft_s": None,
    "slo.tbt_tail_s": None,
}


def tiny(**settings: Any) -> Scenario:
    """A scenario: :data:`ROOMY` with changes, `prefill__count=2` for `cluster.prefill.count`."""
    sections = "prefill decode network store index page_tokens response_overhead_s first_token instances".split()
    changes = {}
    for name, value in settings.items():
        key = name.replace("__", ".")
        changes[f"cluster.{key}" if key.split(".")[0] in sections else key] = value
    if "instances" in settings:  # they have counts of their own
        roomy = {key: value for key, value in ROOMY.items() if not key.endswith(".count")}
        return load_scenario({}, {**roomy, **changes})
    return load_scenario({}, {**ROOMY, **changes})


def requests(
    rows: Sequence[tuple[float, Sequence[int] | int, Sequence[int] | int]], page_tokens: int = 1, **columns: Any
) -> Workload:
    """A workload from rows (arrival_s, prompt, output).

    A prompt is a sequence of tokens, or a number of tokens that no other prompt shares. An output is a number of
    tokens, or the sequence of them, which makes their ids known to the caches. `columns` are further arguments of
    `Workload.from_arrays`.
    """
    ids: dict[Any, int] = {}
    blocks, lengths, outputs, answers = [], [], [], []
    for number, (_, prompt, output) in enumerate(rows):
        tokens = [("unique", number, at) for at in range(prompt)] if isinstance(prompt, int) else list(prompt)
        chain, before = [], -1
        for start in range(0, len(tokens), page_tokens):
            before = ids.setdefault((before, tuple(tokens[start : start + page_tokens])), len(ids))
            chain.append(before)
        blocks.append(chain)
        lengths.append(len(tokens))
        answer = [] if isinstance(output, int) else list(output)
        outputs.append(output if isinstance(output, int) else len(answer))
        full = len(tokens) // page_tokens
        known, before = [*tokens, *answer], chain[full - 1] if full else -1
        chain = []
        for start in range(full * page_tokens, len(known) - page_tokens + 1 if answer else 0, page_tokens):
            before = ids.setdefault((before, tuple(known[start : start + page_tokens])), len(ids))
            chain.append(before)
        answers.append(chain)
    return Workload.from_arrays(
        [row[0] for row in rows],
        lengths,
        outputs,
        blocks,
        page_tokens=page_tokens,
        answers=answers,
        **columns,
    )


class Script:
    """Routes as told: pairs (prefill, decode) or triples with pull, "reject", or a function of the view.

    The last entry repeats. `moves` maps the number of a tick's decision to (request, decode instance), or is a function
    `view, mask -> action`; what is not listed is "stay". `watch(view)` is called at each decision.
    """

    def __init__(
        self, routes: Sequence[Any] = ((0, 0),), moves: Any = None, watch: Callable[[View], None] | None = None
    ) -> None:
        self.routes, self.moves, self.watch = list(routes), moves, watch
        self.migrates = moves is not None
        self.routed = self.moved = 0

    def act(self, view: View, mask: np.ndarray) -> int:
        if self.watch is not None:
            self.watch(view)
        decodes = int(view.cluster[0].num_decode)
        if view.cluster[0].decision != DECISION_ROUTE:
            return self._move(view, mask, decodes)
        choice = self.routes[min(self.routed, len(self.routes) - 1)]
        self.routed += 1
        if callable(choice):
            choice = choice(view)
        if choice == "reject":
            return len(mask) - 1
        prefill, decode, *pull = choice
        action = (prefill * decodes + decode) * 2 + int(bool(pull and pull[0]))
        assert mask[action], f"decision {self.routed - 1}: {choice} is masked"
        return action

    def _move(self, view: View, mask: np.ndarray, decodes: int) -> int:
        number, self.moved = self.moved, self.moved + 1
        if callable(self.moves):
            return int(self.moves(view, mask))
        if number not in self.moves:
            return len(mask) - 1
        request, decode = self.moves[number]
        row = next(row for row, entry in enumerate(view.candidate) if entry.valid and entry.request == request)
        assert mask[row * decodes + decode], f"move {number} of request {request} to {decode} is masked"
        return row * decodes + decode


@dataclass
class Run:
    """A finished run: its result, and the tables as they stand at its end."""

    result: Result
    worlds: Worlds

    @property
    def world(self) -> Any:
        return self.worlds.world(0)

    @property
    def rows(self) -> np.recarray:
        return self.result.requests


def run(
    scenario: Scenario,
    workload: Workload,
    policy: Any = None,
    *,
    seed: int = 0,
    watch: Callable[[Worlds], None] | None = None,
    timeline_s: float | None = None,
    prefill: Sequence[dict[str, Any]] = (),
    decode: Sequence[dict[str, Any]] = (),
    **coefficients: Any,
) -> Run:
    """Runs a workload; :data:`ROUND` with `coefficients` changed stands for the preset.

    Args:
        scenario: From :func:`tiny`.
        workload: From :func:`requests`.
        policy: Name, policy or :class:`Script`; default: everything to the first pair.
        seed: Seed of the run.
        watch: Called with the worlds at each decision (of a script only) and at the end.
        timeline_s: Seconds between the moments of the result's timeline.
        prefill: Fields of the preset of each prefill instance that differ from it; none where all are equal.
        decode: The same of each decode instance.
        coefficients: Fields of the preset.
    """
    bundle = complete_bundle(as_bundle(Script() if policy is None else policy), scenario)
    scenario = apply_requirements(scenario, bundle)
    migrates = bundle.rescheduler is not None or bool(getattr(bundle.actor, "migrates", False))
    preset = replace(load_preset(scenario.cluster.prefill.preset), **{**ROUND, **coefficients})
    spec = resolve(
        scenario,
        prefill=[replace(preset, **own) for own in prefill] or preset,
        decode=[replace(preset, **own) for own in decode] or preset,
    )
    worlds = Worlds(scenario, bundle=bundle, ticks=migrates, spec=spec)
    worlds.reset(0, seed, workload)
    if watch is not None:
        earlier = bundle.actor.watch

        def look(view: View) -> None:
            watch(worlds)
            if earlier is not None:
                earlier(view)

        bundle.actor.watch = look
    timeline = None
    if timeline_s is None:
        drive(worlds, 0, bundle)
    else:
        timeline = drive_and_sample(worlds, 0, bundle, timeline_s)
    if watch is not None:
        watch(worlds)
    return Run(replace(collect(worlds, 0, bundle.name, seed), timeline=timeline), worlds)
