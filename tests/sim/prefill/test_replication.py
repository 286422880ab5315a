"""Hot prefixes are copied to other prefill instances.

One token takes 1 ms of prefill and 1 MB of KV, pages have one token. Requests have one output token, so there are no
hand-overs; the copies are all that moves.
"""

from __future__ import annotations

import pytest
from engine_invariants import check_end, check_world
from tiny_cluster import Run, Script, requests, run, tiny

SHARED = range(100)


def asked(times_s, first_own=1000):
    """Requests for the shared 100 tokens and one token more, of which none is asked for twice."""
    return [(time_s, [*SHARED, first_own + number], 1) for number, time_s in enumerate(times_s)]


def served(rows, routes, hits=1, **settings) -> Run:
    """A checked run at 1 GB/s, where a copy of the shared 100 tokens takes 0.1 s."""
    settings = {"prefill__count": 2, "network__nic_gbytes_per_s": 1.0, **settings}
    scenario = tiny(cluster__replication__hits=hits, **settings)
    done = run(scenario, requests(rows), Script(routes), watch=check_world)
    check_end(done.worlds)
    return done


def copies(done: Run) -> list[int]:
    return done.result.instances.replicas[done.result.instances.kind == 0].tolist()


@pytest.mark.parametrize(("hits", "window_s", "copied"), [(1, 10.0, 1), (1, 1.0, 1), (1, 0.99, 0), (2, 10.0, 0)])
def test_what_is_hit_more_than_n_times_in_a_window_is_copied(hits, window_s, copied):
    # Computed at 0, hit on instance 0 at 1.0 and 2.0: the second hit is more than one in the window that the first has
    # begun, if that lasts 1 s. The copy is there at 2.1; at 3.0 instance 1 computes 1 of 101 tokens, else all.
    routes = [(0, 0), (0, 0), (0, 0), (1, 0)]
    done = served(asked([0, 1, 2, 3]), routes, hits, cluster__replication__window_s=window_s)
    assert done.rows.hit_tokens.tolist() == [0, 100, 100, 100 * copied]
    assert done.rows[3].prefill_end_s == pytest.approx(3.101 - 0.1 * copied)
    assert copies(done) == [0, copied]
    totals = done.result.instances
    assert totals.replicated_tokens.tolist() == [0, 100 * copied, 0, 0]
    assert (totals.bytes_out[0], totals.bytes_in[1]) == (1e8 * copied, 1e8 * copied)
    assert (done.result.summary["replicas"], done.result.summary["replicated_tokens"]) == (copied, 100 * copied)
    assert done.rows.pulled_tokens.sum() == 0


def test_it_is_off_unless_a_number_of_hits_is_given():
    done = served(asked([0, 1, 2, 3, 4, 5]), [(0, 0)], None)
    assert copies(done) == [0, 0]
    assert done.result.instances.bytes_out.sum() == 0.0


def test_a_copy_is_there_when_all_of_it_has_come():
    # On its way from 2.0 to 2.1. At 2.05 instance 1 has nothing and computes 101 tokens until 2.151; what it computes
    # is there already when it wants to cache it, so it holds the shared 100 once.
    done = served(asked([0, 1, 2, 2.05]), [(0, 0), (0, 0), (0, 0), (1, 0)])
    assert done.rows[3].hit_tokens == 0
    assert done.rows[3].prefill_end_s == pytest.approx(2.151)
    assert copies(done) == [0, 1]
    assert done.world.tree[1].pages == 101


def test_the_path_to_the_deepest_hot_page_is_copied():
    # 150 tokens are computed at 0 and hit at 1, the first 100 of them at 2, and all at 3 and 4. Above one hit: the
    # first 100 have two at 2, and go; the other 50 have two at 3, and follow alone (the first ones have one again, and
    # are there). Above two: the first 100 have three at 3, the others at 4.
    paths = (range(150), range(150), range(100), range(150), range(150))
    rows = [(float(time), [*path, 1000 + time], 1) for time, path in enumerate(paths)]
    for hits, tokens in ((1, [0, 0, 100, 150, 150]), (2, [0, 0, 0, 100, 150])):
        runs = [served(rows[: 1 + number], [(0, 0)], hits) for number in range(5)]
        assert [int(one.result.instances.replicated_tokens[1]) for one in runs] == tokens
        assert copies(runs[-1]) == [0, 2]


