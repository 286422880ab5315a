"""Whether the instances of a cluster run one model: what is refused, and what is legal and said below a table."""

from __future__ import annotations

from cacheenv.errors import ConfigError
from cacheenv.physics import Preset, load_preset
from cacheenv.scenario.sections import ClusterConfig


def same_model(first: Preset, second: Preset) -> bool:
    """One model: by name, or of the same layers, KV and weights under two names."""
    if first.model.lower() == second.model.lower():
        return True
    sizes = [(item.layers, item.kv_bytes_per_token, item.weight_bytes) for item in (first, second)]
    return sizes[0] == sizes[1]


def check_models(*ends: tuple[str, Preset]) -> None:
    """Refuses instances between which KV cannot be handed over.

    Args:
        ends: Dotted key and preset of each kind of instance; all may exchange KV with each other.

    Raises:
        ConfigError: Other models, or KV of another size a token, than the first has.
    """
    (_, first), *others = ends
    for place, other in others:
        if not same_model(first, other):
            raise ConfigError(
                f"{place}: expected the model of {ends[0][0]}, {first.model}, whose KV is handed over, got "
                f"{other.model} (to let its coefficients stand for that model: {{preset: NAME, model: MODEL, ...}})",
                place,
            )
        for field, unit in (("layers", "layers"), ("kv_bytes_per_token", "bytes of KV a token")):
            own, given = getattr(first, field), getattr(other, field)
            if own != given:
                raise ConfigError(f"{place}: expected the {own} {unit} of {ends[0][0]}, got {given}", place)


def check_layers(layers: int | None, preset: Preset) -> None:
    """Refuses a finer overlap than the model has layers."""
    if layers is not None and layers > preset.layers:
        raise ConfigError(
            f"cluster.network.layers: expected at most the {preset.layers} layers of {preset.model}, got {layers}",
            "cluster.network.layers",
        )


def cluster_notes(cluster: ClusterConfig) -> list[str]:
    """What is legal but not what the model or the hardware says: a line each, for below a table."""
    prefill, decode = load_preset(cluster.prefill.preset), load_preset(cluster.decode.preset)
    notes = []
    if cluster.network.layers is not None and cluster.network.layers != prefill.layers:
        notes.append(
            f"network.layers={cluster.network.layers}: transfers overlap in that many pieces, {prefill.model} has "
            f"{prefill.layers} layers"
        )
    if prefill.moved_bytes_per_token != decode.moved_bytes_per_token:
        notes.append(
            f"prefill holds {prefill.kv_copies} and decode {decode.kv_copies} copies of each token's KV: a hand-over "
            f"moves {prefill.moved_bytes_per_token:,} bytes a token, a migration {decode.moved_bytes_per_token:,}"
        )
    if prefill.weight_bytes != decode.weight_bytes:
        notes.append(
            f"prefill and decode hold {prefill.weight_bytes / 1e9:,.1f} and {decode.weight_bytes / 1e9:,.1f} GB of "
            "weights"
        )
    for role, section in (("prefill", cluster.prefill), ("decode", cluster.decode)):
        if isinstance(section.preset, dict) and "preset" in section.preset and "model" in section.preset:
            notes.append(f"{role}: coefficients of {section.preset['preset']} stand for {section.preset['model']}")
    return notes
