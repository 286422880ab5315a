"""The output folder of a training: configuration, versions, checkpoints, the finished agent.

config.yml args.yml versions.yml scenario.yml     what was run, with what
checkpoints/000000409600/                         model, normaliser, random streams, agent; the number is decisions
model.zip vecnormalize.pkl policy.npz agent.json  of the newest checkpoint once the training is finished
curve.csv tensorboard/                            how it went
"""

from __future__ import annotations

import csv
import json
import pickle
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cacheenv.errors import InputError
from cacheenv.files.atomic import write_atomically
from cacheenv.files.versions import versions
from cacheenv.files.yaml_text import dump_yaml, read_yaml_mapping
from cacheenv.scenario import Scenario
from cacheenv.scenario.keys import differences
from cacheenv_agents.config import TrainingConfig, load_config
from cacheenv_agents.export import write_agent
from cacheenv_agents.trained_agent import DESCRIPTION_FILE, WEIGHTS_FILE

CONFIG, ARGUMENTS, VERSIONS, SCENARIO = "config.yml", "args.yml", "versions.yml", "scenario.yml"
MODEL, NORMALIZER, STATE, CURVE = "model.zip", "vecnormalize.pkl", "state.pkl", "curve.csv"
AGENT_FILES = (MODEL, NORMALIZER, WEIGHTS_FILE, DESCRIPTION_FILE)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk.

    Attributes:
        folder: Where it is.
        timesteps: Decisions trained on.
        wall_s: Seconds of training so far.
        episodes: Finished episodes so far.
    """

    folder: Path
    timesteps: int
    wall_s: float
    episodes: int

    @property
    def model(self) -> Path:
        """The model's file."""
        return self.folder / MODEL

    @property
    def normalizer(self) -> str | None:
        """The reward normaliser's file, if there is one."""
        path = self.folder / NORMALIZER
        return str(path) if path.is_file() else None

    def restore_random_streams(self) -> None:
        """Puts the global random streams of Python, NumPy and torch back to where they were."""
        import torch

        state = pickle.loads((self.folder / STATE).read_bytes())
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(torch.from_numpy(state["torch"].copy()))


class RunFolder:
    """One output folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # -- opening -------------------------------------------------------------------------------------------------

    def begin(self, config: TrainingConfig, scenario: Scenario, arguments: Mapping[str, Any]) -> None:
        """Writes what is going to be run into a new or empty folder."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            hint = "--resume goes on with it" if (self.path / CONFIG).is_file() else "choose another --out"
            raise InputError(f"--out {self.path}: expected a new or empty folder; {hint}")
        self.path.mkdir(parents=True, exist_ok=True)
        self._write(ARGUMENTS, dump_yaml(arguments))
        self._write(VERSIONS, dump_yaml(versions()))
        self._write(SCENARIO, dump_yaml(scenario.to_dict()))
        self._write(CONFIG, dump_yaml(config.to_dict()))

    def stored_config(self) -> TrainingConfig:
        """The configuration with which the training began."""
        if not (self.path / CONFIG).is_file():
            raise InputError(f"--resume: no training in {self.path} (there is no {CONFIG})")
        return load_config(self.path / CONFIG)

    def check_same(self, config: TrainingConfig, scenario: Scenario) -> None:
        """Refuses to go on with another configuration; only more decisions may be asked for."""
        before = [self.stored_config().to_dict(), read_yaml_mapping(self.path / SCENARIO)]
        now = [config.to_dict(), scenario.to_dict()]
        for name, old, new in zip((CONFIG, SCENARIO), before, now, strict=True):
            for key, (was, is_now) in differences(old, new).items():
                if not key.endswith(".n_timesteps"):
                    raise InputError(
                        f"--resume: {self.path / name} has {key}: {was!r}, but now it is {is_now!r}; "
                        "expected the same configuration"
                    )

    def extend(self, config: TrainingConfig) -> None:
        """Keeps a changed number of decisions."""
        self._write(CONFIG, dump_yaml(config.to_dict()))

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Checkpoint]:
        """All complete checkpoints, oldest first."""
        folders = [folder for folder in (self.path / "checkpoints").glob("*") if folder.name.isdecimal()]
        found = []
        for folder in sorted(folders):
            progress = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
            found.append(Checkpoint(folder, progress["timesteps"], progress["wall_s"], progress["episodes"]))
        return found

    def save(self, model: Any, description: Mapping[str, Any], wall_s: float, episodes: int) -> Path:
        """Writes a checkpoint beside and renames it, so that an interruption never leaves half of one."""
        import torch

        timesteps = int(model.num_timesteps)
        final = self.path / "checkpoints" / f"{timesteps:012d}"
        if final.exists():
            return final
        folder = final.with_name(".writing")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model.save(folder / MODEL)
        if model.get_vec_normalize_env() is not None:
            model.get_vec_normalize_env().save(str(folder / NORMALIZER))
        state = {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state().numpy(),
        }
        (folder / STATE).write_bytes(pickle.dumps(state))
        progress = {"timesteps": timesteps, "wall_s": wall_s, "episodes": episodes}
        (folder / "progress.json").write_text(json.dumps(progress) + "\n", encoding="utf-8")
        shutil.copy(self.path / SCENARIO, folder / SCENARIO)
        write_agent(folder, model, {**description, "timesteps": timesteps})
        folder.rename(final)
        return final

    def finish(self, checkpoint: Path) -> None:
        """Makes a checkpoint the agent of the folder."""
        for name in AGENT_FILES:
            if (checkpoint / name).is_file():
                shutil.copy(checkpoint / name, self.path / name)

    # -- curve ---------------------------------------------------------------------------------------------------

    def add_to_curve(self, row: Mapping[str, Any]) -> None:
        """Appends a line to the training curve."""
        path = self.path / CURVE
        new = not path.exists()
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)

    def curve(self) -> list[dict[str, float]]:
        """The training curve so far."""
        path = self.path / CURVE
        if not path.exists():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]

    def cut_curve(self, timesteps: int) -> None:
        """Drops what came after a checkpoint, for it will come again."""
        path = self.path / CURVE
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            kept = [lines[0], *(line for line in lines[1:] if int(line.split(",")[0]) <= timesteps)]
            self._write(CURVE, "\n".join(kept) + "\n")

    def _write(self, name: str, content: str) -> None:
        write_atomically(self.path / name, content.encode("utf-8"))


def next_folder(config_name: str, parent: Path = Path("runs")) -> Path:
    """The first free `runs/NAME-1`, `runs/NAME-2`, ..."""
    number = 1
    while (parent / f"{config_name}-{number}").exists():
        number += 1
    return parent / f"{config_name}-{number}"


def mean_of(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Mean of a column."""
    return float(np.mean([float(row[key]) for row in rows]))
