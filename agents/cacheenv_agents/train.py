"""Training with Stable-Baselines3: many worlds, checkpoints, and going on after an interruption."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnv

from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.files.progress import Progress
from cacheenv_agents.config import TrainingConfig, as_schedule
from cacheenv_agents.environment import EPISODE_METRICS, make_vec_env, make_worlds
from cacheenv_agents.export import describe
from cacheenv_agents.run_folder import Checkpoint, RunFolder, mean_of

ALGORITHMS: dict[str, Any] = {"ppo": PPO, "maskable_ppo": MaskablePPO}
ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}
CHECKPOINTS = 10


class Interrupted(Exception):
    """Ctrl-C was pressed; raised between two rounds, where a checkpoint is exact."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        folder: The output folder.
        timesteps: Decisions trained on.
        wall_s: Seconds of training, earlier parts included.
        finished: False after Ctrl-C.
    """

    folder: Path
    timesteps: int
    wall_s: float
    finished: bool


def train(
    config: TrainingConfig,
    out: Path,
    *,
    resume: bool = False,
    arguments: Mapping[str, Any] | None = None,
    save_freq: int | None = None,
    threads: int = 1,
) -> Outcome:
    """Trains an agent.

    Args:
        config: What is trained.
        out: Folder for everything that is written; see :mod:`cacheenv_agents.run_folder`.
        resume: Go on from the newest checkpoint in `out`.
        arguments: Command line, kept in the folder.
        save_freq: Decisions between checkpoints; None for a tenth of the training.
        threads: Threads of torch.

    Returns:
        How it ended. Ctrl-C ends the round that is under way, saves a checkpoint and returns.

    Raises:
        InputError: A bad configuration, or a folder that does not fit.
    """
    folder = RunFolder(out)
    worlds = make_worlds(config)
    checkpoint: Checkpoint | None = None
    if resume:
        folder.check_same(config, worlds.stepper.scenario)
        folder.extend(config)
        checkpoint = next(iter(folder.checkpoints()[::-1]), None)
        folder.cut_curve(checkpoint.timesteps if checkpoint else 0)
    else:
        folder.begin(config, worlds.stepper.scenario, arguments or {})
    torch.set_num_threads(threads)
    venv = make_vec_env(config, worlds, checkpoint.normalizer if checkpoint else None)
    try:
        with _interruptible() as stop:
            return _learn(config, folder, worlds, venv, checkpoint, stop, save_freq)
    finally:
        venv.close()


def _learn(
    config: TrainingConfig,
    folder: RunFolder,
    worlds: CacheVectorEnv,
    venv: VecEnv,
    checkpoint: Checkpoint | None,
    stop: threading.Event,
    save_freq: int | None,
) -> Outcome:
    model = _model(config, venv, checkpoint)
    model.set_logger(configure(str(folder.path / "tensorboard"), ["tensorboard"]))
    total = config.parameters.n_timesteps
    callback = TrainingCallback(
        folder,
        describe(config, worlds.stepper, 0),
        stop,
        save_freq or -(-total // CHECKPOINTS),
        checkpoint,
        Progress(total, "train", "dec", start=int(model.num_timesteps), steps="decisions", scaled=True),
    )
    finished = True
    try:
        if model.num_timesteps < total:
            # Where the count is kept, learn() takes the decisions that are still to come.
            model.learn(total - model.num_timesteps, callback, reset_num_timesteps=False)
    except Interrupted:
        finished = False
    finally:
        callback.progress.close()
    if model.num_timesteps > 0 or finished:
        saved = callback.save(model)
        if finished:
            folder.finish(saved)
    return Outcome(folder.path, int(model.num_timesteps), callback.wall_s(), finished)


def _model(config: TrainingConfig, venv: VecEnv, checkpoint: Checkpoint | None) -> Any:
    """A new model, or the one of a checkpoint with the random streams where they were."""
    parameters, algorithm = config.parameters, ALGORITHMS[config.algo]
    if checkpoint is not None:
        model = algorithm.load(checkpoint.model, env=venv, device="cpu")
        # New episodes, other ones than before: their seeds follow from the seed and the decisions so far.
        venv.seed(int(np.random.SeedSequence([config.seed, checkpoint.timesteps]).generate_state(1)[0]))
        checkpoint.restore_random_streams()
        return model
    policy_kwargs = dict(parameters.policy_kwargs)
    policy_kwargs["activation_fn"] = ACTIVATIONS[policy_kwargs.get("activation_fn", "tanh")]
    names = "n_steps batch_size n_epochs gamma gae_lambda ent_coef vf_coef max_grad_norm".split()
    return algorithm(
        parameters.policy,
        venv,
        learning_rate=as_schedule(parameters.learning_rate),
        clip_range=as_schedule(parameters.clip_range),
        policy_kwargs=policy_kwargs,
        seed=config.seed,
        device="cpu",
        verbose=0,
        **{name: getattr(parameters, name) for name in names},
    )


class TrainingCallback(BaseCallback):
    """Checkpoints, curve and progress; notices Ctrl-C.

    Args:
        folder: The output folder.
        description: Of the agent.
        stop: Set when Ctrl-C was pressed.
        save_freq: Decisions between checkpoints.
        checkpoint: From which the training goes on.
        progress: The display.
    """

    def __init__(
        self,
        folder: RunFolder,
        description: Mapping[str, Any],
        stop: threading.Event,
        save_freq: int,
        checkpoint: Checkpoint | None,
        progress: Progress,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.description = description
        self.stop = stop
        self.save_freq = save_freq
        self.progress = progress
        self.episodes = checkpoint.episodes if checkpoint else 0
        self._saved = checkpoint.timesteps if checkpoint else 0
        self._earlier_s = checkpoint.wall_s if checkpoint else 0.0
        self._start_s = time.monotonic()
        self._ended: list[dict[str, Any]] = []

    def wall_s(self) -> float:
        """Seconds of training so far, earlier parts included."""
        return self._earlier_s + time.monotonic() - self._start_s

    def save(self, model: Any) -> Path:
        """Writes a checkpoint."""
        self._saved = int(model.num_timesteps)
        return self.folder.save(model, self.description, self.wall_s(), self.episodes)

    def _on_rollout_start(self) -> None:
        # The last rollout has been learned from and the next one not begun: nothing is lost by stopping here.
        if self.stop.is_set():
            raise Interrupted
        if self.num_timesteps - self._saved >= self.save_freq:
            self.save(self.model)

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            if done:
                self._ended.append({"reward": info["episode"]["r"], **{name: info[name] for name in EPISODE_METRICS}})
        return True

    def _on_rollout_end(self) -> None:
        if self._ended:
            self.episodes += len(self._ended)
            means = {name: round(mean_of(self._ended, name), 6) for name in ("reward", *EPISODE_METRICS)}
            for name, value in means.items():
                self.logger.record(f"episode/{name}", value)
            times = {"timesteps": self.num_timesteps, "wall_s": round(self.wall_s(), 1), "episodes": self.episodes}
            self.folder.add_to_curve({**times, **means})
            self._ended = []
            self.progress.note(
                f"goodput {means['goodput_rps']:.2f} req/s, SLO met {100 * means['slo_attainment']:.0f} %"
            )
        self.progress.advance_to(self.num_timesteps)


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, the second one interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(*_: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("\ncacheenv: finishing the round, then saving (Ctrl-C again to stop at once) ...", file=sys.stderr)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
