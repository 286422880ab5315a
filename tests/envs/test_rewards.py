"""Rewards, and how episodes begin and end."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from env_tools import IDS, SMALL, arrays_workload, legal_player, make, play, stay_player

import cacheenv
from cacheenv.envs.env import CacheEnv
from cacheenv.envs.rewards import REWARDS
from cacheenv.policy import DECISION_ROUTE, make_policy
from cacheenv.scenario.sections import REWARD_KINDS

PRICES = {"reward.violation": 0.5, "reward.rejection": 2.0}


def test_every_kind_of_reward_has_a_formula() -> None:
    assert tuple(REWARDS) == REWARD_KINDS


def first_pair(env: CacheEnv) -> int:
    """Spreads requests over the pairs and rejects some; moves nothing."""
    if env.decision != DECISION_ROUTE:
        return stay_player(env)
    number = int(env.view.request.index[0])
    if number % 7 == 3:
        return int(env.encode_action(reject=True))
    return int(env.encode_action(prefill=number % 3, decode=number // 3 % 3))


def expected_return(kind: str, env: CacheEnv) -> float:
    """From the records alone."""
    records = env.result().requests
    counted = records[(records.counted == 1) & (records.outcome != 3)]
    met, rejected = int(counted.slo_met.sum()), int((counted.outcome == 2).sum())
    violated = int((counted.outcome == 1).sum()) - met
    slo = met - 0.5 * violated - 2.0 * rejected
    in_system_s = float(np.nansum(counted.e2e_s))
    return {"slo": slo, "latency": -in_system_s, "shaped": slo - 0.01 * in_system_s}[kind]


def opening(env: CacheEnv) -> float:
    """Simulated time of the first decision of the episode."""
    twin = copy.deepcopy(env)
    twin.reset(options={"episode_seed": env.episode_seed, "workload": env.stepper.worlds.workloads.of(0)})
    return float(twin.view.cluster.now_s[0])


@pytest.mark.parametrize("kind", ["slo", "latency", "shaped"])
def test_the_return_does_not_depend_on_the_decision_points(kind: str) -> None:
    options = {"workload": arrays_workload(60)}
    overrides = {**PRICES, "warmup_requests": 9}
    runs: list[tuple[CacheEnv, dict[str, Any]]] = []
    for name in (IDS[0], IDS[2]):
        env = make(name, overrides=overrides, reward=kind)
        runs.append((env, play(env, first_pair, seed=0, options=options)))
    (routing, few), (both, many) = runs
    assert len(many["reward"]) > len(few["reward"]) + 50
    assert routing.result().requests.tobytes() == both.result().requests.tobytes()
    wanted = expected_return(kind, routing)
    assert sum(few["reward"]) == pytest.approx(wanted, rel=1e-9) == pytest.approx(sum(many["reward"]), rel=1e-9)
    assert routing.result().summary["rejected"] > 0 and 0 < routing.result().summary["slo_attainment"] < 1


@pytest.mark.parametrize("kind", ["slo", "latency", "shaped"])
def test_the_first_reward_has_what_happened_before_the_first_decision(kind: str) -> None:
    env = make(IDS[1], overrides={**PRICES, "router": "round_robin", "reschedule.period_s": 20.0}, reward=kind)
    log = play(env, stay_player, seed=0, options={"workload": arrays_workload(60)})
    assert env.result().requests.finish_s.min() < 20.0
    assert sum(log["reward"]) == pytest.approx(expected_return(kind, env), rel=1e-9)
    assert log["info"][0]["dt"] == 0.0 and log["info"][1]["dt"] == 20.0
    until_s = opening(env) + 20.0
    ended, arrived = np.minimum(env.result().requests.finish_s, until_s), env.result().requests.arrival_s
    if kind == "latency":
        assert -log["reward"][0] == pytest.approx(sum(ended - np.minimum(arrived, until_s)))


def test_rewards_count_when_the_fate_is_known() -> None:
    # One request at a time: met at its end, violated at its first token where that is late, rejected at once.
    workload = cacheenv.Workload.from_arrays(
        [0.0, 30.0, 60.0, 90.0, 120.0], [500] * 5, [40, 40, 40, 40, 40], page_tokens=256
    )
    env = make(IDS[0], overrides=PRICES)
    env.reset(options={"workload": workload})
    rewards = [env.step(action)[1] for action in (0, 18, 0, 0, 0)]
    assert rewards == [1.0, -2.0, 1.0, 1.0, 1.0]
    late = make(IDS[0], overrides={**PRICES, "slo.ttft_s": 0.01})
    late.reset(options={"workload": workload})
    assert [late.step(action)[1] for action in (0, 18, 0, 0, 0)] == [-0.5, -2.0, -0.5, -0.5, -0.5]


def test_warm_up_requests_do_not_count() -> None:
    options = {"workload": arrays_workload(40)}
    env = make(IDS[0], overrides={"warmup_requests": 25, **PRICES})
    log = play(env, first_pair, seed=0, options=options)
    assert env.result().summary["requests"] == 15
    assert sum(log["reward"]) == expected_return("slo", env)
    everything = make(IDS[0], overrides=PRICES)
    play(everything, first_pair, seed=0, options=options)
    assert everything.result().requests.finish_s.tobytes() == env.result().requests.finish_s.tobytes()
    for share, counted in ((0.625, 15), (0.63, 15), (0.1, 36), (0.9, 4)):  # 25.2 are 25
        shared = make(IDS[0], overrides={"warmup_share": share, "warmup_requests": 3, **PRICES})
        play(shared, first_pair, seed=0, options=options)
        assert shared.result().summary["requests"] == counted
    nothing = make(IDS[0], overrides={"warmup_requests": 40})
    log = play(nothing, first_pair, seed=0, options=options)
    assert set(log["reward"]) == {0.0} and log["flags"][-1] == (True, False)
    assert log["info"][-1]["requests"] == 0 and np.isnan(log["info"][-1]["slo_attainment"])


@pytest.mark.parametrize("name", IDS)
def test_served_is_terminated_and_the_horizon_truncates(name: str) -> None:
    full = make(name)
    log = play(full, legal_player(0), seed=0)
    assert log["flags"][-1] == (True, False) and set(log["flags"][:-1]) == {(False, False)}
    assert full.result().summary["unfinished"] == 0
    cut = make(name, horizon_s=12.0)
    log = play(cut, legal_player(0), seed=0)
    assert log["flags"][-1] == (False, True) and cut.result().summary["unfinished"] > 0
    elapsed_s = sum(info["dt"] for info in log["info"])
    assert cut.view.cluster.now_s[0] == 12.0 == pytest.approx(opening(cut) + elapsed_s)


def test_the_observation_at_the_horizon_is_of_the_horizon() -> None:
    env = make(IDS[0], horizon_s=12.0, observation="dict")
    log = play(env, legal_player(0), seed=0)
    last = log["obs"][-1]
    assert not last["cluster"][:2].any() and not last["request"].any()
    assert env.view.cluster.requests_in_system[0] == np.sum(
        (env.result().requests.outcome == 0) & (env.result().requests.arrival_s <= 12.0)
    )
    assert not np.array_equal(log["obs"][-2]["decode"], last["decode"])


@pytest.mark.parametrize("reward", ["slo", "latency", "shaped"])
def test_an_episode_of_one_request(reward: str) -> None:
    one = cacheenv.Workload.from_arrays([1.5], [1000], [1], page_tokens=256)
    env = make(IDS[0], reward=reward)
    log = play(env, lambda env: 5, options={"workload": one})
    assert log["flags"] == [(True, False)] and env.result().requests.prefill_instance[0] == 0
    assert log["reward"][0] == pytest.approx(expected_return(reward, env))


def test_an_episode_in_which_everything_is_rejected() -> None:
    for name in (IDS[0], IDS[2]):
        env = make(name, overrides=PRICES)
        log = play(env, lambda env: env.encode_action(reject=True), seed=0)
        summary = env.result().summary
        assert summary["rejected"] + summary["too_large"] + summary["abandoned"] == 80 and summary["completed"] == 0
        assert sum(log["reward"]) == -2.0 * summary["rejected"] and summary["slo_attainment"] == 0.0


@pytest.mark.parametrize("name", IDS)
def test_an_episode_in_which_everything_is_too_large(name: str) -> None:
    workload = cacheenv.Workload.from_arrays([0.0, 1.0], [500_000, 100], [10, 500_000], page_tokens=256)
    env = make(name)
    log = play(env, legal_player(0), options={"workload": workload})
    assert log["flags"] == [(True, False)] and log["reward"] == [0.0]
    assert env.result().summary["too_large"] == 2
    assert log["obs"][0] in env.observation_space and log["obs"][1] in env.observation_space


def test_migration_where_no_move_ever_becomes_legal() -> None:
    one = cacheenv.Workload.from_arrays([0.0], [1000], [500], page_tokens=256)
    env = make(IDS[1], overrides={"cluster.decode.count": 1})
    log = play(env, stay_player, options={"workload": one})
    assert log["flags"] == [(True, False)] and log["reward"] == [1.0]


def test_an_episode_with_a_trace(tmp_path: Any) -> None:
    # Worlds share a trace's table until one of them is given another workload.
    lines = [
        f'{{"timestamp": {i * 300}, "input_length": 700, "output_length": {5 + i}, "hash_ids": [{i % 3}, {i + 10}]}}'
        for i in range(20)
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines) + "\n")
    import gymnasium as gym

    scenario = {**SMALL, "workload": {"kind": "mooncake", "trace": str(tmp_path / "trace.jsonl")}}
    scenario["cluster"] = {**SMALL["cluster"], "page_tokens": 512}
    expected = cacheenv.simulate(scenario, make_policy("round_robin"), seed=0)
    batch = gym.make_vec(IDS[1], 3, scenario=scenario, overrides={"router": "round_robin"}, autoreset_mode="Disabled")
    batch.reset(seed=0)
    assert batch.stepper.worlds.tables.workload.shape[0] == 1
    for _ in range(8):
        batch.step([batch.single_action_space.n - 1] * 3)
    other = cacheenv.Workload.from_arrays([0.0, 2.0], [600, 700], [50, 60], page_tokens=512)
    batch.reset(options={"workload": other, "reset_mask": np.array([False, True, False])})
    assert batch.stepper.worlds.tables.workload.shape[0] == 2
    done = np.zeros(3, bool)
    while not done.all():
        _, _, terminated, _, _ = batch.step([batch.single_action_space.n - 1] * 3)
        done |= terminated
        if terminated.any() and not done.all():
            batch.reset(options={"reset_mask": terminated})
    assert batch.result(0).requests.tobytes() == expected.requests.tobytes() or done[0]
