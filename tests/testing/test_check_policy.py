"""`check_policy`: every message is provoked by a policy that is wrong in one way; good policies pass."""

from __future__ import annotations

import sys
import warnings

import broken_policies as broken
import numpy as np
import pytest

import cacheenv
from cacheenv.policy import PolicyBundle, available_policies, make_policy, policy
from cacheenv.sim.core.jit import disabled
from cacheenv.testing import PolicyCheckError, PolicyCheckWarning, check_policy
from cacheenv.testing.watch import CompiledWatch
from cacheenv.testing.worlds import WORLDS
from cacheenv_baselines.registry import PLANNERS

PLACE = r"^policy {}: world 'a small cluster', decision \d+ \(arrival at [\d.e-]+ s\): "
compiled_only = pytest.mark.skipif(disabled(), reason="plain Python raises where compiled code does not look")


@pytest.mark.parametrize("name", [name for name in available_policies() if name not in PLANNERS])
def test_shipped_policies_pass(name):
    check_policy(name)


@pytest.mark.parametrize(
    "good",
    [
        broken.Object(),
        broken.refuses_long,
        broken.moves_first,
        broken.keeps_what_it_declared,
        PolicyBundle("both", router=broken.keeps_what_it_declared, rescheduler=broken.moves_first),
        "sglang/least_requests+early_reject",
        "mooncake(reject=1)",
    ],
    ids=lambda good: getattr(good, "name", None),
)
def test_good_ones_pass(good):
    check_policy(good)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (broken.AnswersText, r"AnswersText.act: expected a whole number, got '0'; return int\(\.\.\.\) of"),
        (broken.AnswersFraction, r"AnswersFraction.act: expected a whole number, got 1.5"),
        (broken.AnswersBeyond, r"AnswersBeyond.act: expected an action from 0 to 12, got 13; the mask has one entry"),
        (broken.Raises, r"Raises.act: expected an action, got ZeroDivisionError: .*; make it work in this world"),
        (broken.WritesView, r"WritesView.act: expected view.decode unchanged, got other numbers in it; work on a copy"),
        (broken.WritesMask, r"WritesMask.act: expected the mask unchanged, got another one; work on a copy"),
    ],
)
def test_objects_that_answer_wrongly(made, message):
    with pytest.raises(PolicyCheckError, match=PLACE.format(made.__name__) + message) as caught:
        check_policy(made())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (broken.beyond, r"router beyond: expected an action from 0 to 12, got 13; return route\(\.\.\.\) or reject"),
        (broken.negative, r"router negative: expected an action from 0 to 12, got -1"),
        (broken.answers_with_route, r"admission answers_with_route: expected 1 \(accept\) or 0 \(reject\), got 2; an"),
        (broken.bare_instance, r"decode choice bare_instance: expected an action from 0 to 12, got -3; return route"),
        (broken.writes_view, "router writes_view: expected view.cluster unchanged, got other numbers in it"),
        (broken.raises, r"router raises: expected an action, got ValueError: five; make it work in this world too"),
        pytest.param(
            broken.writes_outside, "router writes_outside: expected view.prefill unchanged", marks=compiled_only
        ),
        pytest.param(
            broken.too_much_state,
            r"router too_much_state: expected writes into params\[1\] to params\[1\] at most \(state_size=1\), got one "
            r"into params\[2\]; declare a larger state_size",
            marks=compiled_only,
        ),
        (
            broken.undeclared_state,
            r"router undeclared_state: expected no writes into params \(state_size=0\), got one into params\[0\]; decl",
        ),
        (
            broken.writes_parameter,
            r"router writes_parameter: expected parameters unchanged, got 2 in params\[0\] \('weight'\); private state "
            r"begins at params\[1\]",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_compiled_policies_that_answer_wrongly(wrong, message):
    with pytest.raises(PolicyCheckError, match=PLACE.format(wrong.name) + message) as caught:
        check_policy(wrong if wrong.kind == "router" else PolicyBundle(wrong.name, make_policy("mooncake").router,
                                                                      **{wrong.kind: wrong}))  # fmt: skip
    assert "\n" not in str(caught.value)


def test_a_rescheduler_that_answers_wrongly():
    message = r"\(tick at [\d.]+ s\): rescheduler routes_at_ticks: expected an action from 0 to 16, got 17; return move"
    with pytest.raises(PolicyCheckError, match=message):
        check_policy(broken.routes_at_ticks)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (broken.DrawsGlobally(), "draw from a generator that the object seeds and owns only"),
        (broken.CannotBeCopied(), "keep nothing between episodes, and draw from a generator that the object seeds"),
        (broken.draws_globally, "draw from rng only"),
    ],
)
def test_two_runs_of_one_seed(wrong, message):
    with pytest.raises(PolicyCheckError, match=rf"expected equal decisions in two runs of one seed, .*; {message}"):
        check_policy(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(broken.one_instance_too_many, "rows outside a table of the view", marks=compiled_only),
        (broken.all_running_rows, "rows of view.running from num_running on"),
        (broken.candidates_at_arrivals, "rows of view.candidate that are left over"),
        (broken.ReadsLeftovers(), "rows of view.running from num_running on"),
    ],
)
def test_numbers_that_mean_nothing(wrong, message):
    with pytest.raises(PolicyCheckError, match=rf"expected decisions from numbers that mean something.* {message}"):
        check_policy(wrong)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (broken.running_not_asked_for, "expected decisions that do not need view.running at arrivals.*needs_running="),
        (broken.KeepsState(), "expected equal decisions when an object runs the same episode again"),
        (
            broken.pulls_at_random,
            r"expected legal actions, got \d+ of 720 \(\d+ %\) that were not .* the first in worl",
        ),
        (broken.AlwaysPulls(), r"expected legal actions, got \d+ of 720 .*; look at the mask, or at pull_tokens"),
        (broken.ignores_its_store, "expected pulls, as it requires a store, got none in 720 decisions"),
        (broken.stays, r"expected moves, got \d+ ticks with a legal one at which it stayed; see move"),
        (broken.NeverMoves(), r"expected moves, got \d+ ticks with a legal one"),
    ],
)
def test_legal_but_suspicious(odd, message):
    with pytest.warns(PolicyCheckWarning, match=message) as caught:
        check_policy(odd)
    assert all(warning.filename == __file__ and "\n" not in str(warning.message) for warning in caught)
    assert len(caught) == 1


