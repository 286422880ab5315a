"""Runs simulations in this process or in several; the results do not depend on which."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from cacheenv.errors import InputError
from cacheenv.scenario import TRACE_KIND, Scenario

#: A warm start takes less than this; beyond it the compiled core is being built, and the user is told.
ANNOUNCE_AFTER_S = 4.0


@dataclass(frozen=True)
class Task:
    """One simulation.

    Attributes:
        scenario: As chosen.
        policy: Name.
        seed: Of workload, predictor noise and policy.
        common_cluster: Leave out what the policy's system needs.
    """

    scenario: Scenario
    policy: str
    seed: int
    common_cluster: bool = False


def simulate_summary(task: Task) -> dict[str, Any]:
    """The flat summary of one simulation."""
    from cacheenv.run.simulate import simulate

    result = simulate(task.scenario, task.policy, seed=task.seed, common_cluster=task.common_cluster)
    return dict(result.summary)


class Runner:
    """Runs tasks here (`jobs` = 1) or in spawned processes, which start with the first tasks and are kept.

    A context manager: leaving it by an exception stops the processes at once.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is None:
            return
        if kind is not None:
            for process in multiprocessing.active_children():
                process.terminate()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Runs all tasks and yields (position, summary) as they end."""
        if self._jobs == 1 or (len(tasks) <= 1 and self._pool is None):
            for position, task in enumerate(tasks):
                yield position, simulate_summary(task)
            return
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            workers = min(self._jobs, len(tasks))
            self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts)
        with _interrupts_held():
            pending = {self._pool.submit(simulate_summary, task): position for position, task in enumerate(tasks)}
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                try:
                    summary = future.result()
                except BrokenProcessPool:
                    raise InputError(
                        "a worker process was killed, perhaps for lack of memory; what is in --out is kept, "
                        "expected fewer --jobs or smaller runs"
                    ) from None
                yield pending.pop(future), summary


def _ignore_interrupts() -> None:
    """Ctrl-C goes to the whole process group; the parent deals with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Holds Ctrl-C back until the end of the block; processes started in it never see one, not even while they import.

    The mask is inherited. A process that is still importing would otherwise die with a traceback of its own.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def warm_up(tasks: Sequence[Task]) -> None:
    """Compiles (or loads) all that the tasks need, once, before processes start; says so when it takes long."""

    def announce() -> None:
        print("cacheenv: compiling the simulator, once for an installation (one to three minutes) ...", file=sys.stderr)

    timer = threading.Timer(ANNOUNCE_AFTER_S, announce)
    timer.daemon = True
    start_s = time.monotonic()
    timer.start()
    try:
        seen = set()
        for task in tasks:
            if task.policy not in seen and not task.policy.startswith("agent:"):
                seen.add(task.policy)
                simulate_summary(Task(_shortened(task.scenario), task.policy, 0, task.common_cluster))
    finally:
        timer.cancel()
    elapsed_s = time.monotonic() - start_s
    if elapsed_s > ANNOUNCE_AFTER_S:
        print(f"cacheenv: compiled in {elapsed_s:.0f} s", file=sys.stderr)


def _shortened(scenario: Scenario) -> Scenario:
    """The same scenario with a handful of requests."""
    if scenario.workload.kind == TRACE_KIND:
        limit = min(16, scenario.workload.limit or 16)
        short = {"workload.limit": limit, "workload.window_requests": None, "workload.split": "all"}
        return scenario.with_overrides({**short, "warmup_requests": 0, "warmup_share": 0.0})
    return scenario.with_overrides({"workload.requests": 16, "warmup_requests": 0, "warmup_share": 0.0})
