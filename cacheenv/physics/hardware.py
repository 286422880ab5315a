"""What a scenario writes as `preset:`: a name, a mapping of coefficients, or a model on a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cacheenv.errors import ConfigError, kind_of, suggestion
from cacheenv.physics import presets
from cacheenv.physics.architecture import BYTES
from cacheenv.physics.derive import Options, derive_preset
from cacheenv.physics.presets import Preset

#: Coefficients and sizes that a mapping may give -> lowest value (above 0 where it is 0.0).
NUMBERS = {
    "prefill_a_s": 0.0,
    "prefill_b_s": 0.0,
    "prefill_c_s": 0.0,
    "min_prefill_s": 0.0,
    "decode_d_s": 0.0,
    "decode_e_s": 0.0,
    "decode_f_s": 0.0,
}
COUNTS = ("n_tile", "kv_bytes_per_token", "kv_copies", "weight_bytes", "capacity_tokens", "layers", "tensor_parallel")
TEXTS = ("model", "gpu", "source", "error", "confidence")
#: What may be left out where nothing is named, with the value that it then has.
OPTIONAL: dict[str, Any] = {
    "n_tile": 1,
    "kv_copies": 1,
    "weight_bytes": 1,
    "tensor_parallel": 1,
    "model": "unnamed",
    "gpu": "unnamed",
    "source": "written in the scenario",
    "error": "not stated",
    "confidence": "inline",
}
DERIVED = ("model", "gpu", "tp", "weights", "kv", "efficiencies")


def load_preset(value: str | Mapping[str, Any]) -> Preset:
    """The preset that a scenario asks for.

    Args:
        value: One of

            * a name of `presets.yaml`;
            * `{preset: NAME, ...}`: a named one with some of its coefficients replaced;
            * `{model: NAME or config.json, gpu: NAME, tp: N, weights, kv, efficiencies, ...}`: derived, with some of
              the coefficients replaced;
            * a mapping of all coefficients.

    Raises:
        InputError: Of one line; a :class:`ConfigError` whose `place` is the key below `preset` where one is at fault.
    """
    if not isinstance(value, Mapping):
        return presets.load_preset(value)
    given = dict(value)
    if "preset" in given:
        name = given.pop("preset")
        if not isinstance(name, str):
            raise ConfigError(f"preset: expected the name of a preset, got {kind_of(name)}", "preset")
        base = presets.load_preset(name)
        changed = _checked(given, "beside preset")
        shown = {key: changed[key] for key in changed if key not in TEXTS}
        label = f"{name} with {', '.join(shown)} changed" if shown else name
        return _with_rate(replace(base, **{"source": f"{base.source}; {label}", **changed}))
    if "tp" in given:
        options = {key: given.pop(key) for key in DERIVED if key in given}
        derived = _derived(options)
        return _with_rate(replace(derived, **_checked(given, "beside tp")))
    return _inline(given)


def _derived(options: Mapping[str, Any]) -> Preset:
    for key in ("model", "gpu"):
        if not isinstance(options.get(key), str):
            raise ConfigError(f"{key}: expected text beside tp, got {kind_of(options.get(key))}", key)
    tp = options["tp"]
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        raise ConfigError(f"tp: expected an integer >= 1, got {tp!r}", "tp")
    for key in ("weights", "kv"):
        if options.get(key) is not None and options[key] not in BYTES:
            raise ConfigError(f"{key}: expected one of {', '.join(BYTES)}, got {options[key]!r}", key)
    return derive_preset(
        options["model"],
        options["gpu"],
        Options(tp, options.get("weights"), options.get("kv") or "bf16", options.get("efficiencies")),
    )


def _inline(given: Mapping[str, Any]) -> Preset:
    """All coefficients in a mapping; what does not matter to a simulation may be left out."""
    changed = _checked(given, "of a preset (preset names a base, model, gpu and tp derive one)")
    if "min_prefill_s" not in changed and "decode_d_s" in changed:
        changed["min_prefill_s"] = changed["decode_d_s"]
    needed = [key for key in (*NUMBERS, *COUNTS) if key not in OPTIONAL]
    missing = [key for key in needed if key not in changed]
    if missing:
        raise ConfigError(
            f"expected also {', '.join(missing)}, or preset: NAME, or model, gpu and tp to take them from", missing[0]
        )
    return _with_rate(Preset(name="inline", min_load_gbytes_per_s=math.inf, **{**OPTIONAL, **changed}))


def _with_rate(preset: Preset) -> Preset:
    """`preset` with the rate above which loading beats computing."""
    rate = preset.moved_bytes_per_token / preset.prefill_b_s / 1e9 if preset.prefill_b_s else math.inf
    return replace(preset, min_load_gbytes_per_s=rate)


def _checked(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a mapping, each of its kind and range."""
    known = (*NUMBERS, *COUNTS, *TEXTS)
    checked: dict[str, Any] = {}
    for key, value in given.items():
        if key in NUMBERS:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(f"{key}: expected a number >= 0, got {value!r}", key)
            if not (math.isfinite(value) and value >= NUMBERS[key]):
                raise ConfigError(f"{key}: expected a number >= 0, got {value!r}", key)
            checked[key] = float(value)
        elif key in COUNTS:
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**53:
                raise ConfigError(f"{key}: expected an integer >= 1, got {value!r}", key)
            checked[key] = value
        elif key in TEXTS:
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(f"{key}: expected text, got {value!r}", key)
            checked[key] = value
        else:
            hint = suggestion(str(key), (*known, *DERIVED, "preset")) or f"; known {where}: {', '.join(known)}"
            raise ConfigError(f"unknown key {key}{hint}", str(key))
    if checked.get("prefill_b_s") == 0.0 and checked.get("prefill_c_s") == 0.0:
        raise ConfigError("prefill_b_s: expected a number > 0 where prefill_c_s is 0", "prefill_b_s")
    return checked
