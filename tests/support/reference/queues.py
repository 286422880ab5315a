"""In which order the prompts of a queue are batched, by the name of the discipline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .live import LiveRequest
    from .prefill import PrefillInstance

Draw = Callable[[int, int, int], int]  # (instance, round, place) -> a random number


def put_in_order(instance: PrefillInstance) -> None:
    """Orders the queue of an instance that is about to form a batch."""
    cluster = instance.cluster
    instance.rounds += 1
    if cluster.queue in ("lpm", "lpm_aged") and len(instance.queue) <= cluster.lpm_fallback:
        by_match(instance)
    elif cluster.queue == "dfs_weight":
        paths = {live.index: matched_path(instance, live) for live in instance.queue}
        instance.queue = depth_first(instance, instance.queue, paths, 0)
    elif cluster.queue == "random":
        shuffle(instance)
    for live in instance.queue:
        live.rounds += 1


def matched_path(instance: PrefillInstance, live: LiveRequest) -> tuple[int, ...]:
    """Looks a waiting prompt up, which touches what is found."""
    path = live.blocks[: instance.cache.match(live.blocks, live.matchable)]
    if instance.cluster.protect_queued:
        instance.hold(live, path)
    return path


def by_match(instance: PrefillInstance) -> None:
    """Longest match first; of requests that share an uncached beginning all but the first count as less than none.

    With ageing each round of waiting makes up for some tokens.
    """
    cluster = instance.cluster
    check_page = cluster.pages(cluster.lpm_defer_tokens) - 1
    ageing = cluster.lpm_ageing_tokens if cluster.queue == "lpm_aged" else 0
    beginnings: set[int] = set()
    keys: dict[int, int] = {}
    for live in instance.queue:
        match = len(matched_path(instance, live)) * cluster.page_tokens
        keys[live.index] = match + ageing * live.rounds
        if match <= cluster.lpm_check_tokens and 0 <= check_page < len(live.blocks):
            if live.blocks[check_page] in beginnings:
                keys[live.index] = -1 + ageing * live.rounds
            else:
                beginnings.add(live.blocks[check_page])
    instance.queue.sort(key=lambda live: -keys[live.index])


def depth_first(
    instance: PrefillInstance, waiting: list[LiveRequest], paths: dict[int, tuple[int, ...]], depth: int
) -> list[LiveRequest]:
    """Those of `waiting`, which share the first `depth` pages of their matches: branch after branch, then the rest."""
    branches: dict[int, list[LiveRequest]] = {}
    ending: list[LiveRequest] = []
    for live in waiting:
        path = paths[live.index]
        if len(path) == depth:
            ending.append(live)
        else:
            branches.setdefault(path[depth], []).append(live)
    pages = instance.cache.pages
    order = sorted(branches, key=lambda block: (-len(branches[block]), pages[block].inserted))
    below = [live for block in order for live in depth_first(instance, branches[block], paths, depth + 1)]
    return below + ending


def shuffle(instance: PrefillInstance) -> None:
    """Fisher and Yates's shuffle, from the last place to the second."""
    assert instance.draw is not None
    queue = instance.queue
    for place in reversed(range(1, len(queue))):
        other = instance.draw(instance.index, instance.rounds, place) % (place + 1)
        queue[place], queue[other] = queue[other], queue[place]
