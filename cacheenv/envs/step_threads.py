"""Threads that step worlds beside the calling one: two queues each way, since a Future costs more than a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Part = Callable[[int], Any]


def _work(tasks: SimpleQueue[tuple[Part, int] | None], results: SimpleQueue[Any]) -> None:
    """Loop of a thread: runs parts until it gets None; an exception is a result too."""
    while (task := tasks.get()) is not None:
        part, number = task
        try:
            results.put(part(number))
        except BaseException as problem:
            results.put(problem)


class StepThreads:
    """`count` daemon threads that run parts of a step; they end with :meth:`close` or when this object goes.

    Args:
        count: Number of threads.
    """

    def __init__(self, count: int) -> None:
        self._tasks: list[SimpleQueue[tuple[Part, int] | None]] = [SimpleQueue() for _ in range(count)]
        self._results: SimpleQueue[Any] = SimpleQueue()
        for number, tasks in enumerate(self._tasks, 1):
            thread = threading.Thread(target=_work, args=(tasks, self._results), name=f"cacheenv-{number}", daemon=True)
            thread.start()

    def start(self, part: Part) -> None:
        """Starts `part(1)` ... `part(count)`, one on each thread."""
        for number, tasks in enumerate(self._tasks, 1):
            tasks.put((part, number))

    def finish(self) -> list[Any]:
        """Waits for what :meth:`start` began: the results as they came; raises what a part raised.

        An interrupt is raised when all parts have ended: nobody may touch the tables before.
        """
        results: list[Any] = []
        interrupt: BaseException | None = None
        while len(results) < len(self._tasks):
            try:
                results.append(self._results.get())
            except BaseException as problem:
                interrupt = problem
        if interrupt is not None:
            raise interrupt
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def close(self) -> None:
        """Ends the threads; may be called again."""
        for tasks in self._tasks:
            tasks.put(None)
        self._tasks = []

    def __del__(self) -> None:
        self.close()
