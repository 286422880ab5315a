"""How the simulator is compiled: one decorator, one disk-cache rule.

Numba's disk cache looks only at the file in which a function stands. The simulator is spread over many files, so a
function would be served stale after an edit of a file that it calls into. :func:`jit` therefore stamps every cache
entry with the newest state of the whole package (:func:`package_stamp`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

#: `_nrt=False` drops reference counting: the hot functions allocate nothing and only borrow their tables.
HOT_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
INNER_OPTIONS: dict[str, Any] = {**HOT_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
POLICY_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

PACKAGE_DIRECTORY = Path(__file__).resolve().parent.parent


def disabled() -> bool:
    """Whether `NUMBA_DISABLE_JIT` makes every function run as plain Python."""
    return bool(numba.config.DISABLE_JIT)


def package_stamp() -> tuple[float, int]:
    """Newest modification time and total size of the compiled sources of `cacheenv`."""
    newest, size = 0.0, 0
    for folder in ("sim", "envs", "workload"):
        for entry in os.scandir(PACKAGE_DIRECTORY / folder):
            if entry.name.endswith(".py"):
                stat = entry.stat()
                newest = max(newest, stat.st_mtime)
                size += stat.st_size
    policy = (PACKAGE_DIRECTORY / "policy.py").stat()
    return max(newest, policy.st_mtime), size + policy.st_size


_STAMP = package_stamp()


def _stamp_cache(dispatcher: Any) -> Any:
    """Ties a dispatcher's disk cache to the state of the whole package as well as to its own file."""
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = (cache_file._source_stamp, _STAMP)
    return dispatcher


def jit(function: Callable[..., Any]) -> Any:
    """Compiles `function` lazily with the simulator's options; a plain function under `NUMBA_DISABLE_JIT=1`."""
    return _stamp_cache(numba.njit(**HOT_OPTIONS)(function))


def inner(function: Callable[..., Any]) -> Any:
    """Like :func:`jit`, for functions that only compiled code calls: no Python entry is built, which halves compiling.

    Under `NUMBA_DISABLE_JIT=1` it can be called like any other.
    """
    return _stamp_cache(numba.njit(**INNER_OPTIONS)(function))


def jit_signature(signature: Any, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Compiles `function` now for one signature, or loads it from disk; plain under `NUMBA_DISABLE_JIT=1`."""
    dispatcher = _stamp_cache(numba.njit(**options)(function))
    if not disabled():
        dispatcher.compile(signature)
        dispatcher.disable_compile()
    return dispatcher


def entry_point(dispatcher: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiled function for these argument types, without the dispatcher's type look-up on each call.

    Structured arrays make that look-up cost about 1 us an argument; the environment calls one function with the same
    types for ever. Falls back to the dispatcher itself where there is nothing compiled.
    """
    if disabled():
        return dispatcher
    signature = tuple(numba.typeof(argument) for argument in arguments)
    dispatcher.compile(signature)
    return dispatcher.overloads[signature].entry_point
