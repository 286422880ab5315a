"""What a Hugging Face `config.json` says of a decoder: dense, GQA, MLA or MoE, its parameters and its KV.

A few keys decide; whatever changes the size of the KV or of the weights and is not understood is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from cacheenv.errors import InputError, kind_of, suggestion

#: Bytes of a number in memory.
BYTES = {"bf16": 2, "fp8": 1}
#: `torch_dtype` of a config -> what the weights are computed with.
DTYPES = {"bfloat16": "bf16", "float16": "bf16", "float32": "bf16", "float8_e4m3fn": "fp8"}
#: Keys of models whose KV or weights are of another kind -> what they have.
OTHER_KINDS = {
    "is_encoder_decoder": "an encoder",
    "attention_chunk_size": "attention over chunks",
    "cross_attention_layers": "cross attention",
    "index_topk": "sparse attention",
    "linear_num_key_heads": "linear attention",
    "linear_attn_config": "linear attention",
    "mamba_d_state": "state-space layers",
    "mamba_ssm_dtype": "state-space layers",
    "ssm_cfg": "state-space layers",
    "num_kv_shared_layers": "layers that share KV",
    "rwkv_version": "no attention",
}
GATED = ("silu", "swish", "swiglu", "swigluoai", "gelu_pytorch_tanh")


@dataclass(frozen=True)
class Architecture:
    """A decoder in numbers; parameters without norms and biases (below 0.1 %).

    Attributes:
        name: Name of the model.
        source: Where the config came from.
        layers: Layers.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key/value heads; 1 for MLA, whose latent is one for all heads.
        kv_values: Values of keys and values of one token in one layer.
        attention_width: Query heads times the mean width of a score and a weighted sum, of a prefill.
        cached_width: The same of a decode step: an MLA decoder works on its latent.
        attention_params: Of all layers.
        dense_params: MLPs that each token passes: dense layers, shared experts, gates, of all layers.
        expert_params: One routed expert in one layer; 0 without.
        experts: Routed experts a layer.
        experts_per_token: Of these, used by a token.
        expert_layers: Layers with routed experts.
        embedding_params: The table of embeddings; the output head is as large.
        tied: Whether both are the same table.
        weights: `bf16` or `fp8`, as the checkpoint is stored.
    """

    name: str
    source: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    kv_values: int
    attention_width: float
    cached_width: float
    attention_params: int
    dense_params: int
    expert_params: int
    experts: int
    experts_per_token: int
    expert_layers: int
    embedding_params: int
    tied: bool
    weights: str

    @property
    def always_params(self) -> int:
        """Parameters of the layers that every token passes."""
        return self.attention_params + self.dense_params

    @property
    def routed_params(self) -> int:
        """Parameters of all routed experts."""
        return self.expert_params * self.experts * self.expert_layers

    @property
    def total_params(self) -> int:
        """All parameters."""
        return self.always_params + self.routed_params + self.embedding_params * (1 if self.tied else 2)

    @property
    def active_params(self) -> int:
        """Parameters that a token passes, without embedding and head."""
        return self.always_params + self.expert_params * self.experts_per_token * self.expert_layers

    @property
    def is_mla(self) -> bool:
        """Whether its KV is a latent that all heads share."""
        return self.kv_heads == 1 and self.cached_width != self.attention_width


def list_models() -> list[str]:
    """Names of the models whose configs come with the package."""
    folder = resources.files("cacheenv.physics").joinpath("models")
    return sorted(item.name.removesuffix(".json") for item in folder.iterdir() if item.name.endswith(".json"))


def load_architecture(model: str) -> Architecture:
    """The architecture of a packaged model, or of a `config.json`.

    Args:
        model: Name of a packaged model, or path of a `config.json` or of the folder that holds it.

    Raises:
        InputError: Naming the file and the key that cannot be read.
    """
    known = list_models()
    if model in known:
        text = resources.files("cacheenv.physics").joinpath(f"models/{model}.json").read_text(encoding="utf-8")
        config = json.loads(text)
        return read_config(config, model, f"model {model}", config["source"])
    path = Path(model).expanduser()
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        if path.suffix == ".json" or len(path.parts) > 1:
            raise InputError(f"no such file: {path}")
        raise InputError(
            f"unknown model '{model}'{suggestion(model, known)}; expected the path of a config.json or one of: "
            f"{', '.join(known)}"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except json.JSONDecodeError as problem:
        raise InputError(f"{path}: line {problem.lineno}: not valid JSON: {problem.msg}") from None
    name = path.absolute().parent.name if path.name == "config.json" else path.stem
    return read_config(config, name, str(path), str(path))


class _Keys:
    """Reads keys of a config; every complaint names the file and the key."""

    def __init__(self, config: Mapping[str, Any], place: str) -> None:
        self.config, self.place = config, place

    def fail(self, key: str, message: str) -> NoReturn:
        raise InputError(f"{self.place}: {key}: {message}")

    def count(self, key: str, default: int | None = None, low: int = 1) -> int:
        value = self.config.get(key)
        if value is None:
            if default is None:
                self.fail(key, "missing; expected an integer")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**40:
            self.fail(key, f"expected an integer >= {low}, got {value!r}")
        return value

    def first(self, *keys: str) -> str | None:
        """The first of the keys that is there and not null."""
        return next((key for key in keys if self.config.get(key) is not None), None)


def read_config(config: Any, name: str, place: str, source: str) -> Architecture:
    """The architecture that a parsed `config.json` describes.

    Args:
        config: The parsed JSON.
        name: Name of the model.
        place: The file in messages.
        source: Origin of the facts.

    Raises:
        InputError: Naming `place` and the key that cannot be read.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"{place}: expected a mapping of config keys, got {kind_of(config)}")
    inner = config.get("text_config")
    if isinstance(inner, Mapping):  # a multimodal model: its decoder; the encoder of images is not modelled
        config = {**{key: config[key] for key in ("torch_dtype", "quantization_config") if key in config}, **inner}
    keys = _Keys(config, place)
    _refuse_other_kinds(keys)
    layers, hidden = keys.count("num_hidden_layers"), keys.count("hidden_size")
    heads = keys.count("num_attention_heads")
    attention = _latent_attention if config.get("kv_lora_rank") is not None else _grouped_attention
    kv_heads, kv_values, width, cached_width, attention_params = attention(keys, hidden, heads)
    dense, expert, experts, per_token, expert_layers = _mlp(keys, layers, hidden)
    return Architecture(
        name=name,
        source=source,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        kv_values=kv_values,
        attention_width=width,
        cached_width=cached_width,
        attention_params=layers * attention_params,
        dense_params=dense,
        expert_params=expert,
        experts=experts,
        experts_per_token=per_token,
        expert_layers=expert_layers,
        embedding_params=keys.count("vocab_size") * hidden,
        tied=config.get("tie_word_embeddings") is True,
        weights=_weights(keys),
    )


