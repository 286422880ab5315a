"""One tick may start more migrations than the pool of flows has rows."""

import dataclasses
from typing import Any
from unittest import mock

import numpy as np
from engine_invariants import check_world
from tiny_cluster import Script, requests, run, tiny

from cacheenv.run.worlds import Worlds

INSTANCES = 40
FLOWS = 12


def test_the_pool_of_flows_grows_between_the_moves_of_a_tick() -> None:
    scenario = tiny(
        decode__count=INSTANCES, prefill__max_batch_requests=1, reschedule__candidates=1, horizon_s=1.5
    )  # fmt: skip
    sizes = Worlds._sizes
    under_way: list[int] = []

    def watch(worlds: Worlds) -> None:
        check_world(worlds)
        under_way.append(int(np.count_nonzero(worlds.world(0).flow["phase"])))

    def few_flows(worlds: Worlds, **needed: int) -> Any:
        return dataclasses.replace(sizes(worlds, **needed), flows=FLOWS)

    # At the tick at 1 s each instance decodes one request, and each sends it to another one.
    script = Script([(0, d) for d in range(INSTANCES)], lambda view, mask: int(np.flatnonzero(mask)[0]))
    with mock.patch.object(Worlds, "_sizes", few_flows):
        done = run(scenario, requests([(0.0, 10, 1000)] * INSTANCES), script, watch=watch)
    assert max(under_way) > 2 * FLOWS
    assert done.result.summary["migrations"] == max(under_way) + 1
