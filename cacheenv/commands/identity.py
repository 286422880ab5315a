"""What identifies a result: the keys of its row, the configuration, and the program that made it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cacheenv.files.plain import json_ready
from cacheenv.scenario import TRACE_KIND, Scenario

KEY = ("scenario", "policy", "seed", "rate_rps", "config_hash", "program_hash")


def row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies a row."""
    return tuple(row.get(name) if name == "rate_rps" else row[name] for name in KEY)


@functools.lru_cache(maxsize=1024)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def config_hash(scenario: Scenario) -> str:
    """Hash of the resolved scenario; of a trace and a model's config their content instead of their path."""
    tree = scenario.to_dict()
    for role in ("prefill", "decode"):
        preset = tree["cluster"][role]["preset"]
        model = Path(str(preset.get("model"))) if isinstance(preset, dict) and "tp" in preset else None
        if model is not None and model.is_absolute():
            path = model / "config.json" if model.is_dir() else model
            stat = path.stat()
            preset["model"] = _file_digest(str(path), stat.st_mtime_ns, stat.st_size)
    if scenario.workload.kind == TRACE_KIND:
        path = Path(str(scenario.workload.trace))
        stat = path.stat()
        tree["workload"]["trace"] = _file_digest(str(path), stat.st_mtime_ns, stat.st_size)
    return _digest(json.dumps(json_ready(tree), sort_keys=True))


@functools.lru_cache(maxsize=64)
def _file_digest(path: str, _mtime_ns: int, _size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def program_hash(policy: str) -> str:
    """Hash of the sources that make a result: this package, the packages of policies, and an agent's files."""
    agents = [part.removeprefix("agent:") for part in policy.split("+") if part.startswith("agent:")]
    return _digest(_sources_digest() + "".join(_files_digest(_files_below(Path(path))) for path in agents))


@functools.lru_cache(maxsize=1)
def _sources_digest() -> str:
    folders = {Path(__file__).resolve().parent.parent}
    for point in importlib.metadata.entry_points(group="cacheenv.policies"):
        spec = importlib.util.find_spec(point.module.split(".")[0])
        folders |= {Path(folder) for folder in (spec.submodule_search_locations or [])} if spec else set()
    files = [
        path
        for folder in sorted(folders)
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".yaml", ".json")
    ]
    return _files_digest([path for path in files if "commands" not in path.parts])


def _files_below(path: Path) -> Iterable[Path]:
    return sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]


def _files_digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + (path.read_bytes() if path.is_file() else b"") + b"\0")
    return digest.hexdigest()[:16]
