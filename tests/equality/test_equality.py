"""The simulator and the environments do what they did when `expected.json` was written, digit by digit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from compare import compare_case
from digests import EXPECTED, changes, digests_of, rounded_digests
from equality_cases import SMALL_IDS, small_cases

EXPECTED_DIGESTS = json.loads(EXPECTED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SMALL_IDS)
def test_behaviour_is_unchanged(name: str) -> None:
    changed = changes(small_cases()[name], EXPECTED_DIGESTS[name])
    assert not changed, (
        f"{name}: {len(changed)} of {len(EXPECTED_DIGESTS[name])} columns differ: {', '.join(changed)}. "
        "If that is meant, `make digests` renews tests/equality/expected.json"
    )


def test_expected_digests_are_of_the_cases() -> None:
    assert list(EXPECTED_DIGESTS) == list(SMALL_IDS)


def columns(factor: float = 1.0) -> dict[str, np.ndarray]:
    times_s = np.array([0.1, 31.7, np.nan, 512.25])
    times_s[1] *= factor
    return {"requests.ttft_s": times_s, "requests.hit_tokens": np.array([0, 512, 1024, 0])}


def test_rounded_digest_sees_a_change_of_a_billionth() -> None:
    before, after = rounded_digests(columns()), rounded_digests(columns(1 + 1e-9))
    assert before["requests.ttft_s"] != after["requests.ttft_s"]
    assert before["requests.hit_tokens"] == after["requests.hit_tokens"]


def test_rounded_digest_does_not_see_the_last_bits() -> None:
    assert columns()["requests.ttft_s"][1] != columns(1 + 1e-14)["requests.ttft_s"][1]
    assert rounded_digests(columns()) == rounded_digests(columns(1 + 1e-14))
    assert digests_of(columns())["exact"] != digests_of(columns(1 + 1e-14))["exact"]


def test_rounded_digest_sees_a_count() -> None:
    changed = columns()
    changed["requests.hit_tokens"][1] += 1
    assert rounded_digests(changed) != rounded_digests(columns())


def test_rounded_digest_knows_one_nan_and_one_zero() -> None:
    one, other = columns(), columns()
    one["requests.ttft_s"][0], other["requests.ttft_s"][0] = 0.0, -0.0
    other["requests.ttft_s"][2] = -np.float64("nan")
    assert rounded_digests(one) == rounded_digests(other)


def test_comparison_names_columns_that_differ_or_are_added() -> None:
    more = {**columns(1 + 1e-9), "requests.retries": np.zeros(4, np.int64)}
    lines, differs = compare_case(digests_of(columns()), digests_of(more), rounded=False)
    assert differs
    assert [line.split(":")[0] for line in lines] == ["requests.ttft_s", "requests.retries"]
    more["requests.ttft_s"] = columns()["requests.ttft_s"]
    lines, differs = compare_case(digests_of(columns()), digests_of(more), rounded=False)
    assert not differs
    assert lines == ["requests.retries: added"]
