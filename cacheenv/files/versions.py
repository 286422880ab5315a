"""Versions of what is installed."""

from __future__ import annotations

import importlib.metadata
import platform


def program_version() -> str:
    """Version of the installed distribution."""
    try:
        return importlib.metadata.version("cacheenv")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def versions() -> dict[str, str]:
    """Versions of what the results were made with."""
    found = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for name in ("cacheenv", "numpy", "numba", "gymnasium", "torch", "stable-baselines3", "sb3-contrib"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
