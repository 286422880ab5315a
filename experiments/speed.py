"""Measures cacheenv's speed in one run, as ratios to an empty event loop and to an empty Gymnasium step.

    python experiments/speed.py [--json] [--trace FILE] [--only NAME ...] [--repeats N]

Machines are noisy: read the ratios. Each figure is the best of `--repeats` runs, taken one after the other in turn. The
trace is looked for in `../shared/traces` beside the repository (or `$CACHEENV_SHARED`); without it the rows that need
it run on the `kimi-chat` generator with as many requests, and say so. NVIDIA Dynamo's replay is timed where
`ai-dynamo-runtime` is installed and the peer script is there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CACHEENV_SHARED", ROOT.parent / "shared"))
TRACE_REQUESTS = 12_031
EMPTY_EVENTS = 400_000


def best(repeats: int, run: Callable[[], float]) -> float:
    """Smallest of `repeats` timings, seconds."""
    return min(run() for _ in range(repeats))


def trace_scenario(trace: Path | None, **overrides: Any) -> Any:
    """8P+8D on the conversation trace, or on as many generated requests where the trace is absent."""
    from cacheenv import load_scenario

    if trace is not None:
        workload = {"workload.kind": "mooncake", "workload.trace": str(trace), "workload.params": {}}
    else:
        workload = {"workload.requests": TRACE_REQUESTS}
    return load_scenario("kimi-chat", {**workload, "warmup_requests": 0, **overrides})


class CompiledRun:
    """One scenario under a policy in the compiled loop, run again and again."""

    def __init__(self, scenario: Any, policy: str, workload: Any = None) -> None:
        from cacheenv.run.simulate import apply_requirements, complete_bundle
        from cacheenv.run.worlds import Worlds

        self.bundle = complete_bundle(policy, scenario)
        self.worlds = Worlds(apply_requirements(scenario, self.bundle), bundle=self.bundle)
        self.workload = workload or scenario.make_workload(0)
        self.records = 0

    def seconds(self) -> float:
        """Wall time of reset, run and records of one episode."""
        from cacheenv.run.records import request_records
        from cacheenv.run.simulate import drive
        from cacheenv.sim.state.codes import COMPLETED

        start = time.perf_counter()
        self.worlds.reset(0, 0, self.workload)
        drive(self.worlds, 0, self.bundle)
        records = request_records(self.worlds.world(0), len(self.workload))
        elapsed = time.perf_counter() - start
        self.records = int(np.sum(records["outcome"] == COMPLETED))
        if self.records == 0:
            raise RuntimeError("no request completed: there is nothing to time")
        return elapsed


def empty_event_loop() -> Callable[[], float]:
    """Seconds an event of a compiled loop that only re-arms 32 timers of the engine's own queue."""
    from cacheenv.sim.core.jit import jit
    from cacheenv.sim.core.timers import set_timer
    from cacheenv.sim.state.allocate import Sizes, allocate
    from cacheenv.sim.state.handle import make_handles, world_at
    from cacheenv.sim.state.world import world_rows

    worlds, workload_of = allocate(Sizes(flows=64)), np.zeros(1, np.int64)
    world, handles = world_rows(worlds, workload_of, 0), make_handles(worlds, workload_of)

    @jit
    def loop(handles, events):  # type: ignore[no-untyped-def]
        w = world_at(handles, 0)
        for timer in range(32):
            set_timer(w, timer, 1.0 + 0.37 * timer, 0, timer)
        for number in range(events):
            first = w.heap[0]
            set_timer(w, first.timer, first.time_s + 0.5 + (number % 7) * 0.1, 0, first.timer)
        return w.heap[0].time_s

    def run() -> float:
        world.state[0].heap_size = 0
        world.heap_position[:] = -1
        start = time.perf_counter()
        loop(handles, EMPTY_EVENTS)
        return (time.perf_counter() - start) / EMPTY_EVENTS

    run()
    return run


