"""cacheenv: a Gymnasium environment of an LLM-serving cluster with prefix caches and prefill/decode disaggregation.

Train and test in `gym.make("cacheenv:cacheenv/Cluster-v0", scenario="kimi-chat")`; run one policy over a scenario with
`cacheenv.simulate("kimi-chat", "mooncake", seed=0)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cacheenv.envs.registration import register
from cacheenv.errors import InputError

if TYPE_CHECKING:
    from cacheenv.policy import Policy, PolicyBundle
    from cacheenv.radix_tree import RadixTree
    from cacheenv.run.simulate import Result, simulate
    from cacheenv.scenario import Scenario, list_scenarios, load_scenario
    from cacheenv.workload import Workload

__version__ = "0.1.0"

#: Names that are imported when they are first used, to keep `import cacheenv` quick.
_LAZY = {
    "Policy": "policy",
    "PolicyBundle": "policy",
    "RadixTree": "radix_tree",
    "Result": "run.simulate",
    "Scenario": "scenario",
    "Workload": "workload",
    "list_scenarios": "scenario",
    "load_scenario": "scenario",
    "simulate": "run.simulate",
}

__all__ = [
    "InputError",
    "Policy",
    "PolicyBundle",
    "RadixTree",
    "Result",
    "Scenario",
    "Workload",
    "__version__",
    "list_scenarios",
    "load_scenario",
    "register",
    "simulate",
]

register()


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cacheenv' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(f"cacheenv.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
