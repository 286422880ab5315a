"""Instances of different hardware in one cluster, worked out by hand."""

import numpy as np
import pytest
from tiny_cluster import Script, requests, run, tiny

import cacheenv
from cacheenv.scenario import load_scenario

ROUTERS = (
    "random round_robin least_requests power_of_two longest_prefix least_backlog lmetric sglang mooncake_local "
    "mooncake cpd random/least_kv random/llumnix_dispatch+llumnix least_backlog/star_placement+star"
).split()

PREFILL, DECODE = {"role": "prefill"}, {"role": "decode"}


def test_batches_and_pieces_are_the_instances_own():
    """1 ms a token. The first instance computes 100 tokens in one batch, the second one, 2 ms a token, in four of 25.

    A batch takes 10 ms more: .11 s, and 4 x (.05 + .01) = .24 s.
    """
    scenario = tiny(instances=[PREFILL, {**PREFILL, "chunk_tokens": 25}, DECODE])
    done = run(
        scenario,
        requests([(0.0, 100, 2), (0.0, 100, 2)]),
        Script([(0, 0), (1, 0)]),
        prefill=[{}, {"prefill_b_s": 2e-3}],
        prefill_a_s=0.01,
    )
    assert done.rows["prefill_end_s"] == pytest.approx([0.11, 0.24])


def test_the_queue_is_the_instances_own():
    """Three wait behind 100 tokens, one a batch; the third one's prompt is that which is cached then.

    `lpm` takes it first, `fcfs` last. Times: 100 ms, then cold ones of 50 ms each, and 1 ms for the cached one.
    """
    shared = list(range(100))
    rows = [(0.0, shared, 2), (0.01, 50, 2), (0.02, 50, 2), (0.03, [*shared, 1000], 2)]
    one_by_one = {"prefill__max_batch_requests": 1, "prefill__lpm_check_tokens": -1}
    scenario = tiny(instances=[PREFILL, {**PREFILL, "queue": "lpm"}, DECODE], **one_by_one)
    ends = [run(scenario, requests(rows), Script([(p, 0)])).rows["prefill_end_s"] for p in (0, 1)]
    assert ends[0] == pytest.approx([0.1, 0.15, 0.2, 0.201])
    assert ends[1] == pytest.approx([0.1, 0.151, 0.201, 0.101])


def test_batch_places_and_steps_are_the_decode_instances_own():
    """Two requests of 11 tokens: ten steps of 10 ms. With one place the second starts when the first has ended.

    The other instance takes 20 ms a step and both at once.
    """
    scenario = tiny(instances=[PREFILL, {**DECODE, "max_batch": 1}, {**DECODE, "max_batch": 2}])
    rows = requests([(0.0, 1, 11)] * 4)
    done = run(
        scenario, rows, Script([(0, 0), (0, 0), (0, 1), (0, 1)]), decode=[{}, {"decode_d_s": 0.02}], prefill_b_s=0.0
    )
    assert done.rows["finish_s"] == pytest.approx([0.1, 0.2, 0.2, 0.2])
    assert len(done.world.slot) == 3, "places of all batches together"


def test_the_slower_end_of_a_transfer_counts():
    """100 MB at 1 and at .5 GB/s, set-up .01 and .03 s: .23 s either way, .11 between two of the first kind."""
    fast, slow = {"nic_gbytes_per_s": 1.0, "setup_s": 0.01}, {"nic_gbytes_per_s": 0.5, "setup_s": 0.03}
    scenario = tiny(instances=[{**PREFILL, **fast}, {**PREFILL, **slow}, {**DECODE, **fast}, {**DECODE, **slow}])
    for pair, transfer_s in (((0, 0), 0.11), ((0, 1), 0.23), ((1, 0), 0.23), ((1, 1), 0.23)):
        done = run(scenario, requests([(0.0, 100, 2)]), Script([pair]), prefill_b_s=0.0)
        assert done.rows["transfer_end_s"][0] == pytest.approx(transfer_s), pair


def test_copies_of_kv_move_between_groups_of_one_size_only():
    """1 MB a token and two copies: 100 tokens over 1 GB/s take .2 s to as many GPUs, .1 s to others, once."""
    scenario = tiny(instances=[PREFILL, DECODE, DECODE], network__nic_gbytes_per_s=1.0)
    doubled = {"kv_copies": 2, "tensor_parallel": 8}
    sizes = {"prefill": [doubled], "decode": [doubled, {"kv_copies": 1, "tensor_parallel": 4}]}
    for d, transfer_s, sent in ((0, 0.2, 2e8), (1, 0.1, 1e8)):
        done = run(scenario, requests([(0.0, 100, 2)]), Script([(0, d)]), prefill_b_s=0.0, **sizes)
        assert done.rows["transfer_end_s"][0] == pytest.approx(transfer_s)
        assert done.result.instances["bytes_out"][0] == sent


