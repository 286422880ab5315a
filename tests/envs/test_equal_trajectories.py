"""Env, its batched form in every autoreset mode, and the SB3 adapter: the same numbers for the same seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from env_tools import IDS, SMALL, arrays_workload, make, random_legal, same
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from cacheenv.envs.vector import CacheVectorEnv

WORLDS = 3
#: Short episodes, so that every world starts several.
SHORT = {"workload.requests": 12, "workload.rate_rps": 4.0}
SUMMARY_KEYS = ("slo_attainment", "ttft_p99_s", "requests", "makespan_s", "migrations")


def batch_of(name: str, mode: AutoresetMode, **kwargs: Any) -> CacheVectorEnv:
    return gym.make_vec(name, WORLDS, autoreset_mode=mode, scenario=SMALL, overrides=SHORT, **kwargs)


def sync_of(name: str, mode: AutoresetMode, **kwargs: Any) -> SyncVectorEnv:
    made: Callable[[], gym.Env] = lambda: gym.make(name, scenario=SMALL, overrides=SHORT, **kwargs)  # noqa: E731
    return SyncVectorEnv([made] * WORLDS, autoreset_mode=mode)


def chosen(masks: np.ndarray, rng: np.random.Generator, space: gym.Space) -> np.ndarray:
    """A legal action for each world; of a MultiDiscrete one legal value for each part."""
    if isinstance(space, gym.spaces.Discrete):
        return np.array([random_legal(mask, rng) for mask in masks])
    edges = np.concatenate([[0], np.cumsum(space.nvec)])
    return np.array([[random_legal(mask[a:b], rng) for a, b in itertools.pairwise(edges)] for mask in masks])


def compare_infos(ours: dict[str, Any], theirs: dict[str, Any], limited: bool) -> None:
    """What Gymnasium's own vectoriser says, ours says too, number for number."""
    for key in ("action_mask", "dt", "invalid_action", *SUMMARY_KEYS):
        if key not in theirs:  # under TimeLimit an environment does not know that its episode is over
            assert key not in ours or limited
            continue
        present = np.asarray(theirs[f"_{key}"])
        assert np.array_equal(ours[f"_{key}"], present), key
        assert np.array_equal(np.asarray(ours[key])[present], np.asarray(theirs[key])[present], equal_nan=True), key
    assert ("final_obs" in ours) == ("final_obs" in theirs)
    if "final_obs" in ours:
        assert np.array_equal(ours["_final_obs"], theirs["_final_obs"])
        for i in np.flatnonzero(ours["_final_obs"]):
            assert same(ours["final_obs"][i], theirs["final_obs"][i])
        compare_infos(ours["final_info"], theirs["final_info"], limited)


def compare(ours: CacheVectorEnv, theirs: gym.vector.VectorEnv, mode: AutoresetMode, steps: int) -> int:
    rng, limited = np.random.default_rng(0), ours.max_episode_steps is not None
    (first, info), (second, other) = ours.reset(seed=7), theirs.reset(seed=7)
    assert same(first, second)
    compare_infos(info, other, limited)
    episodes = 0
    for _ in range(steps):
        actions = chosen(info["action_mask"], rng, ours.single_action_space)
        first, reward, terminated, truncated, info = ours.step(actions)
        second, reward2, terminated2, truncated2, other = theirs.step(actions)
        assert same(first, second) and same(reward, reward2)
        assert np.array_equal(terminated, terminated2) and np.array_equal(truncated, truncated2)
        compare_infos(info, other, limited)
        done = terminated | truncated
        episodes += int(done.sum())
        if mode == AutoresetMode.DISABLED and done.any():
            options = {"reset_mask": done}
            (first, fresh), (second, other) = ours.reset(options=dict(options)), theirs.reset(options=dict(options))
            assert same(first, second)
            compare_infos(fresh, other, limited)
            info["action_mask"][done] = fresh["action_mask"][done]
    return episodes


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", IDS)
def test_batch_equals_single_environments(name: str, mode: AutoresetMode) -> None:
    steps = 50 if name == IDS[0] else 350
    assert compare(batch_of(name, mode), sync_of(name, mode), mode, steps) >= 6


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_batch_equals_single_environments_otherwise(mode: AutoresetMode) -> None:
    kwargs = {"action_format": "factored", "observation": "dict", "reward": "shaped", "horizon_s": 8.0}
    assert compare(batch_of(IDS[2], mode, **kwargs), sync_of(IDS[2], mode, **kwargs), mode, 120) >= 6


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_batch_equals_single_environments_with_a_step_limit(mode: AutoresetMode) -> None:
    kwargs = {"max_episode_steps": 7, "reward": "latency"}
    assert compare(batch_of(IDS[0], mode, **kwargs), sync_of(IDS[0], mode, **kwargs), mode, 40) >= 12


