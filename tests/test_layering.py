"""Imports go one way; read from the source text, so that nothing needs to be importable."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOTS = {"cacheenv": ROOT, "cacheenv_baselines": ROOT / "baselines", "cacheenv_agents": ROOT / "agents"}

# Lowest first. A module may import its own layer and lower ones. The first prefix that matches decides.
LAYERS = [
    ("cacheenv.errors", 0),
    ("cacheenv.files", 0),
    ("cacheenv.sim", 1),
    ("cacheenv.physics", 1),
    ("cacheenv.workload", 2),
    ("cacheenv.scenario", 3),
    ("cacheenv.envs", 5),
    ("cacheenv", 4),
    ("cacheenv_baselines", 6),
    ("cacheenv_agents", 7),
    ("experiments", 8),
]
# The front of the package ties everything below `cacheenv_baselines` together.
FRONT = {"cacheenv", "cacheenv.cli", "cacheenv.sb3"}
FORBIDDEN_IN_SIM = {"gymnasium", "yaml", "stable_baselines3", "torch", "tqdm", "matplotlib"}


def layer(module: str) -> int | None:
    for prefix, level in LAYERS:
        if module == prefix or module.startswith(prefix + "."):
            return level
    return None


def imports(source: str, module: str, is_package: bool = False) -> set[str]:
    """Absolute names of all that a module imports at any depth, type-checking imports included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".") if is_package else module.split(".")[:-1]
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base] if base else kept)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    own = layer(module)
    wrong = []
    for name in sorted(imports(source, module, is_package)):
        top = name.split(".")[0]
        if module.startswith("cacheenv.sim") and top in FORBIDDEN_IN_SIM:
            wrong.append(f"{module} imports {name}: the simulator knows neither Gymnasium nor files")
        if module.startswith("cacheenv.sim") and name.startswith("cacheenv.physics"):
            wrong.append(f"{module} imports {name}: the simulator gets its coefficients as numbers")
        target = layer(name)
        if own is None or target is None or module in FRONT or module.startswith("cacheenv.commands"):
            if target is not None and target > layer("cacheenv.envs"):
                wrong.append(f"{module} imports {name}: cacheenv finds baselines and agents through entry points")
            continue
        if target > own:
            wrong.append(f"{module} (layer {own}) imports {name} (layer {target})")
    return wrong


def modules() -> list[tuple[str, Path]]:
    found = []
    for package, folder in ROOTS.items():
        for path in sorted((folder / package).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found.append((".".join(part for part in parts if part != "__init__"), path))
    return found


def test_imports_go_one_way():
    wrong = [
        line
        for module, path in modules()
        for line in violations(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    ]
    assert not wrong, "\n".join(wrong)


def test_there_are_no_import_circles():
    """Not even circles that imports inside functions or for type checking hide."""
    sources = dict(modules())
    waiting = {}
    for module, path in sources.items():
        waiting[module] = set()
        for name in imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"):
            while name and name not in sources:
                name = name.rpartition(".")[0]
            waiting[module] |= {name} - {"", module}
    while free := [module for module, needed in waiting.items() if not needed & waiting.keys()]:
        for module in free:
            del waiting[module]
    assert not waiting, f"import circles among or below: {sorted(waiting)}"


def test_modules_are_found():
    names = [module for module, _ in modules()]
    assert {"cacheenv.errors", "cacheenv.sim.core.jit", "cacheenv.scenario.sections"} <= set(names)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cacheenv.sim.events", "import gymnasium"),
        ("cacheenv.sim.events", "def f():\n    import yaml"),
        ("cacheenv.sim.events", "from cacheenv.workload.workload import Workload"),
        ("cacheenv.sim.events", "from cacheenv import scenario"),
        ("cacheenv.sim.events", "from ..envs import env"),
        ("cacheenv.files.yaml_text", "from cacheenv.scenario.schema import build"),
        ("cacheenv.physics.presets", "from cacheenv.scenario.schema import build"),
        ("cacheenv.workload.chat", "import cacheenv.scenario.sections"),
        ("cacheenv.scenario.resolve", "from cacheenv.policy import make_policy"),
        ("cacheenv.scenario.sections", "from cacheenv.envs.env import Env"),
        ("cacheenv.envs.env", "import cacheenv_baselines.registry"),
        ("cacheenv.cli", "from cacheenv_agents import cli"),
        ("cacheenv.commands.bench", "import cacheenv_baselines"),
        ("cacheenv_baselines.mooncake", "from cacheenv_agents.registry import provider"),
        ("cacheenv_agents.train", "from experiments import speed"),
    ],
)
def test_a_wrong_import_is_caught(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "cacheenv.sim.events",
            "import numpy\nfrom cacheenv.sim.core.jit import jit\nfrom cacheenv.errors import InputError",
        ),
        ("cacheenv.envs.env", "import gymnasium\nfrom cacheenv.scenario import Scenario"),
        ("cacheenv", "from cacheenv.envs import registration"),
        ("cacheenv_agents.train", "import cacheenv_baselines\nimport torch"),
    ],
)
def test_a_right_import_passes(module, source):
    assert not violations(source, module)
