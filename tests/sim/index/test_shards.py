"""Index shards that take in a bounded number of events a second, and lose what waits too long a line."""

from __future__ import annotations

import numpy as np
from engine_invariants import check_end
from tiny_cluster import Script, requests, run, tiny

A = range(10)


def hits_seen(rows, turns=((0, 0),), **settings):
    """The hits that the view promises at each decision, and the run."""
    seen = []
    script = Script(turns, watch=lambda view: seen.append(view.prefill["hit_tokens"].tolist()))
    done = run(tiny(**settings), requests(rows), script)
    check_end(done.worlds)
    return seen, done


def test_events_are_taken_in_one_after_the_other():
    # A's 10 pages are stored at 10 ms and taken in every 100 ms, the head first: at 110, 210, ... ms. At 300 ms two are
    # known, at 500 ms four. All are there, and delivered.
    rows = [(0.0, A, 1), (0.3, A, 1), (0.5, A, 1)]
    seen, done = hits_seen(rows, index__events_per_s=10.0)
    assert seen == [[0], [2], [4]]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 2, 4]
    assert done.rows.hit_available_tokens.tolist() == [0, 9, 9]
    assert done.rows.hit_tokens.tolist() == [0, 9, 9]
    assert done.result.summary["index_events_lost"] == 0


def test_the_delay_comes_before_the_line():
    # The events arrive at 210 ms, and are taken in at 310, 410, 510 ms.
    seen, _ = hits_seen([(0.0, A, 1), (0.3, A, 1), (0.5, A, 1)], index__events_per_s=10.0, index__delay_s=0.2)
    assert seen == [[0], [0], [2]]


def test_events_past_the_mark_are_lost():
    # 10 events at once, 4 may wait: the last 6 pages are never known. Stored again they would be told again, but they
    # are there.
    rows = [(0.0, A, 1), (5.0, A, 1), (9.0, A, 1)]
    seen, done = hits_seen(rows, index__events_per_s=10.0, index__high_water=4)
    assert seen == [[0], [4], [4]]
    assert done.result.summary["index_events_lost"] == 6
    # 4 wait at 10 ms, 2 of them still at 250 ms, where B's 3 pages are stored: one of these is lost.
    seen, done = hits_seen([*rows[:1], (0.247, range(100, 103), 1)], index__events_per_s=10.0, index__high_water=4)
    assert done.result.summary["index_events_lost"] == 6 + 1


def test_a_lost_removal_leaves_a_phantom_until_the_next_event():
    # A's 2 pages are taken in at 0.102 s and 0.202 s. At 1 s a prompt that fills the cache removes both, the tail
    # first: that is taken in, the head's removal is lost, as are the new pages. The index still places A's head there,
    # which is promised at 2 s and not delivered. A is stored again at 2.002 s: of that the first event is taken in by
    # 2.103 s, and the second is lost.
    rows = [(0.0, range(2), 1), (1.0, 10, 1), (2.0, range(2), 1), (3.0, range(3), 1)]
    settings = {"index__events_per_s": 10.0, "index__high_water": 1, "prefill__cache_tokens": 10}
    seen, done = hits_seen([(0.0, range(1), 1), (0.5, range(2), 1), *rows[1:]], **settings)
    assert seen == [[0], [1], [0], [1], [1]]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 1, 0, 1, 1]
    assert done.rows.hit_tokens.tolist() == [0, 1, 0, 0, 2]
    assert done.result.summary["hit_rate_missed"] == 1 / 18


def test_removed_pages_are_told_from_the_tail():
    # A's 2 pages are known when a prompt that fills the cache removes both at 1 s: the tail is taken off at 1.1 s, the
    # head at 1.2 s. The new pages find two events waiting, and are lost.
    rows = [(0.0, range(2), 1), (1.0, 10, 1), (1.15, range(3), 1)]
    settings = {"index__events_per_s": 10.0, "index__high_water": 2, "prefill__cache_tokens": 10}
    seen, _ = hits_seen(rows, **settings)
    assert seen == [[0], [0], [1]]


def test_shards_take_in_side_by_side():
    # 10 pages in 4 shards, each with a line of its own: after 150 ms each has taken in its first page, all shards
    # together no more than four; after 2 s all of them.
    rows = [(0.0, A, 1), (0.16, A, 1), (2.0, A, 1)]
    one, _ = hits_seen(rows, index__events_per_s=10.0)
    four, done = hits_seen(rows, index__events_per_s=10.0, index__shards=4)
    assert one == [[0], [1], [9]]
    assert 1 <= four[1][0] <= 4 and four[2] == [9]
    assert np.all(done.world.shard["waiting"] <= 100_000) and len(done.world.shard) == 4


def test_shards_without_a_rate_are_exact():
    seen, done = hits_seen([(0.0, A, 1), (0.011, A, 1)], index__shards=4)
    assert seen == [[0], [9]]
    assert len(done.world.shard_event) == 1
