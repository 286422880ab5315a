"""How flows share NICs: rates by hand, and what makes rates max-min fair."""

from __future__ import annotations

import numpy as np
import pytest
from engine_invariants import check_fair, check_links
from tiny_cluster import Script, requests, run, tiny


def end_times(sharing):
    """Four hand-overs that start at 1 s: A -> X and A -> Y of 0.5 GB, B -> X and C -> X of 1 GB; NICs of 1 GB/s."""
    scenario = tiny(
        prefill__count=3, decode__count=2, network__nic_gbytes_per_s=1.0, network__sharing=sharing,
    )  # fmt: skip
    work = requests([(0.0, 500, 2), (0.0, 500, 2), (0.0, 1000, 2), (0.0, 1000, 2)])
    return run(scenario, work, Script([(0, 0), (0, 1), (1, 0), (2, 0)])).rows.transfer_end_s


def test_max_min_leaves_nothing_idle_that_somebody_could_use():
    # X is full first: 1/3 GB/s for each of its three flows. A has 2/3 left for A -> Y: 0.5 GB until 1.75 s.
    # A -> X has its 0.5 GB at 1 + 1.5 s; B and C have 0.5 GB left then, and 1/2 GB/s each: 3.5 s.
    assert end_times("max_min") == pytest.approx([2.5, 1.75, 3.5, 3.5], rel=1e-12)


def test_an_equal_split_loses_what_the_other_end_cannot_take():
    # A -> Y has half of A, 0.5 GB/s: until 2 s. The others are held by X as above.
    assert end_times("equal_split") == pytest.approx([2.5, 2.0, 3.5, 3.5], rel=1e-12)


def test_a_flow_far_away_slows_down_when_its_neighbour_speeds_up():
    # A -> X (1.3 GB), A -> Y (1 GB), B -> Y (1 GB) and C -> Y (0.5 GB), all from 1.5 s, by 1.3 + 0.2 s of computing.
    # Y is full first: 1/3 each; A -> X has the other 2/3 of A. At 3 s C has its 0.5 GB, and A -> X its first 1.0 GB:
    # A -> X 1/2, A -> Y 1/2, B -> Y 1/2. A -> X ends 0.3 / 0.5 s later, at 3.6; the others have had 0.5 + 0.3 GB then,
    # go on at 1/2 as Y is full, and end at 4 s.
    scenario = tiny(
        prefill__count=3, prefill__batch_tokens=5000, decode__count=2, network__nic_gbytes_per_s=1.0,
    )  # fmt: skip
    work = requests([(0.0, 1300, 2), (0.0, 1000, 2), (1.3, 1000, 2), (1.8, 500, 2)])
    done = run(scenario, work, Script([(0, 0), (0, 1), (1, 1), (2, 1)]))
    assert done.rows.prefill_end_s == pytest.approx([2.3] * 4)
    assert done.rows.transfer_end_s - 0.8 == pytest.approx([3.6, 4.0, 4.0, 3.0], rel=1e-12)


def crowd(sharing, watch):
    """120 requests at random on slow links of 4 + 4 instances with a store."""
    rng = np.random.default_rng(3)
    rows = [(at, int(rng.integers(1, 60)), 3) for at in np.cumsum(rng.exponential(0.01, 120))]
    scenario = tiny(
        prefill__count=4, decode__count=4, network__nic_gbytes_per_s=0.5, network__sharing=sharing,
        store__capacity_tokens=10_000, store__nic_gbytes_per_s=0.7, reschedule__period_s=0.05,
    )  # fmt: skip
    routes = [(int(rng.integers(4)), int(rng.integers(4))) for _ in rows]
    return run(scenario, requests(rows), Script(routes), watch=watch)


def test_every_flow_is_held_by_a_full_end_where_none_is_faster():
    seen = []

    def watch(worlds):
        world = worlds.world(0)
        check_links(world)
        seen.append(check_fair(world))

    crowd("max_min", watch)
    assert max(seen) > 12, "flows at the same time"


def test_an_equal_split_is_not_fair():
    with pytest.raises(AssertionError, match="is held by no end"):
        crowd("equal_split", lambda worlds: check_fair(worlds.world(0)))
