"""A tiny cluster and a short training on it."""

import pytest

TINY = {
    "cluster.prefill.count": 2,
    "cluster.decode.count": 3,
    "reschedule.candidates": 2,
    "workload.requests": 40,
    "workload.rate_rps": 2.0,
}


def tiny_values(**changes):
    """Hyper-parameters of a training of seconds."""
    env_kwargs = {"scenario": "kimi-chat", "overrides": TINY, **changes.pop("env_kwargs", {})}
    values = {
        "n_envs": 4,
        "n_steps": 16,
        "n_timesteps": 256,
        "batch_size": 32,
        "n_epochs": 2,
        "learning_rate": "lin_1.0e-3",
        "normalize": {"norm_obs": False, "norm_reward": True},
        "policy_kwargs": {"net_arch": [16, 16]},
        "env_kwargs": env_kwargs,
    }
    return {**values, **changes}


@pytest.fixture(scope="session")
def tiny_config():
    """Makes a checked training configuration."""
    from cacheenv_agents.config import TrainingConfig, checked

    def make(algo="maskable_ppo", env_id="cacheenv/Routing-v0", **changes):
        return TrainingConfig(algo, env_id, 0, checked(tiny_values(**changes), "test"))

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory, tiny_config):
    """Folder of a finished training for (algo, env id, action format), trained once a session."""
    pytest.importorskip("torch", reason="needs the extra 'agents'")
    pytest.importorskip("sb3_contrib", reason="needs the extra 'agents'")
    from cacheenv_agents.train import train

    folders = {}

    def make(algo="maskable_ppo", env_id="cacheenv/Routing-v0", action_format="factored"):
        key = (algo, env_id, action_format)
        if key not in folders:
            folder = tmp_path_factory.mktemp("agent") / "run"
            config = tiny_config(algo, env_id, env_kwargs={"action_format": action_format})
            folders[key] = train(config, folder, threads=1).folder
        return folders[key]

    return make
