"""The latency formulas against published measurements and by hand."""

import csv

import pytest

from cacheenv.physics import (
    decode_step_seconds,
    load_break_even_tokens,
    load_link,
    load_preset,
    prefill_batch_seconds,
    prefill_seconds,
    transfer_seconds,
    visible_transfer_seconds,
)

MOONCAKE = load_preset("llama2-70b_8xA800_mooncake")
# Mooncake, FAST'25, figure 14, no cached prefix: prompt tokens -> prefill seconds, as digitised from the figure.
FIGURE_14_S = {8192: 1.005, 16384: 2.053, 32768: 4.478, 65536: 10.585, 131072: 27.517}


@pytest.mark.parametrize(("tokens", "seconds"), FIGURE_14_S.items())
def test_prefill_meets_figure_14(tokens, seconds):
    assert prefill_seconds(MOONCAKE, tokens) == pytest.approx(seconds, rel=0.05)


def test_prefill_and_decode_meet_the_figure_14_data(shared):
    path = shared / "calibration" / "mooncake_fast25" / "fig14_breakdown_prefix0.csv"
    if not path.is_file():
        pytest.skip("needs calibration/mooncake_fast25/fig14_breakdown_prefix0.csv in the shared folder")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["prompt_tokens"]) for row in rows] == list(FIGURE_14_S)
    for row in rows:
        tokens = int(row["prompt_tokens"])
        assert prefill_seconds(MOONCAKE, tokens) == pytest.approx(float(row["prefill_s"]), rel=0.05)
        step_s = decode_step_seconds(MOONCAKE, 1, tokens + 64)
        assert step_s == pytest.approx(float(row["decode_ms_per_token"]) / 1e3, rel=0.02)


def test_a_cached_prefix_saves_what_figure_14_says():
    # Printed with the figure: at 128k tokens a 95 % prefix saves 92 % of the prefill time.
    cached = int(131072 * 0.95)
    saved = 1.0 - prefill_seconds(MOONCAKE, 131072 - cached, cached) / prefill_seconds(MOONCAKE, 131072)
    assert saved == pytest.approx(0.92, abs=0.03)


def test_batch_formula_by_hand():
    a, b, c = MOONCAKE.prefill_a_s, MOONCAKE.prefill_b_s, MOONCAKE.prefill_c_s
    expected = a + b * (1000 + 16) + c * (1000**2 + 2 * 1000 * 512 + 16**2 + 2 * 675 * 4096)
    assert prefill_batch_seconds(MOONCAKE, [(1000, 512), (16, 4096)]) == pytest.approx(expected, rel=1e-12)
    assert prefill_seconds(MOONCAKE, 1) == MOONCAKE.min_prefill_s > a + b


def test_a_short_suffix_over_a_long_prefix_costs_a_tile():
    few, tile = prefill_seconds(MOONCAKE, 8, 100_000), prefill_seconds(MOONCAKE, MOONCAKE.n_tile, 100_000)
    assert tile - few < 1.1 * MOONCAKE.prefill_b_s * MOONCAKE.n_tile
    assert prefill_seconds(MOONCAKE, 2 * MOONCAKE.n_tile, 100_000) - tile > 0.09


def test_decode_formula_by_hand():
    assert decode_step_seconds(MOONCAKE, 20, 300_000) == pytest.approx(
        0.02629 + 20 * 0.0001517 + 300_000 * 3.45e-8, rel=1e-12
    )


def test_transfer_is_setup_and_bytes_over_the_share():
    link = load_link("rdma_4x200g_storage_path")
    # Figure 14 again: 42.9 GB (a 128k prompt) in 0.915 s.
    assert transfer_seconds(MOONCAKE, link, 131072) == pytest.approx(0.915, rel=0.01)
    two = transfer_seconds(MOONCAKE, link, 131072, flows=2)
    assert two - link.setup_s == pytest.approx(2 * (transfer_seconds(MOONCAKE, link, 131072) - link.setup_s))


def test_overlap_hides_all_but_the_last_layer_or_the_excess():
    assert visible_transfer_seconds(10.0, 0.8, 80, 0.001) == pytest.approx(0.001 + 0.01)
    assert visible_transfer_seconds(1.0, 3.0, 80, 0.001) == pytest.approx(0.001 + 3.0 - 79 / 80)


def test_break_even_solves_its_equation():
    preset, link = load_preset("llama3-70b_8xH100"), load_link("rdma_1x100g")
    tokens = load_break_even_tokens(preset, link)
    compute_s = preset.prefill_b_s * tokens + preset.prefill_c_s * tokens**2
    load_s = link.setup_s + tokens * preset.kv_bytes_per_token / (link.gbytes_per_s * 1e9)
    assert compute_s == pytest.approx(load_s, rel=1e-9)
    assert 30 < tokens < 34  # 32 in the calibration's table
