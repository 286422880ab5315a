"""Training configurations: SB3 Zoo keys, read strictly."""

import copy
from pathlib import Path

import pytest
import yaml

from cacheenv.cli import main
from cacheenv.errors import InputError
from cacheenv_agents.config import as_schedule, load_config

ROOT = Path(__file__).resolve().parents[2]
ENV_ID = "cacheenv/Routing-v0"
GOOD = {
    "algo": "ppo",
    ENV_ID: {"n_envs": 4, "n_steps": 16, "batch_size": 32, "env_kwargs": {"scenario": "kimi-chat"}},
}


def written(tmp_path, change=None, text=None):
    tree = copy.deepcopy(GOOD)
    if change is not None:
        change(tree)
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(tree) if text is None else text)
    return path


def test_a_good_file(tmp_path):
    config = load_config(written(tmp_path))
    assert (config.algo, config.env_id, config.seed) == ("ppo", ENV_ID, 0)
    assert config.parameters.n_envs == 4
    assert config.parameters.gamma == 0.99


@pytest.mark.parametrize("name", ["ppo.yaml", "maskable_ppo.yaml"])
def test_the_packaged_files_load_and_survive_writing(tmp_path, name):
    config = load_config(ROOT / "configs" / "agents" / name)
    path = tmp_path / "again.yaml"
    path.write_text(yaml.safe_dump(config.to_dict()))
    assert load_config(path) == config


def test_schedules():
    assert as_schedule(0.25) == 0.25
    schedule = as_schedule("lin_3.0e-4")
    assert schedule(1.0) == pytest.approx(3e-4)
    assert schedule(0.25) == pytest.approx(0.75e-4)


def setting(key, value):
    def change(tree):
        tree[ENV_ID][key] = value

    return change


def top(key, value):
    def change(tree):
        tree[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (setting("n_env", 4), ["unknown key cacheenv/Routing-v0.n_env", "did you mean 'n_envs'"]),
        (setting("learning_rate", "1e-3"), ["learning_rate", "the text '1e-3'", "write 1.0e-3"]),
        (setting("learning_rate", "lin_fast"), ["learning_rate", "lin_NUMBER"]),
        (setting("learning_rate", "lin_-1"), ["learning_rate", "> 0"]),
        (setting("learning_rate", 0), ["learning_rate", "> 0"]),
        (setting("gamma", 1.5), ["gamma", "<= 1"]),
        (setting("gamma", float("nan")), ["gamma"]),
        (setting("n_steps", 16.0), ["n_steps", "an integer"]),
        (setting("n_envs", True), ["n_envs", "an integer"]),
        (setting("batch_size", 33), ["batch_size", "divisor of n_envs * n_steps = 64"]),
        (setting("policy", "CnnPolicy"), ["policy", "MlpPolicy"]),
        (setting("normalize", True), ["normalize", "norm_obs: false", "normalised already"]),
        (setting("normalize", {"norm_obs": True, "norm_reward": True}), ["normalize", "normalised already"]),
        (setting("normalize", {"norm_reword": True}), ["did you mean 'norm_reward'"]),
        (setting("policy_kwargs", "dict(net_arch=[64])"), ["policy_kwargs", "expected a mapping"]),
        (setting("policy_kwargs", {"net_arch": "[64]"}), ["net_arch", "layer sizes"]),
        (setting("policy_kwargs", {"net_arch": [0]}), ["net_arch", "layer sizes"]),
        (setting("policy_kwargs", {"net_arch": {"pi": [64], "v": [64]}}), ["net_arch.v"]),
        (setting("policy_kwargs", {"activation_fn": "torch.nn.Tanh"}), ["activation_fn", "one of tanh, relu"]),
        (setting("policy_kwargs", {"netarch": [64]}), ["did you mean 'net_arch'"]),
        (setting("env_kwargs", {"scenari": "kimi-chat"}), ["did you mean 'scenario'"]),
        (setting("env_kwargs", {"overrides": [1]}), ["env_kwargs.overrides", "a mapping"]),
        (top("algo", "pppo"), ["algo", "did you mean 'ppo'"]),
        (top("algo", None), ["algo", "expected one of"]),
        (top("seed", -1), ["seed"]),
        (top("cacheenv/Routing-v1", {}), ["unknown key cacheenv/Routing-v1", "did you mean 'cacheenv/Routing-v0'"]),
        (top("cacheenv/Cluster-v0", {}), ["expected one environment id", "got 2"]),
        (lambda tree: tree.pop(ENV_ID), ["expected one environment id", "got 0"]),
        (top(ENV_ID, [1]), [ENV_ID, "expected a mapping"]),
    ],
)
def test_bad_values_name_the_file_and_the_key(tmp_path, change, parts):
    path = written(tmp_path, change)
    with pytest.raises(InputError) as caught:
        load_config(path)
    message = str(caught.value)
    assert "\n" not in message
    for part in [str(path), *parts]:
        assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("- 1", "expected a mapping"),
        ("algo: ppo\nalgo: ppo\n", "stands twice"),
        ("a: [", "not valid YAML"),
    ],
)
def test_bad_files(tmp_path, text, part):
    with pytest.raises(InputError, match=part):
        load_config(written(tmp_path, text=text))


def test_bad_command_lines(tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra 'agents'")
    pytest.importorskip("sb3_contrib", reason="needs the extra 'agents'")
    path = str(written(tmp_path))
    wrong = str(written(tmp_path, setting("n_env", 4)).rename(tmp_path / "wrong.yaml"))
    written(tmp_path)
    for arguments, part in [
        ([], "expected --config FILE"),
        (["--resume"], "--resume needs --out"),
        (["--resume", "--out", str(tmp_path / "nowhere")], "no training in"),
        (["--config", str(tmp_path / "nowhere.yaml")], "cannot be read"),
        (["--config", wrong], "did you mean 'n_envs'"),
        (["--config", path, "--timesteps", "0"], "expected an integer >= 1"),
        (["--config", path, "--seed", "-1"], "expected"),
        (["--config", path, "--set", "slo.ttft=3"], "did you mean 'ttft_s'"),
        (["--config", path, "--set", "slo.ttft_s=1", "--set", "slo.ttft_s=2"], "given twice"),
        (["--config", path, "--scenario", "kimi-chatt"], "did you mean 'kimi-chat'"),
        (["--config", path, "--out", path], "expected a new or empty folder"),
    ]:
        if arguments[:1] == ["--config"] and "--out" not in arguments:
            arguments = [*arguments, "--out", str(tmp_path / "out")]
        assert main(["train", *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert part in said.err
        assert not (tmp_path / "out").exists()
