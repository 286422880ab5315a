"""The numbers of actions, against the formulas of the documentation written out; and ties at random."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from cacheenv.policy import least, move, proposed_route, reject, route, split_move, split_route, stay
from cacheenv.testing import empty_view, random_stream

P, D, K = 3, 4, 2


@pytest.fixture
def view():
    made = empty_view(P, D, K)
    made.prefill.pull_tokens = [100, 0, 100]
    return made


def test_routes(view):
    for p, d, pull in product(range(P), range(D), (0, 1)):
        taken = pull if p != 1 else 0  # nothing to pull to instance 1
        assert route(view, p, d, pull) == ((p * D) + d) * 2 + taken
        assert split_route(view, ((p * D) + d) * 2 + pull) == (p, d, pull)
    assert reject(view) == P * D * 2
    for none in (P * D * 2, P * D * 2 + 1, -1):
        assert split_route(view, none) == (-1, -1, 0)


def test_the_proposed_route(view):
    view.cluster[0].proposed = ((2 * D) + 3) * 2 + 1
    assert proposed_route(view) == (2, 3, 1)
    view.cluster[0].proposed = -1
    assert proposed_route(view)[0] == -1


def test_moves(view):
    for s, k, d in product(range(D), range(K), range(D)):
        row = s * K + k
        assert view.candidate[row].source == s
        assert move(view, row, d) == ((s * K) + k) * D + d
        assert split_move(view, ((s * K) + k) * D + d) == (row, d)
    assert stay(view) == D * K * D
    assert split_move(view, D * K * D) == split_move(view, -1) == (-1, -1)


def test_least_breaks_ties_evenly():
    rng = random_stream(5)
    chosen: Counter[int] = Counter()
    for _ in range(6000):
        best, count, best_value = -1, 0, 0
        for at, value in enumerate((4, 2, 3, 2, 2)):
            take, count = least(rng, best, count, value, best_value)
            if take:
                best, best_value = at, value
        chosen[best] += 1
    assert set(chosen) == {1, 3, 4}
    assert all(1850 < times < 2150 for times in chosen.values())
