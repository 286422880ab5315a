"""What is digested: runs of `simulate`, and walks through the environments; public names of the package only.

A case has an id and a function that returns its columns: arrays by name, the first axis counting requests, instances or
steps. `ALL` of them prove that a rebuilt simulator behaves as before; a small part stays as a test.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equality_walks as walks
import numpy as np

import cacheenv

Columns = dict[str, np.ndarray]

#: Routers of `cacheenv bench` where none are named.
BENCH_POLICIES = (
    "random round_robin least_requests longest_prefix sglang lmetric mooncake_local mooncake"
).split()  # fmt: skip
COMPOSITES = (
    "mooncake+early_reject",
    "mooncake/least_kv",
    "least_backlog+star",
    "lmetric+predictive_reject",
    "round_robin/power_of_two+llumnix",
    "sglang/least_requests+early_reject",
    "cpd+star_oracle",
    "random+star_variance",
)

CHAT = {"workload.requests": 300, "workload.rate_rps": 7.0}
LENGTHS = {"workload.requests": 250, "workload.rate_rps": 6.0}
PREFILL, DECODE, NETWORK = "cluster.prefill", "cluster.decode", "cluster.network"
ROUTERS = ("mooncake", "lmetric", "random")
MOVERS = ("least_backlog+star", "least_requests+llumnix")

#: Small caches, small decode memory, slow links, a store: every mechanism at once.
CROWDED = {
    **CHAT,
    "cluster.page_tokens": 256,
    f"{PREFILL}.count": 3,
    f"{PREFILL}.cache_tokens": 150_000,
    f"{DECODE}.count": 3,
    f"{DECODE}.kv_tokens": 130_000,
    f"{DECODE}.max_batch": 24,
    f"{DECODE}.reserve_tokens": 8,
    f"{NETWORK}.nic_gbytes_per_s": 20.0,
    "cluster.store.capacity_tokens": 200_000,
    "reschedule.period_s": 0.5,
    "workload.rate_rps": 3.0,
}

SMALL_MEMORY = {"cluster.index.memory_tokens": 20_000, f"{PREFILL}.queue": "lpm"}

#: Id -> (scenario, overrides, policies): mechanisms that the bundled scenarios leave alone.
VARIANTS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "index_delay": ("kimi-chat", {**CHAT, "cluster.index.delay_s": 3.0, f"{PREFILL}.cache_tokens": 300_000}, ROUTERS),
    "index_delay_store": ("long-context", {"workload.requests": 200, "cluster.index.delay_s": 1.0}, ROUTERS),
    "lpm": ("kimi-chat", {**CHAT, f"{PREFILL}.queue": "lpm", "workload.rate_rps": 12.0}, ROUTERS),
    "lpm_fallback": (
        "kimi-chat",
        {
            **CHAT, f"{PREFILL}.queue": "lpm", f"{PREFILL}.count": 2, f"{PREFILL}.lpm_fallback": 8,
            f"{PREFILL}.lpm_check_tokens": 1024, f"{PREFILL}.lpm_defer_tokens": 1500,
        },
        ROUTERS,
    ),
    "whole_prompts": ("kimi-chat", {**CHAT, f"{PREFILL}.chunk_tokens": 0}, ROUTERS),
    "small_chunks": (
        "kimi-chat",
        {**CHAT, f"{PREFILL}.chunk_tokens": 1024, f"{PREFILL}.batch_tokens": 3000, f"{PREFILL}.max_batch_requests": 2},
        ROUTERS,
    ),
    "large_batches": ("kimi-chat", {**CHAT, f"{PREFILL}.batch_tokens": 65536, f"{PREFILL}.count": 3}, ROUTERS),
    "store": ("kimi-chat", {**CHAT, "cluster.store.capacity_tokens": 2_000_000}, ROUTERS),
    "small_store": ("kimi-chat", {**CHAT, "cluster.store.capacity_tokens": 60_000}, ROUTERS),
    "store_without_writes": (
        "long-context",
        {"workload.requests": 200, "cluster.store.write_through": False},
        ROUTERS,
    ),
    "no_store": ("long-context", {"workload.requests": 200, "cluster.store.capacity_tokens": 0}, ROUTERS),
    "slow_store": (
        "long-context",
        {"workload.requests": 200, "cluster.store.nic_gbytes_per_s": 4.0, f"{NETWORK}.peer_pulls": False},
        ROUTERS,
    ),
    "no_overlap": ("kimi-chat", {**CHAT, f"{NETWORK}.handover": "blocking"}, ROUTERS),
    "one_layer": ("kimi-chat", {**CHAT, f"{NETWORK}.layers": 1}, ROUTERS),
    "no_peer_pulls": ("kimi-chat", {**CHAT, f"{NETWORK}.peer_pulls": False}, ROUTERS),
    "slow_links": (
        "kimi-chat",
        {**CHAT, f"{NETWORK}.nic_gbytes_per_s": 3.0, f"{NETWORK}.setup_s": 0.1, f"{NETWORK}.per_block_s": 0.002},
        ROUTERS,
    ),
    "link_preset": ("reasoning", {**LENGTHS, f"{NETWORK}.link": "rdma_4x200g_te"}, ROUTERS),
    "small_kv": ("reasoning", {**LENGTHS, f"{DECODE}.kv_tokens": 90_000, f"{DECODE}.reserve_tokens": 8}, MOVERS),
    "small_kv_swap": (
        "reasoning",
        {
            **LENGTHS, f"{DECODE}.kv_tokens": 90_000, f"{DECODE}.reserve_tokens": 8, f"{DECODE}.preemption": "swap",
            f"{DECODE}.swap_gbytes_per_s": 8.0,
        },
        MOVERS,
    ),
    "small_caches": ("kimi-chat", {**CHAT, f"{PREFILL}.cache_tokens": 140_000}, ROUTERS),
    "small_caches_lpm": (
        "kimi-chat",
        {**CHAT, f"{PREFILL}.cache_tokens": 140_000, f"{PREFILL}.queue": "lpm", f"{PREFILL}.count": 3},
        ("sglang", "sglang_struct", "longest_prefix"),
    ),
    "slow_moves": (
        "reasoning",
        {
            **LENGTHS, f"{NETWORK}.nic_gbytes_per_s": 0.5, f"{DECODE}.kv_tokens": 120_000, "reschedule.period_s": 0.2,
            "reschedule.stall_s": 0.5,
        },
        MOVERS,
    ),
    "many_candidates": (
        "reasoning",
        {
            **LENGTHS, "reschedule.candidates": 16, "reschedule.candidate_order": "shortest_kv",
            "prediction.kind": "weak",
        },
        ("round_robin+star", "least_requests+llumnix", "random+star_variance"),
    ),
    "horizon": ("kimi-chat", {**CHAT, "horizon_s": 25.0}, (*ROUTERS, "mooncake+star")),
    "horizon_reasoning": ("reasoning", {**LENGTHS, "horizon_s": 40.0, f"{DECODE}.kv_tokens": 90_000}, MOVERS),
    "warmup": ("kimi-chat", {**CHAT, "warmup_requests": 100, "horizon_s": 40.0}, ROUTERS),
    "prediction_oracle": ("reasoning", {**LENGTHS, "prediction.kind": "oracle"}, MOVERS),
    "prediction_weak": ("reasoning", {**LENGTHS, "prediction.kind": "weak"}, MOVERS),
    "prediction_none": ("reasoning", {**LENGTHS, "prediction.kind": "none"}, MOVERS),
    "prediction_tau": ("reasoning", {**LENGTHS, "prediction.tau_tokens": 900.0}, MOVERS),
    "join_stall": ("kimi-chat", {**CHAT, f"{DECODE}.join_stall_s": 0.04}, (*ROUTERS, "mooncake+star")),
    "response_overhead": ("kimi-chat", {**CHAT, "cluster.response_overhead_s": 0.35}, ROUTERS),
    "page_1": ("kimi-chat", {**CHAT, "workload.requests": 80, "cluster.page_tokens": 1}, ROUTERS),
    "page_16": ("kimi-chat", {**CHAT, "workload.requests": 150, "cluster.page_tokens": 16}, ROUTERS),
    "page_large": ("kimi-chat", {**CHAT, "cluster.page_tokens": 4096}, ROUTERS),
    "page_1_small_caches": (
        "reasoning",
        {**LENGTHS, "cluster.page_tokens": 1, f"{PREFILL}.cache_tokens": 9000},
        ("mooncake", "sglang"),
    ),
    "pre_prefill": ("kimi-chat", {**CHAT, f"{PREFILL}.pre_prefill": 3}, ("cpd", "mooncake", "cpd+star")),
    "pre_prefill_store": (
        "long-context",
        {"workload.requests": 200, f"{PREFILL}.pre_prefill": 2, "cluster.store.capacity_tokens": 500_000},
        ("cpd", "random"),
    ),
    "small_memory": ("kimi-chat", {**CHAT, "cluster.index.memory_tokens": 20_000}, ("lmetric", "mooncake", "random")),
    "small_batches": ("kimi-chat", {**CHAT, f"{DECODE}.max_batch": 6}, (*ROUTERS, "mooncake+llumnix")),
    "one_pair": (
        "kimi-chat",
        {**CHAT, "workload.rate_rps": 1.0, f"{PREFILL}.count": 1, f"{DECODE}.count": 1},
        (*ROUTERS, "mooncake+star"),
    ),
    "prefill_70": (
        "kimi-chat",
        {
            **CHAT, "workload.requests": 800, "workload.rate_rps": 50.0, f"{PREFILL}.count": 70,
            f"{PREFILL}.cache_tokens": 200_000, "cluster.store.capacity_tokens": 1_000_000,
        },
        (*ROUTERS, "sglang", "longest_prefix"),
    ),
    "prefill_130": (
        "kimi-chat",
        {
            **CHAT, "workload.requests": 800, "workload.rate_rps": 80.0, f"{PREFILL}.count": 130,
            f"{DECODE}.count": 20, "cluster.index.delay_s": 1.0,
        },
        ROUTERS,
    ),
    "prefill_62": ("kimi-chat", {**CHAT, f"{PREFILL}.count": 62, "cluster.store.capacity_tokens": 500_000}, ROUTERS),
    "prefill_63": ("kimi-chat", {**CHAT, f"{PREFILL}.count": 63, "cluster.store.capacity_tokens": 500_000}, ROUTERS),
    "too_large": (
        "kimi-chat",
        {**CHAT, f"{PREFILL}.cache_tokens": 20_000, f"{DECODE}.kv_tokens": 12_000},
        (*ROUTERS, "mooncake+star"),
    ),
    "overload": ("kimi-chat", {**CHAT, "workload.rate_rps": 200.0}, ("early_reject", "predictive_reject", "mooncake")),
    "no_reject": (
        "kimi-chat",
        {**CHAT, "workload.rate_rps": 200.0, "admission.allow_reject": False},
        ("early_reject", "predictive_reject"),
    ),
    "all_objectives": (
        "kimi-chat",
        {**CHAT, "slo.ttft_s": 3.0, "slo.tpot_s": 0.03, "slo.tbt_tail_s": 0.06, "slo.e2e_s": 20.0},
        ROUTERS,
    ),
    "crowded": ("kimi-chat", CROWDED, ("mooncake", "cpd", "random+star", "least_kv+llumnix", "mooncake+early_reject")),
    "other_presets": (
        "kimi-chat",
        {
            **CHAT, "workload.rate_rps": 2.0, f"{PREFILL}.preset": "llama3-70b_8xH100",
            f"{DECODE}.preset": {"preset": "qwen2.5-72b_4xA100", "model": "llama3-70b"},
        },
        ROUTERS,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One digest: `columns()` runs it; `skip` says why it cannot be run here."""

    id: str
    columns: Callable[[], Columns]
    skip: str | None = None


