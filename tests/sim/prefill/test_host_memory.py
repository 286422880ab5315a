"""Host memory behind the GPUs of a prefill instance: what a hit there costs, and what gets there."""

from __future__ import annotations

import numpy as np
import pytest
from engine_invariants import check_end, check_world
from tiny_cluster import Script, requests, run, tiny

from cacheenv import load_scenario
from cacheenv.errors import InputError

#: A GPU for 100 tokens; 1 MB a token over 1 GB/s of host link: 1 ms a token to load, as to compute.
HOST = {"prefill__cache_tokens": 100, "prefill__host_cache_tokens": 1000, "prefill__host_gbytes_per_s": 1.0}
#: a is computed and pushed out of the GPU by b; a comes again.
A, B, C = range(60), range(100, 200), range(300, 400)
PUSHED_OUT = [(0.0, A, 1), (1.0, B, 1), (2.0, A, 1)]


def test_a_hit_in_host_memory_is_loaded_before_the_computing():
    """59 tokens at 1 ms each, 0.25 s of set-up, and the one token that is always computed."""
    done = run(tiny(**HOST, prefill__load="blocking", prefill__host_setup_s=0.25), requests(PUSHED_OUT))
    last = done.rows[2]
    assert (last.hit_gpu_tokens, last.hit_host_tokens, last.hit_tokens) == (0, 59, 59)
    assert last.ttft_s == pytest.approx(0.25 + 0.059 + 0.001)
    assert done.rows.hit_host_tokens.tolist() == [0, 0, 59]
    assert done.result.summary["hit_rate_host"] == pytest.approx(59 / 220)
    assert done.result.summary["hit_rate_gpu"] == 0.0
    check_end(done.worlds)


def test_layerwise_loading_hides_behind_the_computing_but_for_a_layer():
    """Of 10 layers: 59 ms of loading and 1 ms of computing, then 59 and 41 (100 tokens of which 59 are loaded)."""
    layers = {**HOST, "network__layers": 10}
    done = run(tiny(**layers), requests(PUSHED_OUT))
    assert done.rows[2].ttft_s == pytest.approx(0.059 + 0.001 / 10)
    done = run(tiny(**layers), requests([*PUSHED_OUT[:2], (2.0, [*A[:59], *range(-40, 0)], 1)]))
    assert done.rows[2].hit_host_tokens == 59
    assert done.rows[2].ttft_s == pytest.approx(0.059 + 0.04 / 10)
    done = run(tiny(**layers), requests([*PUSHED_OUT[:2], (2.0, [*A[:20], *range(-80, 0)], 1)]))
    assert done.rows[2].ttft_s == pytest.approx(0.08 + 0.02 / 10), "the computing is longer"


def test_prompts_of_a_batch_share_the_link_and_load_what_they_share_once():
    """30 + 40 tokens in one batch take 70 ms, and what the first has loaded is on the GPU for the second."""
    seeds = [(0.0, range(30), 1), (1.0, range(50, 90), 1), (2.0, B, 1)]
    done = run(tiny(**HOST, prefill__load="blocking"), requests([*seeds, (3.0, range(31), 1), (3.0, range(50, 91), 1)]))
    assert done.rows.hit_host_tokens.tolist() == [0, 0, 0, 30, 40]
    assert done.rows.ttft_s[3:] == pytest.approx([0.07 + 0.002] * 2)
    twins = [*seeds, (3.0, range(31), 1), (3.0, [*range(30), -1, -2], 1)]
    done = run(tiny(**HOST, prefill__load="blocking"), requests(twins))
    assert done.rows.hit_host_tokens[3:].tolist() == [30, 0]
    assert done.rows.hit_gpu_tokens[3:].tolist() == [0, 30]
    assert done.rows.ttft_s[3:] == pytest.approx([0.03 + 0.003] * 2)


