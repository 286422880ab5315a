"""Walks through the environments with fixed random actions, and everything that was seen on the way as columns."""

from __future__ import annotations

import functools
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

import cacheenv  # noqa: F401  (registers the environments)

IDS = ("Routing-v0", "Migration-v0", "Cluster-v0")
AUTORESET = ("NEXT_STEP", "SAME_STEP", "DISABLED")
REWARDS = ("slo", "latency", "shaped")
TABLES = ("cluster", "request", "prefill", "decode", "candidate")

EPISODES = 2
MOST_STEPS = 2400  # of a walk
SAVE_AT, REPEAT = 60, 20  # the step whose state is saved, and the steps that are then done twice
BATCH_WORLDS, BATCH_STEPS = 5, 260

#: What an info holds at every step.
EVERY_INFO = ("action_mask", "dt", "invalid_action")


class Log:
    """Columns that grow by one row, or by several, at a time."""

    def __init__(self) -> None:
        self.parts: dict[str, list[np.ndarray]] = defaultdict(list)

    def row(self, name: str, value: Any) -> None:
        self.parts[name].append(np.array(value)[None])

    def rows(self, name: str, values: Any) -> None:
        self.parts[name].append(np.array(values))

    def observation(self, name: str, observation: Any) -> None:
        """One row; of a dict one column a table."""
        if isinstance(observation, Mapping):
            for table, values in observation.items():
                self.row(f"{name}.{table}", values)
        else:
            self.row(name, observation)

    def view(self, view: Any, running: bool = False) -> None:
        """The tables that a policy sees."""
        for table in TABLES:
            self.row(f"view.{table}", np.asarray(getattr(view, table)))
        if running:
            self.rows("view.running", np.asarray(view.running)[: int(view.cluster[0].num_running)])

    def columns(self) -> dict[str, np.ndarray]:
        """All columns; a table is split into its fields."""
        found = {}
        for name, parts in self.parts.items():
            whole = np.concatenate(parts)
            if whole.dtype.names:
                found.update({f"{name}.{field}": whole[field] for field in whole.dtype.names})
            else:
                found[name] = whole
        return found


def generator(case: str) -> np.random.Generator:
    """The stream of actions of a case."""
    return np.random.default_rng(zlib.crc32(case.encode()))


class Watcher:
    """A policy object: random decisions, one in ten possibly illegal; keeps the views and masks that it is shown."""

    name = "watcher"

    def __init__(self, migrates: bool, needs_running: bool) -> None:
        self.migrates, self.needs_running = migrates, needs_running
        self.log = Log()
        self.rng = np.random.default_rng(11)

    def act(self, view: Any, mask: np.ndarray) -> int:
        self.log.view(view, running=self.needs_running or self.migrates)
        self.log.rows("mask", mask)
        if self.rng.integers(10) == 0:
            return int(self.rng.integers(-1, len(mask) + 2))
        return int(self.rng.choice(np.flatnonzero(mask)))


@functools.cache
def own_router() -> Any:
    """A compiled router that uses parameters, private state, its random stream and the running requests."""
    from cacheenv import policy as language

    route, reject, uniform = language.route, language.reject, language.uniform

    @language.policy(params={"weight": 0.5, "refuse": 0.03}, state_size=2, needs_running=True)
    def own(view, rng, params):
        params[2] += 1.0
        for row in range(view.cluster[0].num_running):
            params[3] += view.running[row].predicted_remaining_tokens * view.running[row].elapsed_s
        if uniform(rng) < params[1]:
            return reject(view)
        best, best_s = 0, 1e300
        for p in range(view.cluster[0].num_prefill):
            cost_s = view.prefill[p].backlog_s + params[0] * view.prefill[p].prefill_pull_s + 0.01 * uniform(rng)
            if cost_s < best_s:
                best, best_s = p, cost_s
        return route(view, best, int(params[2] + params[3]) % view.cluster[0].num_decode, 1)

    return own


def joint_action(mask: np.ndarray, rng: np.random.Generator, legal: bool) -> int:
    """A legal number, or any number, now and then one outside the space."""
    if legal:
        return int(rng.choice(np.flatnonzero(mask)))
    return int(rng.integers(-2, len(mask) + 3))


