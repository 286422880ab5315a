"""YAML is read strictly and written as it is read."""

import math

import pytest

from cacheenv.errors import InputError
from cacheenv.files.yaml_text import dump_yaml, parse_yaml, read_yaml_mapping


def test_what_is_written_is_read_back_in_its_order():
    tree = {"b": 1, "a": {"y": [1, 2.5, None], "x": "text: with a colon"}, "c": True}
    assert parse_yaml(dump_yaml(tree)) == tree
    assert list(parse_yaml(dump_yaml(tree))) == ["b", "a", "c"]


def test_what_json_has_no_words_for_becomes_null():
    assert dump_yaml({"a": math.nan, "b": (math.inf,)}) == "a: null\nb:\n- null\n"


def test_anchors_and_merges_work():
    assert parse_yaml("base: &b {x: 1}\nown: {<<: *b, y: 2}") == {"base": {"x": 1}, "own": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1\na: 2", "line 2: key 'a' stands twice (first in line 1)"),
        ("1: 2", "line 1: keys must be text"),
        ("a: 1:30", "plain decimal integer, got '1:30'"),
        ("a: 1:30.5", "plain decimal number, got '1:30.5'"),
        ("a: 0x10", "plain decimal integer, got '0x10'"),
        ("a: 010", "plain decimal integer, got '010'"),
        ("a: [1", "not valid YAML"),
        ("a: !!python/name:os.system x", "not valid YAML"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
    ],
)
def test_ambiguous_and_broken_text_is_refused(text, part):
    with pytest.raises(InputError) as caught:
        parse_yaml(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "empty"),
        (b"- 1", "expected a mapping at the top, got a list"),
        (b"a: [", "line 1: not valid YAML"),
        ("a: käse".encode("latin-1"), "not UTF-8 text"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, part):
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_yaml_mapping(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert part in str(caught.value)
