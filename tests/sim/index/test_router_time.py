"""What the router's computing takes: one decision after the other, a time each and a time a page."""

from __future__ import annotations

import numpy as np
from engine_invariants import check_end
from tiny_cluster import Script, requests, run, tiny

TIMES = {"cluster__router__decide_s": 0.01, "cluster__router__decide_s_per_block": 0.001}


def test_decisions_wait_for_each_other():
    # Pages of one token, 1 ms of prefill each. The first of 5 pages is decided after 10 + 5 ms and computed at 20 ms.
    # The second of 3 pages waits for the router until 15 ms, is decided 13 ms later, and computed at 31 ms. The router
    # is free when the third of 2 pages comes at 100 ms: decided at 112 ms, computed at 114 ms.
    done = run(tiny(**TIMES), requests([(0.0, 5, 1), (0.0, 3, 1), (0.1, 2, 1)]))
    check_end(done.worlds)
    np.testing.assert_allclose(done.rows.routed_s, [0.015, 0.028, 0.112])
    np.testing.assert_allclose(done.rows.prefill_start_s, [0.015, 0.028, 0.112])
    np.testing.assert_allclose(done.rows.ttft_s, [0.020, 0.031, 0.014])
    assert np.isclose(done.result.summary["decide_mean_s"], (0.015 + 0.028 + 0.012) / 3)


def test_who_is_refused_takes_the_router_time_too():
    done = run(tiny(**TIMES), requests([(0.0, 5, 1), (0.0, 3, 1)]), Script(["reject", (0, 0)]))
    np.testing.assert_allclose(done.rows.prefill_start_s[1], 0.028)
    assert done.result.summary["decide_mean_s"] == done.rows.routed_s[1]


def test_pages_of_several_tokens_and_the_engines_own_schedule():
    # 9 tokens are 3 pages of 4: 10 + 3 ms, and 20 ms more until the engine has scheduled it.
    done = run(tiny(page_tokens=4, prefill__schedule_s=0.02, **TIMES), requests([(0.0, 9, 1)], page_tokens=4))
    np.testing.assert_allclose(done.rows.prefill_start_s, [0.033])


def test_a_pull_starts_when_it_has_been_decided():
    # 10 tokens on instance 0 are 10 MB, at 1 GB/s 10 ms. Instance 1 pulls 9 of them from 20 ms after the arrival at 1 s
    # on, has them 9 ms later, and computes the last one in 1 ms.
    settings = {"prefill__count": 2, "network__nic_gbytes_per_s": 1.0, **TIMES}
    rows = [(0.0, range(10), 1), (1.0, range(10), 1)]
    done = run(tiny(**settings), requests(rows), Script([(0, 0), (1, 0, True)]))
    check_end(done.worlds)
    assert done.rows.pulled_tokens.tolist() == [0, 9]
    np.testing.assert_allclose(done.rows.ttft_s, [0.03, 0.03])


def test_decisions_that_take_no_time():
    done = run(tiny(), requests([(0.0, 5, 1), (0.5, 3, 1)]))
    assert done.rows.routed_s.tolist() == [0.0, 0.5]
    assert done.result.summary["decide_mean_s"] == 0.0
