"""Training: what is written, and going on after an interruption."""

import os
import signal

import pytest
import yaml

pytest.importorskip("torch", reason="needs the extra 'agents'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'agents'")

from sb3_contrib import MaskablePPO

from cacheenv.cli import main
from cacheenv.errors import InputError
from cacheenv.scenario import load_scenario
from cacheenv_agents.config import load_config
from cacheenv_agents.run_folder import RunFolder, next_folder
from cacheenv_agents.train import TrainingCallback, train


@pytest.fixture
def interrupt_after(monkeypatch):
    """Presses Ctrl-C while the rollout that ends at a number of decisions is under way."""

    def arm(timesteps):
        before = TrainingCallback._on_rollout_end

        def press(self):
            before(self)
            if self.num_timesteps == timesteps:
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(TrainingCallback, "_on_rollout_end", press)

    return arm


def test_what_a_training_writes(trained):
    folder = trained()
    names = {path.name for path in folder.iterdir()}
    expected = {"config.yml", "args.yml", "versions.yml", "scenario.yml", "curve.csv", "tensorboard", "checkpoints"}
    assert names == expected | {"model.zip", "vecnormalize.pkl", "policy.npz", "agent.json"}
    assert any(path.name.startswith("events.out.tfevents") for path in (folder / "tensorboard").iterdir())
    assert {"torch", "stable-baselines3", "cacheenv"} <= set(yaml.safe_load((folder / "versions.yml").read_text()))
    assert load_scenario(folder / "scenario.yml").workload.requests == 40
    assert load_config(folder / "config.yml").parameters.n_timesteps == 256
    curve = RunFolder(folder).curve()
    assert curve[-1]["episodes"] == 4
    assert all(0 <= row["slo_attainment"] <= 1 for row in curve)
    assert [checkpoint.timesteps for checkpoint in RunFolder(folder).checkpoints()] == [64, 128, 192, 256]


def test_a_resumed_training_ends_as_an_uninterrupted_one(tmp_path, trained, tiny_config, interrupt_after):
    config = tiny_config(env_kwargs={"action_format": "factored"})
    interrupt_after(128)
    outcome = train(config, tmp_path / "cut", threads=1)
    assert (outcome.finished, outcome.timesteps) == (False, 128)
    outcome = train(config, tmp_path / "cut", resume=True, threads=1)
    assert (outcome.finished, outcome.timesteps) == (True, 256)
    cut, whole = (MaskablePPO.load(folder / "model.zip", device="cpu") for folder in (tmp_path / "cut", trained()))
    assert cut.num_timesteps == whole.num_timesteps == 256
    assert cut._n_updates == whole._n_updates
    steps = [next(iter(model.policy.optimizer.state.values()))["step"] for model in (cut, whole)]
    assert steps[0] == steps[1]
    for folder in (tmp_path / "cut", trained()):  # the schedule goes on, too
        late = MaskablePPO.load(folder / "checkpoints" / "000000000192" / "model.zip", device="cpu")
        assert late.policy.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * 64 / 256)
    again = train(config, tmp_path / "cut", resume=True, threads=1)
    assert (again.finished, again.timesteps) == (True, 256)


def test_both_parts_of_a_resumed_training_start_from_the_same_weights(tmp_path, trained, tiny_config, interrupt_after):
    interrupt_after(128)
    train(tiny_config(env_kwargs={"action_format": "factored"}), tmp_path / "cut", threads=1)
    one, other = tmp_path / "cut" / "checkpoints" / "000000000128", trained() / "checkpoints" / "000000000128"
    assert (one / "policy.npz").read_bytes() == (other / "policy.npz").read_bytes()


def test_the_command_says_how_to_go_on(tmp_path, tiny_config, interrupt_after, capsys):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_config().to_dict()))
    out = str(tmp_path / "out")
    interrupt_after(64)
    assert main(["train", "--config", str(path), "--out", out, "--threads", "1"]) == 130
    said = capsys.readouterr().err
    assert "interrupted after 64 of 256 decisions" in said
    assert f"cacheenv train --resume --out {out}" in said
    assert main(["train", "--config", str(path), "--out", out]) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert main(["train", "--resume", "--out", out, "--threads", "1"]) == 0
    said = capsys.readouterr()
    assert "256 decisions" in said.out
    assert "256 of 256 decisions (100 %)" in said.err


def test_another_configuration_is_refused(tmp_path, tiny_config, trained):
    folder = trained()
    with pytest.raises(InputError, match=r"gamma: 0\.99, but now it is 0\.9;"):
        train(tiny_config(gamma=0.9, env_kwargs={"action_format": "factored"}), folder, resume=True)
    other = tiny_config(env_kwargs={"action_format": "factored"}).with_scenario(None, {"slo.ttft_s": 3.0})
    with pytest.raises(InputError, match=r"slo\.ttft_s"):
        train(other, folder, resume=True)


def test_the_first_free_folder(tmp_path):
    assert next_folder("ppo", tmp_path).name == "ppo-1"
    (tmp_path / "ppo-1").mkdir()
    assert next_folder("ppo", tmp_path).name == "ppo-2"
