"""The command `cacheenv`: one sub-command a module, further ones through entry points `cacheenv.commands`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from cacheenv.command_line import EXIT_BAD_INPUT, EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, Command
from cacheenv.errors import InputError
from cacheenv.files.versions import program_version

BUILT_IN = ("bench", "goodput", "trace", "scenarios", "presets")


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line, as every other error of the command."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage."""
        raise InputError(f"{message} (see {self.prog} --help)")


class MissingCommand:
    """Stands for a plugin command whose package cannot be imported."""

    help = "needs the extra 'agents'"

    def __init__(self, name: str, problem: ImportError) -> None:
        self.name, self.problem = name, problem

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Takes whatever the real command would."""
        parser.add_argument("rest", nargs=argparse.REMAINDER)

    def run(self, arguments: argparse.Namespace) -> int:
        """Says what is missing."""
        missing = self.problem.name or str(self.problem)
        raise InputError(f"'{self.name}' needs the package {missing}: pip install 'cacheenv[agents]'")


def _commands(argv: Sequence[str]) -> dict[str, Command]:
    """Built-in commands and plugins; a plugin is imported only where it is called or listed."""
    commands: dict[str, Any] = {name: importlib.import_module(f"cacheenv.commands.{name}") for name in BUILT_IN}
    if argv and argv[0] in commands:
        return commands
    for point in sorted(importlib.metadata.entry_points(group="cacheenv.commands"), key=lambda point: point.name):
        try:
            commands[point.name] = point.load()
        except ImportError as problem:
            commands[point.name] = MissingCommand(point.name, problem)
    return commands


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with all sub-commands."""
    parser = Parser(prog="cacheenv", description="LLM serving with prefill/decode disaggregation: compare schedulers.")
    parser.add_argument("--version", action="version", version=f"cacheenv {program_version()}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, command in _commands(argv).items():
        subparser = subparsers.add_parser(name, help=command.help, description=command.help, allow_abbrev=False)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: Arguments without the program name; `sys.argv` if not given.

    Returns:
        Exit status: 0, or 2 for bad input (one line on stderr), 130 when interrupted.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        arguments = make_parser(argv).parse_args(argv)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of our output went away: nothing is wrong and nobody is there to be told.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except InputError as problem:
        return _fail(str(problem))
    except OSError as problem:
        place = f"{problem.filename}: " if problem.filename else ""
        return _fail(f"{place}{problem.strerror or problem}")
    except KeyboardInterrupt:
        print("cacheenv: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _fail(message: str) -> int:
    print(f"cacheenv: error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
