"""The contract of a Gymnasium environment."""

from __future__ import annotations

import json
import warnings

import gymnasium as gym
import numpy as np
import pytest
from env_tools import IDS, SMALL, legal_player, make, play
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics

from cacheenv import InputError
from cacheenv.envs.env import CacheEnv
from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.envs.wrappers import ActionMaskObservation

VARIANTS = [(name, fmt, obs) for name in IDS for fmt in ("joint", "factored") for obs in ("flat", "dict")]


@pytest.mark.parametrize(("name", "action_format", "observation"), VARIANTS)
def test_check_env(name: str, action_format: str, observation: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(name, scenario=SMALL, action_format=action_format, observation=observation)
        check_env(env.unwrapped)


@pytest.mark.parametrize("name", IDS)
def test_defaults_are_the_embedded_scenario(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(f"cacheenv:{name}")
    assert env.unwrapped.stepper.scenario.name == "kimi-chat"
    assert isinstance(env.action_space, gym.spaces.Discrete)
    assert isinstance(env.observation_space, gym.spaces.Box)
    observation, info = env.reset(seed=3)
    assert observation in env.observation_space and set(info) == {"action_mask", "dt", "invalid_action"}
    assert env.action_space.contains(env.action_space.sample(info["action_mask"]))


def test_types_are_pythons_and_nothing_is_shared() -> None:
    env = make(IDS[2])
    first, info = env.reset(seed=0)
    kept, mask = first.copy(), info["action_mask"].copy()
    second, reward, terminated, truncated, later = env.step(random_route(env))
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert (type(later["dt"]), type(later["invalid_action"])) == (float, bool)
    assert later["action_mask"].dtype == np.int8
    assert not np.shares_memory(first, second) and not np.shares_memory(info["action_mask"], later["action_mask"])
    assert np.array_equal(first, kept) and np.array_equal(info["action_mask"], mask)
    env.action_masks()[:] = False  # a copy
    assert env.action_masks().any()


def random_route(env: CacheEnv) -> int:
    return int(np.flatnonzero(env.action_masks())[0])


@pytest.mark.parametrize("action_type", [int, np.int64, np.array])
def test_action_types(action_type: type) -> None:
    env = make(IDS[0])
    env.reset(seed=0)
    env.step(action_type(4))
    assert env.result().requests.prefill_instance[0] == 0 and env.result().requests.decode_instance[0] == 2


@pytest.mark.parametrize("name", IDS)
def test_spec_round_trip(name: str) -> None:
    kwargs = {
        "scenario": SMALL, "overrides": {"cluster.prefill.count": 2}, "action_format": "factored",
        "observation": "dict", "reward": "latency", "horizon_s": 50.0,
    }  # fmt: skip
    env = gym.make(name, max_episode_steps=5, **kwargs)
    text = env.spec.to_json()
    json.loads(text)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(text))
    assert again.observation_space == env.observation_space and again.action_space == env.action_space
    assert again.unwrapped.stepper.scenario == env.unwrapped.stepper.scenario
    first, _ = env.reset(seed=1)
    second, _ = again.reset(seed=1)
    assert all(np.array_equal(first[key], second[key]) for key in first)
    assert env.spec.make().observation_space == env.observation_space


def test_make_vec_with_the_prefix() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = gym.make_vec(f"cacheenv:{IDS[0]}", num_envs=3, scenario=SMALL, max_episode_steps=4)
    assert isinstance(batch, CacheVectorEnv)
    observations, info = batch.reset(seed=0)
    assert observations in batch.observation_space and info["action_mask"].shape == (3, 19)
    for _ in range(4):
        _, _, terminated, truncated, _ = batch.step(np.zeros(3, int))
    assert truncated.all() and not terminated.any()
    batch.close()
    batch.close()


def test_wrappers_of_gymnasium() -> None:
    env = RecordEpisodeStatistics(gym.make(IDS[2], scenario=SMALL, observation="dict"))
    flat = FlattenObservation(env)
    flat.reset(seed=0)
    player, done, total = legal_player(0), False, 0.0
    while not done:
        _, reward, terminated, truncated, info = flat.step(player(flat.unwrapped))
        done, total = terminated or truncated, total + reward
    assert info["episode"]["r"] == pytest.approx(total)
    assert {"slo_attainment", "ttft_p99_s", "goodput_rps"} < set(info)
    assert all(isinstance(value, (int, float)) for key, value in info.items() if key not in ("action_mask", "episode"))


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.parametrize("observation", ["flat", "dict"])
@pytest.mark.parametrize("action_format", ["joint", "factored"])
def test_mask_in_the_observation(action_format: str, observation: str) -> None:
    env = ActionMaskObservation(gym.make(IDS[2], scenario=SMALL, action_format=action_format, observation=observation))
    check_env(env, skip_render_check=True)
    seen, info = env.reset(seed=0)
    assert seen in env.observation_space
    assert np.array_equal(seen["action_mask"], info["action_mask"])
    sizes = env.action_space.n if action_format == "joint" else env.action_space.nvec.sum()
    assert seen["action_mask"].shape == (sizes,)
    assert env.spec.make().observation_space == env.observation_space


@pytest.mark.parametrize("bad", [-1, "a", None, 1.5])
def test_an_episode_seed_is_a_whole_number(bad: object) -> None:
    for env in (make(IDS[0]), gym.make_vec(IDS[0], num_envs=2, scenario=SMALL)):
        with pytest.raises(InputError, match="reset options: episode_seed: expected a whole number >= 0"):
            env.reset(seed=0, options={"episode_seed": bad})


def test_reset_options() -> None:
    env = make(IDS[0])
    with pytest.raises(InputError, match=r"unknown key 'episode_sed'.*did you mean 'episode_seed'"):
        env.reset(options={"episode_sed": 1})
    first = play(env, legal_player(0), seed=5, options={"episode_seed": 11})
    second = play(env, legal_player(0), seed=6, options={"episode_seed": 11})
    assert first["reward"] == second["reward"] and env.episode_seed == 11
    play(env, legal_player(0))
    assert env.episode_seed != 11


def test_seeding_continues_the_stream() -> None:
    env, other = make(IDS[0]), make(IDS[0])
    seeds = []
    for _ in range(2):
        env.reset(seed=1)
        seeds.append([env.episode_seed])
        for _ in range(3):
            env.reset()
            seeds[-1].append(env.episode_seed)
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 4
    other.reset(seed=2)
    assert other.episode_seed not in seeds[0]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"observation": "flatt"}, "observation: expected one of flat, dict"),
        ({"action_format": 3}, "action_format: expected one of joint, factored"),
        ({"reward": "sl"}, "reward: expected one of slo, latency, shaped"),
        ({"scenario": "kimi"}, "unknown scenario 'kimi'"),
        ({"overrides": {"cluster.prefil.count": 2}}, "cluster.prefil"),
        ({"horizon_s": -1.0}, "horizon_s"),
        ({"render_mode": "human"}, "render_mode"),
        ({"overrides": {"router": "no_such"}}, "unknown policy 'no_such'"),
        ({"overrides": {"router": "star"}}, "router: expected a"),
    ],
)
def test_bad_arguments(kwargs: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        CacheEnv(**{"routes": False, "scenario": SMALL, **kwargs})
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=message):
        CacheVectorEnv(2, **{"routes": False, "scenario": SMALL, **kwargs})