def factored_action(mask: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, legal: bool) -> np.ndarray:
    """A value for each part, of those that the mask allows or of all; refusing and staying are rare."""
    parts, start = np.zeros(len(sizes), np.int64), 0
    for part, size in enumerate(sizes):
        allowed = np.flatnonzero(mask[start : start + size]) if legal else np.arange(size)
        start += size
        parts[part] = rng.choice(allowed)
        if part % 4 == 0 and 0 in allowed and rng.integers(8):
            parts[part] = 0
    if not legal and rng.integers(20) == 0:
        parts[rng.integers(len(sizes))] = rng.integers(-3, 200)
    return parts


def action_for(space: Any, mask: np.ndarray, rng: np.random.Generator, legal: bool) -> Any:
    if isinstance(space, gym.spaces.Discrete):
        return joint_action(mask, rng, legal)
    return factored_action(mask, space.nvec, rng, legal)


def make(name: str, **kwargs: Any) -> Any:
    return gym.make(f"cacheenv:cacheenv/{name}", disable_env_checker=True, **kwargs).unwrapped


def log_info(log: Log, info: Mapping[str, Any], prefix: str = "info") -> None:
    """One row a key; the keys that only some infos have are columns of fewer rows."""
    for key, value in info.items():
        if isinstance(value, Mapping):
            log_info(log, value, f"{prefix}.{key}")
        elif key == "final_obs":
            for observation in value:
                if observation is not None:
                    log.observation(f"{prefix}.{key}", observation)
        else:
            log.row(f"{prefix}.{key}", value)


def log_result(log: Log, result: Any) -> None:
    """The records of an episode."""
    log.rows("requests", np.asarray(result.requests))
    log.rows("instances", np.asarray(result.instances))


def walk(case: str, name: str, legal: bool, views: bool, options: Any = None, **kwargs: Any) -> dict[str, np.ndarray]:
    """Two episodes of the single environment; in the middle its state moves to another environment."""
    env, rng, log = make(name, **kwargs), generator(case), Log()
    space = env.action_space

    def step(action: Any) -> tuple[bool, Mapping[str, Any]]:
        observation, reward, terminated, truncated, info = env.step(action)
        log.observation("observation", observation)
        log.row("reward", float(reward))
        log.row("ended", (terminated, truncated))
        log.row("action", action)
        log_info(log, info)
        if views:
            log.view(env.view)
        return terminated or truncated, info

    steps = 0
    for episode in range(EPISODES):
        observation, info = env.reset(seed=4 if episode == 0 else None, options=options)
        log.observation("first_observation", observation)
        log_info(log, info, "first_info")
        done = False
        while not done and steps < MOST_STEPS * (episode + 1) // EPISODES:
            if steps == SAVE_AT:
                state, again = env.get_state(), []
                while not done and len(again) < REPEAT:
                    again.append(action_for(space, info["action_mask"], rng, legal))
                    done, info = step(again[-1])
                env, done = make(name, **kwargs), False
                env.set_state(state)
                for action in again:
                    done, info = step(action)
                steps += len(again)
                continue
            done, info = step(action_for(space, info["action_mask"], rng, legal))
            steps += 1
        log.row("episode_seed", env.episode_seed)
        log.row("steps", steps)
        log_result(log, env.result())
    return log.columns()


def batch_walk(
    case: str,
    name: str,
    mode: str,
    legal: bool = True,
    worlds: int = BATCH_WORLDS,
    **kwargs: Any,
) -> dict[str, np.ndarray]:
    """A fixed number of steps of the batch; in the middle its state moves to another batch."""

    def build() -> Any:
        return gym.make_vec(
            f"cacheenv:cacheenv/{name}", num_envs=worlds, autoreset_mode=gym.vector.AutoresetMode[mode], **kwargs
        )

    batch, rng, log = build(), generator(case), Log()
    space = batch.single_action_space

    def step(actions: np.ndarray) -> Mapping[str, Any]:
        observation, reward, terminated, truncated, info = batch.step(actions)
        log.observation("observation", observation)
        log.row("reward", reward)
        log.row("terminated", terminated)
        log.row("truncated", truncated)
        log.row("action", actions)
        log_info(log, info)
        over = terminated | truncated
        if mode != "SAME_STEP":
            for world in np.flatnonzero(over):
                log_result(log, batch.unwrapped.result(int(world)))
        if mode == "DISABLED" and over.any():
            observation, info = batch.reset(options={"reset_mask": over})
            log.observation("reset_observation", observation)
            log_info(log, info, "reset_info")
        return info

    def choose(masks: np.ndarray) -> np.ndarray:
        return np.array([action_for(space, mask, rng, legal) for mask in masks])

    observation, info = batch.reset(seed=9)
    log.observation("first_observation", observation)
    log_info(log, info, "first_info")
    for number in range(BATCH_STEPS):
        if number == SAVE_AT:
            state, again = batch.unwrapped.get_state(), []
            for _ in range(REPEAT):
                again.append(choose(info["action_mask"]))
                info = step(again[-1])
            batch.close()
            batch = build()
            batch.unwrapped.set_state(state)
            for actions in again:
                info = step(actions)
        info = step(choose(info["action_mask"]))
    for world in range(worlds):
        log_result(log, batch.unwrapped.result(world))
    batch.close()
    return log.columns()


