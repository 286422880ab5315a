"""A small busy cluster, and players that walk through its episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import cacheenv
from cacheenv.envs.env import CacheEnv

IDS = ("cacheenv/Routing-v0", "cacheenv/Migration-v0", "cacheenv/Cluster-v0")

#: Three prefill and three decode instances under a burst of chat: pulls, migrations, preemptions, store traffic.
SMALL: dict[str, Any] = {
    "name": "small",
    "workload": {"kind": "chat", "requests": 80, "rate_rps": 3.0},
    "cluster": {
        "page_tokens": 256,
        "prefill": {"count": 3, "cache_tokens": 120_000},
        "decode": {"count": 3, "kv_tokens": 60_000, "max_batch": 12, "reserve_tokens": 8},
        "store": {"capacity_tokens": 200_000},
    },
    "reschedule": {"period_s": 0.5, "candidates": 2},
    "slo": {"ttft_s": 6.0, "tbt_tail_s": 0.1},
}


def make(name: str, **kwargs: Any) -> CacheEnv:
    """The environment without Gymnasium's wrappers."""
    made: CacheEnv = gym.make(name, **{"scenario": SMALL, **kwargs}).unwrapped
    return made


def random_legal(mask: np.ndarray, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(mask)))


def legal_player(seed: int) -> Callable[[CacheEnv], int]:
    """Uniformly random legal joint actions from a stream of its own."""
    rng = np.random.default_rng(seed)
    return lambda env: random_legal(env.action_masks(), rng)


def stay_player(env: CacheEnv) -> int:
    return int(env.encode_action(stay=True))


def play(env: CacheEnv, player: Callable[[CacheEnv], Any], **reset: Any) -> dict[str, Any]:
    """One episode: everything that the environment said, as lists."""
    observation, info = env.reset(**reset)
    log: dict[str, Any] = {"obs": [observation], "info": [info], "reward": [], "action": [], "flags": []}
    return continue_play(env, player, log)


def continue_play(
    env: CacheEnv, player: Callable[[CacheEnv], Any], log: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The rest of an episode."""
    log = log or {"obs": [], "info": [], "reward": [], "action": [], "flags": []}
    done = False
    while not done:
        action = player(env)
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        for key, value in (("obs", observation), ("reward", reward), ("action", action), ("info", info)):
            log[key].append(value)
        log["flags"].append((terminated, truncated))
    return log


def same(first: Any, second: Any) -> bool:
    """Bit-identical nested structure (NaN equals NaN)."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
    return type(first) is type(second) and (first == second or (first != first and second != second))


def arrays_workload(count: int = 60, rate_rps: float = 6.0, seed: int = 0, output: int = 800) -> cacheenv.Workload:
    """Prompts that share prefixes of 8 families, on the pages of :data:`SMALL`."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(300, 9000, count)
    outputs = np.maximum(1, rng.exponential(output, count).astype(int))
    blocks = []
    for i, tokens in enumerate(prompts):
        pages = -(-int(tokens) // 256)
        shared = min(pages - 1, int(rng.integers(0, 20)))
        family = int(rng.integers(8))
        blocks.append([family * 1000 + k for k in range(shared)] + [10**6 * (i + 1) + k for k in range(pages - shared)])
    arrivals = np.cumsum(rng.exponential(1 / rate_rps, count))
    return cacheenv.Workload.from_arrays(arrivals, prompts, outputs, blocks, page_tokens=256)
