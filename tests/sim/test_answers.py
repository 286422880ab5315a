"""Answers that return to the prefill cache, and what the next turn finds there.

A prompt of 100 tokens is computed in 0.1 s (1 ms a token) and handed over in 0.1 s (1 MB a token, 1 GB/s). Ten steps of
10 ms make the other 10 of its 11 output tokens until 0.3. The KV of the last token is never computed, so 10 tokens
return, in 10 ms: until 0.31.
"""

from __future__ import annotations

import pytest
from engine_invariants import check_end, check_world
from tiny_cluster import Run, Script, requests, run, tiny

FIRST = (0.0, range(100), range(100, 111))


def turns(*rows, **settings) -> Run:
    """The first turn and what comes behind it."""
    scenario = tiny(network__nic_gbytes_per_s=1.0, **settings)
    done = run(scenario, requests([FIRST, *rows]), Script(), watch=check_world)
    check_end(done.worlds)
    assert done.rows[0].finish_s == pytest.approx(0.3)
    return done


def returned_bytes(done: Run) -> float:
    return float(done.world.nic[0].bytes_in)


@pytest.mark.parametrize(
    ("arrival_s", "cache_outputs", "hit"),
    [(0.305, True, 100), (0.315, True, 110), (0.315, False, 100)],  # on its way, there, not sent
)
def test_the_next_turn_finds_the_answer_when_it_has_arrived(arrival_s, cache_outputs, hit):
    done = turns((arrival_s, range(130), 1), prefill__cache_outputs=cache_outputs)
    assert done.rows[1].hit_tokens == hit
    assert done.rows[1].hit_predicted_tokens == hit, "the index has heard of it"
    assert done.rows[1].prefill_end_s == pytest.approx(arrival_s + (130 - hit) * 1e-3)
    assert returned_bytes(done) == (1e7 if cache_outputs else 0.0)


def test_only_full_pages_return():
    # Pages of 8: the prompt fills 12, prompt and answer without its last token (110) fill 13. The page that the prompt
    # had begun goes back with the answer's tokens: 8 MB.
    scenario = tiny(network__nic_gbytes_per_s=1.0, page_tokens=8)
    work = requests([FIRST, (0.4, range(130), 1)], page_tokens=8)
    done = run(scenario, work, Script(), watch=check_world)
    assert done.rows.hit_tokens.tolist() == [0, 104]
    assert returned_bytes(done) == 8e6


def test_nothing_is_sent_when_the_prompt_is_gone():
    # Room for 130. Another prompt of 100 comes at 0.21 and evicts 70 of the 100 pages, which nobody holds any more.
    done = turns((0.21, 100, 1), prefill__cache_tokens=130)
    assert returned_bytes(done) == 0.0


def test_nothing_is_cached_when_the_prompt_goes_meanwhile():
    # The same at 0.305, while the answer is on its way. Of the first prompt 30 pages are left.
    done = turns((0.305, 100, 1), (1.0, range(130), 1), prefill__cache_tokens=130)
    assert returned_bytes(done) == 1e7
    assert done.rows[2].hit_tokens == 30


def test_as_much_is_cached_as_fits():
    # Room for 105: 100 of the prompt, 5 of the answer.
    done = turns(prefill__cache_tokens=105)
    assert done.world.tree[0].pages == 105


def test_what_is_cached_already_is_not_sent():
    # Two equal requests: the first one's answer is there when the second one ends.
    done = turns((1.0, *FIRST[1:]))
    assert done.rows[1].finish_s > done.rows[0].finish_s
    assert returned_bytes(done) == 1e7


def test_equal_answers_on_their_way_are_cached_once():
    # Both come at once and end together; both send 10 tokens at half the rate, and the second finds them there.
    scenario = tiny(network__nic_gbytes_per_s=1.0)
    done = run(scenario, requests([FIRST, FIRST, (2.0, range(130), 1)]), Script(), watch=check_world)
    assert done.rows[0].finish_s == done.rows[1].finish_s
    assert returned_bytes(done) == 2e7
    assert done.world.tree[0].pages == 130
    assert done.rows[2].hit_tokens == 110
    check_end(done.worlds)