def _refuse_other_kinds(keys: _Keys) -> None:
    """What the latency form does not describe."""
    config = keys.config
    for key, kind in OTHER_KINDS.items():
        if config.get(key):
            keys.fail(key, f"a model with {kind} is not described by the latency form")
    kinds = config.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
        keys.fail("layer_types", "expected full_attention in all layers")
    if config.get("sliding_window") is not None and config.get("use_sliding_window", True) is not False:
        keys.fail("sliding_window", f"expected null, or use_sliding_window false, got {config['sliding_window']!r}")
    act = keys.first("hidden_act", "hidden_activation")
    if act is not None and config[act] not in GATED:
        keys.fail(act, f"expected a gated MLP ({', '.join(GATED)}), got {config[act]!r}")


def _grouped_attention(keys: _Keys, hidden: int, heads: int) -> tuple[int, int, float, float, int]:
    """KV heads, KV values a token and layer, widths of prefill and decode, parameters a layer: MHA, GQA, MQA."""
    kv_heads = keys.count("num_key_value_heads", heads)
    if heads % kv_heads:
        keys.fail("num_key_value_heads", f"expected a divisor of num_attention_heads = {heads}, got {kv_heads}")
    if keys.config.get("head_dim") is None and hidden % heads:
        keys.fail("head_dim", f"missing, and hidden_size = {hidden} is no multiple of num_attention_heads = {heads}")
    head_dim = keys.count("head_dim", max(1, hidden // heads))
    width = float(heads * head_dim)
    return kv_heads, 2 * kv_heads * head_dim, width, width, 2 * hidden * head_dim * (heads + kv_heads)


def _latent_attention(keys: _Keys, hidden: int, heads: int) -> tuple[int, int, float, float, int]:
    """The same of MLA: one latent and one rotary key for all heads; decode works on the latent (absorbed)."""
    latent, rope = keys.count("kv_lora_rank"), keys.count("qk_rope_head_dim")
    nope, value = keys.count("qk_nope_head_dim"), keys.count("v_head_dim")
    query_rank = keys.count("q_lora_rank", 0)
    query = query_rank * (hidden + heads * (nope + rope)) if query_rank else hidden * heads * (nope + rope)
    params = query + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
    width = heads * (nope + rope + value) / 2.0
    return 1, latent + rope, width, heads * (2 * latent + rope) / 2.0, params


def _mlp(keys: _Keys, layers: int, hidden: int) -> tuple[int, int, int, int, int]:
    """Dense parameters of all layers, of one expert, experts, experts a token, layers with experts."""
    config = keys.config
    experts_key = keys.first("n_routed_experts", "num_experts", "num_local_experts")
    experts = keys.count(experts_key) if experts_key else 0
    if experts <= 1:
        return layers * 3 * hidden * keys.count("intermediate_size"), 0, 0, 0, 0
    per_token = keys.count("num_experts_per_tok")
    if per_token > experts:
        keys.fail("num_experts_per_tok", f"expected at most {experts_key} = {experts}, got {per_token}")
    # Mixtral names its experts' width as a dense MLP's.
    size_key = "moe_intermediate_size" if keys.first("moe_intermediate_size") else "intermediate_size"
    expert = 3 * hidden * keys.count(size_key)
    step = keys.count("moe_layer_freq" if keys.first("moe_layer_freq") else "decoder_sparse_step", 1)
    first = keys.count("first_k_dense_replace", 0, low=0)
    plain = config.get("mlp_only_layers") or []
    if not isinstance(plain, list):
        keys.fail("mlp_only_layers", f"expected a list of layers, got {kind_of(plain)}")
    # DeepSeek counts from layer 0, Qwen from layer 1; both ship a step of 1.
    moe_layers = sum(1 for layer in range(first, layers) if layer % step == 0 and layer not in plain)
    dense_layers = layers - moe_layers
    shared = keys.count("n_shared_experts", 0, low=0) * expert
    shared += 3 * hidden * keys.count("shared_expert_intermediate_size", 0, low=0)
    dense = moe_layers * (shared + hidden * experts)
    if dense_layers:
        dense += dense_layers * 3 * hidden * keys.count("intermediate_size")
    return dense, expert, experts, per_token, moe_layers


def _weights(keys: _Keys) -> str:
    """Kind of the stored weights."""
    quantization = keys.config.get("quantization_config")
    if quantization is not None:
        if not isinstance(quantization, Mapping):
            keys.fail("quantization_config", f"expected a mapping, got {kind_of(quantization)}")
        method = quantization.get("quant_method")
        if method != "fp8":
            keys.fail("quantization_config.quant_method", f"expected fp8, got {method!r}")
        return "fp8"
    dtype = keys.config.get(keys.first("torch_dtype", "dtype") or "", "bfloat16")
    if dtype not in DTYPES:
        expected = ", ".join(DTYPES)
        keys.fail(keys.first("torch_dtype", "dtype") or "torch_dtype", f"expected one of {expected}, got {dtype!r}")
    return DTYPES[str(dtype)]
