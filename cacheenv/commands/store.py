"""The results folder: rows are appended as they come, and an interrupted run goes on where it stopped.

`NAME.jsonl` is the record; CSV, JSON, YAML and plots are made from it. A row is identified by scenario, policy, seed,
configuration and program: rows of another configuration are refused, rows of another program are computed again.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cacheenv.errors import InputError
from cacheenv.scenario import Scenario
from cacheenv.scenario.consistency import TRACE_KIND

KEY = ("scenario", "policy", "seed", "rate_rps", "config_hash", "program_hash")


class ResultStore:
    """Rows on disk, or only in memory where there is no folder."""

    def __init__(self, out: str | None, name: str, files: Sequence[str], fresh: bool) -> None:
        """Opens the folder and reads earlier rows.

        Args:
            out: The folder; None keeps rows in memory.
            name: Stem of the record file.
            files: Names of all files that the command writes besides; none of them may belong to somebody else.
            fresh: Set earlier files aside instead of continuing.
        """
        if out == "":
            raise InputError("--out: expected a folder, got an empty name")
        self.folder = None if out is None else Path(out)
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        if self.folder is None:
            return
        self.path = self.folder / f"{name}.jsonl"
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"--out {out}: expected a folder, but this is a file")
        self.folder.mkdir(parents=True, exist_ok=True)
        if fresh:
            for file in (self.path.name, *files):
                _set_aside(self.folder / file)
        elif self.path.exists():
            self._read()
        else:
            for file in files:
                if (self.folder / file).exists():
                    raise InputError(
                        f"{self.folder / file} exists, but there is no {self.path.name} beside it; "
                        "expected an empty folder (or --fresh to set the old files aside)"
                    )

    def _read(self) -> None:
        raw = self.path.read_bytes()
        lines = raw.decode("utf-8", errors="replace").split("\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                row = json.loads(line)
                key = row_key(row)
            except (ValueError, TypeError, KeyError):
                if number == len(lines):  # cut off while being written
                    break
                raise InputError(
                    f"{self.path}: line {number}: not a result row; use another --out or --fresh"
                ) from None
            self.rows[key] = row
        if raw and not raw.endswith(b"\n"):
            whole = raw[: raw.rfind(b"\n") + 1]
            if self.rows and json.dumps(list(self.rows.values())[-1]) == lines[-1]:
                whole = raw + b"\n"
            write_atomically(self.path, whole)

    def refuse_other_configurations(self, scenario: Scenario) -> None:
        """Rows of the same scenario name with another configuration would make a table of two things."""
        base_hash = config_hash(scenario)
        for row in self.rows.values():
            if row["scenario"] == scenario.name and row["base_hash"] != base_hash:
                raise InputError(
                    f"{self.path} holds results of '{scenario.name}' with another configuration; "
                    "use another --out, or --fresh to set them aside"
                )

    def add(self, row: dict[str, Any]) -> None:
        """Keeps a row, on disk at once."""
        row = json_ready(row)
        self.rows[row_key(row)] = row
        if self.folder is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def get(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row of that identity, if it is there."""
        return self.rows.get(row_key(identity))

    def write(self, file: str, content: str) -> None:
        """Writes a derived file in one piece."""
        if self.folder is not None:
            write_atomically(self.folder / file, content.encode("utf-8"))


def row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies a row."""
    return tuple(row.get(name) if name == "rate_rps" else row[name] for name in KEY)


def _set_aside(path: Path) -> None:
    """Renames `x` to the first free `x.1`, `x.2`, ..."""
    if path.exists():
        number = 1
        while path.with_name(f"{path.name}.{number}").exists():
            number += 1
        path.rename(path.with_name(f"{path.name}.{number}"))


def write_atomically(path: Path, content: bytes) -> None:
    """Writes beside and renames, so that a reader or a crash never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def json_ready(value: Any) -> Any:
    """Plain Python values; NaN and infinity become null, as JSON has no words for them."""
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@functools.lru_cache(maxsize=1024)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def config_hash(scenario: Scenario) -> str:
    """Hash of the resolved scenario; of a trace its content instead of its path."""
    tree = scenario.to_dict()
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
        path for folder in sorted(folders) for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".yaml")
    ]
    return _files_digest([path for path in files if "commands" not in path.parts])


def _files_below(path: Path) -> Iterable[Path]:
    return sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]


def _files_digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + (path.read_bytes() if path.is_file() else b"") + b"\0")
    return digest.hexdigest()[:16]
