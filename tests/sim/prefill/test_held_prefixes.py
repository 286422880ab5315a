"""What waiting requests hold: prefixes that were pulled for them, and with `protect_queued` what they matched.

One token takes 1 ms of prefill, pages have one token, transfers take no time unless a test says so.
"""

from __future__ import annotations

import pytest
from engine_invariants import check_end, check_world
from tiny_cluster import Script, requests, run, tiny


def test_a_pulled_prefix_is_there_when_its_request_runs():
    # Instance 1 has room for 1,000. B (400) runs there from 1.0 to 1.4, D (300) waits from 1.05 on, C (601) from 1.1
    # on, with 600 tokens pulled: the cache is full. D needs 300 at 1.4. The oldest pages are those that were pulled, so
    # 300 of them would go, although C is the next one to run; B's, used last at 1.4, go instead.
    rows = [(0.0, range(600), 1), (1.0, 400, 1), (1.05, 300, 1), (1.1, range(601), 1)]
    script = Script([(0, 0), (1, 0), (1, 0), (1, 0, True)])
    done = run(tiny(prefill__count=2, prefill__cache_tokens=1000), requests(rows), script, watch=check_world)
    assert done.rows.pulled_tokens.tolist() == [0, 0, 0, 600]
    assert done.rows.hit_tokens.tolist() == [0, 0, 0, 600]
    assert done.rows[3].prefill_end_s == pytest.approx(1.4 + 0.301)
    check_end(done.worlds)


@pytest.mark.parametrize(("protect", "hit"), [(False, 300), (True, 600)])
def test_what_a_waiting_request_matched_stays_if_it_is_protected(protect, hit):
    # The same on one instance without a pull: the 600 tokens were cached at 0.6 and are the oldest at 1.4.
    rows = [(0.0, range(600), 1), (1.0, 400, 1), (1.05, 300, 1), (1.1, range(601), 1)]
    scenario = tiny(prefill__cache_tokens=1000, prefill__protect_queued=protect)
    done = run(scenario, requests(rows), Script(), watch=check_world)
    assert done.rows.hit_tokens.tolist() == [0, 0, 0, hit]
    check_end(done.worlds)


def held_by_each_other(at_s: float) -> list[tuple[float, object, int]]:
    """Two prompts of 500 are cached; two that need 300 more each hold what they match of them."""
    first, second = range(500), range(1000, 1500)
    more = ((at_s, [*first, *range(2000, 2300)], 1), (at_s, [*second, *range(3000, 3300)], 1))
    return [(0.0, first, 1), (0.0, second, 1), *more]


def test_the_head_runs_when_all_room_is_held_by_waiting_requests():
    # Room for 1,000, all of it held. Nothing runs, so nobody else would make room: the second one gives up its 500, the
    # first evicts 300 of them and runs from 2.0 to 2.3, the second finds 200 left and computes 600 until 2.9.
    scenario = tiny(prefill__cache_tokens=1000, prefill__protect_queued=True)
    done = run(scenario, requests(held_by_each_other(2.0)), Script(), watch=check_world)
    assert done.rows.hit_tokens.tolist() == [0, 0, 500, 200]
    assert done.rows.prefill_end_s[2:].tolist() == pytest.approx([2.3, 2.9])
    check_end(done.worlds)


def test_the_head_waits_while_somebody_else_will_make_room():
    # Room for 1,300. A prompt of 300 is computed from 2.0 to 2.3 and handed over until 3.3 (0.3 GB/s). The two that
    # come at 2.1 hold the rest. The first waits until 3.3 and runs in the room of the handed-over prompt until 3.6; the
    # second gave nothing up.
    rows = held_by_each_other(2.1)
    rows.insert(2, (2.0, 300, 2))
    scenario = tiny(prefill__cache_tokens=1300, prefill__protect_queued=True, network__nic_gbytes_per_s=0.3)
    done = run(scenario, requests(rows), Script(), watch=check_world)
    assert done.rows[2].transfer_end_s == pytest.approx(3.3)
    assert done.rows.hit_tokens.tolist() == [0, 0, 0, 500, 500]
    assert done.rows.prefill_end_s[3:].tolist() == pytest.approx([3.6, 3.9])
    check_end(done.worlds)
