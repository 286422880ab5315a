"""Rules of mappings with a few keys; the other rules are tested with the scenario's own keys."""

import pytest

from cacheenv.errors import ConfigError
from cacheenv.scenario.schema import KeysRule, Rule

RULE = KeysRule(
    "mapping",
    "-",
    keys={
        "size": Rule("int", "-", low=1),
        "kind": Rule("choice", "-", choices=("one", "two")),
        "inner": KeysRule("mapping", "-", keys={"on": Rule("bool", "-")}),
        "free": Rule("any", "-"),
    },
)


def test_absent_keys_stay_absent_and_free_values_as_they_are():
    value = {"size": 3, "inner": {"on": True}, "free": [None, {"x": 1}]}
    assert RULE.check(value, "place") == value
    assert RULE.check({}, "place") == {}


@pytest.mark.parametrize(
    ("value", "place", "part"),
    [
        ([1], "place", "expected a mapping, got a list"),
        ({"sise": 1}, "place.sise", "unknown key place.sise (did you mean 'size'?)"),
        ({"zzz": 1}, "place.zzz", "known in place: size, kind, inner, free"),
        ({"size": 0}, "place.size", "expected an integer >= 1, got 0"),
        ({"kind": "tow"}, "place.kind", "did you mean 'two'"),
        ({"inner": {"on": 1}}, "place.inner.on", "expected true or false, got 1"),
    ],
)
def test_a_bad_value_names_its_dotted_place(value, place, part):
    with pytest.raises(ConfigError) as caught:
        RULE.check(value, "place")
    assert caught.value.place == place
    assert part in str(caught.value)