def walk_calls(crowded: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], dict[str, np.ndarray]]]]:
    """Ids and calls of all walks; `crowded` are the overrides of the default scenario under which they take place."""
    overrides = {**crowded, "workload.requests": 110, "reschedule.candidates": 2}
    common = {"scenario": "kimi-chat", "overrides": overrides}
    for name in IDS:
        for action_format in ("joint", "factored"):
            for observation in ("flat", "dict"):
                for kind in ("legal", "any"):
                    case = f"env/{name}/{action_format}/{observation}/{kind}"
                    yield case, functools.partial(
                        walk, case, name, kind == "legal", observation == "flat", action_format=action_format,
                        observation=observation, **common,
                    )  # fmt: skip
        for reward in REWARDS:
            case = f"env/{name}/{reward}"
            yield case, functools.partial(walk, case, name, True, False, reward=reward, **common)
        case = f"env/{name}/horizon"
        yield case, functools.partial(walk, case, name, True, True, horizon_s=30.0, **common)
        case = f"env/{name}/episode_seed"
        yield case, functools.partial(walk, case, name, True, True, {"episode_seed": 21}, **common)
        case = f"env/{name}/reasoning"
        lengths = {"workload.requests": 120, "workload.rate_rps": 5.0, "cluster.decode.kv_tokens": 90_000}
        yield case, functools.partial(walk, case, name, True, True, scenario="reasoning", overrides=lengths)
    moved = {"scenario": "kimi-chat", "overrides": {**overrides, "rescheduler": "star"}}
    refused = {"scenario": "kimi-chat", "overrides": {**overrides, "router": "mooncake+early_reject"}}
    random = {"scenario": "kimi-chat", "overrides": {**overrides, "router": "random/least_kv"}}
    yield from _named("env/Routing-v0/rescheduler", walk, "Routing-v0", True, True, **moved)
    yield from _named("env/Migration-v0/admission", walk, "Migration-v0", True, True, **refused)
    yield from _named("env/Migration-v0/random_router", walk, "Migration-v0", True, True, **random)
    # Short episodes, so that every world ends some.
    short = {"scenario": "kimi-chat", "overrides": {**overrides, "workload.requests": 22}}
    ticking = {"scenario": "kimi-chat", "overrides": {**short["overrides"], "rescheduler": "llumnix"}}
    for name in IDS:
        for mode in AUTORESET:
            for action_format, observation in (("joint", "flat"), ("factored", "dict")):
                case = f"batch/{name}/{action_format}/{mode}"
                yield from _named(case, batch_walk, name, mode, action_format=action_format, observation=observation,
                                  **short)  # fmt: skip
        for reward in REWARDS:
            yield from _named(f"batch/{name}/{reward}", batch_walk, name, "NEXT_STEP", reward=reward, **short)
        yield from _named(f"batch/{name}/any", batch_walk, name, "SAME_STEP", legal=False, **short)
        yield from _named(f"batch/{name}/horizon", batch_walk, name, "NEXT_STEP", horizon_s=8.0, **short)
        yield from _named(f"batch/{name}/few_steps", batch_walk, name, "SAME_STEP", max_episode_steps=25, **short)
        yield from _named(f"batch/{name}/threads", batch_walk, name, "NEXT_STEP", worlds=18, threads=2,
                          summaries=False, **short)  # fmt: skip
    for mode in AUTORESET:
        yield from _named(f"batch/Routing-v0/rescheduler/{mode}", batch_walk, "Routing-v0", mode, **ticking)


def _named(case: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
    """The id with the call; the function gets the id first."""
    yield case, functools.partial(function, case, *args, **kwargs)