def test_disabled_mode_refuses_to_step_what_is_over() -> None:
    batch = batch_of(IDS[0], AutoresetMode.DISABLED, max_episode_steps=2)
    batch.reset(seed=0)
    for _ in range(2):
        batch.step(np.zeros(WORLDS, int))
    with pytest.raises(gym.error.ResetNeeded, match="worlds 0, 1, 2"):
        batch.step(np.zeros(WORLDS, int))


@pytest.mark.parametrize("action_format", ["joint", "factored"])
@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_sb3_adapter_equals_the_batch(action_format: str, observation: str) -> None:
    pytest.importorskip("stable_baselines3")
    from cacheenv.sb3 import as_vec_env

    kwargs = {"action_format": action_format, "observation": observation}
    batch = batch_of(IDS[2], AutoresetMode.SAME_STEP, **kwargs)
    adapter = as_vec_env(IDS[2], WORLDS, scenario=SMALL, overrides=SHORT, **kwargs)
    adapter.seed(7)
    seen, (first, _) = adapter.reset(), batch.reset(seed=7)
    assert same(seen, first)
    rng, episodes = np.random.default_rng(0), 0
    for _ in range(350):
        masks = np.stack(adapter.env_method("action_masks"))
        assert np.array_equal(masks, batch.action_masks())
        actions = chosen(masks, rng, adapter.action_space)
        first, reward, terminated, truncated, info = batch.step(actions)
        seen, reward2, done, infos = adapter.step(actions)
        assert same(seen, first) and same(reward, reward2) and np.array_equal(done, terminated | truncated)
        for i in range(WORLDS):
            if not done[i]:
                assert infos[i] == {}
                continue
            episodes += 1
            assert infos[i]["TimeLimit.truncated"] is bool(truncated[i])
            assert same(infos[i]["terminal_observation"], info["final_obs"][i])
            for key in SUMMARY_KEYS:
                assert same(float(infos[i][key]), float(info["final_info"][key][i]))
    assert episodes >= 6


def test_threads_change_nothing() -> None:
    logs = []
    for threads in (1, 2, 3):
        batch = CacheVectorEnv(24, threads=threads, scenario=SMALL, overrides=SHORT)
        assert batch.threads == threads
        _, info = batch.reset(seed=0)
        rng, log = np.random.default_rng(0), []
        for _ in range(40):
            observations, rewards, _, _, info = batch.step(chosen(info["action_mask"], rng, batch.single_action_space))
            log.append((observations, rewards, info["dt"]))
        logs.append(log)
        batch.close()
    assert same(logs[0], logs[1]) and same(logs[0], logs[2])


def test_action_formats_are_two_names_of_one_action() -> None:
    joint, factored = make(IDS[2]), make(IDS[2], action_format="factored", observation="dict")
    rng, steps = np.random.default_rng(0), 0
    options = {"workload": arrays_workload(40)}
    first, _ = joint.reset(seed=0, options=options)
    second, _ = factored.reset(seed=0, options=options)
    terminated = False
    while not terminated:
        assert np.array_equal(first, np.concatenate(list(second.values())))
        action = random_legal(joint.action_masks(), rng)
        parts = joint.decode_action(action)
        assert joint.encode_action(**parts) == action
        other = factored.encode_action(**parts)
        assert factored.decode_action(other) == parts
        assert other in factored.action_space
        first, reward, terminated, _, info = joint.step(action)
        second, reward2, terminated2, _, info2 = factored.step(other)
        assert (reward, terminated, info["dt"], info["invalid_action"]) == (
            reward2, terminated2, info2["dt"], info2["invalid_action"],
        )  # fmt: skip
        steps += 1
    assert steps > 100 and same(joint.result().requests.tobytes(), factored.result().requests.tobytes())


def test_growing_workloads_leave_other_worlds_alone() -> None:
    # World 1 is given ever longer workloads, which makes the tables of all worlds be allocated anew.
    batch = gym.make_vec(IDS[0], 2, autoreset_mode=AutoresetMode.DISABLED, scenario=SMALL)
    alone = make(IDS[0])
    batch.reset(seed=3)
    alone.reset(seed=3)
    for count in (50, 400, 2000):
        longer = {"workload": arrays_workload(count), "reset_mask": np.array([False, True])}
        observations, _ = batch.reset(options=longer)
        for _ in range(10):
            action = random_legal(alone.action_masks(), np.random.default_rng(count))
            expected, reward, *_ = alone.step(action)
            observations, rewards, *_ = batch.step(np.array([action, 0]))
            assert same(observations[0], expected) and rewards[0] == reward
    for _ in range(30):
        expected, reward, *_ = alone.step(2)
        observations, rewards, *_ = batch.step(np.array([2, 2]))
        assert same(observations[0], expected) and rewards[0] == reward
