"""What admission policies do under overload, on the conversation trace at twice its speed."""

from __future__ import annotations

import pytest

from cacheenv import load_scenario, simulate


@pytest.mark.slow
def test_counting_who_waits_at_decode_refuses_in_time(conversation_trace):
    """Two decode instances, TTFT 30 s, tail of the gaps 0.1 s; some 14 prompts are too long for the TTFT alone."""
    changes = {
        "workload": {"kind": "mooncake", "trace": str(conversation_trace), "rate_scale": 2.0},
        "cluster.decode.count": 2,
        "slo.ttft_s": 30.0,
        "slo.tbt_tail_s": 0.1,
    }
    scenario = load_scenario("kimi-chat", changes)
    alone = simulate(scenario, "mooncake").summary["slo_attainment"]
    met = {}
    for name in ("early_reject", "late_reject", "predictive_reject"):
        summary = simulate(scenario, f"mooncake+{name}").summary
        refused = summary["rejected"] + summary["rejected_late"]
        assert 80 < refused < 400, name
        assert (summary["wasted_prefill_tokens"] > 0) == (name == "late_reject")
        met[name] = summary["slo_attainment"]
    assert min(met.values()) > alone + 0.2, (alone, met)


@pytest.mark.slow
def test_kv_reject_sees_the_decode_memory():
    """Above the rate that the decode memory of `long-context` holds, early rejection leaves requests without room."""
    scenario = load_scenario("long-context", {"workload.rate_rps": 1.4})
    late, met = {}, {}
    for name in ("early_reject", "kv_reject"):
        runs = [simulate(scenario, f"mooncake+{name}", seed=seed) for seed in range(3)]
        late[name] = sum(int((run.requests.tpot_s > 0.05).sum()) for run in runs)
        met[name] = sum(run.summary["slo_attainment"] for run in runs) / 3
    assert late["kv_reject"] < 0.5 * late["early_reject"], late
    assert met["kv_reject"] > met["early_reject"], met