def test_only_what_the_gpu_lacks_is_loaded():
    """80 tokens push the 40 newest of 60 out: 20 are left, 39 are loaded."""
    done = run(tiny(**HOST), requests([(0.0, A, 1), (1.0, range(100, 180), 1), (2.0, A, 1)]))
    assert (done.rows[2].hit_gpu_tokens, done.rows[2].hit_host_tokens) == (20, 39)


@pytest.mark.parametrize(
    ("policy", "on_host"),
    [
        # After a, b, a, b, a where the GPU holds one of them: what host memory had of a at its second and third coming.
        ("write_through", [59, 59]),
        # a leaves the GPU when b comes and is written then.
        ("write_back", [59, 59]),
        # One hit is needed, and a is pushed out before it has any.
        ("write_through_selective", [0, 0]),
    ],
)
def test_what_is_written(policy, on_host):
    rows = [(0.0, A, 1), (1.0, B, 1), (2.0, A, 1), (3.0, B, 1), (4.0, A, 1)]
    done = run(tiny(**HOST, prefill__host_write=policy), requests(rows))
    assert done.rows.hit_host_tokens[[2, 4]].tolist() == on_host
    check_end(done.worlds)


def test_selective_writing_counts_hits():
    """a is hit (30 of its tokens once, 10 twice) before it is pushed out: with one hit 30 are written, with two 10."""
    rows = [(0.0, range(40), 1), (1.0, [*range(30), -1], 1), (2.0, [*range(10), -2], 1), (3.0, B, 1), (4.0, A, 1)]
    for hits, written in ((1, 30), (2, 10), (3, 0)):
        settings = {"prefill__host_write": "write_through_selective", "prefill__host_write_after_hits": hits}
        done = run(tiny(**HOST, **settings), requests(rows))
        assert done.rows.hit_gpu_tokens.tolist() == [0, 30, 10, 0, 0]
        assert done.rows.hit_host_tokens[4] == written


def test_write_back_writes_nothing_before_the_eviction():
    sizes = []
    done = run(
        tiny(**HOST, prefill__host_write="write_back"),
        requests([(0.0, A, 1), (1.0, B, 1), (2.0, C, 1)]),
        Script(),
        watch=lambda worlds: sizes.append(int(worlds.world(0).tree["pages"][-1])),
    )
    assert sizes == [0, 0, 60, 160]
    assert done.rows.hit_tokens.sum() == 0


def test_write_back_takes_the_path_along():
    """Two prompts part after 20 tokens; b pushes first one's end out, then the other's: each goes with the head."""
    first, second = range(60), [*range(20), *range(-30, 0)]
    rows = [(0.0, first, 1), (1.0, second, 1), (2.0, B, 1), (3.0, first, 1), (4.0, B, 1), (5.0, second, 1)]
    done = run(tiny(**HOST, prefill__host_write="write_back"), requests(rows))
    assert done.rows.hit_gpu_tokens.tolist() == [0, 20, 0, 0, 40, 0]
    assert done.rows.hit_host_tokens.tolist() == [0, 0, 0, 59, 59, 49]
    check_end(done.worlds)


def test_t5_what_is_being_loaded_stays_in_host_memory():
    """Loading 59 of a pushes 60 of b's 100 out of the GPU; host memory has room for 41 of b's beside those 59."""
    settings = {**HOST, "prefill__host_cache_tokens": 100, "prefill__host_write": "write_back"}
    done = run(tiny(**settings), requests([*PUSHED_OUT, (3.0, B, 1)]))
    assert done.rows.hit_host_tokens.tolist() == [0, 0, 59, 1]
    assert done.rows.hit_gpu_tokens.tolist() == [0, 0, 0, 40]
    check_end(done.worlds)


