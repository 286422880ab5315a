"""Orders of the prefill queue: depth first, at random, and by match with ageing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from engine_invariants import check_end, check_pools
from tiny_cluster import requests, run, tiny

import cacheenv.run.worlds
from cacheenv.sim.state.allocate import allocate

ONE = {"prefill__max_batch_requests": 1}


def served(rows, **settings):
    """Numbers of the requests in the order of their prefill, one a batch."""
    done = run(tiny(**{**ONE, **settings}), requests(rows))
    check_end(done.worlds)
    return [int(row) for row in done.rows.prefill_start_s.argsort(kind="stable")]


def prompt(*parts):
    """Ten tokens of each letter."""
    return [(letter, number) for letter in parts for number in range(10)]


def test_depth_first_takes_the_heavier_branch_first_and_a_branch_before_its_root():
    # 0 and 1 cache A and its continuations B and C, in this order; 2 runs while the others come. 3 matches A alone, 4
    # matches A B, and 5, 6 and 7 match A C. So 5 goes first, with three in its branch, and 6, with two. Then both
    # branches have one, and B's is older: 4, 7, and behind the branches A's own 3. 8 matches nothing.
    rows = [(0.0, prompt("A", "B"), 1), (0.1, prompt("A", "C"), 1), (0.2, 50, 1)]
    rows += [(0.21, [*prompt("A"), 3], 1), (0.212, [*prompt("A", "B"), 4], 1), (0.213, [*prompt("A", "C"), 5], 1)]
    rows += [(0.214, [*prompt("A", "C"), 6], 1), (0.215, [*prompt("A", "C"), 7], 1), (0.216, [8], 1)]
    assert served(rows, prefill__queue="dfs_weight") == [0, 1, 2, 5, 6, 4, 7, 3, 8]
    assert served(rows, prefill__queue="lpm") == [0, 1, 2, 4, 5, 6, 7, 3, 8]


def test_depth_first_takes_the_older_of_equal_branches():
    rows = [(0.0, prompt("A", "B"), 1), (0.1, prompt("A", "C"), 1), (0.2, 50, 1)]
    rows += [(0.211, [*prompt("A", "C"), 3], 1), (0.212, [*prompt("A", "B"), 4], 1)]
    assert served(rows, prefill__queue="dfs_weight") == [0, 1, 2, 4, 3]


def test_depth_first_protects_what_it_matched():
    rows = [(0.0, prompt("A"), 1), (0.2, 5, 1), (0.201, [*prompt("A"), 3], 1), (0.202, [*prompt("A"), 4], 1)]
    assert served(rows, prefill__queue="dfs_weight", prefill__protect_queued=True) == [0, 1, 2, 3]


def test_a_queue_as_long_as_it_likes(monkeypatch):
    # 100 requests part the first one's prompt at as many places, in one look at the queue, and so take 100 nodes: with
    # one request a batch an event elsewhere takes no more than an eighth of 80. The longest match lies deepest.
    monkeypatch.setattr(cacheenv.run.worlds, "allocate", lambda sizes: allocate(replace(sizes, nodes=96)))
    rows = [(0.0, range(110), 1), (0.2, 90, 1)]
    rows += [(0.201 + 1e-5 * number, [*range(number + 1), ("own", number)], 1) for number in range(100)]
    settings = {"prefill__queue": "dfs_weight", "prefill__backlog": "dispatch", "horizon_s": 0.2905}
    done = run(tiny(**ONE, **settings), requests(rows))
    assert np.flatnonzero(done.rows.prefill_start_s > 0.2).tolist() == [101]
    assert len(done.world.node) > 96
    check_pools(done.world)


def test_a_shuffle_for_each_batch():
    # Three requests wait for the first one. All of their orders come out, each of them about 5 times in 30.
    rows = [(0.0, 50, 1), *((0.001 * number, 5, 1) for number in range(1, 4))]
    scenario, workload = tiny(**ONE, prefill__queue="random"), requests(rows)
    orders = [
        tuple(run(scenario, workload, seed=seed).rows.prefill_start_s[1:].argsort().tolist())
        for seed in [*range(30), 0, 1, 2]
    ]
    assert orders[30:] == orders[:3]
    counts = Counter(orders[:30])
    assert len(counts) == 6 and max(counts.values()) <= 15, counts


def test_who_matches_nothing_is_served_after_a_while():
    # While a prompt of 12 tokens runs, a cold one and a hot one come. Each hot one matches 9 tokens and runs 1 ms, and
    # the next one comes meanwhile. With 3 tokens a round the cold one counts 0, 3, 6 and 9 in its first four rounds; in
    # the fourth it is equal to the hot one and stands before it.
    rows = [(0.0, range(9), 1), (0.1, 12, 1), (0.101, 2, 1)]
    rows += [(0.1115 + 0.001 * number, [*range(9), ("hot", number)], 1) for number in range(8)]
    aged = {"prefill__queue": "lpm_aged", "prefill__lpm_ageing_tokens": 3}
    assert served(rows, **aged).index(2) == 2 + 3
    assert served(rows, prefill__queue="lpm").index(2) == len(rows) - 1
    assert served(rows, **{**aged, "prefill__lpm_ageing_tokens": 10}).index(2) == 2 + 1
    assert served(rows, **{**aged, "prefill__lpm_ageing_tokens": 0}).index(2) == len(rows) - 1