def empty_gym_step() -> Callable[[], float]:
    """Seconds a step of a `gym.make` environment that only fills and returns a fresh 256-float observation."""
    import gymnasium as gym

    class Empty(gym.Env):  # type: ignore[type-arg]
        observation_space = gym.spaces.Box(0.0, 1.0, (256,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(256, np.float32), {}

        def step(self, action: int) -> Any:
            observation = np.empty(256, np.float32)
            observation.fill(0.5)
            return observation, 0.0, False, False, {}

    gym.register("cacheenv-speed/Empty-v0", entry_point=Empty)
    env = gym.make("cacheenv-speed/Empty-v0")
    env.reset(seed=0)

    def run() -> float:
        start = time.perf_counter()
        for _ in range(20_000):
            env.step(0)
        return (time.perf_counter() - start) / 20_000

    return run


def gym_step(scenario: Any) -> Callable[[], float]:
    """Seconds a `gym.make` step, mask and flat observation included, under a least-backlog rule over the view."""
    import gymnasium as gym

    env = gym.make("cacheenv:cacheenv/Routing-v0", scenario=scenario)

    def run() -> float:
        _, info = env.reset(seed=0)
        pairs = env.unwrapped.stepper.codec.route_count // 2  # type: ignore[attr-defined]
        steps, action, done = 0, 0, False
        start = time.perf_counter()
        while not done:
            _, _, terminated, truncated, info = env.step(action)
            steps += 1
            action = 2 * (steps * 9 % pairs)  # all pairs in turn: every P and D equally
            done = terminated or truncated
        elapsed = time.perf_counter() - start
        if not info["action_mask"].any():
            raise RuntimeError("the environment returned an empty mask")
        return elapsed / steps

    return run


def vector_step(scenario: Any, worlds: int, steps: int) -> Callable[[], float]:
    """Seconds a world-step of `gym.make_vec` with `worlds` worlds on all cores, from the start of their episodes on.

    With fewer `steps` than an episode has, no world ends within them; with more, all worlds end, are summarised and
    start again.
    """
    import gymnasium as gym

    envs = gym.make_vec(
        "cacheenv:cacheenv/Routing-v0", num_envs=worlds, vectorization_mode="vector_entry_point", scenario=scenario
    )
    actions = np.zeros(worlds, np.int64)

    def run() -> float:
        envs.reset(seed=0)
        start = time.perf_counter()
        for number in range(steps):
            actions[:] = 2 * (number * 9 % 64)
            envs.step(actions)
        return (time.perf_counter() - start) / (steps * worlds)

    return run


def scaled_cluster(instances: int) -> CompiledRun:
    """`mooncake` on `instances` + `instances`, with as much traffic for each of them as on 8 + 8."""
    overrides = {
        "cluster.prefill.count": instances,
        "cluster.decode.count": instances,
        "workload.rate_rps": 4.0 * instances / 8,
        "workload.requests": 20_000,
        "warmup_requests": 0,
    }
    from cacheenv import load_scenario

    return CompiledRun(load_scenario("kimi-chat", overrides), "mooncake")


def long_outputs(output_tokens: int) -> CompiledRun:
    """The default workload with every output of one length and decode memory for all of them."""
    from cacheenv import load_scenario

    scenario = load_scenario(
        "kimi-chat",
        {"cluster.decode.kv_tokens": 10**9, "cluster.decode.max_batch": 4096, "workload.requests": 10_000},
    )
    workload = scenario.make_workload(0)
    requests = workload.requests.copy()
    requests["output_tokens"] = output_tokens
    return CompiledRun(scenario, "mooncake", replace(workload, requests=requests))


MILLION = """
import resource, sys, time
from cacheenv import load_scenario, simulate
scenario = load_scenario("kimi-chat", {"workload.requests": 1_000_000, "warmup_requests": 0})
start = time.perf_counter()
result = simulate(scenario, "mooncake", 0)
peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(result.summary["completed"], time.perf_counter() - start, peak_gib)
"""

FIRST_USE = """
import contextlib, io, tempfile, time
start = time.perf_counter()
from cacheenv.cli import main
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
    assert main(["bench", "--set", "workload.requests=64", "--seeds", "1", "--out", folder]) == 0
print(time.perf_counter() - start)
"""


def child(code: str, **environment: str) -> str:
    """Standard output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


def dynamo_seconds(trace: Path) -> float | None:
    """Wall seconds of NVIDIA Dynamo's replay of the trace on 8P+8D, None where it is not installed."""
    script = SHARED / "peers" / "run_dynamo_replay.py"
    if importlib.util.find_spec("dynamo") is None or not script.is_file():
        return None
    done = subprocess.run(
        [sys.executable, str(script), str(trace), "pd", "kv_router", "16"], capture_output=True, text=True, check=True
    )
    found = re.search(r"wall=([0-9.]+)s", done.stdout)
    return float(found.group(1)) if found else None


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures that were asked for, as a flat dict."""
    trace = options.trace or SHARED / "traces" / "mooncake-fast25" / "conversation_trace.jsonl"
    trace = trace if trace.is_file() else None
    scenario = trace_scenario(trace)
    wanted = options.only or ["compiled", "step", "vector", "scaling", "outputs", "memory", "start", "dynamo"]
    out: dict[str, Any] = {"trace": trace.name if trace else f"generated, {TRACE_REQUESTS} requests"}
    repeats = options.repeats
    if "vector" in wanted:
        vector = vector_step("kimi-chat", 64, 1500)
        vector()
        out["vector_64_steps_per_s"] = 1 / best(repeats, vector)
        out["vector_64_steps_per_s_with_episode_ends"] = 1 / best(repeats, vector_step("kimi-chat", 64, 4002))
    if "compiled" in wanted or "dynamo" in wanted:
        run, empty = CompiledRun(scenario, "mooncake"), empty_event_loop()
        run.seconds()
        pairs = [(run.seconds(), empty()) for _ in range(repeats)]
        seconds, event = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
        out["compiled_requests_per_s"] = run.records / seconds
        out["compiled_request_over_empty_event"] = seconds / run.records / event
        if "dynamo" in wanted:
            peers, own = [], []
            for _ in range(2 if trace else 0):
                peer = dynamo_seconds(trace)  # type: ignore[arg-type]
                if peer is None:
                    break
                peers.append(peer)
                own.append(best(3, run.seconds))
            out["dynamo_requests_per_s"] = TRACE_REQUESTS / min(peers) if peers else None
            out["times_dynamo"] = min(peers) / max(own) if peers else None
    if "step" in wanted:
        step, nothing = gym_step(scenario), empty_gym_step()
        step()
        pairs = [(step(), nothing()) for _ in range(repeats)]
        out["gym_steps_per_s"] = 1 / min(pair[0] for pair in pairs)
        out["gym_step_over_empty_step"] = min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs)
    if "scaling" in wanted:
        small, large = scaled_cluster(8), scaled_cluster(128)
        small.seconds(), large.seconds()
        out["decision_128_over_8_instances"] = best(repeats, large.seconds) / best(repeats, small.seconds)
    if "outputs" in wanted:
        short, long = long_outputs(100), long_outputs(10_000)
        short.seconds(), long.seconds()
        out["request_10000_over_100_outputs"] = best(repeats, long.seconds) / best(repeats, short.seconds)
    if "memory" in wanted:
        completed, seconds_text, gib = child(MILLION).split()
        out["million_requests_gib"] = float(gib)
        out["million_requests_s"] = float(seconds_text)
        out["million_requests_completed"] = int(completed)
    if "start" in wanted:
        clock = "import time; t = time.perf_counter(); import cacheenv; print(time.perf_counter() - t)"
        out["import_s"] = best(3, lambda: float(child(clock)))
        out["first_use_warm_s"] = best(2, lambda: float(child(FIRST_USE)))
        with tempfile.TemporaryDirectory() as folder:
            out["first_use_cold_s"] = float(child(FIRST_USE, NUMBA_CACHE_DIR=folder))
    out["peak_memory_of_this_run_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return out


GOALS = {
    "compiled_requests_per_s": (">=", 100_000),
    "times_dynamo": (">=", 50),
    "gym_steps_per_s": (">=", 40_000),
    "gym_step_over_empty_step": ("<=", 16),
    "vector_64_steps_per_s": (">=", 300_000),
    "decision_128_over_8_instances": ("<=", 16),
    "request_10000_over_100_outputs": ("<=", 1.5),
    "million_requests_gib": ("<=", 4),
    "import_s": ("<=", 1),
    "first_use_cold_s": ("<=", 90),
}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--trace", type=Path, help="a trace in Mooncake's format")
    parser.add_argument("--repeats", type=int, default=5)
    names = ["compiled", "step", "vector", "scaling", "outputs", "memory", "start", "dynamo"]
    parser.add_argument("--only", nargs="+", choices=names, help="measure only these")
    figures = measure(options := parser.parse_args())
    if options.json:
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        goal = GOALS.get(name)
        shown = "skipped (not installed)" if value is None else value
        if isinstance(value, (int, float)):
            shown = f"{value:,.3f}" if value < 1000 else f"{value:,.0f}"
        verdict = ""
        if goal and value is not None:
            met = value >= goal[1] if goal[0] == ">=" else value <= goal[1]
            verdict = f"  {goal[0]} {goal[1]:,}: {'met' if met else 'MISSED'}"
        print(f"{name:40s} {shown}{verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
