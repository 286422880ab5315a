"""What sub-commands of `cacheenv` share, built in or plugged in: their form, exit statuses, kinds of arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Protocol

from cacheenv.errors import InputError
from cacheenv.scenario.keys import parse_assignment

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
LARGEST_NUMBER = 1e15


class Command(Protocol):
    """What a sub-command is: a module or an object with these three."""

    help: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Runs; returns the exit status."""


def positive(text: str) -> int:
    """An integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got '{text}'")
    return value


def positive_number(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < LARGEST_NUMBER:
        raise argparse.ArgumentTypeError(f"expected a number > 0, got '{text}'")
    return value


def not_negative(text: str) -> float:
    """A finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < LARGEST_NUMBER:
        raise argparse.ArgumentTypeError(f"expected a number >= 0, got '{text}'")
    return value


def share(text: str) -> float:
    """A number in (0, 1]."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number > 0 and <= 1, got '{text}'")
    return value


def add_set_argument(parser: argparse.ArgumentParser) -> None:
    """Declares `--set`."""
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="dotted.key=value of the scenario; repeatable"
    )


def assignments(texts: Sequence[str]) -> dict[str, Any]:
    """The overrides of `--set`; a key that is given twice is refused."""
    overrides: dict[str, Any] = {}
    for text in texts:
        key, value = parse_assignment(text)
        if key in overrides:
            raise InputError(f"--set {key} is given twice")
        overrides[key] = value
    return overrides
