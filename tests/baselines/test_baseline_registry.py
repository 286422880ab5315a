"""Names, parameters, lazy import, plain-Python mode."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cacheenv.errors import InputError
from cacheenv.policy import KINDS, Policy, PolicyBundle
from cacheenv_baselines import make, names
from cacheenv_baselines.registry import PLANNERS, provider


def run_python(code: str, **environment: str) -> str:
    """Output of a fresh interpreter that finds the same packages."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_name_makes_a_policy_of_that_name():
    assert names() == sorted(names())
    assert provider.names() == sorted([*names(), *PLANNERS])
    for name in names():
        made = provider.make(name)
        assert made.name == name
        part = made if isinstance(made, Policy) else made.admission
        assert part.kind in KINDS and part.description, name


def test_admission_comes_with_the_mooncake_router():
    for name in ("early_reject", "kv_reject", "late_reject", "predictive_reject"):
        bundle = make(name, threshold=0.5)
        assert isinstance(bundle, PolicyBundle)
        assert bundle.router.name == "mooncake"
        assert bundle.admission.params["threshold"] == 0.5
    assert make("predictive_reject").admission.needs_running


def test_unknown_names_and_parameters():
    with pytest.raises(InputError, match=r"unknown policy 'moncake'.*did you mean 'mooncake'"):
        make("moncake")
    with pytest.raises(InputError, match=r"mooncake: unknown parameter 'treshold'.*did you mean 'threshold'"):
        make("mooncake", treshold=2.0)
    with pytest.raises(InputError, match="finite number"):
        make("star", theta=float("nan"))
    with pytest.raises(InputError, match="it has: none"):
        make("random", seed=3)


def test_parameters_do_not_leak_into_later_policies():
    assert make("star", theta=0.5).params["theta"] == 0.5
    assert make("star").params["theta"] == 0.1


def test_import_is_lazy():
    code = (
        "import sys, cacheenv_baselines as b; b.names(); "
        "first = {m for m in sys.modules if m.startswith('cacheenv_baselines.')}; b.make('round_robin'); "
        "print(sorted(first), sorted({m for m in sys.modules if m.startswith('cacheenv_baselines.')} - first))"
    )
    assert run_python(code) == "['cacheenv_baselines.registry'] ['cacheenv_baselines.round_robin']"


SCRIPT = """
import numpy as np
from cacheenv.policy import Policy
from cacheenv.testing import empty_view, random_stream
from cacheenv_baselines import make, names

np.seterr(all="raise")
noise = np.random.default_rng(5)
answers = []
for name in names():
    made = make(name)
    part = made if isinstance(made, Policy) else made.admission
    rng, state = random_stream(1), part.parameter_array()
    for _ in range(40):
        view = empty_view(3, 4, 5, 20)
        for table in view:
            for field in table.dtype.names:
                whole = table.dtype[field].kind == "i"
                table[field] = noise.integers(0, 9, len(table)) if whole else noise.uniform(0.1, 5.0, len(table))
        cluster = view.cluster[0]
        cluster.num_prefill, cluster.num_decode, cluster.num_candidates, cluster.num_running = 3, 4, 5, 20
        view.candidate.source = np.arange(20) // 5
        view.running.instance = noise.integers(0, 4, 20)
        view.running.kv_tokens = noise.integers(1, 60, 20)
        view.candidate.kv_tokens = noise.integers(1, 9, 20)
        view.prefill.role = [1, 0, 0]
        view.request.memory_instance = noise.integers(-1, 3)
        view.request.prompt_tokens = noise.choice([9, 3000])
        view.decode.capacity_tokens = 500
        view.decode.room_tokens = 9
        view.candidate.since_move_s = 9.0
        view.candidate.migrate_s = 0.01
        view.candidate.predicted_remaining_tokens = noise.integers(1, 90, 20)
        cluster.slo_ttft_s = cluster.slo_tbt_tail_s = noise.choice([10.0, 1e6])
        answers.append(int(part.function(view, rng, state)))
print(answers)
"""


def test_plain_python_gives_the_same_actions():
    """Random views, every policy, compiled and with NUMBA_DISABLE_JIT=1."""
    compiled = run_python(SCRIPT, NUMBA_DISABLE_JIT="0")
    plain = run_python(SCRIPT, NUMBA_DISABLE_JIT="1")
    assert compiled == plain
    answers = compiled.strip("[]").split(", ")
    for place, name in enumerate(names()):
        assert len(set(answers[40 * place : 40 * (place + 1)])) > 1, f"{name} decides nothing in this test"