@pytest.mark.parametrize(("replicas", "copied"), [(2, [0, 1, 0, 0]), (3, [0, 1, 1, 0]), (4, [0, 1, 1, 1])])
def test_there_are_at_most_so_many(replicas, copied):
    # At 0.1 GB/s a copy takes 1 s or more. Each two hits, at 1.0 and 1.1, 1.2 and 1.3, ..., ask for one. Those on their
    # way count as there, so none is sent twice; equal instances take turns, behind the source first.
    times_s = [0.0, *(1.0 + 0.1 * number for number in range(10))]
    settings = {"prefill__count": 4, "network__nic_gbytes_per_s": 0.1, "cluster__replication__replicas": replicas}
    assert copies(served(asked(times_s), [(0, 0)], **settings)) == copied


def test_an_instance_that_computed_it_itself_is_one_of_them():
    routes = [(0, 0), (1, 0), (0, 0), (0, 0)]
    assert copies(served(asked([0, 0.5, 1, 2]), routes, prefill__count=3)) == [0, 0, 0]


def test_it_goes_to_the_instance_with_the_fewest_requests():
    # Instance 1 computes 1,000 tokens from 1.5 on, instance 2 has two such requests, instance 3 none at 2.0. At 2.2,
    # with another two hits, instance 1 is next.
    rows = [*asked([0, 1]), (1.5, 1000, 1), (1.5, 1000, 1), (1.5, 1000, 1), *asked([2, 2.1, 2.2], 2000)]
    routes = [(0, 0), (0, 0), (1, 0), (2, 0), (2, 0), (0, 0)]
    settings = {"prefill__count": 4, "cluster__replication__replicas": 4}
    assert copies(served(rows[:-2], routes, **settings)) == [0, 0, 0, 1]
    assert copies(served(rows, routes, **settings)) == [0, 1, 0, 1]


