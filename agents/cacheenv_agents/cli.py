"""The commands `cacheenv train` and `cacheenv evaluate`. Torch is imported when they run, not when they are listed."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from cacheenv.command_line import EXIT_INTERRUPTED, add_set_argument, assignments, positive
from cacheenv.errors import InputError
from cacheenv_agents.config import TrainingConfig, load_config
from cacheenv_agents.registry import PREFIX

EVALUATION_SEEDS = 5
EVALUATION_BASELINES = "random,round_robin,least_requests"


class TrainCommand:
    """`cacheenv train`."""

    help = "train an agent with Stable-Baselines3 (PPO, MaskablePPO)"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the arguments."""
        parser.add_argument("--config", metavar="FILE", help="YAML with SB3 Zoo keys, e.g. configs/agents/ppo.yaml")
        parser.add_argument("--scenario", metavar="NAME", help="packaged name or YAML file, instead of the config's")
        add_set_argument(parser)
        parser.add_argument("--timesteps", metavar="N", type=positive, help="decisions, instead of n_timesteps")
        parser.add_argument("--seed", metavar="N", type=_seed, help="seed of networks, sampling and worlds")
        parser.add_argument("--out", metavar="DIR", help="output folder (the first free runs/CONFIG-N)")
        parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --out")
        parser.add_argument("--save-freq", metavar="N", type=positive, help="decisions between checkpoints (a tenth)")
        parser.add_argument("--threads", metavar="N", type=positive, default=1, help="threads of torch (1)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Trains; Ctrl-C saves a checkpoint and says how to go on."""
        from cacheenv_agents.export import require_agents_extra
        from cacheenv_agents.run_folder import RunFolder, next_folder

        if arguments.resume and not arguments.out:
            raise InputError("--resume needs --out DIR: the folder of the training to go on with")
        if not arguments.config and not arguments.resume:
            raise InputError("expected --config FILE (or --resume --out DIR)")
        config = load_config(arguments.config) if arguments.config else RunFolder(Path(arguments.out)).stored_config()
        config = _changed(config, arguments)
        out = Path(arguments.out) if arguments.out else next_folder(Path(arguments.config).stem)
        require_agents_extra()
        from cacheenv_agents.train import train

        again = f"cacheenv train --resume --out {shlex.quote(str(out))}"
        print(f"cacheenv: training in {out}", file=sys.stderr)
        try:
            outcome = train(
                config,
                out,
                resume=arguments.resume,
                arguments={key: value for key, value in vars(arguments).items() if not callable(value)},
                save_freq=arguments.save_freq,
                threads=arguments.threads,
            )
        except KeyboardInterrupt:
            print(f"cacheenv: stopped; go on from the last checkpoint with: {again}", file=sys.stderr)
            return EXIT_INTERRUPTED
        if not outcome.finished:
            made = f"{outcome.timesteps:,} of {config.parameters.n_timesteps:,} decisions"
            print(f"cacheenv: interrupted after {made}; go on with: {again}", file=sys.stderr)
            return EXIT_INTERRUPTED
        print(f"{outcome.timesteps:,} decisions in {outcome.wall_s:.0f} s; agent in {out}")
        print(f"evaluate it with: cacheenv evaluate {shlex.quote(str(out))}")
        return 0


class EvaluateCommand:
    """`cacheenv evaluate`."""

    help = "compare a trained agent with baselines on seeds it was not trained on"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the arguments."""
        parser.add_argument(
            "agent", metavar="AGENT", help="output folder of 'cacheenv train', or one of its checkpoints"
        )
        parser.add_argument(
            "--policies", metavar="A,B", default=EVALUATION_BASELINES, help=f"to compare with ({EVALUATION_BASELINES})"
        )
        parser.add_argument("--scenario", metavar="NAME", help="packaged name or YAML file (that of the training)")
        add_set_argument(parser)
        parser.add_argument(
            "--seeds",
            metavar="N",
            type=positive,
            default=EVALUATION_SEEDS,
            help=f"seeds 0..N-1 ({EVALUATION_SEEDS}); a training draws its own from 62-bit numbers",
        )
        parser.add_argument("--jobs", metavar="N", type=positive, default=1, help="processes (1)")
        parser.add_argument("--out", metavar="DIR", help="folder for results as they come, tables and plots; resumable")
        parser.add_argument("--fresh", action="store_true", help="set earlier results in --out aside and start anew")
        parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and nothing else")

    def run(self, arguments: argparse.Namespace) -> int:
        """Runs the bench with the agent and the baselines, on the cluster of the training."""
        from cacheenv.commands import bench
        from cacheenv_agents.trained_agent import agent_folder

        path = arguments.agent.removeprefix(PREFIX)
        scenario = arguments.scenario or str(agent_folder(path) / "scenario.yml")
        policies = ",".join([PREFIX + path, *filter(None, [arguments.policies])])
        return bench.run(
            argparse.Namespace(
                policies=policies,
                scenario=[scenario],
                trace=None,
                config=None,
                set=arguments.set,
                rate=None,
                seeds=arguments.seeds,
                jobs=arguments.jobs,
                out=arguments.out,
                fresh=arguments.fresh,
                json=arguments.json,
                common_cluster=False,
            )
        )


def _changed(config: TrainingConfig, arguments: argparse.Namespace) -> TrainingConfig:
    """The configuration with what the command line changes."""
    import dataclasses

    overrides = assignments(arguments.set)
    if arguments.scenario is not None or overrides:
        config = config.with_scenario(arguments.scenario, overrides)
    if arguments.timesteps is not None:
        config = config.with_values(n_timesteps=arguments.timesteps)
    if arguments.seed is not None:
        config = dataclasses.replace(config, seed=arguments.seed)
    return config


def _seed(text: str) -> int:
    """An integer from 0 to 2**32 - 1."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected an integer >= 0 and < 2**32, got '{text}'")
    return int(text)


train_command = TrainCommand()
evaluate_command = EvaluateCommand()
