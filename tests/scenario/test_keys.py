"""Dotted keys: nested, laid over one another, flat, compared."""

import pytest

from cacheenv.errors import InputError
from cacheenv.scenario.keys import differences, flat, merged, nested, parse_assignment


def test_nested_takes_dotted_and_nested_keys_and_the_later_one_wins():
    tree = nested({"a.b": 1, "a": {"c.d": 2}, "a.b.e": 3})
    assert tree == {"a": {"b": {"e": 3}, "c": {"d": 2}}}


def test_merged_replaces_all_but_mappings_and_leaves_its_arguments_alone():
    base = {"a": {"b": 1, "c": [1]}, "d": {"e": 1}}
    assert merged(base, {"a": {"c": [2]}, "d": 3, "f": 4}) == {"a": {"b": 1, "c": [2]}, "d": 3, "f": 4}
    assert base == {"a": {"b": 1, "c": [1]}, "d": {"e": 1}}


def test_flat_is_undone_by_nested():
    tree = {"a": {"b": {"c": 1}, "d": None}, "e": {}, "f": [{"g": 1}]}
    assert flat(tree) == {"a.b.c": 1, "a.d": None, "e": {}, "f": [{"g": 1}]}
    assert nested(flat(tree)) == tree
    assert flat({"a.b": {"c": 1}}, "x") == {"x.a.b.c": 1}


def test_differences_name_leaves_only():
    before = {"a": {"b": 1, "c": 2}, "d": {}, "e": {"f": 1}}
    after = {"a": {"b": 1, "c": 3}, "d": {"x": 5}, "e": {}}
    assert differences(before, after) == {"a.c": (2, 3), "e.f": (1, None), "d.x": (None, 5)}
    assert differences(before, before) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("a.b=1", 1), ("a.b=0.5", 0.5), ("a.b=null", None), ("a.b=x=y", "x=y"), ("a.b={c: 1}", {"c": 1})],
)
def test_assignments(text, value):
    assert parse_assignment(text) == ("a.b", value)


@pytest.mark.parametrize("text", ["rate", "=3", "a=[1", "a=1:30"])
def test_bad_assignments(text):
    with pytest.raises(InputError, match="--set"):
        parse_assignment(text)
