"""The summary against hand-made records: every formula once by hand."""

import math

import numpy as np
import pytest

from cacheenv.run.metrics import COMPLETED, METRICS, REJECTED, REJECTED_LATE, TOO_LARGE, UNFINISHED, summarize

FLOATS = [
    "arrival_s", "routed_s", "prefill_start_s", "prefill_end_s", "transfer_end_s", "decode_start_s", "finish_s",
    "ttft_s", "tpot_s", "tbt_p99_s", "tbt_tail_s", "e2e_s",
]  # fmt: skip
INTS = [
    "prompt_tokens", "output_tokens", "hit_tokens", "hit_gpu_tokens", "hit_host_tokens", "hit_predicted_tokens",
    "hit_available_tokens", "pulled_tokens", "migrated_tokens", "rework_tokens", "preemptions", "migrations",
    "outcome", "slo_met", "counted", "retries",
]  # fmt: skip
INSTANCE = np.dtype(
    [(name, "i8") for name in ("kind", "index", "tokens", "replicas", "replicated_tokens")]
    + [(name, "f8") for name in ("busy_s", "bytes_out", "bytes_in", "nic_bytes_per_s")]
)


def records(*rows):
    table = np.zeros(len(rows), [(name, "f8") for name in FLOATS] + [(name, "i8") for name in INTS])
    for name in FLOATS[1:]:
        table[name] = np.nan
    table["counted"] = 1
    for index, row in enumerate(rows):
        for name, value in row.items():
            table[name][index] = value
    return table


def instances(*rows):
    table = np.zeros(len(rows), INSTANCE)
    table["nic_bytes_per_s"] = 100.0
    for index, row in enumerate(rows):
        for name, value in row.items():
            table[name][index] = value
    return table


def done(arrival_s, ttft_s, e2e_s, **more):
    return {
        "arrival_s": arrival_s, "routed_s": arrival_s, "prefill_start_s": arrival_s,
        "prefill_end_s": arrival_s + ttft_s,
        "finish_s": arrival_s + e2e_s, "ttft_s": ttft_s, "e2e_s": e2e_s, "tpot_s": 0.1, "tbt_tail_s": 0.2,
        "prompt_tokens": 100, "outcome": COMPLETED, "slo_met": 1, **more,
    }  # fmt: skip


def summary(table, hosts=None, kv=1e9, decode_kv=2e9, **more):
    hosts = instances() if hosts is None else hosts
    return summarize(table, hosts, kv_bytes_per_token=kv, decode_kv_bytes_per_token=decode_kv, **more)


def test_names_and_types():
    result = summary(records(done(0.0, 1.0, 2.0)))
    assert list(result) == list(METRICS)
    assert {type(value) for value in result.values()} == {int, float}


def test_latencies_over_requests_not_over_averages():
    table = records(*(done(0.0, float(value), 10.0 + value) for value in range(101)))
    result = summary(table)
    assert result["ttft_mean_s"] == pytest.approx(50.0)
    assert (result["ttft_p50_s"], result["ttft_p90_s"], result["ttft_p99_s"]) == pytest.approx((50.0, 90.0, 99.0))
    assert result["e2e_p90_s"] == pytest.approx(100.0)
    assert result["tbt_tail_p99_s"] == pytest.approx(0.2)
    assert result["tpot_mean_s"] == pytest.approx(0.1)


def test_percentile_interpolates():
    assert summary(records(done(0, 1.0, 2.0), done(0, 2.0, 3.0)))["ttft_p90_s"] == pytest.approx(1.9)


def test_slo_goodput_throughput_and_outcomes():
    table = records(
        done(10.0, 1.0, 5.0),
        done(12.0, 1.0, 8.0, slo_met=0),
        {"arrival_s": 25.0, "routed_s": 25.0, "outcome": REJECTED},
        {"arrival_s": 11.0, "outcome": TOO_LARGE},
    )
    result = summary(table)
    assert result["makespan_s"] == pytest.approx(15.0)  # first arrival 10, the rejection at 25 is the last event
    assert result["slo_attainment"] == pytest.approx(1 / 3)
    assert result["goodput_rps"] == pytest.approx(1 / 15)
    assert result["throughput_rps"] == pytest.approx(2 / 15)
    assert [result[name] for name in ("requests", "completed", "rejected", "too_large", "unfinished")] == [
        4,
        2,
        1,
        1,
        0,
    ]


def test_copies_of_all_instances():
    hosts = instances({"replicas": 2, "replicated_tokens": 300}, {"replicas": 1, "replicated_tokens": 40}, {"kind": 2})
    result = summary(records(done(0, 1, 2)), hosts)
    assert (result["replicas"], result["replicated_tokens"]) == (3, 340)


