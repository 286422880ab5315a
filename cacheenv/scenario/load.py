"""Loading a scenario: by the name of a packaged one, from a YAML file, or from a mapping."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cacheenv.errors import InputError, suggestion
from cacheenv.files.yaml_text import read_yaml_mapping
from cacheenv.scenario.scenario import Scenario, build_scenario, with_absolute_paths

SCENARIO_DIRECTORY = Path(__file__).resolve().parent.parent / "scenarios"
DEFAULT_SCENARIO = "kimi-chat"


def list_scenarios() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(path.stem for path in SCENARIO_DIRECTORY.glob("*.yaml"))


def load_scenario(
    name_or_path: str | os.PathLike[str] | Mapping[str, Any] | Scenario = DEFAULT_SCENARIO,
    overrides: Mapping[str, Any] | None = None,
) -> Scenario:
    """Loads and checks a scenario.

    Args:
        name_or_path: Name of a packaged scenario, path of a YAML file, or a scenario as object or dict.
        overrides: Changes, nested or with dotted keys (`{"cluster.prefill.count": 4}`), mixed at will. Where they
            change `workload.kind`, the scenario's generator parameters and trace are dropped.

    Returns:
        The scenario.

    Raises:
        InputError: One line that names the file and the key and says what was expected.
    """
    base, source = _read(name_or_path)
    return build_scenario(base, source, overrides)


def _read(origin: Any) -> tuple[dict[str, Any], str]:
    """Raw mapping of a scenario and its name in messages; a trace beside a YAML file is found from there."""
    if isinstance(origin, Scenario):
        return origin.to_dict(), f"scenario {origin.name}"
    if isinstance(origin, Mapping):
        return dict(origin), "scenario"
    if not isinstance(origin, (str, os.PathLike)):
        raise InputError(f"expected a scenario name, a YAML path, a mapping or a Scenario, got {origin!r}")
    name = os.fspath(origin)
    packaged = list_scenarios()
    if name in packaged:
        return read_yaml_mapping(SCENARIO_DIRECTORY / f"{name}.yaml"), f"scenario {name}"
    path = Path(name)
    if path.suffix.lower() in (".yaml", ".yml") or len(path.parts) > 1 or path.exists():
        return with_absolute_paths({"name": path.stem, **read_yaml_mapping(path)}, path.parent), str(path)
    hint = suggestion(name, packaged)
    raise InputError(f"unknown scenario '{name}'{hint}; expected a YAML path or one of: {', '.join(packaged)}")
