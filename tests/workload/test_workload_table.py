"""The workload table: identities of blocks, residual lengths, and what is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheenv.errors import InputError
from cacheenv.workload import REFRESH_TOKENS, WORKLOAD_DTYPE, Workload, mean_residual_tokens

PAGE = 4


def make(**changes):
    columns = {
        "arrival_s": [0.0, 1.0],
        "prompt_tokens": [5, 8],
        "output_tokens": [3, 2],
        "blocks": [[10, 11], [10, 12]],
        "page_tokens": PAGE,
    }
    return Workload.from_arrays(**{**columns, **changes})


def test_from_arrays():
    workload = make(session=[4, -1], priority=[0, 7])
    assert workload.requests.dtype == WORKLOAD_DTYPE
    assert workload.blocks.dtype == np.int32
    assert workload.blocks.tolist() == [0, 1, 0, 2]
    assert workload.requests["block_start"].tolist() == [0, 2]
    assert workload.requests["session"].tolist() == [4, -1]
    assert workload.requests["priority"].tolist() == [0, 7]
    assert workload.requests[1].prompt_tokens == 8
    assert len(workload) == 2


def test_without_blocks_nothing_is_shared():
    workload = make(blocks=None)
    assert workload.blocks.tolist() == [0, 1, 2, 3]
    assert workload.num_blocks == 4


def test_equal_ids_in_two_namespaces_are_different_blocks():
    workload = make(namespace=[0, 1], blocks=[[10, 11], [10, 11]])
    assert workload.blocks.tolist() == [0, 1, 2, 3]


@st.composite
def columns(draw):
    """Random prompts as page contents, and ids made from (namespace, all pages so far) as an engine would."""
    count = draw(st.integers(1, 12))
    namespace = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    pages = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), min_size=count, max_size=count))
    tail = draw(st.lists(st.integers(1, PAGE), min_size=count, max_size=count))
    ids, names = [], {}
    per_space = draw(st.booleans())
    for space, content in zip(namespace, pages, strict=True):
        prefixes = [(space if per_space else 0, *content[: k + 1]) for k in range(len(content))]
        ids.append([names.setdefault(prefix, 2**63 - 7 * len(names)) for prefix in prefixes])
    prompt = [PAGE * (len(content) - 1) + last for content, last in zip(pages, tail, strict=True)]
    return namespace, pages, prompt, ids


@given(columns())
@settings(max_examples=150, deadline=None)
def test_ids_are_dense_and_name_common_prefixes_within_a_namespace(case):
    namespace, pages, prompt, ids = case
    count = len(prompt)
    workload = Workload.from_arrays(
        np.arange(count), prompt, np.ones(count, dtype=int), ids, page_tokens=PAGE, namespace=namespace
    )
    first_seen = list(dict.fromkeys(workload.blocks.tolist()))
    assert first_seen == list(range(workload.num_blocks))
    for left in range(count):
        for right in range(count):
            mine, other = workload.blocks_of(left).tolist(), workload.blocks_of(right).tolist()
            if namespace[left] != namespace[right]:
                assert not set(mine) & set(other)
                continue
            common = 0
            while common < min(len(mine), len(other)) and pages[left][common] == pages[right][common]:
                common += 1
            assert mine[:common] == other[:common]
            assert not set(mine[common:]) & set(other[common:])


@given(st.lists(st.integers(1, 200), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_mean_residual_is_the_mean_over_longer_outputs(lengths):
    residual = mean_residual_tokens(lengths)
    assert len(residual) == (max(lengths) - 1) // REFRESH_TOKENS + 1
    for index, value in enumerate(residual):
        generated = index * REFRESH_TOKENS
        longer = [length - generated for length in lengths if length > generated]
        assert value == pytest.approx(sum(longer) / len(longer))


def test_an_absurd_length_does_not_make_the_residuals_fill_the_memory():
    residual = mean_residual_tokens([20, 2**40])
    assert len(residual) == 2**20
    assert residual[-1] == 2**40 - (len(residual) - 1) * REFRESH_TOKENS


def test_scaled_only_changes_times():
    workload = make()
    faster = workload.scaled(4.0)
    assert faster.requests["arrival_s"].tolist() == [0.0, 0.25]
    assert workload.requests["arrival_s"].tolist() == [0.0, 1.0]
    assert np.array_equal(faster.requests["prompt_tokens"], workload.requests["prompt_tokens"])
    assert faster.blocks is workload.blocks


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_scaled_refuses_bad_rates(rate):
    with pytest.raises(InputError, match="arrays: rate scale: expected a positive number"):
        make().scaled(rate)


@pytest.mark.parametrize(
    ("changes", "expectation"),
    [
        ({"arrival_s": []}, "arrival_s: expected a list of at least one number"),
        ({"arrival_s": [1.0, 0.5]}, "request 1: arrival_s goes back, got 0.5"),
        ({"arrival_s": [0.0, np.nan]}, "request 1: expected a finite arrival_s >= 0, got nan"),
        ({"arrival_s": [-1.0, 0.0]}, "request 0: expected a finite arrival_s >= 0, got -1.0"),
        ({"arrival_s": [True, False]}, "arrival_s: expected a list"),
        ({"prompt_tokens": [5, 0]}, "request 1: expected a whole prompt_tokens from 1"),
        ({"prompt_tokens": [5.5, 8]}, "request 0: expected a whole prompt_tokens from 1"),
        ({"prompt_tokens": [5]}, "prompt_tokens: expected 2 whole numbers, one a request"),
        ({"output_tokens": [True, True]}, "output_tokens: expected 2 whole numbers"),
        ({"output_tokens": [3, -2]}, "request 1: expected a whole output_tokens from 1"),
        ({"blocks": [[10, 11]]}, "blocks: expected 2 lists, one a request, got 1"),
        ({"blocks": [[10], [10, 12]]}, "request 0: expected ceil(5/4) = 2 block ids, got 1"),
        ({"blocks": [[10, 11.0], [10, 12]]}, "request 0: expected whole numbers as block ids"),
        ({"blocks": [[10, True], [10, 12]]}, "request 0: expected whole numbers as block ids"),
        ({"blocks": [[10, 11], [12, 11]]}, "request 1: a block id follows another block"),
        ({"blocks": [[10, 11], [11, 10]]}, "request 1: a block id follows another block"),
        ({"namespace": [0, -1]}, "request 1: expected a whole namespace from 0"),
        ({"namespace": [0, 2**31]}, "request 1: expected a whole namespace from 0 to 2147483647"),
        ({"session": [0, -2]}, "request 1: expected a whole session from -1"),
        ({"priority": [2**31, 0]}, "request 0: expected a whole priority"),
        ({"page_tokens": 0}, "page_tokens: expected a whole number >= 1, got 0"),
        ({"page_tokens": 4.0}, "page_tokens: expected a whole number >= 1, got 4.0"),
    ],
)
def test_from_arrays_refuses(changes, expectation):
    with pytest.raises(InputError) as caught:
        make(**changes)
    message = str(caught.value)
    assert message.startswith("arrays: ") and expectation in message and "\n" not in message


@pytest.mark.parametrize(
    ("field", "value", "expectation"),
    [
        ("blocks", np.array([0, 1, 0], dtype=np.int32), "expected 4 block ids in all, got 3"),
        ("blocks", np.array([0, 1, 0, 9], dtype=np.int32), "expected block ids from 0 to 2"),
        ("mean_residual_tokens", np.array([np.nan]), "mean_residual_tokens: expected finite numbers"),
        ("mean_residual_tokens", np.array([]), "mean_residual_tokens: expected finite numbers"),
        ("requests", np.zeros(0, dtype=WORKLOAD_DTYPE), "expected at least one request, got none"),
    ],
)
def test_validate_refuses(field, value, expectation):
    with pytest.raises(InputError, match=expectation):
        dataclasses.replace(make(), **{field: value}).validate()


def test_validate_refuses_a_wrong_offset():
    workload = make()
    workload.requests["block_start"][1] = 1
    with pytest.raises(InputError, match="request 1: block_start does not follow"):
        workload.validate()


def test_mean_residual_refuses_nothing():
    with pytest.raises(InputError, match="expected at least one output length"):
        mean_residual_tokens([])


def test_answers_stand_behind_the_prompts():
    # Pages of 4. The first prompt has 1 full page of 2; with 5 output tokens 11 tokens fill 2: one id. The second
    # prompt continues it: page 0, the page that the answer filled, and one of its own; its answer is not known.
    workload = Workload.from_arrays(
        [0, 1], [6, 12], [5, 9], [[70, 71], [70, 72, 73]], page_tokens=4, answers=[[72], []]
    )
    assert workload.blocks.tolist() == [0, 1, 0, 2, 3, 2]
    assert workload.requests["answer_start"].tolist() == [5, 6]
    assert workload.answer_blocks_of(0).tolist() == [2]
    assert workload.answer_blocks_of(1).tolist() == []
    assert workload.blocks_of(1).tolist() == [0, 2, 3]
    assert workload.num_blocks == 4


@pytest.mark.parametrize(
    ("answers", "part"),
    [
        ([[72]], "answers: expected 2 lists, one a request, got 1"),
        ([[72, 74], []], "request 0: expected 1 ids of its answer, or none, got 2"),
        ([[1.5], []], "request 0: expected whole numbers as block ids"),
        ([[73], []], "request [01]: a block id follows another block"),
    ],
)
def test_bad_answers(answers, part):
    with pytest.raises(InputError, match=part):
        Workload.from_arrays([0, 1], [6, 12], [5, 9], [[70, 71], [70, 72, 73]], page_tokens=4, answers=answers)


def test_answers_need_blocks():
    with pytest.raises(InputError, match="answers: expected blocks as well"):
        Workload.from_arrays([0], [6], [5], page_tokens=4, answers=[[1]])
