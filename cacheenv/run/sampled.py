"""A future that the workload's model draws: what a planner may believe that knows the model, and no more than a router.

The model is another episode of the scenario's generator, drawn once. From a decision on, its requests come at the
times at which they stand there. Their pages are new to the caches, except where the model says that a prompt begins
like others: a later turn continues a session of the world (one that waits for its user, as far along as it can be
found), and a first turn that shares its first pages with other sessions shares those of a session of the world. So a
sampled request may hit what is cached now. It comes whatever happens to others (an open loop).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cacheenv.run.futures import Future, forget
from cacheenv.sim.state.allocate import start_of
from cacheenv.sim.state.codes import COMPLETED
from cacheenv.sim.state.world import World
from cacheenv.workload import Workload

#: First turns of the world that are looked at for what sessions share.
RECENT_FIRST_TURNS = 200
#: Tables with a row for each request, each page of a prompt, each distinct page; the others have no such row.
BY_REQUEST, BY_ENTRY = ("workload", "request", "coming", "queue_order"), ("blocks", "carrier_next", "carrier_before")
#: Tables with offsets in `blocks`, and the column in which they stand.
BLOCK_OFFSETS = {"node": "start", "news": "start", "shard_event": "at"}
BY_PAGE = ("holders", "stored_on", "remembered", "first_sent", "first_carrier")


class Model:
    """An episode that the generator has drawn, and what has to be known of it."""

    def __init__(self, workload: Workload) -> None:
        self.requests = workload.requests
        self.arrival_s = np.ascontiguousarray(self.requests["arrival_s"])
        count = len(self.requests)
        following = self.requests["next_turn"]
        self.before = np.full(count, -1)
        self.before[following[following >= 0]] = np.flatnonzero(following >= 0)
        firsts = np.flatnonzero(self.requests["turn"] == 0)
        self.shared = np.zeros(count, np.int64)
        self.shared[firsts] = shared_pages(self.requests[firsts], workload.blocks, workload.page_tokens)


def shared_pages(rows: np.ndarray, blocks: np.ndarray, page_tokens: int) -> np.ndarray:
    """Leading full pages of each prompt that another one of the rows has too: int64 (rows,)."""
    counts = rows["prompt_tokens"] // page_tokens
    prompts = [blocks[start : start + count] for start, count in zip(rows["block_start"], counts, strict=True)]
    if not prompts:
        return np.zeros(0, np.int64)
    pages, uses = np.unique(np.concatenate(prompts), return_counts=True)
    common = pages[uses > 1]
    return np.array([int(np.isin(prompt, common).sum()) for prompt in prompts], np.int64)


class SampledFuture(Future):
    """The requests of a model that come within a time from now, continued from what a world has.

    Args:
        source: The world, which stands at a decision.
        model: Where they come from.
        horizon_s: Seconds from now.
        draws: Which session continues.
    """

    kind = "sampled"

    def __init__(self, source: World, model: Model, horizon_s: float, draws: np.random.Generator) -> None:
        self._page = int(source.config[0].page_tokens)
        self._requests, self._pages = int(source.config[0].num_requests), len(source.holders)
        self._entries = len(source.blocks)
        self._prompt_entries = int(source.workload[0].answer_start)  # prompts follow one another, then all answers do
        now_s = float(source.state[0].now_s)
        first, last = np.searchsorted(model.arrival_s, [now_s, now_s + horizon_s], side="right")
        self._rows = model.requests[first:last].copy()
        self._new_pages = self._new_entries = 0
        self._blocks: list[np.ndarray] = []
        waiting, firsts, shared = _sessions(source, self._page)
        for place, row in enumerate(self._rows):
            prefix, known_tokens = np.zeros(0, np.int32), 0
            own = int(first) + place
            if row["turn"] > 0 and waiting:
                turn = int(row["turn"]) - 1
                at = int(draws.integers(len(waiting.get(turn, ())) or len(waiting[max(waiting)])))
                turn = turn if turn in waiting else max(waiting)
                prefix, known_tokens = self._history(source, waiting[turn].pop(at))
                if not waiting[turn]:
                    del waiting[turn]
                before = model.requests[model.before[own]] if model.before[own] >= 0 else None
                added = int(row["prompt_tokens"]) - (
                    int(before["prompt_tokens"] + before["output_tokens"]) if before is not None else 0
                )
                row["prompt_tokens"] = known_tokens + max(1, added)
            elif model.shared[own] > 0 and len(firsts):
                at = int(draws.integers(len(firsts)))
                start, count = int(source.workload[firsts[at]].block_start), int(shared[at])
                prefix = source.blocks[start : start + min(count, int(row["prompt_tokens"]) // self._page)]
            self._add(row, prefix)
        self._rows["turn"], self._rows["next_turn"], self._rows["answer_pages"] = 0, -1, 0

    def _history(self, source: World, index: int) -> tuple[np.ndarray, int]:
        """Pages and tokens of a session up to the end of its answer."""
        load = source.workload[index]
        full = int(load.prompt_tokens) // self._page
        prompt = source.blocks[load.block_start : load.block_start + full]
        answer = source.blocks[load.answer_start : load.answer_start + load.answer_pages]
        return np.concatenate([prompt, answer]), int(load.prompt_tokens + load.output_tokens)

    def _add(self, row: Any, prefix: np.ndarray) -> None:
        """Gives a request its pages: a known prefix, and new ones behind it."""
        pages = -(-int(row["prompt_tokens"]) // self._page)
        prefix = prefix[:pages]
        new = pages - len(prefix)
        fresh = np.arange(self._pages + self._new_pages, self._pages + self._new_pages + new, dtype=np.int32)
        row["block_start"] = self._prompt_entries + self._new_entries
        self._blocks += [prefix, fresh]
        self._new_pages += new
        self._new_entries += pages

    # -- in a copy -----------------------------------------------------------------------------------------------

    def room(self, source: World) -> dict[str, Any]:
        """Longer tables, with twice the room that this future takes: that of its pages is before all answers."""
        more = {name: 2 * len(self._rows) + 16 for name in BY_REQUEST}
        more |= {name: 2 * self._new_entries + 64 for name in BY_ENTRY}
        more |= {name: 2 * self._new_pages + 64 for name in BY_PAGE}
        room: dict[str, Any] = {}
        for name, rows in more.items():
            table = getattr(source, name)
            whole = len(table) > 1 or name in ("workload", "blocks", "request")  # 1 where the mechanism is off
            longer = np.zeros((1, len(table) + rows * whole, *table.shape[1:]), table.dtype)
            longer[0, : len(table)] = table
            room[name] = longer
        at, gap = self._prompt_entries, more["blocks"]
        room["blocks"][0, at + gap :] = source.blocks[at:]
        room["workload"]["answer_start"] += gap
        return room

    def fits(self, world: World) -> bool:
        """Whether it has room for the requests and their pages."""
        return (
            len(world.request) >= self._requests + len(self._rows)
            and len(world.blocks) >= self._entries + self._new_entries
            and len(world.holders) >= self._pages + self._new_pages
        )

    def enter(self, world: World, handles: Any) -> None:
        """Forgets what will come and what is not known, and lets the sampled requests come."""
        first, count = self._requests, len(self._rows)
        for name in BY_PAGE:
            getattr(world, name)[self._pages : self._pages + self._new_pages] = start_of(name)
        world.request[first:] = start_of("request")
        world.workload[first : first + count] = self._rows
        world.workload["answer_start"][first : first + count] = len(world.blocks)
        at, gap = self._prompt_entries, len(world.blocks) - self._entries
        if self._blocks:
            world.blocks[at : at + self._new_entries] = np.concatenate(self._blocks)
        for name, column in BLOCK_OFFSETS.items():  # what they hold of answers has made room for the new prompts
            offsets = getattr(world, name)[column]
            offsets[offsets >= at] += gap
        world.config[0].num_requests = first + count
        forget(world, handles, first)


def _sessions(source: World, page_tokens: int) -> tuple[dict[int, list[int]], np.ndarray, np.ndarray]:
    """What a router has seen of the sessions of a world.

    Returns:
        Those whose last turn is answered: turn -> its rows; the last first turns that share pages with others; how
        many pages each of them shares.
    """
    count = int(source.config[0].num_requests)
    request, load = source.request[:count], source.workload[:count]
    arrived = np.flatnonzero(request["arrival_s"] >= 0.0)
    order = arrived[np.lexsort((load["turn"][arrived], load["session"][arrived]))]
    sessions = load["session"][order]
    last = order[np.append(sessions[1:] != sessions[:-1], True)] if len(order) else order
    answered = last[(request["outcome"][last] == COMPLETED) & (load["session"][last] >= 0)]
    waiting: dict[int, list[int]] = {}
    for index in answered:
        waiting.setdefault(int(load["turn"][index]), []).append(int(index))
    firsts = arrived[load["turn"][arrived] == 0][-RECENT_FIRST_TURNS:]
    shared = shared_pages(load[firsts], source.blocks, page_tokens)
    return waiting, firsts[shared > 0], shared[shared > 0]
