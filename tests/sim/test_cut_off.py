"""Runs that end at the horizon: what is under way counts, and what is served is over."""

import pytest
from tiny_cluster import Script, requests, run, tiny

from cacheenv.policy import as_bundle
from cacheenv.run.simulate import drive
from cacheenv.sim.state.codes import STOP_DONE, STOP_HORIZON


def test_the_running_batch_and_the_running_steps_count_up_to_the_horizon() -> None:
    # The first request is computed until 0.1 and decodes from there; the second is computed from 0.5 to 0.7.
    workload = requests([(0.0, 100, 1000), (0.5, 200, 1000)])
    prefill, decode, _ = run(tiny(horizon_s=0.555), workload).result.instances
    assert prefill["busy_s"] == pytest.approx(0.1 + 0.055, rel=1e-12)
    assert prefill["tokens"] == 100
    assert decode["busy_s"] == pytest.approx(0.455, rel=1e-12)
    assert decode["tokens"] == 45


def test_tokens_of_growing_steps_count_one_by_one() -> None:
    cut_s, ends_s, kv = 3.0, 0.1 + 0.5, 101
    steps = 0
    while True:  # every step is longer than the one before, and the first has a stall
        ends_s += 0.01 + 1e-4 * kv
        if ends_s > cut_s:
            break
        steps, kv = steps + 1, kv + 1
    done = run(tiny(horizon_s=cut_s, decode__join_stall_s=0.5), requests([(0.0, 100, 1000)]), decode_f_s=1e-4)
    assert done.result.instances["tokens"][1] == steps > 10


def test_bytes_of_a_flow_count_as_far_as_they_are_sent() -> None:
    # 100 tokens of 1 MB at 1 GB/s from 0.1 on.
    done = run(tiny(horizon_s=0.15, network__nic_gbytes_per_s=1.0), requests([(0.0, 100, 10)]))
    prefill, decode, _ = done.result.instances
    assert prefill["bytes_out"] == pytest.approx(50e6, rel=1e-9)
    assert decode["bytes_in"] == pytest.approx(50e6, rel=1e-9)


def test_totals_do_not_depend_on_when_somebody_looks() -> None:
    # Two instances decode all the time; one of them is at the same long run of steps from the start.
    workload = requests([(0.0, 10, 5000), (0.0, 10, 5000), *((1.0 + number, 10, 5) for number in range(8))])
    routes = [(0, 0), *[(0, 1)] * 9]
    done = run(tiny(horizon_s=9.5, decode__count=2), workload, Script(routes))
    busy_s = done.result.instances["busy_s"][1:3]
    assert busy_s == pytest.approx([9.48, 9.48], abs=0.02)
    assert done.result.summary["load_imbalance_decode"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("horizon_s", "stop"), [(0.5, STOP_HORIZON), (1.5, STOP_DONE), (1e6, STOP_DONE)])
def test_a_served_workload_is_over_although_the_store_is_written(horizon_s: float, stop: int) -> None:
    # Served at 0.1 + 0.9; the write to the store takes 100 s.
    scenario = tiny(horizon_s=horizon_s, store__capacity_tokens=1000, store__nic_gbytes_per_s=1e-3)
    done = run(scenario, requests([(0.0, 100, 91)]))
    assert drive(done.worlds, 0, as_bundle(Script())) == stop
    assert done.result.summary["completed"] == (stop == STOP_DONE)
