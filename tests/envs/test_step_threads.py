"""Threads beside the calling one: nothing goes on when they are said to have ended."""

import time

import pytest

from cacheenv.envs.step_threads import StepThreads


class InterruptedOnce:
    """A queue whose first `get` is interrupted, as by Ctrl-C."""

    def __init__(self, queue):
        self.queue, self.interrupted = queue, False

    def put(self, result):
        self.queue.put(result)

    def get(self):
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return self.queue.get()


def test_an_interrupt_is_raised_when_all_parts_have_ended():
    threads = StepThreads(2)
    ended = []

    def part(number):
        time.sleep(0.05 * number)
        ended.append(number)
        return number

    threads._results = InterruptedOnce(threads._results)
    threads.start(part)
    with pytest.raises(KeyboardInterrupt):
        threads.finish()
    assert ended == [1, 2]
    threads.start(part)
    assert sorted(threads.finish()) == [1, 2], "no result is left from before"
    threads.close()


def test_what_a_part_raises_is_raised():
    threads = StepThreads(1)

    def part(number):
        raise ValueError(f"part {number}")

    threads.start(part)
    with pytest.raises(ValueError, match="part 1"):
        threads.finish()
    threads.close()