def result_columns(result: Any) -> Columns:
    """All columns of the records, of the totals and of the summary, with the counts of decisions."""
    columns: Columns = {}
    for table in ("requests", "instances"):
        rows = np.asarray(getattr(result, table))
        columns.update({f"{table}.{name}": rows[name] for name in rows.dtype.names})
    columns.update({f"summary.{name}": np.array([value]) for name, value in result.summary.items()})
    for name in ("decisions", "invalid_decisions", "seed"):
        columns[f"run.{name}"] = np.array([getattr(result, name)])
    return columns


def run(scenario: str, overrides: Mapping[str, Any], policy: Any, seed: int, **options: Any) -> Columns:
    """One call of `simulate`."""
    return result_columns(cacheenv.simulate(cacheenv.load_scenario(scenario, overrides), policy, seed, **options))


def run_case(kind: str, scenario: str, overrides: Mapping[str, Any], policy: str, seed: int) -> Case:
    return Case(f"run/{kind}/{policy}/{seed}", functools.partial(run, scenario, overrides, policy, seed))


def variant_case(name: str, policy: str, seed: int) -> Case:
    scenario, overrides, _ = VARIANTS[name]
    return run_case(name, scenario, overrides, policy, seed)


def common_cluster_case(kind: str, policy: str) -> Case:
    overrides = CHAT if kind == "common_cluster" else {**CHAT, **SMALL_MEMORY}
    call = functools.partial(run, "kimi-chat", overrides, policy, 0, common_cluster=True)
    return Case(f"run/{kind}/{policy}/0", call)


