"""How the simulator is compiled: one decorator, one disk-cache rule.

Numba's disk cache looks only at the file in which a function stands. The simulator is spread over many files, so a
function would be served stale after an edit of a file that it calls into. :func:`jit` therefore stamps every cache
entry with the newest state of the whole package (:func:`package_stamp`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

#: `_nrt=False` drops reference counting: the hot functions allocate nothing and only borrow their tables.
HOT_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
INNER_OPTIONS: dict[str, Any] = {**HOT_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
ONCE_OPTIONS: dict[str, Any] = {**INNER_OPTIONS, "inline": "always"}
POLICY_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

PACKAGE_DIRECTORY = Path(__file__).resolve().parent.parent.parent
#: Folders of the package with compiled code; an edit anywhere below one makes all compiled code stale.
COMPILED_FOLDERS = ("sim", "envs", "workload", "policy")


def disabled() -> bool:
    """Whether `NUMBA_DISABLE_JIT` makes every function run as plain Python."""
    return bool(getattr(numba.config, "DISABLE_JIT", 0))


def folder_stamp(folder: str, deep: bool = True) -> tuple[float, int]:
    """Newest modification time and total size of the Python files in a folder and, if `deep`, below it."""
    newest, size = 0.0, 0
    for entry in os.scandir(folder):
        if deep and entry.is_dir():
            below, size_below = folder_stamp(entry.path)
            newest, size = max(newest, below), size + size_below
        elif entry.name.endswith(".py"):
            stat = entry.stat()
            newest = max(newest, stat.st_mtime)
            size += stat.st_size
    return newest, size


_stamp_once = functools.cache(folder_stamp)


@functools.cache
def package_stamp() -> tuple[tuple[float, int], ...]:
    """State of the parts of `cacheenv` that hold compiled code."""
    return tuple(_stamp_once(str(PACKAGE_DIRECTORY / name)) for name in COMPILED_FOLDERS)


def _own_stamp(folder: Path) -> tuple[float, int] | None:
    """State of the code around a function outside `cacheenv`: its top package, or the files beside it."""
    if PACKAGE_DIRECTORY in (folder, *folder.parents) or not folder.is_dir():
        return None
    if not (folder / "__init__.py").exists():
        return _stamp_once(str(folder), deep=False)
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return _stamp_once(str(folder))


def _stamp_cache(dispatcher: Any) -> Any:
    """Ties a dispatcher's disk cache to the whole package and to its own folder, as well as to its own file."""
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        own = _own_stamp(Path(dispatcher.py_func.__code__.co_filename).parent)
        cache_file._source_stamp = (cache_file._source_stamp, package_stamp(), own)
    return dispatcher


def jit(function: Callable[..., Any]) -> Any:
    """Compiles `function` lazily with the simulator's options; a plain function under `NUMBA_DISABLE_JIT=1`."""
    return _stamp_cache(numba.njit(**HOT_OPTIONS)(function))


def inner(function: Callable[..., Any]) -> Any:
    """Like :func:`jit`, for functions that only compiled code calls: no Python entry is built, which halves compiling.

    Under `NUMBA_DISABLE_JIT=1` it can be called like any other.
    """
    return _stamp_cache(numba.njit(**INNER_OPTIONS)(function))


def once(function: Callable[..., Any]) -> Any:
    """Like :func:`inner`, for functions that are called from one place: they become a part of their caller.

    A function that is compiled on its own is compiled again with each of its callers. Handlers of events stay functions
    of their own: one function of everything takes very long to compile. `tests/sim/core/test_once.py` holds that there
    is one place.
    """
    return _stamp_cache(numba.njit(**ONCE_OPTIONS)(function))


def jit_signature(signature: Any, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Compiles `function` now for one signature, or loads it from disk; plain under `NUMBA_DISABLE_JIT=1`."""
    dispatcher = _stamp_cache(numba.njit(**options)(function))
    if not disabled():
        dispatcher.compile(signature)
        dispatcher.disable_compile()
    return dispatcher


def direct(dispatcher: Any, signature: Any) -> Any:
    """The compiled function behind a dispatcher, without its look-up of argument types on each call.

    For structured arrays that look-up costs about 1 us an argument, more than a step. Takes positional arguments only,
    of exactly the types of `signature`.
    """
    return dispatcher if disabled() else dispatcher.overloads[signature.args].entry_point