def test_bad_rescheduler() -> None:
    with pytest.raises(InputError, match="rescheduler: expected a rescheduler, got 'mooncake'"):
        CacheEnv(moves=False, scenario=SMALL, overrides={"rescheduler": "mooncake"})


def test_calls_out_of_order() -> None:
    env, batch = make(IDS[0]), CacheVectorEnv(2, scenario=SMALL)
    for early in (lambda: env.step(0), env.get_state, lambda: batch.step([0, 0]), batch.get_state):
        with pytest.raises(gym.error.ResetNeeded):
            early()
    with pytest.raises(gym.error.ResetNeeded):
        batch.reset(options={"reset_mask": np.array([True, False])})
    batch.reset(seed=0)
    with pytest.raises(InputError, match="expected 2 actions"):
        batch.step([0, 0, 0])
    with pytest.raises(InputError, match="expected 2 seeds"):
        batch.reset(seed=[1])
    with pytest.raises(InputError, match="reset_mask"):
        batch.reset(options={"reset_mask": np.zeros(2, bool)})
    with pytest.raises(InputError, match="num_envs"):
        CacheVectorEnv(0, scenario=SMALL)


def test_wrong_workload_pages() -> None:
    import cacheenv

    odd = cacheenv.Workload.from_arrays([0.0], [100], [5], page_tokens=64)
    env = make(IDS[0])
    with pytest.raises(InputError, match=r"pages of 64 tokens, but cluster.page_tokens is 256"):
        env.reset(options={"workload": odd})


def test_render() -> None:
    text = make(IDS[2], render_mode="ansi")
    assert text.render() is None
    text.reset(seed=0)
    for _ in range(20):
        text.step(random_route(text))
    drawn = text.render()
    assert isinstance(drawn, str) and len(drawn.splitlines()) == 7 and "P0" in drawn and "D2" in drawn
    image = make(IDS[2], render_mode="rgb_array")
    image.reset(seed=0)
    before = image.render()
    assert before.dtype == np.uint8 and before.ndim == 3 and before.shape[2] == 3
    for _ in range(20):
        image.step(random_route(image))
    assert image.render().shape == before.shape and not np.array_equal(image.render(), before)
    silent = make(IDS[2])
    silent.reset(seed=0)
    assert silent.render() is None
    silent.close()
    silent.close()
