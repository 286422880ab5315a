"""When a prompt's KV is at its decode instance: pieces, layers, fixed costs; first tokens and the schedule, by hand."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from tiny_cluster import Script, requests, run, tiny

from cacheenv.physics import load_preset, prefill_seconds
from cacheenv.scenario import load_scenario
from cacheenv.workload import Workload

CLOSE = {"rel": 1e-9}


def in_pieces(handover, gbytes_per_s, prompt=3000, **network):
    """From the end of the prefill to that of the hand-over, s: pieces of 1000 tokens, of 1 s and 1 GB, 10 layers."""
    settings = {f"network__{name}": value for name, value in network.items()}
    scenario = tiny(
        prefill__chunk_tokens=1000, prefill__batch_tokens=1000, network__layers=10, network__handover=handover,
        network__nic_gbytes_per_s=gbytes_per_s, **settings,
    )  # fmt: skip
    done = run(scenario, requests([(0.0, prompt, 2)]))
    assert done.rows[0].prefill_end_s == pytest.approx(prompt / 1000, **CLOSE)
    assert done.result.instances[0].bytes_out == pytest.approx(prompt * 1e6, **CLOSE)
    return done.rows[0].transfer_end_s - done.rows[0].prefill_end_s


@pytest.mark.parametrize(
    ("handover", "gbytes_per_s", "visible_s"),
    [
        # 2 GB/s: the pieces are sent until 1.5 and 2.5 s. From 2.5 on 9 layers of the last, 0.9 GB: 2.95 s. The last
        # layer, 0.1 GB, from 3 s on.
        ("chunked", 2.0, 0.05),
        # 0.8 GB/s: the link never rests from 1 s on: 1 + 3 / 0.8 = 4.75 s.
        ("chunked", 0.8, 1.75),
        # 1.05 GB/s: 1 GB until 1.952 and, from 2, until 2.952 s; the last GB, from then on, is the slower one.
        ("chunked", 1.05, 2.0 / 1.05 - 1.0),
        # Nothing before 2.1 s, when the first layer of the last batch is computed: 2.7 GB until 3.45 s, then 0.3 GB.
        ("last_chunk", 2.0, 0.6),
        ("blocking", 2.0, 1.5),
    ],
)
def test_a_prompt_in_three_pieces(handover, gbytes_per_s, visible_s):
    assert in_pieces(handover, gbytes_per_s) == pytest.approx(visible_s, **CLOSE)


def test_a_short_last_piece_waits_for_the_one_before_it():
    # 2 s for 2 pieces, 0.2 s for the last 200 tokens. The second piece is sent from 2 to 2.5 s, then the rest, 0.2 GB.
    assert in_pieces("chunked", 2.0, prompt=2200) == pytest.approx(2.6 - 2.2, **CLOSE)
    # All 2.2 GB behind 0.2 s of computing: 1.98 GB from 2.02 to 3.01 s, then 0.22 GB.
    assert in_pieces("last_chunk", 2.0, prompt=2200) == pytest.approx(3.12 - 2.2, **CLOSE)


def test_a_hand_over_has_fixed_costs_of_its_own():
    # Set-up is a pull's; pages (of a token here) are paid for the piece that is sent last; 3 GB are loaded at 6 GB/s.
    costs = {"setup_s": 7.0, "handover_fixed_s": 0.05, "per_block_s": 1e-4, "handover_load_gbytes_per_s": 6.0}
    assert in_pieces("chunked", 2.0, **costs) == pytest.approx(0.05 + 0.05 + 1000e-4 + 0.5, **CLOSE)
    assert in_pieces("blocking", 2.0, **costs) == pytest.approx(1.5 + 0.05 + 3000e-4 + 0.5, **CLOSE)
    assert in_pieces("blocking", 2.0, setup_s=0.25) == pytest.approx(1.5 + 0.25, **CLOSE)


def test_the_cached_prefix_is_sent_with_the_first_piece():
    # 1500 of 3500 tokens are cached; two pieces of 1 s. 2.5 GB from 11 s on at 2 GB/s: 12.25 s; at 12 s all of the last
    # piece but a layer is there, so that the link goes on: 3.5 GB end at 12.75 s.
    scenario = tiny(
        prefill__chunk_tokens=1000, prefill__batch_tokens=1500, network__layers=10, network__handover="chunked",
        network__nic_gbytes_per_s=2.0,
    )  # fmt: skip
    prefix = range(1500)
    done = run(scenario, requests([(0.0, prefix, 1), (10.0, [*prefix, *range(5000, 7000)], 2)]))
    assert done.rows.hit_tokens[1] == 1500
    assert done.rows.prefill_end_s[1] == pytest.approx(12.0, **CLOSE)
    assert done.rows.transfer_end_s[1] == pytest.approx(12.75, **CLOSE)


def test_nothing_is_sent_for_a_request_of_one_token():
    scenario = tiny(prefill__chunk_tokens=10, prefill__batch_tokens=10, network__handover="chunked")
    done = run(scenario, requests([(0.0, 100, 1)]))
    assert done.result.instances.bytes_out.tolist() == [0.0, 0.0, 0.0]


def test_a_long_prompt_on_a_slow_link():
    """17 pieces of 8,192 tokens and 400 more, 327,680 bytes a token, 22 GB/s: 2.08 s of sending, 0.12 s a piece."""
    tokens = 17 * 8192 + 400
    preset = load_preset("llama2-70b_8xA800_mooncake")
    visible_s = {}
    for handover in ("last_chunk", "chunked"):
        network = {"nic_gbytes_per_s": 22.0, "handover": handover, "setup_s": 0.0, "handover_load_gbytes_per_s": None}
        scenario = load_scenario("kimi-chat", {"cluster.network": network})
        work = Workload.from_arrays([0.0], [tokens], [2], [list(range(-(-tokens // 512)))], page_tokens=512)
        row = run(scenario, work, **asdict(preset)).rows[0]
        visible_s[handover] = row.transfer_end_s - row.prefill_end_s
    send_s = tokens * 327_680 / 22e9
    # Behind the last 400 tokens there is time to send a tenth.
    assert visible_s["last_chunk"] == pytest.approx(send_s - prefill_seconds(preset, 400, 17 * 8192) * 79 / 80, **CLOSE)
    assert visible_s["last_chunk"] > 1.8
    # A piece takes 0.9 s or more to compute and 0.12 s to send: what is left is the last layer of 400 tokens.
    assert visible_s["chunked"] == pytest.approx(400 * 327_680 / 22e9 / 80, rel=1e-6)


def first_token(where, handover="blocking"):
    """100 tokens computed in 0.1 s, 0.1 GB at 1 GB/s, 3 steps of 10 ms."""
    scenario = tiny(
        first_token=where, network__nic_gbytes_per_s=1.0, network__handover=handover, response_overhead_s=0.5,
        slo__ttft_s=0.65,
    )  # fmt: skip
    return run(scenario, requests([(0.0, 100, 4), (5.0, 100, 1)]))


def test_the_first_token_comes_from_the_prefill():
    rows = first_token("prefill").rows
    assert rows.ttft_s == pytest.approx([0.6, 0.6], **CLOSE)
    assert rows.tpot_s[0] == pytest.approx((0.1 + 0.03) / 3, **CLOSE)
    assert rows.tbt_tail_s[0] == pytest.approx(0.11, rel=0.025), "the first gap holds the hand-over"
    assert rows.slo_met.tolist() == [1, 1]


def test_the_first_token_comes_with_the_first_step_of_the_decode_instance():
    done = first_token("decode")
    rows = done.rows
    # Hand-over until 0.2 s, a step until 0.21 s, which makes the second token; a request of one token never gets there.
    assert rows.ttft_s == pytest.approx([0.21 + 0.5, 0.6], **CLOSE)
    assert rows.e2e_s[0] == pytest.approx(0.23 + 0.5, **CLOSE)
    assert rows.tpot_s[0] == pytest.approx(0.02 / 3, **CLOSE)
    assert rows.tbt_tail_s[0] == pytest.approx(0.01, rel=0.025), "gaps of 0, 10 and 10 ms"
    assert rows.slo_met.tolist() == [0, 1]
    assert (done.world.state[0].violated, done.world.state[0].met) == (1, 1)


def test_a_schedule_comes_before_the_prefill():
    # Routed at 1 s; batched at 1.05 s. The second comes while the first is computed, and is ready before it could run.
    scenario = tiny(prefill__schedule_s=0.05, prefill__max_batch_requests=1)
    rows = run(scenario, requests([(1.0, 100, 1), (1.06, 100, 1)])).rows
    assert rows.prefill_start_s == pytest.approx([1.05, 1.15], **CLOSE)
    assert rows.ttft_s == pytest.approx([0.15, 0.19], **CLOSE)


def test_a_pull_starts_after_the_schedule():
    # 100 tokens of 1 MB at 1 GB/s: from 2.05 to 2.15 s; then one token is computed.
    scenario = tiny(prefill__schedule_s=0.05, prefill__count=2, network__nic_gbytes_per_s=1.0)
    prompt = range(101)
    work = requests([(0.0, prompt, 1), (2.0, prompt, 1)])
    rows = run(scenario, work, Script([(0, 0), (1, 0, True)])).rows
    assert rows.pulled_tokens.tolist() == [0, 100]
    assert rows.prefill_start_s[1] == pytest.approx(2.15, **CLOSE)


@pytest.mark.parametrize("handover", ["chunked", "last_chunk", "blocking"])
@pytest.mark.parametrize("gbytes_per_s", [0.5, 50.0])
def test_the_forecast_of_the_first_token_is_right_on_an_idle_cluster(handover, gbytes_per_s):
    scenario = tiny(
        first_token="decode", prefill__schedule_s=0.05, network__handover=handover, network__layers=10,
        network__nic_gbytes_per_s=gbytes_per_s, network__handover_fixed_s=0.02, network__per_block_s=1e-5,
        network__handover_load_gbytes_per_s=20.0,
    )  # fmt: skip
    forecasts = []

    def watch(view):
        assert view.cluster[0].schedule_s == 0.05
        forecasts.append(0.05 + view.prefill[0].prefill_s + view.prefill[0].delivery_s)

    done = run(scenario, requests([(0.0, 300, 5)]), Script([(0, 0)], watch=watch), decode_f_s=1e-5)
    assert forecasts == pytest.approx(done.rows.ttft_s.tolist(), **CLOSE)
