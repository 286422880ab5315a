"""Runs in several processes: what they do with Ctrl-C, and what happens when one dies."""

import os
import signal

import pytest

from cacheenv.commands import execute
from cacheenv.errors import InputError


def interrupts_are_blocked(_task):
    """Stands in for a simulation; the mask is the one with which the process was started."""
    return {"blocked": interrupts_blocked_here()}


def interrupts_blocked_here():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_processes_never_see_an_interrupt_and_the_parent_does(monkeypatch):
    monkeypatch.setattr(execute, "simulate_summary", interrupts_are_blocked)
    with execute.Runner(2) as runner:
        summaries = [summary for _, summary in runner.run([None, None, None])]
    assert summaries == [{"blocked": True}] * 3
    assert not interrupts_blocked_here()


def test_a_killed_process_is_one_line(monkeypatch):
    monkeypatch.setattr(execute, "simulate_summary", os._exit)
    with pytest.raises(InputError, match="a worker process was killed"), execute.Runner(2) as runner:
        list(runner.run([3, 3]))
