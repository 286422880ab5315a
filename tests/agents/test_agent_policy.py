"""`agent:PATH`: the same decisions as the trained model, wherever a policy name goes."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'agents'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'agents'")

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO

from cacheenv.cli import main
from cacheenv.envs.actions import ActionCodec
from cacheenv.envs.env import CacheEnv
from cacheenv.envs.registration import IDS
from cacheenv.errors import InputError
from cacheenv.policy import available_policies, make_policy
from cacheenv.run.simulate import simulate
from cacheenv.scenario import load_scenario
from cacheenv_agents.actions import best_move, drop_empty_pulls
from cacheenv_agents.trained_agent import load_agent

KINDS = [
    ("maskable_ppo", "cacheenv/Routing-v0", "factored"),
    ("maskable_ppo", "cacheenv/Routing-v0", "joint"),
    ("ppo", "cacheenv/Routing-v0", "joint"),
    ("maskable_ppo", "cacheenv/Migration-v0", "joint"),
    ("maskable_ppo", "cacheenv/Cluster-v0", "factored"),
]
SEED = 3


def best_action(model, observation, mask):
    """What the model does: by its own `predict` where it knows masks, else the best legal logit."""
    if isinstance(model, MaskablePPO):
        return model.predict(observation, action_masks=mask, deterministic=True)[0]
    with torch.no_grad():
        logits = model.policy.get_distribution(torch.as_tensor(observation[None])).distribution.logits[0].numpy()
    return int(np.argmax(np.where(mask, logits, -np.inf)))


def play(folder, algo, env_id, action_format):
    """An episode of the model through the environment; returns its records and the number of decisions."""
    model = (MaskablePPO if algo == "maskable_ppo" else PPO).load(folder / "model.zip", device="cpu")
    env = CacheEnv(**IDS[env_id], scenario=str(folder / "scenario.yml"), action_format=action_format)
    observation, _ = env.reset(seed=0, options={"episode_seed": SEED})
    over, steps = False, 0
    while not over:
        action = np.array([best_action(model, observation, env.action_masks())])
        action = drop_empty_pulls(env.stepper.codec, action, env.stepper.worlds.views.prefill["pull_tokens"])[0]
        observation, _, terminated, truncated, _ = env.step(action)
        over, steps = terminated or truncated, steps + 1
    return env.result().requests, steps


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_decides_as_its_model(trained, kind):
    folder = trained(*kind)
    records, steps = play(folder, *kind)
    result = simulate(load_scenario(folder / "scenario.yml"), f"agent:{folder}", seed=SEED)
    assert steps > 10
    assert result.decisions >= steps
    assert result.requests.tobytes() == records.tobytes()


def test_logits_are_those_of_the_model(trained):
    folder = trained()
    actor, model = load_agent(str(folder)), MaskablePPO.load(folder / "model.zip", device="cpu")
    observations = np.random.default_rng(0).random((200, *model.observation_space.shape), np.float32)
    with torch.no_grad():
        features = model.policy.mlp_extractor.forward_actor(torch.as_tensor(observations))
        expected = model.policy.action_net(features).numpy()
    found = np.array([actor.network(row) for row in observations])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_agent_is_deterministic(trained):
    scenario = load_scenario(trained() / "scenario.yml")
    runs = [simulate(scenario, f"agent:{trained()}", seed=1).requests.tobytes() for _ in range(2)]
    assert runs[0] == runs[1]


def test_empty_pulls_are_dropped():
    pull_tokens = np.array([[0, 512]] * 4)
    factored = ActionCodec(2, 3, 0, True, False, True)
    actions = np.array([[0, 0, 2, 1], [0, 1, 2, 1], [1, 0, 0, 1], [0, 1, 0, 0]])
    expected = [[0, 0, 2, 0], [0, 1, 2, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert drop_empty_pulls(factored, actions, pull_tokens).tolist() == expected
    joint = ActionCodec(2, 3, 0, True, False, False)
    actions = np.array([joint.encode(prefill=0, decode=2, pull=True), 7, joint.encode(reject=True), 0])
    assert drop_empty_pulls(joint, actions, pull_tokens).tolist() == [4, 7, 12, 0]


def test_illegal_moves_of_a_factored_agent_move_nothing():
    codec = ActionCodec(2, 3, 2, True, True, True)
    mask = np.zeros(codec.move_count, np.bool_)
    mask[-1] = True
    logits = np.zeros(sum(codec.part_sizes), np.float32)
    assert best_move(logits, mask, codec) == codec.move_count - 1
    mask[(2 * 2 + 1) * 3 + 0] = True
    assert best_move(logits, mask, codec) == (2 * 2 + 1) * 3


def test_the_name_is_known(trained):
    assert "agent:" not in available_policies()  # a list of names, and an agent is named by its path
    bundle = make_policy(f"agent:{trained()}")
    assert bundle.name == f"agent:{trained()}"
    assert (bundle.router, bundle.rescheduler, bundle.actor.migrates) == (None, None, False)


def test_a_migrating_agent_brings_the_router_of_its_training(trained):
    bundle = make_policy(f"agent:{trained('maskable_ppo', 'cacheenv/Migration-v0', 'joint')}")
    assert bundle.router.name == "mooncake"
    assert bundle.actor.migrates
    assert bundle.requires()["reschedule.candidates"] == 2


def test_a_checkpoint_is_an_agent_and_an_unfinished_training_its_newest_one(trained, tmp_path):
    shutil.copytree(trained() / "checkpoints", tmp_path / "checkpoints")
    assert load_agent(str(tmp_path)).description["timesteps"] == 256
    assert load_agent(str(tmp_path / "checkpoints" / "000000000064")).description["timesteps"] == 64


@pytest.mark.parametrize(("key", "text"), [("prefill", "2 prefill"), ("decode", "3 decode")])
def test_a_cluster_of_another_shape_is_refused(trained, key, text):
    scenario = load_scenario(trained() / "scenario.yml", {f"cluster.{key}.count": 5})
    with pytest.raises(InputError, match=rf"trained for {text} instances, but the cluster has 5"):
        simulate(scenario, f"agent:{trained()}")


def test_bad_paths_and_files(trained, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for path, part in [("nowhere", "no such folder"), ("file", "not a folder"), ("empty", "no agent in it")]:
        with pytest.raises(InputError, match=part):
            make_policy(f"agent:{tmp_path / path}")
    with pytest.raises(InputError, match="expected agent:PATH"):
        make_policy("agent:")
    with pytest.raises(InputError, match="no parameters"):
        make_policy(f"agent:{trained()}", alpha=1.0)
    broken = tmp_path / "broken"
    shutil.copytree(trained(), broken)
    description = json.loads((broken / "agent.json").read_text())
    for change, part in [
        ({"format": 99}, "format 1, got 99"),
        ({"observation": description["observation"][1:]}, "other observation features"),
        ({"env_id": "cacheenv/Nothing-v0"}, "unknown environment"),
    ]:
        (broken / "agent.json").write_text(json.dumps({**description, **change}))
        with pytest.raises(InputError, match=part):
            make_policy(f"agent:{broken}")
    (broken / "agent.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        make_policy(f"agent:{broken}")
    (broken / "agent.json").write_text(json.dumps(description))
    (broken / "policy.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match="cannot be read"):
        make_policy(f"agent:{broken}")


def test_evaluate_prints_the_table(trained, capsys):
    assert main(["evaluate", str(trained()), "--policies", "random", "--seeds", "2"]) == 0
    out = capsys.readouterr().out
    assert "kimi-chat: 2P+3D, 40 requests a run, mean ± standard deviation over 2 seeds" in out
    for word in (f"agent:{trained()}", "random", "goodput", "SLO met", "[req/s]"):
        assert word in out


def test_evaluate_prints_json_and_writes_files(trained, capsys, tmp_path):
    command = ["evaluate", f"agent:{trained()}", "--policies", "random", "--seeds", "1", "--json"]
    assert main([*command, "--set", "workload.requests=20", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert [row["policy"] for row in document["results"]] == [f"agent:{trained()}", "random"]
    assert document["results"][0]["requests"] == 20
    assert (tmp_path / "results.csv").is_file()


def test_evaluate_refuses_what_it_cannot_run(trained, capsys, tmp_path):
    for arguments, part in [
        ([str(tmp_path / "nowhere")], "no such folder"),
        ([str(trained()), "--policies", "randm"], "did you mean 'random'"),
        ([str(trained()), "--scenario", "kimi-chat", "--seeds", "1"], "trained for 2 prefill instances"),
        ([str(trained()), "--seeds", "0"], "expected an integer >= 1"),
    ]:
        assert main(["evaluate", *arguments]) == 2
        assert part in capsys.readouterr().err


def test_bench_runs_an_agent_without_torch(trained):
    program = (
        "import sys\nfrom cacheenv.cli import main\n"
        "status = main(sys.argv[1:])\n"
        "assert status == 0 and not {'torch', 'stable_baselines3'} & set(sys.modules), sys.modules.keys()\n"
    )
    folder = trained()
    command = ["bench", "--policies", f"agent:{folder},random", "--config", str(folder / "scenario.yml")]
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "--seeds", "1", "--json"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert [row["policy"] for row in json.loads(done.stdout)["results"]] == [f"agent:{folder}", "random"]