def test_host_memory_is_lru_and_bounded():
    """Of b's 100 tokens 70 fit, and push a out; a's 60 then push b's end out."""
    sizes = []
    done = run(
        tiny(**{**HOST, "prefill__host_cache_tokens": 70}),
        requests([*PUSHED_OUT, (3.0, C, 1)]),
        Script(),
        watch=lambda worlds: sizes.append(int(worlds.world(0).tree["pages"][-1])),
    )
    assert sizes == [0, 60, 70, 70, 70]
    assert done.rows.hit_tokens.tolist() == [0, 0, 0, 0]
    check_end(done.worlds)


def test_forecasts_contain_the_load():
    seen = []
    script = Script([(0, 0)], watch=lambda view: seen.append(view.prefill[0].copy()))
    done = run(tiny(**HOST, prefill__load="blocking"), requests(PUSHED_OUT), script)
    assert seen[2].hit_tokens == 59
    assert seen[2].prefill_s == pytest.approx(0.059 + 0.001)
    assert seen[2].prefill_s == pytest.approx(done.rows[2].ttft_s)
    assert done.rows.hit_predicted_tokens.tolist() == [0, 0, 59]


def test_pulls_come_from_host_memory_and_arrive_there():
    """1 pulls a's 59 tokens from the host of 0 at 1 GB/s, then loads them."""
    settings = {**HOST, "prefill__count": 2, "network__nic_gbytes_per_s": 1.0, "prefill__load": "blocking"}
    seen = []
    script = Script([(0, 0), (0, 0), (1, 0, True)], watch=lambda view: seen.append(view.prefill.copy()))
    done = run(tiny(**settings), requests(PUSHED_OUT), script, watch=check_world)
    row = done.rows[2]
    assert (row.pulled_tokens, row.hit_host_tokens, row.hit_gpu_tokens) == (59, 59, 0)
    assert row.ttft_s == pytest.approx(0.059 + 0.059 + 0.001)
    assert seen[2]["prefill_pull_s"][1] == pytest.approx(0.059 + 0.001)
    check_end(done.worlds)


def test_what_the_gpu_has_already_is_not_pulled():
    """30 of 59 tokens are on the GPU of 1, nothing is in its host memory: 29 come over the network and are loaded."""
    settings = {**HOST, "prefill__count": 2, "prefill__host_write": "write_through_selective"}
    rows = [(0.0, A, 1), (1.0, [*range(30), -1], 1), (2.0, A, 1)]
    done = run(tiny(**settings), requests(rows), Script([(0, 0), (1, 0), (1, 0, True)]), watch=check_world)
    row = done.rows[2]
    assert (row.pulled_tokens, row.hit_gpu_tokens, row.hit_host_tokens) == (29, 30, 29)
    check_end(done.worlds)


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
def test_many_prompts_keep_the_accounts(policy):
    rng = np.random.default_rng(3)
    rows = []
    for number in range(300):
        shared, own = int(rng.integers(6)), int(rng.integers(1, 60))
        rows.append((0.01 * number, [*range(1000 * shared, 1000 * shared + int(rng.integers(40))), *range(-own, 0)], 2))
    settings = {**HOST, "prefill__host_cache_tokens": 150, "prefill__count": 2, "prefill__host_write": policy}
    turns = [(int(rng.integers(2)), 0, False) for _ in rows]
    done = run(tiny(**settings), requests(rows), Script(turns), watch=check_world)
    check_end(done.worlds)
    assert np.array_equal(done.rows.hit_gpu_tokens + done.rows.hit_host_tokens, done.rows.hit_tokens)
    assert done.rows.hit_host_tokens.sum() > 0


def test_the_gpu_holds_what_the_hardware_holds():
    assert load_scenario("kimi-chat").cluster.prefill.cache_tokens is None
    with pytest.raises(InputError, match="1434706 tokens that llama2-70b_8xA800_mooncake holds"):
        load_scenario("kimi-chat", {"cluster.prefill.cache_tokens": 1_434_707})
    load_scenario("kimi-chat", {"cluster.prefill.cache_tokens": 1_434_706})
