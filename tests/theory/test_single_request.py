"""Times of requests that meet nobody, by hand: first token, gaps, hand-over, and how they add up."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_cluster import requests, run, tiny

PHYSICS = {
    "prefill_a_s": 0.01,
    "prefill_b_s": 1e-4,
    "prefill_c_s": 1e-8,
    "min_prefill_s": 0.02,
    "n_tile": 64,
    "decode_d_s": 0.02,
    "decode_e_s": 0.003,
    "decode_f_s": 1e-6,
}
CLOSE = {"rel": 1e-12, "abs": 1e-12}


def test_first_token_and_gaps():
    done = run(tiny(response_overhead_s=0.5), requests([(3.0, 1000, 11)]), **PHYSICS)
    row = done.rows[0]
    prefill_s = 0.01 + 1e-4 * 1000 + 1e-8 * 1000**2  # 0.12
    steps = [0.02 + 0.003 + 1e-6 * (1001 + step) for step in range(10)]
    assert row.prefill_end_s == pytest.approx(3.0 + 0.12, **CLOSE)
    assert row.ttft_s == pytest.approx(prefill_s + 0.5, **CLOSE)
    assert row.tpot_s == pytest.approx(np.mean(steps), **CLOSE)
    assert row.e2e_s == pytest.approx(prefill_s + sum(steps) + 0.5, rel=1e-9)


def test_short_prompts_take_a_decode_step():
    row = run(tiny(), requests([(0.0, 5, 1)]), **PHYSICS).rows[0]
    assert row.ttft_s == pytest.approx(0.02, **CLOSE), "0.01 + 5e-4 is below the floor"


def test_a_cached_prefix_is_read_and_one_token_is_computed():
    prompt = range(2000)
    rows = run(
        tiny(), requests([(0.0, prompt, 1), (9.0, [*prompt, *range(-500, 0)], 1), (20.0, prompt, 1)]), **PHYSICS
    ).rows
    assert rows.hit_tokens.tolist() == [0, 2000, 1999]
    assert rows[1].ttft_s == pytest.approx(0.01 + 0.05 + 1e-8 * (500**2 + 2 * 500 * 2000), **CLOSE)
    assert rows[2].ttft_s == pytest.approx(max(0.02, 0.01 + 1e-4 + 1e-8 * (1 + 2 * 64 * 1999)), **CLOSE)


def test_chunks_cost_what_is_cached_before_them():
    scenario = tiny(prefill__chunk_tokens=400)
    row = run(scenario, requests([(0.0, 1000, 1)]), **{**PHYSICS, "n_tile": 300}).rows[0]
    pieces = [(400, 0), (400, 400), (200, 800)]
    expected = sum(0.01 + 1e-4 * n + 1e-8 * (n**2 + 2 * max(n, 300) * p) for n, p in pieces)
    assert row.ttft_s == pytest.approx(expected, rel=1e-9)


def test_chunks_are_whole_pages_but_for_the_last():
    """100 tokens in chunks of 40 and pages of 16: 32, 32 and the 36 that are left."""
    scenario = tiny(page_tokens=16, prefill__chunk_tokens=40)
    coefficients = {"prefill_b_s": 0.0, "prefill_c_s": 1.0, "n_tile": 64}  # without a tile the sum is 100^2 always
    row = run(scenario, requests([(0.0, 100, 1)], 16), **coefficients).rows[0]
    assert row.ttft_s == 32**2 + (32**2 + 2 * 64 * 32) + (36**2 + 2 * 64 * 64)


@pytest.mark.parametrize(
    ("gbytes_per_s", "visible_s"),
    [
        # 1000 tokens are 1 GB; the prefill takes 0.12 s, 10 layers, set-up 0.004 s and 1000 pages of 1e-6 s.
        (100.0, 0.005 + 0.001),  # hidden but for the last layer
        (5.0, 0.005 + 0.2 - 0.12 * 0.9),  # the link is the bottleneck
        (1.0 / 0.12, 0.005 + 0.12 - 0.12 * 0.9),  # both bounds meet
    ],
)
def test_handover_behind_the_prefill(gbytes_per_s, visible_s):
    network = {"network__nic_gbytes_per_s": gbytes_per_s, "network__setup_s": 0.004, "network__per_block_s": 1e-6}
    scenario = tiny(network__handover="last_chunk", network__layers=10, **network)
    row = run(scenario, requests([(1.0, 1000, 5)]), **PHYSICS).rows[0]
    assert row.transfer_end_s - row.prefill_end_s == pytest.approx(visible_s, rel=1e-9)
    assert row.decode_start_s == row.transfer_end_s
    plain = run(tiny(**network), requests([(1.0, 1000, 5)]), **PHYSICS).rows[0]
    assert plain.transfer_end_s - plain.prefill_end_s == pytest.approx(0.005 + 1.0 / gbytes_per_s, rel=1e-9)


def test_times_add_up():
    """End to end = wait + prefill + hand-over + wait for the batch + steps, of 300 requests that do meet."""
    rng = np.random.default_rng(8)
    arrival = np.cumsum(rng.exponential(0.2, 300))
    work = requests([(at, int(rng.integers(1, 2000)), int(rng.integers(1, 40))) for at in arrival])
    scenario = tiny(
        prefill__max_batch_requests=1, decode__kv_tokens=6000, network__nic_gbytes_per_s=20.0, network__setup_s=0.01
    )
    done = run(scenario, work, **PHYSICS)
    rows = done.rows
    new = rows.prompt_tokens - rows.hit_tokens
    batch_s = np.maximum(0.02, 0.01 + 1e-4 * new + 1e-8 * new.astype(float) ** 2)
    assert np.allclose(rows.prefill_end_s - rows.prefill_start_s, batch_s, rtol=1e-9)
    assert done.result.instances[0].busy_s == pytest.approx(batch_s.sum(), rel=1e-9)
    assert np.allclose(rows.ttft_s, (rows.prefill_start_s - rows.arrival_s) + batch_s, rtol=1e-9)
    assert np.allclose(rows.e2e_s - rows.ttft_s, rows.tpot_s * (rows.output_tokens - 1), rtol=1e-9, atol=1e-12)
    many = rows[rows.output_tokens > 1]
    assert (many.prefill_start_s > many.arrival_s).any() and (many.decode_start_s > many.transfer_end_s).any()
    alone_s = 0.01 + many.prompt_tokens / 20_000.0
    assert (many.transfer_end_s - many.prefill_end_s >= alone_s * (1 - 1e-9)).all()
    # The first gap holds the hand-over, the wait, and at least one step.
    assert (many.finish_s - many.decode_start_s >= (many.output_tokens - 1) * 0.023).all()