def test_bad_input_is_bad_input():
    with pytest.raises(cacheenv.InputError, match="made for another cluster"):
        check_policy(broken.RefusesAll())
    with pytest.raises(cacheenv.InputError, match="unknown policy 'moncake'"):
        check_policy("moncake")
    with pytest.raises(cacheenv.InputError, match="unknown key"):
        check_policy(policy(requires={"cluster.colour": 1})(broken.stays.function.py_func if not disabled()
                                                            else broken.stays.function))  # fmt: skip


class MadeForEight(broken.Object):
    """Refuses every other cluster, and is wrong in its own."""

    def act(self, view, mask):
        if len(view.prefill) != 8:
            raise cacheenv.InputError("made for 8 prefill instances")
        return -1


def test_a_scenario_of_its_own():
    with pytest.raises(PolicyCheckError, match=r"world 'kimi-chat', decision 0 .* got -1"):
        check_policy(MadeForEight(), scenario="kimi-chat")


@pytest.mark.parametrize("name", ["sglang", "mooncake/power_of_two+early_reject+star", "round_robin"])
def test_the_policy_under_watch_decides_as_it_does_in_a_run(name):
    bundle = make_policy(name)
    for world in WORLDS:
        scenario = world.scenario()
        work = world.workload(scenario)
        watch = CompiledWatch(bundle, world.name, frozenset(), False, seed=3)
        watched = cacheenv.simulate(scenario, watch, 3, workload=work, common_cluster=True)
        plain = cacheenv.simulate(scenario, bundle, 3, workload=work, common_cluster=True)
        assert watched.requests.tobytes() == plain.requests.tobytes(), world.name


def test_the_worlds_hold_what_their_names_say():
    runs = {}
    for world in WORLDS:
        scenario = world.scenario()
        runs[world.name] = cacheenv.simulate(scenario, "mooncake+star", workload=world.workload(scenario))
    assert runs["nothing to pull"].summary["pulled_gbytes"] == 0 < runs["a small cluster"].summary["pulled_gbytes"]
    rows = runs["pulls that vanish"].requests
    assert np.any((rows.hit_tokens < rows.hit_predicted_tokens) & (rows.pulled_tokens == 0))
    assert len(runs["70 prefill instances"].instances) == 70 + 2 + 1
    assert runs["prompts shorter than a page"].requests.prompt_tokens.max() < 64
    assert set(runs["hits of whole prompts"].requests.hit_tokens) == {0, 3 * 64}
    assert runs["preempted requests"].summary["preemptions"] > 0
    assert runs["long outputs"].summary["migrations"] > 0
    assert runs["overload"].summary["ttft_mean_s"] > 10 * runs["a small cluster"].summary["ttft_mean_s"]
    assert 0 < runs["overload"].summary["slo_attainment"] < 1
    assert all(run.summary["completed"] == len(run.requests) for run in runs.values())


def test_it_is_silent_and_not_imported_with_the_package(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_policy("random")
    assert capsys.readouterr() == ("", "")
    import subprocess

    code = "import cacheenv, sys; print([name for name in sys.modules if name.startswith('cacheenv.testing')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
