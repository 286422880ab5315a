"""An index that learns at the assignment: what the router believes before, and after, the pages are there."""

from __future__ import annotations

from engine_invariants import check_end
from tiny_cluster import Script, requests, run, tiny

A = range(10)


def hits_seen(rows, turns, watch=None, **settings):
    """The local hits that the view promises at each decision, and the run."""
    seen = []

    def look(view):
        seen.append(view.prefill["hit_tokens"].tolist())
        if watch is not None:
            watch(view)

    done = run(tiny(**settings), requests(rows), Script(turns, watch=look))
    check_end(done.worlds)
    return seen, done


def test_a_prompt_counts_where_it_was_sent_before_it_is_computed():
    # 10 tokens take 10 ms. The second arrives after 1 ms and would find 9 of its tokens, the last is always computed.
    rows = [(0.0, A, 1), (0.001, A, 1)]
    two = {"prefill__count": 2, "index__learns": "assigned"}
    seen, done = hits_seen(rows, [(0, 0)], **two)
    assert seen == [[0, 0], [9, 0]]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 9]
    assert done.rows.hit_available_tokens.tolist() == [0, 0], "believed is not there yet"
    assert done.rows.hit_tokens.tolist() == [0, 9], "it waited behind the one that computed them"
    seen, done = hits_seen(rows, [(0, 0)], **{**two, "index__learns": "stored"})
    assert seen == [[0, 0], [0, 0]]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 0]


def test_requests_of_one_instant_see_each_other():
    # Both are in the same batch, so that the second computes all of its tokens: promised, and not delivered.
    seen, done = hits_seen([(0.0, A, 1), (0.0, A, 1)], [(0, 0)], index__learns="assigned")
    assert seen == [[0], [9]]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 9]
    assert done.rows.hit_tokens.tolist() == [0, 0]


def test_a_refused_prompt_is_not_believed():
    rows = [(0.0, A, 1), (0.001, range(100), 1), (0.002, A, 1), (0.003, range(100), 1)]
    seen, done = hits_seen(rows, ["reject", (0, 0)], index__learns="assigned", prefill__cache_tokens=50)
    assert done.rows.outcome.tolist() == [2, 3, 1, 3]
    assert seen == [[0], [0]], "the second and the fourth fit nowhere and need no decision"


def test_news_of_a_removal_end_the_belief_until_the_prompt_is_computed():
    # A is cached. B takes 10 of 12 pages: 2 are free, 8 of A's 10 go. A's second request is sent there at the same
    # time, waits for B, and computes those 8 until 1.018 s. Then B's 8 last go.
    rows = [(0.0, A, 1), (1.0, 10, 1), (1.0, A, 1), (1.005, A, 1), (2.0, A, 1)]
    one_by_one = {"prefill__cache_tokens": 12, "prefill__max_batch_requests": 1, "index__learns": "assigned"}
    seen, done = hits_seen(rows, [(0, 0)], **one_by_one)
    assert seen == [[0], [0], [9], [2], [9]]
    assert done.rows.hit_tokens.tolist() == [0, 0, 2, 9, 9]


def test_news_under_way_take_the_place_of_a_belief_when_they_arrive():
    # News take 5 s. A's pages are removed at 10 s, which the index learns at 15 s, after A was sent there again at 14 s
    # and computed until 14.01 s; that these are stored is learned at 19.01 s.
    rows = [(0.0, A, 1), (10.0, 12, 1), (14.0, A, 1), (14.5, A, 1), (16.0, A, 1), (20.0, A, 1)]
    settings = {"prefill__cache_tokens": 12, "index__learns": "assigned", "index__delay_s": 5.0}
    seen, done = hits_seen(rows, [(0, 0)], **settings)
    assert seen == [[0], [0], [9], [9], [0], [9]]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 0, 9, 9, 0, 9]
    assert done.rows.hit_tokens.tolist() == [0, 0, 0, 9, 9, 9]
    assert done.rows.hit_available_tokens.tolist() == [0, 0, 0, 9, 9, 9]


def test_only_what_is_stored_is_pulled():
    # The first 4 pages of A are on instance 0, the other 6 are being computed there: 4 of the 9 believed can travel.
    promised = []
    seen, done = hits_seen(
        [(0.0, range(4), 1), (1.0, A, 1), (1.001, A, 1)],
        [(0, 0), (0, 0), (1, 0, True)],
        lambda view: promised.append(int(view.prefill[1].pull_tokens)),
        prefill__count=2,
        index__learns="assigned",
    )
    assert seen == [[0, 0], [4, 0], [9, 0]]
    assert promised == [0, 4, 4]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 4, 4]
    assert done.rows.pulled_tokens.tolist() == [0, 0, 4]
    assert done.rows.hit_tokens.tolist() == [0, 4, 4]


def test_nothing_is_pulled_to_where_more_is_believed():
    # Instance 1 computes A, of which 4 pages are on instance 0: a third A finds 9 believed on 1 and no more to pull.
    promised = []
    seen, _ = hits_seen(
        [(0.0, range(4), 1), (1.0, A, 1), (1.001, A, 1)],
        [(0, 0), (1, 0), (1, 0)],
        lambda view: promised.append(view.prefill["pull_tokens"].tolist()),
        prefill__count=2,
        index__learns="assigned",
    )
    assert seen == [[0, 0], [4, 0], [4, 9]]
    assert promised == [[0, 0], [0, 4], [0, 0]]
