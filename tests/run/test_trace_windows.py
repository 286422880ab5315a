"""Episodes of a trace: a window of it from a place that the seed draws, each world its own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cacheenv.envs.arguments import EnvArguments
from cacheenv.envs.stepper import Stepper
from cacheenv.errors import InputError
from cacheenv.run.simulate import simulate
from cacheenv.run.worlds import Worlds
from cacheenv.scenario import load_scenario

REQUESTS = 100  # one a second, request n of n + 1 tokens, so that lengths say which one it is


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("windows") / "steps.jsonl"
    rows = [
        {"timestamp": 1000 * n, "input_length": n + 1, "output_length": 2, "hash_ids": [n // 2], "session_id": n % 7}
        for n in range(REQUESTS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scenario(trace, **options):
    changes = {f"workload.{name}": value for name, value in options.items()}
    return load_scenario(
        {"workload": {"kind": "mooncake", "trace": str(trace)}, "cluster": {"prefill": {"count": 1}}}, changes
    )


def rows_of(workload):
    return (workload.requests["prompt_tokens"] - 1).tolist()


def test_the_seed_draws_the_place(trace):
    windowed = scenario(trace, window_requests=30)
    places = set()
    for seed in range(60):
        part = windowed.make_workload(seed)
        part.validate()
        first = rows_of(part)[0]
        assert rows_of(part) == list(range(first, first + 30))
        assert part.requests["arrival_s"].tolist() == list(range(30))
        assert rows_of(windowed.make_workload(seed)) == rows_of(part)
        places.add(first)
    assert min(places) < 10 and max(places) > 60 and len(places) > 25
    assert rows_of(scenario(trace, window_requests=REQUESTS).make_workload(3)) == list(range(REQUESTS))


def test_splits_are_by_time_and_do_not_meet(trace):
    # 99 s from first to last: the border is at 79.2 s.
    assert rows_of(scenario(trace, split="train").make_workload()) == list(range(80))
    assert rows_of(scenario(trace, split="test").make_workload()) == list(range(80, 100))
    for seed in range(20):
        assert max(rows_of(scenario(trace, split="train", window_requests=20).make_workload(seed))) < 80
        assert min(rows_of(scenario(trace, split="test", window_requests=15).make_workload(seed))) >= 80


def test_without_windows_all_seeds_share_the_trace(trace):
    whole = scenario(trace)
    assert whole.make_workload(1) is whole.make_workload(2)
    part = scenario(trace, split="test")
    assert part.make_workload(1) is part.make_workload(2)


def test_each_world_of_a_batch_has_its_own(trace):
    worlds = Worlds(scenario(trace, window_requests=20), 4)
    for _ in range(2):
        for index in range(4):
            worlds.reset(index, 100 + index)
        firsts = [int(worlds.world(index).workload[0]["prompt_tokens"]) for index in range(4)]
        assert len(set(firsts)) == 4
        assert worlds.workloads.rows <= 5
    twin = worlds.get_state()
    worlds.reset(0, 7)
    worlds.set_state(twin)
    assert int(worlds.world(0).workload[0]["prompt_tokens"]) == firsts[0]


def test_an_environment_draws_a_window_an_episode(trace):
    stepper = Stepper(
        1, EnvArguments(True, False, scenario(trace, window_requests=20), None, "joint", "flat", None, None)
    )
    seen = set()
    for seed in range(5):
        stepper.begin(0, seed)
        seen.add(int(stepper.worlds.world(0).workload[0]["prompt_tokens"]))
    assert len(seen) >= 4


def test_every_policy_meets_the_same_window(trace):
    windowed = scenario(trace, window_requests=25)
    one, other = (simulate(windowed, policy, seed=4).requests for policy in ("random", "round_robin"))
    assert np.array_equal(one.prompt_tokens, other.prompt_tokens)
    assert not np.array_equal(one.prompt_tokens, simulate(windowed, "random", seed=5).requests.prompt_tokens)


def test_windows_that_do_not_fit_are_refused(trace):
    with pytest.raises(InputError, match=r"workload\.window_requests: expected at most 20, .* got 30"):
        scenario(trace, window_requests=30, split="test").make_workload()
    with pytest.raises(InputError, match=r"workload\.window_requests: expected null for kind chat"):
        load_scenario("kimi-chat", {"workload.window_requests": 30})
    with pytest.raises(InputError, match=r"workload\.split: expected 'all' for kind chat"):
        load_scenario("kimi-chat", {"workload.split": "test"})
    with pytest.raises(InputError, match=r"warmup_requests: expected less than workload\.window_requests = 30"):
        scenario(trace, window_requests=30).with_overrides({"warmup_requests": 30})


def test_the_rate_of_a_windowed_trace_is_that_of_all_windows(trace):
    assert scenario(trace, window_requests=5).at_rate(2.0).workload.rate_scale == pytest.approx(2.0)
