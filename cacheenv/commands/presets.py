"""`cacheenv presets list | show NAME | derive | fit FILE`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from typing import Any

from cacheenv import physics
from cacheenv.command_line import positive
from cacheenv.commands.text import align, number
from cacheenv.errors import InputError
from cacheenv.files.plain import json_ready
from cacheenv.files.yaml_text import dump_yaml
from cacheenv.physics.architecture import BYTES
from cacheenv.physics.fit import Fit, fit_decode, fit_prefill
from cacheenv.physics.measurements import read_measurements

help = "hardware: list, show and derive latency presets, or fit one to your own measurements"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="presets, models, GPUs and efficiencies that come with the package")
    show = actions.add_parser("show", help="all numbers of a preset, with source and error")
    show.add_argument("name", metavar="NAME", help="preset, model or GPU")
    derive = actions.add_parser("derive", help="a preset from a model's config.json and a GPU's data sheet")
    _add_derivation(derive, required=True)
    fit = actions.add_parser("fit", help="coefficients from your own TTFT and TPOT, and how well they meet them")
    fit.add_argument("file", metavar="FILE", help="CSV (prompt,cached,output,batch,ttft,tpot), vLLM JSON, AIPerf JSONL")
    fit.add_argument("--preset", metavar="NAME", help="preset that gives sizes, and what was not measured")
    _add_derivation(fit, required=False)
    for action in (listing, show, derive, fit):
        action.add_argument("--json", action="store_true", help="print one JSON document")


def _add_derivation(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--model", metavar="NAME|FILE", required=required, help="packaged model, or a config.json")
    parser.add_argument("--gpu", metavar="NAME", required=required, help="data sheet (cacheenv presets list)")
    parser.add_argument("--tp", metavar="N", type=positive, default=1, help="GPUs of an instance (1)")
    parser.add_argument("--weights", choices=tuple(BYTES), help="number format of the weights (the checkpoint's)")
    parser.add_argument("--kv", choices=tuple(BYTES), help="number format of keys and values (bf16)")
    parser.add_argument("--efficiencies", metavar="NAME", help="kernels or engine that the shares of peak are of")


def run(arguments: argparse.Namespace) -> int:
    """Lists, shows, derives or fits."""
    if arguments.action == "list":
        _list(arguments.json)
    elif arguments.action == "show":
        _print(_shown(arguments.name), arguments.json)
    elif arguments.action == "derive":
        asked = _asked(arguments)
        preset = physics.load_preset(asked)
        if arguments.json:
            _print({"preset": asked, **dataclasses.asdict(preset)}, True)
        else:
            print(f"# in a scenario: preset: {{{', '.join(f'{key}: {value}' for key, value in asked.items())}}}")
            _print(dataclasses.asdict(preset), False)
    else:
        _fit(arguments)
    return 0


def _print(tree: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(json_ready(tree), allow_nan=False) if as_json else dump_yaml(tree).rstrip())


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """The mapping that a scenario would have."""
    asked = {"model": arguments.model, "gpu": arguments.gpu, "tp": arguments.tp}
    extra = {key: getattr(arguments, key) for key in ("weights", "kv", "efficiencies")}
    return {**asked, **{key: value for key, value in extra.items() if value is not None}}


def _list(as_json: bool) -> None:
    presets = [physics.load_preset(name) for name in physics.list_presets()]
    models = [physics.load_architecture(name) for name in physics.list_models()]
    gpus = [physics.load_gpu(name) for name in physics.list_gpus()]
    if as_json:
        names = {"presets": presets, "models": models, "gpus": gpus}
        tree = {kind: [dataclasses.asdict(item) for item in items] for kind, items in names.items()}
        print(json.dumps(json_ready({**tree, "efficiencies": physics.list_efficiencies()}), allow_nan=False))
        return
    rows = [
        [
            item.name,
            number(1e6 * item.prefill_b_s),
            number(1e3 * item.decode_d_s),
            f"{item.capacity_tokens:,}",
            item.confidence,
        ]
        for item in presets
    ]
    print(align(["preset", "prefill [us/token]", "step [ms]", "capacity [tokens]", "evidence"], rows))
    print()
    rows = [
        [item.name, number(item.total_params / 1e9), number((item.active_params + item.embedding_params) / 1e9),
         str(item.layers), f"{item.layers * item.kv_values * 2:,}", item.weights]
        for item in models
    ]  # fmt: skip
    print(align(["model", "parameters [1e9]", "used a token [1e9]", "layers", "KV [bytes/token]", "weights"], rows))
    print()
    rows = [
        [item.name, f"{item.memory_gib:g}", f"{item.memory_gbytes_per_s:,.0f}", f"{item.bf16_tflops:,.0f}",
         "-" if item.fp8_tflops is None else f"{item.fp8_tflops:,.0f}", item.link, f"{item.link_gbytes_per_s:g}",
         f"{item.nic_gbytes_per_s:g}", item.efficiencies]
        for item in gpus
    ]  # fmt: skip
    header = ["GPU", "memory [GiB]", "[GB/s]", "BF16 [TFLOPS]", "FP8", "link", "[GB/s]", "NIC [GB/s]", "efficiencies"]
    print(align(header, rows))
    print(f"\nefficiencies: {', '.join(physics.list_efficiencies())}")


def _shown(name: str) -> dict[str, Any]:
    """A preset, model or GPU of that name."""
    kinds: tuple[tuple[Callable[[], list[str]], Callable[[str], Any]], ...] = (
        (physics.list_presets, physics.load_preset),
        (physics.list_models, physics.load_architecture),
        (physics.list_gpus, physics.load_gpu),
    )
    for names, load in kinds:
        if name in names():
            return dataclasses.asdict(load(name))
    physics.load_preset(name)
    raise AssertionError(name)


def _fit(arguments: argparse.Namespace) -> None:
    base: dict[str, Any]
    if arguments.preset is not None and arguments.model is not None:
        raise InputError("expected --preset, or --model and --gpu, not both")
    if arguments.preset is not None:
        base = {"preset": arguments.preset}
    elif arguments.model is not None and arguments.gpu is not None:
        base = _asked(arguments)
    else:
        raise InputError("expected --preset NAME, or --model and --gpu, for the sizes that times do not show")
    known = physics.load_preset(base)
    rows = read_measurements(arguments.file)
    fits: dict[str, Fit] = {}
    try:
        decode = [row for row in rows if row.tpot_s is not None]
        if decode:
            fits["decode"] = fit_decode(decode, (known.decode_d_s, known.decode_e_s, known.decode_f_s))
        step_s = fits["decode"].coefficients["decode_d_s"] if decode else known.decode_d_s
        prefill = [row for row in rows if row.ttft_s is not None]
        if prefill:
            step_s = min(step_s, *(row.ttft_s for row in prefill if row.ttft_s is not None))
            fits["prefill"] = fit_prefill(prefill, known.n_tile, step_s)
    except InputError as problem:
        raise InputError(f"{arguments.file}: {problem}") from None
    changed = {"min_prefill_s": step_s}
    for fit in fits.values():
        changed.update(fit.coefficients)
    said = [
        f"{phase} median {100 * fit.errors.median:.1f} %, mean {100 * fit.errors.mean:.1f} %, 90th percentile "
        f"{100 * fit.errors.p90:.1f} % of {fit.errors.rows} measurements"
        for phase, fit in sorted(fits.items(), reverse=True)
    ]
    preset = {**base, **{key: _rounded(value) for key, value in changed.items()}}
    preset |= {
        "source": f"fitted to {arguments.file}",
        "error": "; ".join(said),
        "confidence": "fitted to own measurements",
    }
    physics.load_preset(preset)
    if arguments.json:
        errors = {phase: dataclasses.asdict(fit.errors) for phase, fit in fits.items()}
        notes = [note for fit in fits.values() for note in fit.notes]
        print(json.dumps(json_ready({"preset": preset, "errors": errors, "notes": notes}), allow_nan=False))
        return
    _show_fit(fits)
    print(dump_yaml({"preset": preset}).rstrip())


def _rounded(value: float) -> float:
    """Four significant digits: more are not measured."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _show_fit(fits: dict[str, Fit]) -> None:
    """How well the form meets the measurements, as comments above the YAML."""
    table = []
    for phase, fit in sorted(fits.items(), reverse=True):
        found = fit.errors
        sizes = [f"{100 * value:.1f}" for value in (found.median, found.mean, found.p90)]
        worst = f"{found.worst} ({100 * found.largest:+.0f} %)"
        table.append([phase, str(found.rows), *sizes, f"{100 * found.bias:+.1f}", worst])
    header = ["phase", "rows", "median error [%]", "mean [%]", "p90 [%]", "bias [%]", "worst"]
    lines = align(header, table).splitlines()
    lines += [note for fit in fits.values() for note in fit.notes]
    print("\n".join(f"# {line}" for line in lines))
