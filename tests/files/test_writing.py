"""Files appear whole or not at all; values are made ready for them."""

import importlib.metadata
import math
from pathlib import Path

import numpy as np
import pytest

from cacheenv.files.atomic import write_atomically
from cacheenv.files.plain import json_ready
from cacheenv.files.versions import program_version, versions


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "x"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_atomically(path, b"one")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_values_become_plain():
    value = {1: np.float64(0.5), "a": (np.int64(3), math.nan), "b": [math.inf, None, True, "x"]}
    plain = json_ready(value)
    assert plain == {"1": 0.5, "a": [3, None], "b": [None, None, True, "x"]}
    assert type(plain["1"]) is float
    assert type(plain["a"][0]) is int


def test_versions_name_what_is_installed(monkeypatch):
    assert versions()["numpy"] == importlib.metadata.version("numpy")
    assert {"python", "platform", "cacheenv"} <= set(versions())

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert set(versions()) == {"python", "platform"}
    assert program_version() == "0+unknown"
