"""Routers by hash: rings with virtual nodes, bounds on the load, sessions."""

from __future__ import annotations

from collections import Counter

import pytest

from cacheenv_baselines.hash_ring import largest_load
from cacheenv_baselines.ring import RING, clockwise, mix, prefix_place, ring_owner, session_place


def keyed(view, **request):
    for name, value in request.items():
        view.request[0][name] = value
    return view


def prefills(router, view, column, values):
    return [router.route(keyed(view, **{column: value}))[0] for value in values]


def test_virtual_nodes_share_the_ring_about_evenly(build):
    """With 150 places an instance has an eighth of the ring up to a few percent; with one place it may have a third."""
    view = build(8, 1)
    shares = Counter(ring_owner(view, mix(key), 150) for key in range(600))
    assert len(shares) == 8 and min(shares.values()) > 45 and max(shares.values()) < 110
    coarse = Counter(ring_owner(view, mix(key), 1) for key in range(600))
    assert max(coarse.values()) > 1.5 * max(shares.values())


def test_the_owner_is_the_first_place_clockwise(build):
    view, place = build(5, 1), mix(77)
    distances = [clockwise(place, i, 20) for i in range(5)]
    assert all(0 <= distance < RING for distance in distances)
    assert ring_owner(view, place, 20) == distances.index(min(distances))
    nearest = min(distances)
    assert ring_owner(view, place + nearest, 20) == distances.index(nearest), "a key may stand on a node"
    assert clockwise(place + nearest, distances.index(nearest), 20) == 0


def test_an_instance_more_takes_keys_from_all_and_moves_no_others(build):
    """The point of consistent hashing."""
    small, large = build(7, 1), build(8, 1)
    before = [ring_owner(small, mix(key), 30) for key in range(500)]
    after = [ring_owner(large, mix(key), 30) for key in range(500)]
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {7} and {old for old, _ in moved} == set(range(7))


def test_places_of_keys(build):
    view = build(2, 1)
    assert prefix_place(keyed(view, first_block=5, index=1)) == prefix_place(keyed(view, first_block=5, index=2))
    short = [prefix_place(keyed(view, first_block=-1, index=index)) for index in range(50)]
    assert len(set(short)) == 50, "prompts shorter than a page have nothing in common"
    assert session_place(keyed(view, session=3)) != session_place(keyed(view, session=4))
    assert 0 <= prefix_place(keyed(view, first_block=2**62 + 1)) < RING


# -- hash_ring


def test_hash_ring_keeps_a_session_on_its_instance(build, fill, decider):
    view, router = build(8, 2), decider("hash_ring")
    first = prefills(router, view, "session", range(80))
    keyed(view, first_block=9)
    assert prefills(router, view, "session", range(80)) == first and len(set(first)) == 8
    by_prefix = decider("hash_ring", by_prefix=1)
    assert len(set(prefills(by_prefix, view, "session", range(80)))) == 1, "one first page, one instance"


def test_hash_ring_without_a_session_goes_by_the_first_page(build, decider):
    view, router = keyed(build(8, 2), session=-1), decider("hash_ring")
    assert prefills(router, view, "first_block", [4] * 20) == prefills(router, view, "first_block", [4]) * 20
    assert len(set(prefills(router, view, "first_block", range(80)))) == 8


def test_bound_of_the_loads_by_hand(build, fill):
    """9 in flight on 4 instances and this one: 1.25 x 10 / 4 = 3.125, so 4 at most; without slack 10 / 4, so 3."""
    view = build(4, 1)
    fill(view.prefill, inflight_requests=[3, 4, 2, 0])
    assert (largest_load(view, 1.25), largest_load(view, 1.0)) == (4, 3)


def test_hash_ring_walks_on_past_full_instances(build, fill, decider):
    view, router = keyed(build(4, 1), session=11), decider("hash_ring")
    order = sorted(range(4), key=lambda i: clockwise(session_place(view), i, 150))
    assert router.route(view)[0] == order[0]
    loads = [0, 0, 0, 0]
    loads[order[0]], loads[order[1]] = 4, 3
    fill(view.prefill, inflight_requests=loads)  # 1.25 x 8 / 4 = 2.5: 3 at most, so the third takes it
    assert router.route(view)[0] == order[2]
    loads[order[1]] = 2  # 1.25 x 7 / 4 = 2.19: 3 at most, this one included
    fill(view.prefill, inflight_requests=loads)
    assert router.route(view)[0] == order[1]
    assert decider("hash_ring", load_factor=0).route(view)[0] == order[0], "no bound"
    fill(view.prefill, inflight_requests=4)
    assert decider("hash_ring", load_factor=0.1).route(view)[0] == order[0], "a bound that nobody meets"


# -- session


def test_session_is_sticky_whatever_the_load(build, fill, decider):
    view, router = build(8, 2), decider("session")
    first = prefills(router, view, "session", range(80))
    fill(view.prefill, inflight_requests=range(0, 800, 100), dispatched_requests=range(8), backlog_s=range(8))
    assert prefills(router, view, "session", range(80)) == first and set(first) == set(range(8))


def test_without_a_session_the_least_used_instance(build, fill, decider):
    """By what was sent, not by what is there; one that was never used wins."""
    view, router = keyed(build(4, 1), session=-1), decider("session")
    fill(view.prefill, dispatched_requests=[9, 3, 0, 3], inflight_requests=[0, 0, 5, 0])
    assert router.route(view)[0] == 2
    fill(view.prefill, dispatched_requests=[9, 3, 4, 3])
    assert {router.route(view)[0] for _ in range(60)} == {1, 3}


# -- prefix_hash


@pytest.fixture
def owned(build):
    """Four instances, and the owner of the first page 5."""

    def create():
        view = keyed(build(4, 3), first_block=5, session=3)
        return view, ring_owner(view, prefix_place(view), 150)

    return create


def test_prefix_hash_takes_the_owner_up_to_the_bound(owned, fill, decider):
    view, owner = owned()
    loads = [2] * 4
    fill(view.prefill, unfinished_requests=loads, inflight_requests=90)
    router = decider("prefix_hash")
    assert router.route(view)[0] == owner
    loads[owner] = 3  # 1.25 x (9 + 1) / 4 = 3.125
    fill(view.prefill, unfinished_requests=loads)
    assert {router.route(view)[0] for _ in range(20)} == {owner}
    loads[owner] = 4  # 1.25 x 11 / 4 = 3.44
    fill(view.prefill, unfinished_requests=loads)
    assert {router.route(view)[0] for _ in range(100)} == set(range(4)) - {owner}, "the least loaded, ties at random"


def test_prefix_hash_past_the_bound_takes_the_least_loaded_and_not_the_next(owned, fill, decider):
    view, owner = owned()
    for idle in set(range(4)) - {owner}:
        loads = [3] * 4
        loads[owner], loads[idle] = 9, 1
        fill(view.prefill, unfinished_requests=loads)
        assert decider("prefix_hash").route(view)[0] == idle


def test_prefix_hash_keeps_the_owner_where_nobody_is_within_the_bound(owned, fill, decider):
    view, owner = owned()
    fill(view.prefill, unfinished_requests=4)
    assert decider("prefix_hash", load_factor=0.5).route(view)[0] == owner  # 0.5 x 17 / 4


@pytest.mark.parametrize("name", ["hash_ring", "session"])
def test_decode_by_requests(build, fill, decider, name):
    view = build(2, 3)
    fill(view.decode, inflight_requests=[2, 1, 3], kv_tokens=[0, 90_000, 0])
    assert decider(name).route(view)[1:] == (1, 0)