def test_an_answer_goes_back_as_the_decode_instance_holds_it():
    """Eight tokens of the answer's nine, two copies of 1 MB there, one here: 8 MB to another size, 16 to the same."""
    scenario = tiny(instances=[PREFILL, DECODE])
    rows = requests([(0.0, [1, 2], list(range(10, 19)))])
    for tensor_parallel, sent in ((4, 8e6), (8, 16e6)):
        done = run(
            scenario,
            rows,
            prefill=[{"tensor_parallel": tensor_parallel}],
            decode=[{"kv_copies": 2, "tensor_parallel": 8}],
        )
        assert done.result.instances["bytes_in"][0] == sent


def test_who_is_too_small_is_masked():
    """A prompt of 60 tokens and 20 of output: caches of 50 and 100 tokens, decode memory of 70 and 90."""
    small = {"cache_tokens": 50}
    scenario = tiny(instances=[{**PREFILL, **small}, PREFILL, {**DECODE, "kv_tokens": 70}, {**DECODE, "kv_tokens": 90}])
    seen = []

    def look(view):
        seen.append((view.prefill["accepts"].tolist(), view.decode["accepts"].tolist()))
        return 1, 1

    done = run(scenario, requests([(0.0, 60, 20), (0.0, 60, 10), (0.0, 50, 20), (0.0, 60, 31)]), Script([look]))
    assert seen == [([0, 1], [0, 1]), ([0, 1], [1, 1]), ([1, 1], [1, 1])]
    assert done.rows["outcome"].tolist() == [1, 1, 1, 3], "91 tokens fit nowhere"


def test_a_request_is_not_moved_where_it_will_not_fit():
    """It holds 20 tokens and will hold 70: the instance of 60 is no destination, that of 80 is."""
    scenario = tiny(
        instances=[PREFILL, DECODE, {**DECODE, "kv_tokens": 60}, {**DECODE, "kv_tokens": 80}], reschedule__period_s=0.1
    )
    legal = []

    def moves(view, mask):
        legal.append(np.flatnonzero(mask[:-1] & (view.candidate["valid"] == 1).repeat(3)) % 3)
        return len(mask) - 1

    run(scenario, requests([(0.0, 10, 60)]), Script(moves=moves), prefill_b_s=0.0)
    assert {tuple(targets) for targets in legal} == {(2,)}
    alone = tiny(instances=[PREFILL, DECODE, {**DECODE, "kv_tokens": 60}], reschedule__period_s=0.1)
    legal.clear()
    run(alone, requests([(0.0, 10, 60)]), Script(moves=moves), prefill_b_s=0.0)
    assert not legal, "a tick without a legal move is no decision"


def test_host_memory_may_be_some_instances_own():
    """The prompt of 40 tokens goes to host memory of the first instance and is loaded after the cache has lost it.

    The second instance has none and computes it again: 1 ms a token.
    """
    roomy = {"cache_tokens": 45}
    groups = [{**PREFILL, **roomy, "host_cache_tokens": 200, "host_gbytes_per_s": 1e12}, {**PREFILL, **roomy}, DECODE]
    scenario = tiny(instances=groups, prefill__load="blocking")
    prompt = list(range(40))
    rows = [(0.0, prompt, 2), (1.0, 45, 2), (2.0, prompt, 2)]
    for p, hit in ((0, 39), (1, 0)):
        done = run(scenario, requests(rows), Script([(p, 0)]))
        assert done.rows["hit_host_tokens"].tolist() == [0, 0, hit]
        assert done.rows["prefill_end_s"][2] == pytest.approx(2.04 - 0.001 * hit)


@pytest.mark.parametrize("name", ROUTERS)
def test_routers_stay_legal_where_some_instances_are_small(name):
    """Half of the instances are too small for many prompts; nobody falls back, and all that fits is served."""
    groups = [
        {**PREFILL, "count": 2, "cache_tokens": 4096}, {**PREFILL, "count": 2},
        {**DECODE, "count": 2, "kv_tokens": 4096, "reserve_tokens": 64}, {**DECODE, "count": 2},
    ]  # fmt: skip
    scenario = load_scenario(
        "kimi-chat", {"cluster.instances": groups, "workload.requests": 40, "warmup_requests": 0, "warmup_share": 0.0}
    )
    result = cacheenv.simulate(scenario, name, 1)
    assert result.invalid_decisions == 0
    assert (result.requests["outcome"] == 1).all()
    assert len(set(result.requests["prefill_instance"])) > 1
