"""`cacheenv presets`: what it prints loads again, and bad input is one line."""

import json

import pytest
import yaml
from cli_tools import ok, refused

from cacheenv.physics import list_gpus, list_models, list_presets, load_preset
from cacheenv.scenario import load_scenario

LENGTHS = [(1000, 0.05), (2000, 0.1), (4000, 0.21), (8000, 0.45)]


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "own.csv"
    rows = [
        f"{n},{b},{s},{0.01 + 1e-5 * b + 1e-8 * b * n}"
        for (n, s), b in zip(LENGTHS * 2, [1] * 4 + [8] * 4, strict=True)
    ]
    path.write_text(
        "\n".join(["prompt,batch,ttft,tpot", *(row if row.split(",")[1] == "1" else drop(row) for row in rows)]) + "\n"
    )
    return path


def drop(row):
    """Without the TTFT, which was measured alone."""
    prompt, batch, _, tpot = row.split(",")
    return f"{prompt},{batch},,{tpot}"


def test_list_names_everything(capsys):
    said = ok(capsys, "presets", "list").out
    assert all(name in said for name in [*list_presets(), *list_models(), *list_gpus()])
    document = json.loads(ok(capsys, "presets", "list", "--json").out)
    assert [item["name"] for item in document["presets"]] == list_presets()


def test_show_a_preset_a_model_a_gpu(capsys):
    assert yaml.safe_load(ok(capsys, "presets", "show", "llama3-8b_1xH100").out)["layers"] == 32
    assert json.loads(ok(capsys, "presets", "show", "deepseek-v3", "--json").out)["experts"] == 256
    assert yaml.safe_load(ok(capsys, "presets", "show", "h200").out)["memory_gbytes_per_s"] == 4800


def test_derive_prints_what_a_scenario_gets(capsys):
    argv = ["presets", "derive", "--model", "qwen3-32b", "--gpu", "h100-sxm", "--tp", "4", "--weights", "fp8"]
    document = json.loads(ok(capsys, *argv, "--json").out)
    assert document["preset"] == {"model": "qwen3-32b", "gpu": "h100-sxm", "tp": 4, "weights": "fp8"}
    said = ok(capsys, *argv).out
    assert said.startswith("# in a scenario: preset: {model: qwen3-32b, gpu: h100-sxm, tp: 4, weights: fp8}\n")
    asked = yaml.safe_load(said.splitlines()[0].partition("preset: ")[2])
    assert yaml.safe_load(said)["prefill_b_s"] == load_preset(asked).prefill_b_s


def test_what_fit_prints_is_a_preset_of_a_scenario(capsys, csv):
    said = ok(capsys, "presets", "fit", csv, "--model", "llama3-8b", "--gpu", "h100-sxm").out
    assert "worst" in said.splitlines()[0]
    preset = yaml.safe_load(said)["preset"]
    scenario = load_scenario(
        "kimi-chat",
        {"cluster.prefill.preset": preset, "cluster.decode.preset": preset, "cluster.network.layers": None},
    )
    made = load_preset(scenario.cluster.decode.preset)
    assert made.decode_e_s == pytest.approx(1e-5, rel=0.2)
    assert made.capacity_tokens == load_preset({"model": "llama3-8b", "gpu": "h100-sxm", "tp": 1}).capacity_tokens
    assert "of 4 measurements" in made.error and "of 8 measurements" in made.error
    document = json.loads(ok(capsys, "presets", "fit", csv, "--preset", "llama3-8b_1xH100", "--json").out)
    assert document["preset"]["preset"] == "llama3-8b_1xH100"
    assert document["errors"]["prefill"]["rows"] == 4


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["presets"], "required"),
        (["presets", "show", "llama3-8b_1xH10"], "did you mean 'llama3-8b_1xH100'"),
        (["presets", "derive", "--model", "llama3-8b"], "--gpu"),
        (["presets", "derive", "--model", "llama3-8", "--gpu", "h200"], "unknown model 'llama3-8'"),
        (["presets", "derive", "--model", "nowhere/config.json", "--gpu", "h200"], "no such file: nowhere/config.json"),
        (["presets", "derive", "--model", "llama3-8b", "--gpu", "h2000"], "unknown GPU 'h2000'"),
        (["presets", "derive", "--model", "llama3-70b", "--gpu", "rtx4090"], "needs 141 GB for its weights"),
        (["presets", "derive", "--model", "llama3-8b", "--gpu", "h200", "--tp", "0"], "expected an integer >= 1"),
        (["presets", "fit", "nowhere.csv", "--preset", "llama3-8b_1xH100"], "nowhere.csv: no such file"),
        (["presets", "fit", "nowhere.csv"], "expected --preset NAME, or --model and --gpu"),
        (["presets", "fit", "x", "--preset", "a", "--model", "b"], "not both"),
    ],
)
def test_bad_input(capsys, argv, part):
    assert part in refused(capsys, *argv)


def test_a_bad_row_is_named(capsys, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("prompt,ttft\n100,0.1\n200,zero\n")
    said = refused(capsys, "presets", "fit", path, "--preset", "llama3-8b_1xH100")
    assert f"{path}: row 3: column ttft: expected a number of seconds > 0, got 'zero'" in said
