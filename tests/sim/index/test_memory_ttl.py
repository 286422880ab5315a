"""The router's memory that forgets after a time: from the last sending on, page by page, beside its limit of tokens."""

from __future__ import annotations

from engine_invariants import check_end
from tiny_cluster import Script, requests, run, tiny

A = range(10)


def remembered(rows, turns=((0, 0),), **settings):
    """What the view says at each decision that the router remembers, tokens an instance."""
    seen = []
    script = Script(turns, watch=lambda view: seen.append(view.prefill["memory_hit_tokens"].tolist()))
    done = run(tiny(**{"index__memory_tokens": 100, **settings}), requests(rows), script)
    check_end(done.worlds)
    return seen


def test_each_page_is_forgotten_when_it_has_not_been_sent_for_so_long():
    # Half a second. All 10 pages are sent at 0 s, the first 4 again at 0.3 s: at 0.5 s the other 6 are forgotten. The
    # first 5 are sent then, so at 0.79 s they are known, and all 10 are sent: known at 1.285 s, when they are sent for
    # the last time, and forgotten at 1.79 s.
    head = range(4)
    rows = [(0.0, A, 1), (0.3, head, 1), (0.5, A[:5], 1), (0.79, A, 1), (1.28, 7, 1), (1.285, A, 1), (1.79, A, 1)]
    ttl = {"index__memory_policy": "ttl", "index__memory_ttl_s": 0.5}
    assert remembered(rows, **ttl) == [[0], [4], [4], [5], [0], [10], [0]]
    assert remembered(rows) == [[0], [4], [5], [10], [0], [10], [10]], "without a time nothing is forgotten"


def test_instances_forget_for_themselves():
    rows = [(0.0, A, 1), (0.4, A, 1), (0.6, A, 1), (0.95, A, 1)]
    ttl = {"index__memory_policy": "ttl", "index__memory_ttl_s": 0.5, "prefill__count": 2}
    assert remembered(rows, [(0, 0), (1, 0), (1, 0)], **ttl) == [[0, 0], [10, 0], [0, 10], [0, 10]]


def test_the_limit_of_tokens_holds_too():
    rows = [(0.0, A, 1), (0.1, 8, 1), (0.2, A, 1)]
    ttl = {"index__memory_policy": "ttl", "index__memory_ttl_s": 100.0, "index__memory_tokens": 12}
    assert remembered(rows, **ttl) == [[0], [0], [4]]
