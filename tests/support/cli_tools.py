"""What the tests of the command line share: a stand-in for the simulator and two ways to call a command."""

import math

from cacheenv.cli import main
from cacheenv.commands.goodput import natural_rate
from cacheenv.run.metrics import METRICS

BENCH = ["bench", "--policies", "random,round_robin", "--seeds", "2"]
TRACE_LINES = [
    '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}',
    '{"timestamp": 1000, "input_length": 1024, "output_length": 7, "hash_ids": [1, 3]}',
    '{"timestamp": 4000, "input_length": 700, "output_length": 9, "hash_ids": [1, 4]}',
]


class FakeRuns:
    """Stands in for the simulator: a summary that depends on the task only."""

    def __init__(self):
        self.tasks = []
        self.interrupt_at = None
        self.capacity_rps = {}

    def __call__(self, task):
        if self.interrupt_at is not None and len(self.tasks) == self.interrupt_at:
            raise KeyboardInterrupt
        self.tasks.append(task)
        value = len(task.policy) + 10.0 * task.seed
        summary = {name: 7 if unit == "count" else value for name, (unit, _) in METRICS.items()}
        capacity = self.capacity_rps.get(task.policy, 3.0)
        attainment = 1.0 if natural_rate(task.scenario) <= capacity else 0.5
        return {**summary, "slo_attainment": attainment, "tpot_mean_s": math.nan, "rejected": 0}


def ok(capsys, *argv):
    assert main(list(map(str, argv))) == 0
    return capsys.readouterr()


def refused(capsys, *argv):
    assert main(list(map(str, argv))) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("cacheenv: error: ")
    assert said.err.count("\n") == 1
    return said.err
