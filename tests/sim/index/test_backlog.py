"""What a router sees of the work that waits: priced now, behind what is cached, on its way, or waits longer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_invariants import check_world
from tiny_cluster import Script, requests, run, tiny

from cacheenv_baselines import make

A900, A = list(range(900)), list(range(10))


def tail(number, count):
    """Tokens that no other prompt has."""
    return [-1000 * number - at for at in range(1, count + 1)]


def prefill_seen(rows, turns=((0, 0),), column="backlog_s", instance=0, **settings):
    """A column of an instance in the view at each decision, and the run. 1 ms a token."""
    seen = []
    script = Script(turns, watch=lambda view: seen.append(float(view.prefill[instance][column])))
    done = run(tiny(**settings), requests(rows), script, watch=check_world)
    assert (done.world.first_carrier == -1).all(), "somebody is still listed as waiting"
    return seen, done


SIBLINGS = [(0.0, A900, 1), *((0.85, A900 + tail(number, 100), 1) for number in range(10))]


def test_siblings_of_what_is_being_computed():
    # The batch has 0.05 s left. Each sibling computes 100 tokens behind the 900: nine wait when the tenth comes.
    seen, _ = prefill_seen(SIBLINGS)
    assert seen == pytest.approx([0.0, *(0.05 + 0.1 * waiting for waiting in range(10))])
    assert seen[-1] == pytest.approx(0.95)
    frozen, _ = prefill_seen(SIBLINGS, prefill__backlog="dispatch")
    assert frozen[-1] == pytest.approx(9.05), "as if each computed all of it, which was so when it was routed"


def test_a_forecasting_router_stays_with_the_siblings():
    # The tenth sibling costs 0.95 s + 0.1 s where A900 is computed, 1 s elsewhere; the nine before it less.
    done = run(tiny(prefill__count=2), requests(SIBLINGS), "mooncake_local")
    assert (done.rows.prefill_instance[1:10] == done.rows.prefill_instance[0]).all()
    # A router that knows of A900 only when it is stored takes the first sibling away already.
    unaware = replace(make("mooncake_local"), brings={})
    done = run(tiny(prefill__count=2, prefill__backlog="dispatch"), requests(SIBLINGS), unaware)
    assert done.rows.prefill_instance[1] != done.rows.prefill_instance[0]


def test_the_one_that_waits_longest_pays_for_what_is_shared():
    # Behind 100 ms of other work: 10 + 2 tokens, then 3 behind the 10, then 4 behind the 12 of the first.
    first, second, third = A + tail(1, 2), A + tail(2, 3), A + tail(1, 2) + tail(3, 4)
    rows = [(0.0, 100, 1), (0.001, first, 1), (0.002, second, 1), (0.003, third, 1), (0.004, 1, 1)]
    seen, _ = prefill_seen(rows, column="queue_s")
    assert seen == pytest.approx([0.0, 0.0, 0.012, 0.015, 0.019])
    tokens, _ = prefill_seen(rows, column="queued_tokens")
    assert tokens == [0, 0, 12, 15, 19]
    new, _ = prefill_seen(rows, column="inflight_new_tokens")
    assert new == [0, 100, 112, 125, 141], "the router's own count stays what it was at dispatch"


def test_the_last_token_of_a_prompt_is_always_computed():
    rows = [(0.0, 100, 1), (0.001, A, 1), (0.002, A, 1), (0.003, A + tail(1, 1), 1), (0.004, 1, 1)]
    seen, _ = prefill_seen(rows, column="queue_s")
    assert seen == pytest.approx([0.0, 0.0, 0.010, 0.011, 0.012])


def test_an_eviction_makes_the_work_that_waits_dearer():
    # A is cached. At 1 s a prompt of 10 and two that continue A arrive. The first is batched: of 14 pages 4 are free, 6
    # of A's go. The first of the two computes them again, 8 tokens instead of 2; the other still computes its 3.
    rows = [(0.0, A, 1), (1.0, 10, 1), (1.0, A + tail(1, 2), 1), (1.0, A + tail(2, 3), 1), (1.001, 1, 1)]
    one_by_one = {"prefill__cache_tokens": 14, "prefill__max_batch_requests": 1}
    seen, done = prefill_seen(rows, column="queue_s", **one_by_one)
    assert seen == pytest.approx([0.0, 0.0, 0.010, 0.012, 0.011])
    assert done.rows.hit_tokens[2] == 4
    frozen, _ = prefill_seen(rows, column="queue_s", prefill__backlog="dispatch", **one_by_one)
    assert frozen[-1] == pytest.approx(0.005)


def test_somebody_who_is_batched_first_brings_the_pages_of_who_waits_longer():
    # 5 of 20 pages are pulled for the first: 1 s each at 1 token a second. The second is batched meanwhile and computes
    # what the first would have.
    prompt = list(range(20))
    rows = [(0.0, prompt[:5], 1), (1.0, prompt, 1), (1.001, 1, 1), (1.002, [*prompt, -1], 1), (1.003, 1, 1)]
    turns = [(0, 0), (1, 0, True), (0, 0), (1, 0), (0, 0)]
    slow = {"prefill__count": 2, "network__nic_gbytes_per_s": 0.001}
    seen, done = prefill_seen(rows, turns, "queue_s", 1, **slow)
    assert done.rows.pulled_tokens[1] == 5
    assert seen == pytest.approx([0.0, 0.0, 0.015, 0.015, 0.001])
    assert done.rows.hit_tokens[1] == 19


def test_who_has_pulled_waits_in_its_old_place():
    # Behind 100 ms of other work the second of two requests pulls 5 of 8 pages in 5 ms. They stay, and the first, which
    # waits longer, finds them.
    prompt = list(range(8))
    rows = [
        (0.0, prompt[:5], 1),
        (1.0, 100, 1),
        (1.001, [*prompt[:6], -1], 1),
        (1.002, prompt, 1),
        (1.0065, 1, 1),
        (1.02, 1, 1),
    ]
    turns = [(0, 0), (1, 0), (1, 0), (1, 0, True), (0, 0), (0, 0)]
    seen, done = prefill_seen(rows, turns, "queue_s", 1, prefill__count=2, network__nic_gbytes_per_s=1.0)
    assert done.rows.pulled_tokens[3] == 5
    # 7 tokens; then 2 behind the 5 that come, and 2 behind the 6 of the first.
    assert seen == pytest.approx([0.0, 0.0, 0.0, 0.007, 0.004, 0.004])


def test_what_is_left_of_a_prompt_in_chunks_is_what_it_found():
    # Both have 100 tokens, 50 a chunk, 100 a batch. The second batch computes the first's last 50 and the first 50 of
    # the second, which found nothing: 50 are left, although the second was priced behind the first.
    rows = [(0.0, range(100), 1), (0.0, range(100), 1), (0.06, 1, 1)]
    chunks = {"prefill__chunk_tokens": 50, "prefill__batch_tokens": 100}
    seen, done = prefill_seen(rows, column="backlog_s", **chunks)
    assert done.rows.hit_tokens.tolist() == [0, 0, 0]
    running_s = 0.05 + 0.1 - 0.06
    assert seen == pytest.approx([0.0, 0.1, running_s + 0.05])


def test_pages_in_host_memory_are_loaded_and_not_computed():
    # A is written to the host, which holds 14 pages and loads a page in 0.5 ms. Two prompts of 10 and 15 and one that
    # continues A by 2 line up. The first leaves 5 of A on the GPU: 5 are loaded in 2.5 ms, and 2 ms are computed. At
    # 1.010 s the first is written to the host, which keeps 4 of A, and the second takes the whole GPU: 2 ms and 8 ms.
    rows = [(0.0, A, 1), (1.0, 10, 1), (1.0, 15, 1), (1.0, A + tail(1, 2), 1), (1.001, 1, 1), (1.011, 1, 1)]
    settings = {
        "prefill__cache_tokens": 15,
        "prefill__max_batch_requests": 1,
        "prefill__host_cache_tokens": 14,
        "prefill__host_gbytes_per_s": 2.0,
        "prefill__load": "blocking",
    }
    seen, _ = prefill_seen(rows, column="queue_s", **settings)
    assert seen == pytest.approx([0.0, 0.0, 0.010, 0.025, 0.015 + 0.0045, 0.010 + 0.001])
    # With 10 ms for its schedule a request that comes at 1.015 s, while the prompt of 10 is computed, still waits at
    # 1.022 s. The GPU has kept 5 of A, the host 4: no more is loaded, and 7 are computed.
    rows = [(0.0, A, 1), (1.0, 10, 1), (1.015, A + tail(1, 2), 1), (1.016, 1, 1), (1.022, 1, 1)]
    seen, _ = prefill_seen(rows, column="queue_s", prefill__schedule_s=0.01, **settings)
    assert seen == pytest.approx([0.0, 0.0, 0.0, 0.0045, 0.007 + 0.001])


def test_an_answer_that_comes_back_makes_the_next_turn_cheaper():
    # 2 of the answer's 3 tokens are cached from 25 ms on, while the next turn waits behind two prompts of 100. It has 5
    # of its 10 tokens to compute, then 3, and all of them when the second prompt, at 108 ms, has taken what was there.
    prompt, answer = list(range(5)), [-1, -2, -3]
    rows = [
        (0.0, prompt, answer),
        (0.008, 100, 1),
        (0.009, 100, 1),
        (0.010, [*prompt, *answer, -4, -5], 1),
        (0.05, 1, 1),
        (0.11, 1, 1),
    ]
    one_by_one = {"prefill__cache_tokens": 120, "prefill__max_batch_requests": 1}
    seen, done = prefill_seen(rows, column="queue_s", **one_by_one)
    assert seen == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.103, 0.011])
    assert done.rows.hit_tokens[3] == 0