def given_workload(count: int = 160, seed: int = 5, page_tokens: int = 256) -> Any:
    """Requests as arrays: families of prefixes in two namespaces, equal arrivals, outputs of one token."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(1, 9000, count)
    outputs = np.maximum(1, rng.integers(-100, 900, count))
    arrivals = np.repeat(np.cumsum(rng.integers(1, 9, (count + 1) // 2)) / 8.0, 2)[:count]
    blocks = []
    for index, tokens in enumerate(prompts):
        pages = -(-int(tokens) // page_tokens)
        common, family = min(pages, int(rng.integers(0, 30))), int(rng.integers(6))
        own = [10**6 * (index + 1) + page for page in range(pages - common)]
        blocks.append([family * 1000 + page for page in range(common)] + own)
    return cacheenv.Workload.from_arrays(
        arrivals, prompts, outputs, blocks, page_tokens=page_tokens, namespace=rng.integers(0, 2, count),
        session=rng.integers(-1, 12, count), priority=rng.integers(0, 3, count),
    )  # fmt: skip


def workload_case(policy: str) -> Case:
    return Case(
        f"run/given_workload/{policy}/0", lambda: run("kimi-chat", CROWDED, policy, 0, workload=given_workload())
    )


def object_case(name: str, overrides: Mapping[str, Any], migrates: bool, needs_running: bool) -> Case:
    """A Python object decides at random, sometimes illegally, and everything that it is shown is digested too."""

    def columns() -> Columns:
        actor = walks.Watcher(migrates, needs_running)
        found = run("kimi-chat", overrides, actor, 0)
        return {**found, **actor.log.columns()}

    return Case(f"object/{name}", columns)


def compiled_case() -> Case:
    """A compiled policy of our own: parameters, private state, its random stream, the running requests."""
    return Case("compiled/own_policy", lambda: run("kimi-chat", CROWDED, walks.own_router(), 3))


def trace_file() -> Path | None:
    """Mooncake's conversation trace in the shared folder, if it is there."""
    named = os.environ.get("CACHEENV_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared"
    path = folder / "traces" / "mooncake-fast25" / "conversation_trace.jsonl"
    return path if path.is_file() else None


def trace_case(kind: str, overrides: Mapping[str, Any], policy: str, seed: int) -> Case:
    path = trace_file()
    changes = {"workload.kind": "mooncake", "workload.trace": str(path), **overrides}
    skip = None if path else "needs traces/mooncake-fast25/conversation_trace.jsonl in the shared folder"
    call = functools.partial(run, "kimi-chat", changes, policy, seed)
    return Case(f"{kind}/{policy}/{seed}", call, skip)


def trace_cases() -> Iterator[Case]:
    for policy in BENCH_POLICIES:
        for seed in (0, 1):
            yield trace_case("trace", {}, policy, seed)
    for policy in ("mooncake", "sglang", "least_backlog+star", "mooncake+llumnix"):
        window = {"workload.start_s": 600.0, "workload.duration_s": 900.0, "workload.rate_scale": 1.7}
        yield trace_case("trace_window", window, policy, 0)
        yield trace_case("trace_limit", {"workload.limit": 1500, "workload.rate_scale": 3.0}, policy, 0)


def all_cases() -> list[Case]:
    """The whole set."""
    from cacheenv.policy import available_policies

    cases = [
        run_case(scenario, scenario, {}, policy, seed)
        for scenario in cacheenv.list_scenarios()
        for policy in (*available_policies(), *COMPOSITES)
        for seed in (0, 1)
    ]
    for name, (_, _, policies) in VARIANTS.items():
        cases += [variant_case(name, policy, seed) for policy in policies for seed in (0, 1)]
    cases += [common_cluster_case("common_cluster", policy) for policy in ("sglang", "cpd", "llumnix", "star_oracle")]
    cases += [common_cluster_case("common_cluster_small_memory", policy) for policy in ("sglang", "sglang_struct")]
    cases += [workload_case(policy) for policy in (*ROUTERS, "cpd", "sglang", *MOVERS)]
    for migrates in (False, True):
        for needs_running in (False, True):
            name = f"{'moves' if migrates else 'routes'}{'_running' if needs_running else ''}"
            cases.append(object_case(name, CROWDED, migrates, needs_running))
    cases.append(object_case("delayed_index", {**CROWDED, "cluster.index.delay_s": 2.0}, True, False))
    memory = {**CROWDED, "cluster.index.memory_tokens": 30_000, f"{PREFILL}.pre_prefill": 1}
    cases.append(object_case("memory", memory, False, False))
    cases.append(object_case("prefill_70", {**CROWDED, f"{PREFILL}.count": 70, "workload.rate_rps": 9.0}, True, False))
    cases.append(compiled_case())
    cases += trace_cases()
    cases += [Case(name, call) for name, call in walks.walk_calls(CROWDED)]
    return cases


#: Ids of the part that stays as a test.
SMALL_IDS = (
    "run/lpm_fallback/mooncake/0",
    "run/index_delay/random/0",
    "run/small_chunks/mooncake/0",
    "run/small_store/mooncake/0",
    "run/slow_store/random/0",
    "run/no_overlap/mooncake/0",
    "run/small_kv/least_backlog+star/0",
    "run/small_kv_swap/least_requests+llumnix/0",
    "run/small_caches_lpm/sglang/0",
    "run/slow_moves/least_backlog+star/0",
    "run/horizon_reasoning/least_backlog+star/0",
    "run/warmup/lmetric/0",
    "run/prediction_weak/least_backlog+star/0",
    "run/page_1/mooncake/0",
    "run/pre_prefill/cpd/0",
    "run/prefill_70/mooncake/0",
    "run/overload/predictive_reject/0",
    "run/crowded/mooncake+early_reject/0",
    "run/crowded/random+star/0",
    "run/given_workload/mooncake/0",
    "object/moves_running",
    "env/Cluster-v0/joint/flat/legal",
    "env/Cluster-v0/factored/dict/any",
    "env/Routing-v0/joint/dict/any",
    "env/Migration-v0/factored/flat/legal",
    "env/Routing-v0/rescheduler",
    "batch/Cluster-v0/joint/NEXT_STEP",
    "batch/Cluster-v0/factored/SAME_STEP",
    "batch/Routing-v0/joint/DISABLED",
)


def small_cases() -> dict[str, Case]:
    """The part that stays as a test, by id."""
    found = {case.id: case for case in all_cases()}
    return {name: found[name] for name in SMALL_IDS}
