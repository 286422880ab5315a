"""Names of policies: the grammar, what is joined with what, and what is refused."""

from __future__ import annotations

import pytest

from cacheenv.errors import InputError
from cacheenv.policy import KINDS, PolicyBundle, as_bundle, available_policies, make_policy
from cacheenv.sim.policies.compose import PARTS


def kinds(bundle):
    return {kind: getattr(bundle, kind).name for kind in KINDS if getattr(bundle, kind)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("random", {"router": "random"}),
        ("mooncake/least_kv", {"router": "mooncake", "decode_choice": "least_kv"}),
        ("mooncake/power_of_two", {"router": "mooncake", "decode_choice": "power_of_two"}),
        ("star", {"rescheduler": "star"}),
        ("early_reject", {"router": "mooncake", "admission": "early_reject"}),
        ("lmetric+early_reject", {"router": "lmetric", "admission": "early_reject"}),
        (
            "sglang/least_kv+star+early_reject",
            {"router": "sglang", "decode_choice": "least_kv", "rescheduler": "star", "admission": "early_reject"},
        ),
    ],
)
def test_composition(name, expected):
    bundle = make_policy(name)
    assert (bundle.name, kinds(bundle)) == (name, expected)
    assert as_bundle(bundle) is bundle
    assert kinds(as_bundle(name)) == expected


def test_parameters_of_parts():
    bundle = make_policy("mooncake(threshold=2, pulls=0)/least_kv+star(theta=0.25)")
    assert bundle.router.params["threshold"] == 2 and bundle.router.params["pulls"] == 0
    assert bundle.rescheduler.params["theta"] == 0.25
    assert make_policy("mooncake", threshold=3).router.params["threshold"] == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "policy '': expected a name on each side of '/' and '\\+'"),
        ("mooncake+", "expected a name on each side"),
        ("/least_kv", "expected a name on each side"),
        ("a/b/c", r"policy a/b/c: expected at most one '/' \(router/decode_choice\)"),
        ("mooncake+star+llumnix", r"policy mooncake\+star\+llumnix: two parts of kind rescheduler"),
        ("early_reject+predictive_reject", "two parts of kind admission"),
        ("mooncake+lmetric", "'lmetric' is a router; expected a rescheduler or admission policy"),
        ("mooncake/star", "policy star: cannot choose a decode instance"),
        ("mooncake(threshold=1,threshold=2)", "parameter threshold is given twice"),
        ("mooncake(threshold=x)", "expected key=number, got 'threshold=x'"),
        ("mooncake(thresold=1)", "unknown parameter 'thresold'.*did you mean 'threshold'"),
        ("lmetrik", r"unknown policy 'lmetrik' \(did you mean 'lmetric'\?\); known: "),
    ],
)
def test_refused(name, message):
    with pytest.raises(InputError, match=message):
        make_policy(name)


def test_only_policies_are_policies():
    with pytest.raises(InputError, match=r"expected a policy name, a compiled policy or an object with act\(view, mas"):
        as_bundle(3)


def test_parts_that_need_different_things():
    one = make_policy("star_oracle").rescheduler
    two = make_policy("star_nopred").rescheduler
    assert make_policy("sglang+star_oracle").requires()["prediction.kind"] == "oracle"
    bundle = PolicyBundle("both", rescheduler=one, decode_choice=two)
    with pytest.raises(InputError, match=r"policy both: its parts need different values of prediction\.kind"):
        bundle.requires()


def test_the_kinds_are_those_of_the_simulator():
    assert KINDS is PARTS
    assert not [name for name in available_policies() if name.endswith(":")]
