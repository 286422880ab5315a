"""The results folder: rows are appended as they come, and an interrupted run goes on where it stopped.

`NAME.jsonl` is the record; CSV, JSON, YAML and plots are made from it. A row is identified by scenario, policy, seed,
configuration and program: rows of another configuration are refused, rows of another program are computed again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cacheenv.commands.identity import config_hash, row_key
from cacheenv.errors import InputError
from cacheenv.files.atomic import write_atomically
from cacheenv.files.plain import json_ready
from cacheenv.scenario import Scenario


class Results:
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

    def say_interrupted(self, what: str) -> None:
        """Tells on stderr what an interruption leaves: `what` are the rows, e.g. `results`."""
        kept = "nothing is kept without --out"
        if self.folder is not None:
            kept = f"finished {what} are in {self.path}; the same command goes on from there"
        print(f"\ncacheenv: interrupted; {kept}", file=sys.stderr)


def _set_aside(path: Path) -> None:
    """Renames `x` to the first free `x.1`, `x.2`, ..."""
    if path.exists():
        number = 1
        while path.with_name(f"{path.name}.{number}").exists():
            number += 1
        path.rename(path.with_name(f"{path.name}.{number}"))
