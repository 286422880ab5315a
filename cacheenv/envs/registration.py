"""Registers the environments with Gymnasium; importing `cacheenv` does it."""

from __future__ import annotations

import gymnasium as gym

IDS = {
    "cacheenv/Routing-v0": {"routes": True, "moves": False},
    "cacheenv/Migration-v0": {"routes": False, "moves": True},
    "cacheenv/Cluster-v0": {"routes": True, "moves": True},
}


def register() -> None:
    """Registers the ids that are not registered yet (so that it may be called again in a child process)."""
    for name, kwargs in IDS.items():
        if name not in gym.registry:
            gym.register(
                id=name,
                entry_point="cacheenv.envs.env:CacheEnv",
                vector_entry_point="cacheenv.envs.vector:CacheVectorEnv",
                kwargs=kwargs,
            )
