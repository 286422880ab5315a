"""Copies of a running environment go on exactly as the original does."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from env_tools import IDS, SMALL, arrays_workload, continue_play, legal_player, make, play, random_legal, same

from cacheenv import InputError
from cacheenv.envs.env import CacheEnv
from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.policy import DECISION_MIGRATE

#: Where a process finds this file and the tools.
TOOLS = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")])


def advanced(name: str, steps: int = 40, **kwargs: Any) -> CacheEnv:
    """An environment in the middle of an episode; with moves, in the middle of a tick's decisions."""
    env = make(name, **kwargs)
    env.reset(seed=0, options={"workload": arrays_workload()})
    rng = np.random.default_rng(1)
    while steps > 0 or (env.stepper.codec.moves and not in_the_middle_of_a_tick(env)):
        env.step(random_legal(env.action_masks(), rng))
        steps -= 1
    return env


def in_the_middle_of_a_tick(env: CacheEnv) -> bool:
    """Some move of this tick has been made, and another may follow."""
    return env.decision == DECISION_MIGRATE and bool((env.stepper.worlds.world(0).decode["outgoing"] >= 0).any())


def rest(env: CacheEnv) -> tuple[Any, Any, Any]:
    """Everything until the end of the next episode."""
    log = continue_play(env, legal_player(5))
    records = env.result().requests.tobytes()
    return log, records, play(env, legal_player(6))


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state", "state_of_used"])
def test_copies_continue_identically(name: str, way: str) -> None:
    env = advanced(name, overrides={"rescheduler": "star"}, render_mode="ansi")
    if way == "deepcopy":
        twin = copy.deepcopy(env)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(env))
    else:
        state = pickle.loads(pickle.dumps(env.get_state()))
        twin = make(name, overrides={"rescheduler": "star"}, render_mode="ansi")
        if way == "state_of_used":  # its tables have other lengths
            twin.reset(seed=9, options={"workload": arrays_workload(200)})
            twin.step(0)
        twin.set_state(state)
    assert twin.episode_seed == env.episode_seed and twin.decision == env.decision and twin.render() == env.render()
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(env.view, twin.view, strict=True))
    expected = rest(env)
    assert same(expected, rest(twin))


def test_one_state_many_futures() -> None:
    env = advanced(IDS[2])
    state = env.get_state()
    frozen = pickle.dumps(state)
    futures = []
    for seed in (1, 2, 1):
        env.set_state(state)
        futures.append(continue_play(env, legal_player(seed))["reward"])
    assert futures[0] == futures[2] and futures[0] != futures[1]
    assert same(pickle.loads(frozen)["worlds"]["tables"].state.tobytes(), state["worlds"]["tables"].state.tobytes())


def test_state_of_another_cluster_is_refused() -> None:
    state = advanced(IDS[0]).get_state()
    other = make(IDS[0], overrides={"cluster.decode.count": 2})
    with pytest.raises(InputError, match="set_state: the state is of another scenario"):
        other.set_state(state)


def new_batch() -> CacheVectorEnv:
    return CacheVectorEnv(16, threads=2, scenario=SMALL, overrides={"workload.requests": 12}, reward="shaped")


def walk(batch: CacheVectorEnv, steps: int, seed: int) -> list[Any]:
    rng, log = np.random.default_rng(seed), []
    for _ in range(steps):
        actions = np.array([random_legal(mask, rng) for mask in batch.action_masks()])
        log.append(batch.step(actions))
    return log


def walked_batch() -> CacheVectorEnv:
    batch = new_batch()
    batch.reset(seed=0)
    walk(batch, 33, 0)
    return batch


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state"])
def test_copies_of_a_batch_continue_identically(way: str) -> None:
    batch = walked_batch()
    if way == "deepcopy":
        twin = copy.deepcopy(batch)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(batch))
    else:
        twin = new_batch()
        twin.set_state(batch.get_state())
    expected = walk(batch, 60, 1)
    assert any(step[2].any() for step in expected)
    assert same(expected, walk(twin, 60, 1))
    batch.close()
    twin.close()


CONTINUE = """
import os, pickle, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from test_env_state import rest, walk
with open(sys.argv[2], "rb") as file:
    envs = pickle.load(file)
with open(sys.argv[3], "wb") as file:
    pickle.dump([rest(envs[0]), rest(envs[1]), walk(envs[2], 60, 1)], file)
"""


def test_pickles_continue_in_another_process(tmp_path: Path) -> None:
    routing, cluster = advanced(IDS[0], overrides={"rescheduler": "star"}), advanced(IDS[2])
    batch = walked_batch()
    (tmp_path / "env").write_bytes(pickle.dumps([routing, cluster, batch]))
    arguments = [TOOLS, str(tmp_path / "env"), str(tmp_path / "rest")]
    subprocess.run(
        [sys.executable, "-c", CONTINUE, *arguments], check=True, env={**os.environ, "PYTHONHASHSEED": "123"}
    )
    expected = [rest(routing), rest(cluster), walk(batch, 60, 1)]
    assert same(expected, pickle.loads((tmp_path / "rest").read_bytes()))
    batch.close()


PLAIN = """
import os, pickle, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from test_env_state import short_episodes
with open(sys.argv[2], "wb") as file:
    pickle.dump(short_episodes(), file)
"""


def short_episodes() -> list[Any]:
    """An episode of each id in both forms, small enough for plain Python."""
    logs: list[Any] = []
    for name in IDS:
        env = make(name, overrides={"rescheduler": "star"}, reward="shaped", action_format="joint")
        logs.append(play(env, legal_player(3), seed=2, options={"workload": arrays_workload(12, 8.0, output=200)}))
        logs.append(env.result().requests.tobytes())
    batch = gym.make_vec(IDS[2], 2, scenario=SMALL, overrides={"workload.requests": 5}, action_format="factored")
    batch.reset(seed=1)
    logs.extend(batch.step(np.array([[0, k % 3, k % 2, k % 2, k % 2, 0, 0, 1]] * 2)) for k in range(10))
    batch.close()
    return logs


def test_plain_python_says_the_same_as_the_compiled_code(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", PLAIN, TOOLS, str(tmp_path / "logs")],
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    assert same(short_episodes(), pickle.loads((tmp_path / "logs").read_bytes()))