def test_hit_rates_over_admitted_requests_only():
    table = records(
        done(0, 1, 2, hit_tokens=40, hit_predicted_tokens=50, hit_available_tokens=80),
        done(0, 1, 2, prompt_tokens=300, hit_tokens=4),  # a hit that nobody promised makes up for nothing
        {"arrival_s": 0.0, "outcome": REJECTED, "prompt_tokens": 1000, "hit_available_tokens": 900},
    )
    table["hit_gpu_tokens"], table["hit_host_tokens"] = [8, 4, 0], [32, 0, 0]
    result = summary(table)
    assert result["hit_rate"] == pytest.approx(44 / 400)
    assert (result["hit_rate_gpu"], result["hit_rate_host"]) == pytest.approx((12 / 400, 32 / 400))
    assert result["hit_rate_missed"] == pytest.approx(10 / 400)
    assert result["hit_rate_predicted"] == pytest.approx(50 / 400)
    assert result["hit_rate_available"] == pytest.approx(80 / 400)


def test_warm_up_rows_do_not_count():
    table = records(done(0.0, 100.0, 200.0, counted=0, preemptions=5), done(50.0, 1.0, 10.0))
    result = summary(table)
    assert (result["requests"], result["preemptions"]) == (1, 0)
    assert result["ttft_mean_s"] == pytest.approx(1.0)
    assert result["makespan_s"] == pytest.approx(10.0)


def test_cut_off_runs_leave_out_what_has_not_arrived():
    table = records(
        done(0.0, 1.0, 5.0),
        {"arrival_s": 6.0, "routed_s": 6.0, "prefill_start_s": 6.0, "prefill_end_s": 9.0, "outcome": UNFINISHED},
        {"arrival_s": 100.0, "outcome": UNFINISHED},
    )
    result = summary(table)
    assert (result["requests"], result["unfinished"]) == (2, 1)
    assert result["makespan_s"] == pytest.approx(9.0)
    assert result["slo_attainment"] == pytest.approx(0.5)


def test_load_balance():
    hosts = instances(
        {"kind": 0, "busy_s": 3.0}, {"kind": 0, "busy_s": 1.0}, {"kind": 1, "busy_s": 2.0}, {"kind": 1, "busy_s": 2.0}
    )
    result = summary(records(done(0, 1, 2)), hosts, decode_load=(50.0, 100.0))
    assert result["load_imbalance_prefill"] == pytest.approx(1.5)
    assert result["load_cv_prefill"] == pytest.approx(0.5)
    assert result["load_imbalance_decode"] == pytest.approx(1.0)
    assert (result["load_variance_decode"], result["load_cv_decode"]) == pytest.approx((100.0, 0.2))


def test_bytes_and_links():
    hosts = instances({"kind": 0, "bytes_out": 1000.0}, {"kind": 1, "bytes_in": 1000.0}, {"kind": 0}, {"kind": 2})
    table = records(done(0.0, 1.0, 10.0, pulled_tokens=3, migrated_tokens=4, migrations=2, rework_tokens=7))
    result = summary(table, hosts)
    assert result["link_utilisation"] == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    assert (result["pulled_gbytes"], result["migrated_gbytes"]) == pytest.approx((3.0, 8.0))
    assert (result["migrations"], result["rework_tokens"]) == (2, 7)


def test_link_utilisation_is_over_the_whole_run_as_the_bytes_are():
    hosts = instances({"kind": 0, "bytes_out": 1000.0})
    table = records(done(0.0, 1.0, 5.0, counted=0), done(5.0, 1.0, 5.0))
    assert summary(table, hosts)["link_utilisation"] == pytest.approx(0.5)


def test_one_token_outputs_have_no_gap():
    result = summary(records(done(0, 1, 1, tpot_s=math.nan), done(0, 1, 2, tpot_s=0.3)))
    assert result["tpot_mean_s"] == pytest.approx(0.3)


@pytest.mark.filterwarnings("error")
def test_nothing_to_measure_is_nan_not_a_crash():
    result = summary(records())
    assert (result["requests"], result["completed"]) == (0, 0)
    for name in ("ttft_mean_s", "slo_attainment", "goodput_rps", "hit_rate", "link_utilisation", "makespan_s"):
        assert math.isnan(result[name])
    only_large = summary(records({"arrival_s": 1.0, "outcome": TOO_LARGE}))
    assert only_large["too_large"] == 1
    assert math.isnan(only_large["slo_attainment"])


def test_what_is_refused_after_its_prefill_is_not_met_and_its_prefill_is_wasted():
    late = {
        "outcome": REJECTED_LATE,
        "prefill_start_s": 1.0,
        "prefill_end_s": 5.0,
        "prompt_tokens": 90,
        "hit_tokens": 30,
    }
    result = summary(records(done(0.0, 1.0, 10.0), late, {"outcome": REJECTED, "arrival_s": 2.0}))
    assert (result["rejected"], result["rejected_late"], result["wasted_prefill_tokens"]) == (1, 1, 60)
    assert result["slo_attainment"] == pytest.approx(1 / 3)
    assert result["ttft_mean_s"] == 1.0
    assert result["hit_rate"] == pytest.approx(30 / 190)
