"""Faults of migration that were reported of real systems (ids G-1, G-3 and G-5), as in `tests/sim/test_faults.py`."""

from __future__ import annotations

import numpy as np
import pytest
from fault_tools import assert_nothing_held, unique
from tiny_cluster import Script, requests, run, tiny

import cacheenv_baselines
from cacheenv.sim.core.rng import seed_words

COMPLETED = 1


def moving(**settings):
    """Three decode instances, one request of 1000 tokens on the first; its copy takes 1 s."""
    return tiny(decode__count=3, network__nic_gbytes_per_s=1.0, reschedule__period_s=0.5, **settings)


def test_g1_a_request_moves_to_one_place_at_a_time():
    listed = []

    def move(view, mask):
        valid = [int(entry.request) for entry in view.candidate if entry.valid]
        listed.append((float(view.cluster[0].now_s), valid))
        if not any(seen == [0] and at < listed[-1][0] for at, seen in listed) and valid == [0]:
            return int(np.flatnonzero(mask)[0])
        return len(mask) - 1

    done = run(moving(), requests([(0.0, 1000, 500)]), Script(moves=move), prefill_b_s=1e-6)
    row = done.rows[0]
    first = listed[0][0]
    # While it is copied (1 s) no tick has a legal move, so none is a decision.
    assert [at for at, _ in listed if first < at < first + 1.0] == []
    assert (row.migrations, row.decode_instance, row.outcome) == (1, 1, COMPLETED)
    assert done.result.instances[1].tokens + done.result.instances[2].tokens == 499
    assert done.result.instances[3].tokens == 0
    assert_nothing_held(done)


def test_g1_other_requests_of_the_source_wait_their_turn():
    masks = []

    def move(view, mask):
        masks.append(np.flatnonzero(mask).tolist())
        return masks[-1][0]

    rows = requests([(0.0, 1000, 400), (0.0, 1000, 400), (0.0, 1000, 400)])
    done = run(moving(), rows, Script([(0, 0), (0, 0), (0, 1)], moves=move), prefill_b_s=1e-6)
    assert done.result.summary["migrations"] > 0
    assert_nothing_held(done)


def test_g3_the_load_moves_with_the_request():
    loads = {}

    def look(view):
        loads[round(float(view.cluster[0].now_s), 3)] = view.decode.inflight_requests.tolist()

    rows = [(0.0, 1000, 500), (1.4, 1, 1), (4.0, 1, 1), (20.0, 1, 1)]
    script = Script([(0, 0), (0, 2), (0, 2), (0, 2)], moves={0: (0, 1)}, watch=look)
    done = run(moving(), requests(rows), script, prefill_b_s=1e-6)
    assert done.rows[0].migrations == 1 and done.rows[0].finish_s > 4.0
    assert loads[1.4][:2] == [1, 0] and loads[4.0][:2] == [0, 1] and loads[20.0] == [0, 0, 0]


def moves_of(name):
    """A rescheduler as a function of a script."""
    part = cacheenv_baselines.make(name)
    stream, state = seed_words(np.random.SeedSequence(0)), part.parameter_array()
    return lambda view, mask: part.function(view, stream, state)


@pytest.mark.parametrize("rescheduler", ["star", "star_oracle", "star_nopred", "llumnix"])
def test_g5_equal_loads_do_not_ping_pong(rescheduler):
    """Ten and nine equal requests on two instances that step alike: a move would only swap the two."""
    scenario = tiny(decode__count=2, decode__kv_tokens=100_000, reschedule__period_s=0.1)
    rows = run(scenario, requests(unique(19, output=2000)), f"round_robin+{rescheduler}").rows
    assert (rows.outcome == COMPLETED).all() and np.bincount(rows.decode_instance).tolist() == [10, 9]
    assert rows.migrations.sum() == 0
    if rescheduler == "llumnix":
        return  # looks at free memory, which there is plenty of
    # The same rules do move where it helps: all on one instance.
    both = run(scenario, requests(unique(19, output=2000)), Script([(0, 0)], moves=moves_of(rescheduler))).rows
    assert 0 < both.migrations.sum() <= 19
