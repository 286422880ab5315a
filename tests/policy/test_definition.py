"""Policies of users that are wrong: what is refused when, and what falls back."""

import math
import subprocess
import sys

import numpy as np
import pytest

import cacheenv
from cacheenv.errors import InputError
from cacheenv.policy import policy
from cacheenv.sim.core.jit import disabled

SMALL = {"workload": {"requests": 40}, "cluster": {"prefill": {"count": 2}, "decode": {"count": 2}}}


class Answers:
    """A Python policy that always gives the same answer."""

    def __init__(self, answer):
        self.answer = answer

    def act(self, view, mask):
        return self.answer


def first(view, rng, params):
    return 0


def nowhere(view, rng, params):
    return 10**9


def two_arguments(view, rng):
    return 0


def misspelt(view, rng, params):
    return int(view.prefill[0].backlog)


@pytest.mark.parametrize(
    ("function", "arguments", "part"),
    [
        (two_arguments, {}, r"policy two_arguments: expected \(view, rng, params\), got \(view, rng\)"),
        (first, {"kind": "routr"}, "kind must be one of router"),
        (first, {"params": {"x": "1"}}, "policy first: parameter x must be a finite number, got '1'"),
        (first, {"params": {"x": math.nan}}, "parameter x must be a finite number"),
        (first, {"params": [1.0]}, "params must be a mapping"),
        (first, {"brings": {"cluster.prefill.queue": "lpm"}}, "brings only keys below cluster.index"),
        (first, {"state_size": -1}, "state_size must be a whole number >= 0, got -1"),
    ],
)
def test_bad_declarations(function, arguments, part):
    with pytest.raises(InputError, match=part):
        policy(**arguments)(function)


@pytest.mark.skipif(disabled(), reason="plain Python looks at columns when the policy is called")
def test_an_unknown_column_is_named():
    with pytest.raises(InputError, match="policy misspelt: a table of the view has no column 'backlog'"):
        policy(misspelt)


@pytest.mark.parametrize("key", ["max:cluster.index.memory", "max:cluster.foo.bar"])
def test_an_unknown_key_in_requires(key):
    with pytest.raises(InputError, match="unknown key"):
        cacheenv.simulate(SMALL, policy(requires={key: 5})(first))


def test_max_raises_a_number_or_replaces_null():
    known = cacheenv.simulate(SMALL, policy(requires={"max:cluster.decode.max_batch": 5})(first)).scenario
    assert known.cluster.decode.max_batch == cacheenv.load_scenario(SMALL).cluster.decode.max_batch > 5
    null = cacheenv.simulate(SMALL, policy(requires={"max:cluster.decode.kv_tokens": 100_000})(first)).scenario
    assert null.cluster.decode.kv_tokens == 100_000


@pytest.mark.parametrize("answer", [None, math.nan, 1.5, "1", [1], np.array([1, 2])])
def test_an_answer_that_is_no_whole_number_is_refused(answer):
    with pytest.raises(InputError, match=r"Answers.act\(view, mask\): expected a whole number, got "):
        cacheenv.simulate(SMALL, Answers(answer))


@pytest.mark.parametrize("answer", [-1, 10**9, 10**30])
def test_illegal_answers_fall_back_and_are_counted(answer):
    result = cacheenv.simulate(SMALL, Answers(answer))
    assert result.invalid_decisions == result.decisions == 40
    compiled = cacheenv.simulate(SMALL, policy(nowhere))
    assert compiled.invalid_decisions == 40
    assert compiled.requests.tobytes() == result.requests.tobytes()
    assert cacheenv.simulate(SMALL, Answers(np.array(0))).invalid_decisions == 0


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InputError, match="seed: expected a whole number >= 0"):
        cacheenv.simulate(SMALL, "random", seed=seed)


def test_a_workload_is_a_workload():
    with pytest.raises(InputError, match=r"workload: expected a cacheenv\.Workload, got 3"):
        cacheenv.simulate(SMALL, "random", workload=3)


def test_a_policy_may_come_from_standard_input():
    program = (
        "from cacheenv.policy import policy\n@policy\ndef piped(view, rng, params):\n    return 0\nprint(piped.name)\n"
    )
    done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, check=False)
    assert done.stdout == "piped\n", done.stderr
