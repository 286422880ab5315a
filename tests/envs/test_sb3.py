"""Stable-Baselines3: its checker, the adapter under its wrappers, and four learners."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from env_tools import IDS, SMALL

from cacheenv import InputError
from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.sb3 import as_vec_env

SHORT = {"workload.requests": 20}
VARIANTS = [(name, fmt, obs) for name in IDS for fmt in ("joint", "factored") for obs in ("flat", "dict")]


def test_without_stable_baselines3_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "import cacheenv, cacheenv.sb3\n"
        "try: cacheenv.sb3.as_vec_env('cacheenv/Routing-v0')\n"
        "except cacheenv.InputError as problem: print(problem)"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'cacheenv[agents]'" in run.stdout and run.stdout.count("\n") == 1


pytest.importorskip("stable_baselines3")
sb3_contrib = pytest.importorskip("sb3_contrib")

from stable_baselines3 import A2C, DQN, PPO  # noqa: E402
from stable_baselines3.common.env_checker import check_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import SubprocVecEnv, VecMonitor, VecNormalize  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "action_format", "observation"), VARIANTS)
def test_check_env(name: str, action_format: str, observation: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(name, scenario=SMALL, action_format=action_format, observation=observation))


def test_what_as_vec_env_takes() -> None:
    adapter = as_vec_env("cacheenv:cacheenv/Routing-v0", 2, scenario=SMALL, overrides=SHORT)
    assert adapter.num_envs == 2 and adapter.batch.stepper.codec.routes and not adapter.batch.stepper.codec.moves
    batch = CacheVectorEnv(2, autoreset_mode="SameStep", scenario=SMALL)
    assert as_vec_env(batch).batch is batch
    with pytest.raises(InputError, match=r"unknown id 'cacheenv/Routng-v0'.*did you mean"):
        as_vec_env("cacheenv/Routng-v0")
    with pytest.raises(InputError, match="autoreset_mode='SameStep'"):
        as_vec_env(CacheVectorEnv(2, scenario=SMALL))
    with pytest.raises(InputError, match="reward: arguments go to the environment"):
        as_vec_env(batch, reward="slo")


def test_methods_of_the_adapter() -> None:
    adapter = as_vec_env(IDS[2], 3, scenario=SMALL, overrides=SHORT)
    adapter.reset()
    masks = adapter.env_method("action_masks")
    assert len(masks) == 3 and masks[0].dtype == np.bool_ and masks[0].shape == (adapter.action_space.n,)
    assert len(adapter.env_method("action_masks", indices=[1])) == 1
    assert adapter.has_attr("action_masks") and not adapter.has_attr("no_such_thing")
    assert adapter.get_attr("num_envs", 0) == [3] and adapter.render_mode is None
    assert adapter.env_method("result", indices=2)[0].requests.shape == (20,)
    assert adapter.env_method("view")[0].cluster.shape == (1,)
    assert adapter.env_is_wrapped(gym.Wrapper) == [False] * 3
    with pytest.raises(AttributeError):
        adapter.env_method("close")
    with pytest.raises(AttributeError):
        adapter.set_attr("reward", 1)
    adapter.close()


def test_seeds_and_options_act_at_the_next_reset_only() -> None:
    adapter = as_vec_env(IDS[0], 3, scenario=SMALL, overrides=SHORT)
    assert adapter.seed(5) == [5, 6, 7]
    first = adapter.reset()
    second = adapter.reset()
    adapter.seed(5)
    assert np.array_equal(adapter.reset(), first) and not np.array_equal(second, first)
    adapter.set_options({"episode_seed": 3})
    fixed = adapter.reset()
    assert list(adapter.batch._episode_seeds) == [3, 4, 5]
    assert not np.array_equal(adapter.reset(), fixed)
    adapter.set_options([{"episode_seed": 3}, {}, {}])
    with pytest.raises(InputError, match="same options for all worlds"):
        adapter.reset()


def test_under_the_wrappers_of_sb3() -> None:
    adapter = VecNormalize(VecMonitor(as_vec_env(IDS[2], 4, scenario=SMALL, overrides=SHORT)), norm_obs=False)
    seen = adapter.reset()
    assert seen.shape == (4, adapter.observation_space.shape[0]) and seen.dtype == np.float32
    rng, episodes = np.random.default_rng(0), []
    while len(episodes) < 4:
        masks = np.stack(adapter.env_method("action_masks"))
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        _, _, done, infos = adapter.step(actions)
        episodes += [info for info, over in zip(infos, done, strict=True) if over]
    for info in episodes:
        assert info["terminal_observation"].shape == seen.shape[1:]
        assert info["TimeLimit.truncated"] is False and info["episode"]["l"] > 10
        assert isinstance(info["slo_attainment"], float) and isinstance(info["requests"], int)
    adapter.close()


LEARNERS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "PPO": (PPO, IDS[0], {"n_steps": 128, "batch_size": 256, "n_epochs": 2}),
    "A2C": (A2C, IDS[2], {}),
    "DQN": (DQN, IDS[1], {"learning_starts": 200, "train_freq": 8}),
    "MaskablePPO": (sb3_contrib.MaskablePPO, IDS[2], {"n_steps": 128, "batch_size": 256, "n_epochs": 2}),
}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_learners_train(learner: str, observation: str) -> None:
    algorithm, name, kwargs = LEARNERS[learner]
    kind = "MlpPolicy" if observation == "flat" else "MultiInputPolicy"
    steps = 3000 if observation == "flat" else 1500
    train = VecMonitor(as_vec_env(name, 8, scenario=SMALL, overrides=SHORT, observation=observation))
    model = algorithm(kind, train, seed=0, device="cpu", policy_kwargs={"net_arch": [32]}, **kwargs)
    model.learn(steps)
    assert model.num_timesteps >= steps and len(model.ep_info_buffer) > 0
    test = VecMonitor(as_vec_env(name, 2, scenario=SMALL, overrides=SHORT, observation=observation))
    evaluate = evaluate_policy
    if learner == "MaskablePPO":
        from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate
    mean, spread = evaluate(model, test, n_eval_episodes=3)
    assert np.isfinite([mean, spread]).all() and -20 <= mean <= 20
    train.close()
    test.close()


def test_factored_actions_train_with_masks() -> None:
    train = as_vec_env(IDS[2], 4, scenario=SMALL, overrides=SHORT, action_format="factored")
    model = sb3_contrib.MaskablePPO("MlpPolicy", train, n_steps=64, batch_size=128, n_epochs=1, seed=0, device="cpu")
    model.learn(512)
    train.close()


def test_single_environment_with_masks() -> None:
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(f"cacheenv:{IDS[0]}", 2, env_kwargs={"scenario": SMALL, "overrides": SHORT}, seed=0)
    assert is_masking_supported(env)
    env.reset()
    assert get_action_masks(env).shape == (2, 19)
    model = sb3_contrib.MaskablePPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu")
    model.learn(256)
    env.close()


SUBPROCESS = f"""
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

if __name__ == "__main__":
    kwargs = {{"scenario": {SMALL!r}, "overrides": {SHORT!r}}}
    env = make_vec_env("cacheenv:{IDS[2]}", 2, env_kwargs=kwargs, vec_env_cls=SubprocVecEnv, seed=3)
    seen = env.reset()
    masks = env.env_method("action_masks")
    for _ in range(5):
        seen, rewards, done, infos = env.step([int(mask.argmax()) for mask in env.env_method("action_masks")])
    print(repr(float(seen.astype("f8").sum())))
    env.close()
"""


def test_worker_processes_with_the_prefixed_id(tmp_path: Any) -> None:
    assert SubprocVecEnv is not None
    script = tmp_path / "workers.py"
    script.write_text(SUBPROCESS)
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stderr
    adapter = as_vec_env(IDS[2], 2, scenario=SMALL, overrides=SHORT)
    adapter.seed(3)
    seen = adapter.reset()
    for _ in range(5):
        seen, *_ = adapter.step(np.array([int(mask.argmax()) for mask in adapter.env_method("action_masks")]))
    assert float(run.stdout.split()[-1]) == float(seen.astype("f8").sum())
