"""One model on all instances of a cluster: what is refused, and what is legal and said below the table."""

import json

import pytest
import yaml

from cacheenv.commands.identity import config_hash
from cacheenv.errors import InputError
from cacheenv.scenario import load_scenario
from cacheenv.scenario.models import cluster_notes
from cacheenv.scenario.resolve import resolve

SMALL = {"model": "llama3-8b", "gpu": "h100-sxm", "tp": 1}
CONFIG = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


def cluster(prefill, decode, **network):
    keys = {"cluster.prefill.preset": prefill, "cluster.decode.preset": decode, "cluster.network.layers": None}
    return load_scenario("kimi-chat", {**keys, **{f"cluster.network.{key}": value for key, value in network.items()}})


@pytest.mark.parametrize(
    ("prefill", "decode", "network", "part"),
    [
        ("llama3-70b_8xH100", "qwen2.5-72b_4xA100", {}, "cluster.decode.preset: expected the model of"),
        ("llama2-70b_8xA800_mooncake", "llama3-70b_8xH100", {}, "llama2-70b, whose KV is handed over, got llama3-70b"),
        (
            SMALL,
            {**SMALL, "kv": "fp8"},
            {},
            "expected the 131072 bytes of KV a token of cluster.prefill.preset, got 65536",
        ),
        ({"preset": "llama3-8b_1xH100", "layers": 30}, "llama3-8b_1xH100", {}, "expected the 30 layers"),
        ("llama3-8b_1xH100", "llama3-8b_1xH100", {"layers": 80}, "at most the 32 layers of llama3-8b, got 80"),
        ("llama3-8b_1xH100", {**SMALL, "tp": 3}, {}, "cluster.decode.preset: tp: expected a divisor"),
    ],
)
def test_two_models_are_refused(prefill, decode, network, part):
    with pytest.raises(InputError) as caught:
        cluster(prefill, decode, **network)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_caches_larger_than_the_memory_are_refused():
    with pytest.raises(InputError, match=r"cluster\.decode\.kv_tokens: expected at most the 457377 tokens"):
        load_scenario(
            "kimi-chat",
            {
                "cluster.prefill.preset": "llama3-8b_1xH100", "cluster.decode.preset": "llama3-8b_1xH100",
                "cluster.network.layers": None, "cluster.decode.kv_tokens": 457_378,
            },
        )  # fmt: skip


def test_one_model_on_two_kinds_of_hardware_is_legal():
    scenario = cluster("llama3-8b_1xH100", {"model": "llama3-8b", "gpu": "a100-80", "tp": 2})
    assert resolve(scenario).layers == 32
    assert cluster_notes(scenario.cluster) == []
    # The same sizes under another name: an architecture.
    cluster("r1-distill-qwen-7b_1xH800", {"model": "r1-distill-qwen-7b", "gpu": "h20", "tp": 1})


def test_what_is_legal_and_odd_is_said():
    wide = {"model": "qwen2.5-7b", "gpu": "h100-sxm", "tp": 1}
    assert cluster_notes(cluster(wide, {**wide, "weights": "fp8"}).cluster) == [
        "prefill and decode hold 15.2 and 7.6 GB of weights"
    ]
    many = {"model": "qwen3-235b-a22b", "gpu": "b200", "tp": 8}
    notes = cluster_notes(cluster({**many, "tp": 4}, many, layers=1).cluster)
    assert "network.layers=1: transfers overlap in that many pieces, qwen3-235b-a22b has 94 layers" in notes
    assert any("prefill holds 1 and decode 2 copies" in note and "192,512" in note for note in notes)
    stand_in = {"preset": "qwen2.5-72b_4xA100", "model": "llama3-70b"}
    notes = cluster_notes(cluster("llama3-70b_8xH100", stand_in).cluster)
    assert "decode: coefficients of qwen2.5-72b_4xA100 stand for llama3-70b" in notes
    assert cluster_notes(load_scenario("kimi-chat").cluster) == []


def test_a_config_is_found_from_the_scenario_file_and_hashed_by_content(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    config = tmp_path / "mine" / "config.json"
    config.write_text(json.dumps(CONFIG))
    preset = {"model": "mine/config.json", "gpu": "h100-sxm", "tp": 1}
    both = {"prefill": {"preset": preset}, "decode": {"preset": preset}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"cluster": both}))
    scenario = load_scenario(tmp_path / "own.yaml")
    assert scenario.cluster.prefill.preset["model"] == str(config)
    assert resolve(scenario).decode[0].kv_tokens == 457_377
    assert load_scenario(scenario.to_dict()) == scenario
    monkeypatch.chdir(tmp_path)
    assert load_scenario({"name": "own", "cluster": both}) == scenario
    before = config_hash(scenario)
    config.write_text(json.dumps({**CONFIG, "vocab_size": 128_000}))
    assert config_hash(scenario) != before


def test_one_key_of_a_mapping_may_be_overridden():
    scenario = cluster(SMALL, SMALL).with_overrides({"cluster.prefill.preset.tp": 2})
    assert scenario.cluster.prefill.preset["tp"] == 2
