"""From a trained Stable-Baselines3 model to the files that `agent:PATH` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cacheenv.envs.stepper import Stepper
from cacheenv.errors import InputError
from cacheenv_agents.config import TrainingConfig
from cacheenv_agents.trained_agent import DESCRIPTION_FILE, FORMAT, WEIGHTS_FILE


def describe(config: TrainingConfig, stepper: Stepper, timesteps: int) -> dict[str, Any]:
    """What an agent needs to know of its training, JSON-ready.

    Args:
        config: What was trained.
        stepper: Of the environment.
        timesteps: Decisions seen so far.
    """
    codec, scenario = stepper.codec, stepper.scenario
    inner: str | None = None
    requires: dict[str, Any] = {}
    if not codec.routes:
        inner = scenario.router
    elif not codec.moves and scenario.rescheduler != "none":
        inner = scenario.rescheduler
    if codec.moves:
        requires = {
            "reschedule.candidates": codec.candidates,
            "reschedule.candidate_order": scenario.reschedule.candidate_order,
        }
    return {
        "format": FORMAT,
        "algo": config.algo,
        "env_id": config.env_id,
        "timesteps": timesteps,
        "num_prefill": codec.num_prefill,
        "num_decode": codec.num_decode,
        "candidates": codec.candidates,
        "action_format": "factored" if codec.factored else "joint",
        "activation": config.parameters.policy_kwargs.get("activation_fn", "tanh"),
        "inner_policy": inner,
        "requires": requires,
        "observation": stepper.layout.names,
    }


def network_weights(model: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """`(W, b)` of each layer of a model's policy network, float32 arrays."""
    policy = model.policy
    layers = [layer for layer in policy.mlp_extractor.policy_net if hasattr(layer, "weight")]
    return [
        (layer.weight.detach().cpu().numpy().astype(np.float32), layer.bias.detach().cpu().numpy().astype(np.float32))
        for layer in (*layers, policy.action_net)
    ]


def write_agent(folder: Path, model: Any, description: dict[str, Any]) -> None:
    """Writes the network and its description; the description comes last and marks the folder as complete."""
    arrays = {}
    for k, (weight, bias) in enumerate(network_weights(model)):
        arrays[f"weight_{k}"], arrays[f"bias_{k}"] = weight, bias
    np.savez(folder / WEIGHTS_FILE, allow_pickle=False, **arrays)
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def require_agents_extra() -> None:
    """One line where the packages for training are missing."""
    try:
        import sb3_contrib  # noqa: F401
        import stable_baselines3  # noqa: F401
        import torch  # noqa: F401
    except ImportError as problem:
        missing = problem.name or str(problem)
        raise InputError(f"training needs the package {missing}: pip install 'cacheenv[agents]'") from None