def test_equal_instances_take_turns():
    # Three prefixes, each of which is hot when it has been asked for three times. Nobody else has anything to do.
    rows = [(float(at), [*range(100 * (at // 3), 100 * (at // 3 + 1)), 5000 + at], 1) for at in range(9)]
    assert copies(served(rows[:3], [(2, 0)], prefill__count=4)) == [0, 0, 0, 1]
    assert copies(served(rows[:6], [(2, 0)], prefill__count=4)) == [1, 0, 0, 1]
    assert copies(served(rows, [(2, 0)], prefill__count=4)) == [1, 1, 0, 1]


def test_one_copy_at_a_time_is_sent_to_an_instance():
    # Two prefixes of 100 on instance 0; both are hot at 2, and instance 1 is the only other one. The first takes until
    # 3.0 at 0.1 GB/s, and the second is not sent meanwhile. It is at 4.5, when it has had two hits more.
    other = range(500, 600)
    rows = [(0.0, [*SHARED, 1000], 1), (0.5, [*other, 1001], 1)]
    rows += [(time_s, [*path, 2000 + at], 1) for at, (time_s, path) in enumerate(
        [(1.0, SHARED), (1.0, other), (2.0, SHARED), (2.1, other), (4.0, other), (4.5, other)]
    )]  # fmt: skip
    assert copies(served(rows[:-1], [(0, 0)], network__nic_gbytes_per_s=0.1)) == [0, 1]
    assert copies(served(rows, [(0, 0)], network__nic_gbytes_per_s=0.1)) == [0, 2]


def test_nothing_is_copied_where_it_does_not_fit():
    # Room for 250. Instance 1 computes 200 tokens from 1.9 to 2.1: 50 are left at 2.0, too few. After two more hits it
    # is tried again, and 50 of the 200 go.
    rows = [*asked([0, 1]), (1.9, 200, 1), *asked([2.0, 2.2, 2.3], 2000)]
    routes = [(0, 0), (0, 0), (1, 0), (0, 0)]
    assert copies(served(rows[:-1], routes, prefill__cache_tokens=250)) == [0, 0]
    done = served(rows, routes, prefill__cache_tokens=250)
    assert copies(done) == [0, 1]
    assert done.world.tree[1].pages == 250
    assert done.rows.hit_tokens.tolist() == [0, 100, 0, 100, 100, 100]


def test_it_goes_where_there_is_room_though_others_have_less_to_do():
    # As before instance 1 has one request and room for 50 at 2.0; instance 2 has two requests, and room for 210.
    rows = [*asked([0, 1]), (1.9, 200, 1), (1.99, 20, 1), (1.99, 20, 1), *asked([2.0], 2000)]
    routes = [(0, 0), (0, 0), (1, 0), (2, 0), (2, 0), (0, 0)]
    done = served(rows, routes, prefill__count=3, prefill__cache_tokens=250)
    assert copies(done) == [0, 0, 1]


def test_both_ends_are_held_while_it_is_sent():
    # From 2.0 to 4.0 at 0.05 GB/s. Of the room for 250, 100 are held on either end, so a prompt of 200 that comes to
    # either at 2.5 waits until 4.0.
    rows = [*asked([0, 1, 2]), (2.5, 200, 1), (2.5, 200, 1)]
    routes = [(0, 0), (0, 0), (0, 0), (0, 0), (1, 0)]
    done = served(rows, routes, prefill__cache_tokens=250, network__nic_gbytes_per_s=0.05)
    assert done.rows.prefill_start_s[3:].tolist() == pytest.approx([4.0, 4.0])
    assert copies(done) == [0, 1]


def test_it_arrives_in_host_memory_where_there_is_one():
    settings = {"prefill__host_cache_tokens": 1000, "prefill__host_write": "write_back"}
    done = served(asked([0, 1, 2, 3]), [(0, 0), (0, 0), (0, 0), (1, 0)], **settings)
    assert done.rows.hit_gpu_tokens.tolist() == [0, 100, 100, 0]
    assert done.rows.hit_host_tokens.tolist() == [0, 0, 0, 100]
    assert copies(done) == [0, 1]
    # Two hits more ask for another copy: instance 1 has it in its host memory.
    assert copies(served(asked([0, 1, 2, 3, 4]), [(0, 0)], **settings)) == [0, 1]


def test_what_the_gpu_has_need_not_be_sent_to_host_memory():
    # Instance 1 has computed 60 of the 100 tokens; with write_back its host memory has none of them.
    settings = {"prefill__host_cache_tokens": 1000, "prefill__host_write": "write_back"}
    rows = [(0.0, range(60), 1), *asked([0, 1, 2])]
    done = served(rows, [(1, 0), (0, 0)], **settings)
    assert done.result.instances.replicated_tokens.tolist() == [0, 40, 0, 0]
    assert done.world.tree[int(done.world.instance[1].host_tree)].pages == 100


def test_pages_that_went_and_came_back_are_counted_anew():
    # Room for 250: the prompt of 250 at 1.5 evicts what was hit at 1.0. It is computed again at 2.0, hit at 3.0, and
    # at 4.0, which is the second hit since it came back.
    rows = [*asked([0, 1]), (1.5, 250, 1), *asked([2, 3, 4], 2000)]
    assert copies(served(rows[:-1], [(0, 0)], prefill__cache_tokens=250)) == [0, 0]
    assert copies(served(rows, [(0, 0)], prefill__cache_tokens=250)) == [0, 1]


def test_what_takes_their_place_is_counted_from_0():
    # The prompt of 250 at 1.5 takes all the room, and is hit once.
    rows = [*asked([0, 1]), (1.5, [*range(500, 749), 1], 1), (2.5, [*range(500, 749), 2], 1)]
    done = served(rows, [(0, 0)], prefill__cache_tokens=250)
    assert done.rows.hit_tokens.tolist() == [0, 100, 0, 249]
    assert copies(done) == [0, 0]


def test_the_index_hears_of_it():
    # Half a second after the copy has come, which is at 2.1.
    seen = []
    script = Script([(0, 0), (0, 0), (0, 0), (0, 0)], watch=lambda view: seen.append(int(view.prefill[1].hit_tokens)))
    scenario = tiny(prefill__count=2, network__nic_gbytes_per_s=1.0, index__delay_s=0.5, cluster__replication__hits=1)
    run(scenario, requests(asked([0, 1, 2, 2.55, 2.65])), script)
    assert seen == [0, 0, 0, 0, 100]
