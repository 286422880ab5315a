"""What is read from a `config.json`: sizes against the published ones, and what is refused, by its key."""

import json

import pytest

from cacheenv.errors import InputError
from cacheenv.physics import list_models, load_architecture

# Published parameters, in units of 1e9 (model cards, safetensors indices): all, and those that a token passes.
PUBLISHED = {
    "llama3-8b": (8.03, 8.03),
    "llama3-70b": (70.55, 70.55),
    "llama2-70b": (68.98, 68.98),
    "qwen2.5-7b": (7.62, 7.62),
    "qwen2.5-72b": (72.7, 72.7),
    "qwen3-32b": (32.8, 32.8),
    "qwen3-235b-a22b": (235.0, 22.0),
    "mixtral-8x7b": (46.7, 12.9),
    "deepseek-v3": (671.0, 37.0),
    "kimi-k2": (1026.0, 32.0),
    "r1-distill-qwen-7b": (7.62, 7.62),
}
DENSE = {
    "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 1000,
}  # fmt: skip


def written(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(path)


def test_all_packaged_models_have_the_published_sizes():
    assert set(list_models()) == set(PUBLISHED)
    for name, (total, active) in PUBLISHED.items():
        model = load_architecture(name)
        assert model.total_params / 1e9 == pytest.approx(total, rel=0.002), name
        used = model.active_params + (1 if model.tied else 2) * model.embedding_params
        assert used / 1e9 == pytest.approx(active, rel=0.03), name
        assert model.source.startswith("https://huggingface.co/")


def test_a_dense_model_by_hand(tmp_path):
    model = load_architecture(written(tmp_path, DENSE))
    # A head has 64 / 8 = 8 dimensions. Attention of a layer: query and output 2 * 64 * 64, keys and values 2 * 64 * 16.
    assert model.attention_params == 4 * (2 * 64 * 64 + 2 * 64 * 16)
    assert model.dense_params == 4 * 3 * 64 * 128
    assert model.kv_values == 2 * 2 * 8
    assert model.attention_width == model.cached_width == 64
    assert (model.total_params - model.active_params) == 2 * 1000 * 64
    assert model.name == tmp_path.name
    assert load_architecture(str(tmp_path)) == model


def test_experts_by_hand(tmp_path):
    experts = {
        **DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
        "n_shared_experts": 1, "tie_word_embeddings": True,
    }  # fmt: skip
    model = load_architecture(written(tmp_path, experts))
    # One dense layer of 128; three with a shared expert of 16, a gate of 64 x 8 and eight experts of 16.
    assert model.dense_params == 3 * 64 * 128 + 3 * (3 * 64 * 16 + 64 * 8)
    assert model.routed_params == 3 * 8 * 3 * 64 * 16
    assert model.active_params == model.always_params + 3 * 2 * 3 * 64 * 16
    assert model.total_params == model.always_params + model.routed_params + 64_000


def test_a_latent_by_hand():
    model = load_architecture("deepseek-v3")
    # 512 latent and 64 rotary values a layer, two bytes each: 61 * 576 * 2 bytes a token.
    assert model.layers * model.kv_values * 2 == 70_272
    assert model.attention_width == 128 * (128 + 64 + 128) / 2
    assert model.weights == "fp8"


def test_a_multimodal_model_is_its_decoder(tmp_path):
    text = load_architecture(written(tmp_path, {"torch_dtype": "bfloat16", "text_config": DENSE}))
    assert text.layers == 4


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ("{", "line 1: not valid JSON"),
        ("[1]", "expected a mapping of config keys, got a list"),
        ({key: value for key, value in DENSE.items() if key != "hidden_size"}, "hidden_size: missing"),
        ({**DENSE, "num_hidden_layers": "4"}, "num_hidden_layers: expected an integer >= 1, got '4'"),
        ({**DENSE, "num_hidden_layers": True}, "num_hidden_layers: expected an integer >= 1, got True"),
        ({**DENSE, "vocab_size": 0}, "vocab_size: expected an integer >= 1, got 0"),
        ({**DENSE, "num_key_value_heads": 3}, "num_key_value_heads: expected a divisor"),
        ({**DENSE, "hidden_size": 60}, "head_dim: missing, and hidden_size = 60"),
        ({**DENSE, "sliding_window": 4096}, "sliding_window: expected null"),
        ({**DENSE, "layer_types": ["full_attention", "sliding_attention"]}, "layer_types: expected full_attention"),
        ({**DENSE, "mamba_d_state": 16}, "mamba_d_state: a model with state-space layers"),
        ({**DENSE, "index_topk": 2048}, "index_topk: a model with sparse attention"),
        ({**DENSE, "hidden_act": "relu"}, "hidden_act: expected a gated MLP"),
        ({**DENSE, "quantization_config": {"quant_method": "awq"}}, "quantization_config.quant_method: expected fp8"),
        ({**DENSE, "torch_dtype": "int8"}, "torch_dtype: expected one of bfloat16"),
        ({**DENSE, "num_experts": 8}, "num_experts_per_tok: missing"),
        (
            {**DENSE, "num_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok: expected at most num_experts = 8",
        ),
        ({**DENSE, "kv_lora_rank": 16}, "qk_rope_head_dim: missing"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, config, part):
    path = written(tmp_path, config)
    with pytest.raises(InputError) as caught:
        load_architecture(path)
    assert part in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_unknown_models_get_a_suggestion():
    with pytest.raises(InputError, match=r"unknown model 'llama3-8' \(did you mean 'llama3-8b'"):
        load_architecture("llama3-8")
    with pytest.raises(InputError, match=r"no such file: nowhere/config\.json"):
        load_architecture("nowhere/config.json")
