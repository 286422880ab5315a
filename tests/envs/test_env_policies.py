"""The compiled loop and the same policies called through `step` leave the same records, byte for byte."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from env_tools import IDS, SMALL, arrays_workload, legal_player, make, play, random_legal

import cacheenv
from cacheenv import InputError
from cacheenv.envs.env import CacheEnv
from cacheenv.envs.policy_player import PolicyPlayer
from cacheenv.policy import DECISION_ROUTE, PolicyBundle, make_policy
from cacheenv.run.simulate import apply_requirements


def equipped(bundle: PolicyBundle) -> cacheenv.Scenario:
    """The small cluster with what the policies require of it."""
    return apply_requirements(cacheenv.load_scenario(SMALL), bundle)


def stepped(name: str, bundle: PolicyBundle, seed: int, options: dict[str, Any], **kwargs: Any) -> CacheEnv:
    env = make(name, **kwargs)
    env.reset(options={"episode_seed": seed, **options})
    player, done = PolicyPlayer(bundle), False
    player.begin(env)
    while not done:
        _, _, done, _, info = env.step(player.act(env))
        assert not info["invalid_action"]
    return env


@pytest.mark.parametrize("own_workload", [False, True])
@pytest.mark.parametrize(
    "policy",
    [
        "mooncake", "mooncake_local", "sglang", "cpd", "random", "lmetric", "longest_prefix", "least_requests/least_kv",
        "power_of_two/random", "mooncake+early_reject", "random+predictive_reject",
    ],
)  # fmt: skip
def test_routers(policy: str, own_workload: bool) -> None:
    workload = arrays_workload() if own_workload else None
    options = {"workload": workload} if own_workload else {}
    bundle = make_policy(policy)
    expected = cacheenv.simulate(SMALL, policy, seed=4, workload=workload)
    env = stepped(IDS[0], bundle, 4, options, scenario=equipped(bundle))
    assert env.result().requests.tobytes() == expected.requests.tobytes()
    assert env.result().summary == expected.summary
    assert env.result().decisions == expected.decisions


@pytest.mark.parametrize("policy", ["mooncake+star", "random+llumnix", "sglang+star_variance", "least_backlog+star"])
def test_routers_with_reschedulers(policy: str) -> None:
    options = {"workload": arrays_workload()}
    bundle = make_policy(policy)
    expected = cacheenv.simulate(SMALL, policy, seed=4, workload=options["workload"])
    assert expected.summary["migrations"] > 0
    router, rescheduler = policy.split("+")
    scenario = equipped(bundle)
    both = stepped(IDS[2], bundle, 4, options, scenario=scenario, action_format="factored")
    routing = stepped(IDS[0], bundle, 4, options, scenario=scenario, overrides={"rescheduler": rescheduler})
    moving = stepped(IDS[1], bundle, 4, options, scenario=scenario, overrides={"router": router})
    for env in (both, routing, moving):
        assert env.result().requests.tobytes() == expected.requests.tobytes()
        assert env.result().instances.tobytes() == expected.instances.tobytes()


def test_seeds_of_episodes_are_seeds_of_simulations() -> None:
    env = make(IDS[0])
    env.reset(seed=0)
    expected = cacheenv.simulate(SMALL, "round_robin", seed=env.episode_seed)
    player, done = PolicyPlayer("round_robin"), False
    player.begin(env)
    while not done:
        _, _, done, _, info = env.step(player.act(env))
    assert env.result().requests.tobytes() == expected.requests.tobytes()
    assert all(info[key] == value for key, value in expected.summary.items() if value is not None)


def test_a_python_object_is_a_policy_too() -> None:
    class Actor:
        migrates = True

        def __init__(self) -> None:
            self.rng = np.random.default_rng(0)

        def act(self, view: Any, mask: np.ndarray) -> int:
            return random_legal(mask, self.rng)

    expected = cacheenv.simulate(SMALL, Actor(), seed=8)
    env, rng, done = make(IDS[2]), np.random.default_rng(0), False
    env.reset(options={"episode_seed": 8})
    while not done:
        mask = env.action_masks()
        routes = env.stepper.codec.route_count
        block, offset = (mask[:routes], 0) if env.decision == DECISION_ROUTE else (mask[routes:], routes)
        _, _, done, _, _ = env.step(offset + random_legal(block, rng))
    assert env.result().requests.tobytes() == expected.requests.tobytes()
    assert env.result().decisions == expected.decisions


def test_every_policy_meets_the_same_arrivals() -> None:
    records = [cacheenv.simulate(SMALL, policy, seed=3).requests for policy in ("random", "mooncake+star")]
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "session"):
        assert np.array_equal(records[0][column], records[1][column])


def test_players_that_cannot_play() -> None:
    class Actor:
        def act(self, view: Any, mask: np.ndarray) -> int:
            return 0

    with pytest.raises(InputError, match=r"expected compiled policies"):
        PolicyPlayer(Actor())
    env, player = make(IDS[2]), PolicyPlayer("mooncake")
    with pytest.raises(gym.error.ResetNeeded):
        player.begin(env)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"call begin\(\) first"):
        player.act(env)
    player.begin(env)
    with pytest.raises(InputError, match="it has no rescheduler, which this decision needs"):
        while True:
            env.step(player.act(env))


LATE = {"admission.after_prefill": True, "slo.tbt_tail_s": 0.0001, "slo.ttft_s": 1e6}


def test_an_agent_that_routes_is_not_asked_after_the_prefill() -> None:
    env = make(IDS[0], scenario=cacheenv.load_scenario(SMALL, LATE))
    log = play(env, legal_player(0), seed=0)
    assert log["info"][-1]["rejected_late"] == 0 and log["info"][-1]["completed"] > 0


def test_the_admission_policy_of_a_configured_router_is_asked_after_the_prefill() -> None:
    scenario = cacheenv.load_scenario(SMALL, {**LATE, "router": "round_robin+late_reject"})
    env = make(IDS[1], scenario=scenario)
    env.reset(options={"episode_seed": 4})
    expected = cacheenv.simulate(scenario, "round_robin+late_reject", seed=4)
    assert expected.summary["rejected_late"] > 70 and expected.summary["completed"] < 10, "one token has no gaps"
    assert env.result().requests.tobytes() == expected.requests.tobytes()


def test_a_planner_plays_the_environment_as_it_plays_a_run() -> None:
    """The player's own streams are the base's; looking does not touch the environment."""
    small = {**cacheenv.load_scenario(SMALL).to_dict()}
    small["workload"] = {**small["workload"], "requests": 8}
    name = "hindsight(base=random,horizon_s=2,routes=1)"
    expected = cacheenv.simulate(small, name, seed=4)
    bundle = make_policy(name)
    scenario = apply_requirements(cacheenv.load_scenario(small), bundle)
    assert stepped(IDS[0], bundle, 4, {}, scenario=scenario).result().requests.tobytes() == expected.requests.tobytes()
    with pytest.raises(InputError, match="an environment in which it decides everything"):
        env = make(IDS[0], scenario=scenario, overrides={"rescheduler": "star"})
        env.reset(seed=1)
        PolicyPlayer(bundle).begin(env)
