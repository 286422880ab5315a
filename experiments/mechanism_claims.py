"""The rows of `mechanisms.py`: what each mechanism is said to change, and the runs that show whether it does.

A figure under `stated` comes from the source named beside it; `probe` is an earlier version of this simulator, tried
before the mechanisms were built (three seeds, another world), so that its sizes are a guide and its signs the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from cacheenv.workload import Workload

MORE, LESS, SAME, AT_MOST = "more", "less", "same", "at most"
PROBE = "probe of this simulator"


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        policy: Name of a policy, parameters included; or several, of which the one that does best on other seeds runs.
        changes: Overrides that the other side has not. A key that the policy itself sets is set to this value.
        engine: Whether the policy gets the engine features that it asks for.
        constant: A figure instead of runs.
    """

    policy: str | tuple[str, ...] = "mooncake"
    changes: Mapping[str, Any] = field(default_factory=dict)
    engine: bool = True
    constant: float | None = None


@dataclass(frozen=True)
class Claim:
    """One row.

    Attributes:
        name: Name on the command line.
        claim: What is said.
        source: Who says it.
        scenario: Scenario of both sides.
        off: Without the mechanism.
        on: With it.
        metric: One of :data:`mechanism_metrics.METRICS`.
        expected: `more`, `less`, `same` (within `margin`) or `at most` (`margin` of the first above it).
        changes: Overrides of both sides.
        margin: See `expected`; in the metric's unit for `same`, a share for `at most`.
        stated: Smallest and largest difference that the source states.
        relative: Whether `stated` is a share of the first side's mean.
        workload: Requests of a seed, instead of the scenario's.
        trace: File of `traces/mooncake-fast25` that is played, and how many times as fast.
        rates: The ladder of a capacity, requests/s.
        timeline_s: Time between looks at the load; None: no looks.
    """

    name: str
    claim: str
    source: str
    scenario: str
    off: Side
    on: Side
    metric: str
    expected: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0
    stated: tuple[float, float] | None = None
    relative: bool = False
    workload: Callable[[int], Workload] | None = None
    trace: tuple[str, float] | None = None
    rates: tuple[float, ...] = ()
    timeline_s: float | None = None


def burst(seed: int) -> Workload:
    """128 groups of 32 prompts, all at once in random order: six pages that a group shares, then two of its own."""
    groups, members, shared, own = 128, 32, 6, 2
    order = np.random.default_rng(seed).permutation(groups * members)
    page = 512
    prompts = []
    for prompt in order:
        group = prompt // members
        start = groups * shared + prompt * own
        prompts.append([*range(group * shared, (group + 1) * shared), *range(start, start + own)])
    count = len(order)
    return Workload.from_arrays([0.0] * count, [(shared + own) * page] * count, [8] * count, prompts, page_tokens=page)


def lone_prompt(seed: int) -> Workload:
    """One prompt of 139,664 tokens; the seed changes nothing."""
    return Workload.from_arrays([0.0], [139_664], [100], page_tokens=512)


def index_learns() -> list[Claim]:
    """The router's index learns at the assignment."""
    source = "Mooncake (arXiv 2407.00079) section 6, Conductor; " + PROBE
    rows = []
    for rate, arrivals in product((8.0, 4.0), ("closed", "open")):
        crowded = rate > 4.0
        rows.append(
            Claim(
                f"index-{rate:.0f}-{arrivals}",
                "an index that learns at the assignment meets more objectives in a crowd"
                if crowded
                else "where there is no crowd, when the index learns does not matter",
                source,
                "kimi-chat",
                Side(changes={"cluster.index.learns": "stored"}),
                Side(changes={"cluster.index.learns": "assigned"}),
                "SLO met",
                MORE if crowded else SAME,
                {"workload.rate_rps": rate, "workload.arrivals": arrivals},
                margin=0.01,
                stated=(0.31, 0.43) if crowded else None,
            )
        )
    for policy, instances in (("mooncake", 8), ("mooncake_local", 8), ("mooncake", 16)):
        rows.append(
            Claim(
                f"index-burst-{policy}" + (f"-{instances}" if instances != 8 else ""),
                "in a simultaneous burst of 128 groups x 32 prompts it finds more hits",
                source,
                "kimi-chat",
                Side(policy, {"cluster.index.learns": "stored"}),
                Side(policy, {"cluster.index.learns": "assigned"}),
                "hit rate",
                MORE,
                {"workload.arrivals": "open", "cluster.prefill.count": instances},
                stated=(0.34, 0.34),
                workload=burst,
            )
        )
    return rows


def backlog() -> list[Claim]:
    """Waiting prompts are priced anew."""
    return [
        Claim(
            f"backlog-{rate}-{metric.split()[0].lower()}",
            "prices that follow the caches (`now`) route better than those of the dispatch",
            "ours; three other seeds left it open",
            "kimi-chat",
            Side(changes={"cluster.prefill.backlog": "dispatch"}),
            Side(changes={"cluster.prefill.backlog": "now"}),
            metric,
            MORE if metric == "SLO met" else LESS,
            {"workload.rate_rps": float(rate)},
        )
        for rate, metric in product((4, 6, 8), ("SLO met", "TTFT mean"))
    ] + [
        Claim(
            f"backlog-stored-{name}",
            "they do where the index does not know what waits",
            "ours",
            "kimi-chat",
            Side(changes={"cluster.prefill.backlog": "dispatch", "cluster.index.learns": "stored"}),
            Side(changes={"cluster.prefill.backlog": "now", "cluster.index.learns": "stored"}),
            "TTFT mean",
            LESS,
            {"workload.arrivals": "open", **({} if requests else {"workload.rate_rps": 8.0})},
            workload=requests,
        )
        for name, requests in (("8-open", None), ("burst", burst))
    ]


def network() -> list[Claim]:
    """How flows share links, and when a hand-over starts."""
    rows = [
        Claim(
            f"max-min-{gbits}-{'trace' if trace else 'chat'}",
            "flows that share links max-min fairly end a hand-over sooner than with equal parts at each end",
            PROBE + ", 24-40 Gb/s",
            "kimi-chat",
            Side(changes={"cluster.network.sharing": "equal_split"}),
            Side(changes={"cluster.network.sharing": "max_min"}),
            "hand-over",
            LESS,
            {
                "cluster.network.nic_gbytes_per_s": gbits / 8,
                **({} if trace else {"workload.rate_rps": 2.0 if gbits == 24 else 3.5}),
            },
            stated=(-0.32, -0.13),
            relative=True,
            trace=("synthetic_trace.jsonl", 1.0) if trace else None,
        )
        for gbits, trace in product((24, 40), (True, False))
    ]
    for name, link, rate, metric, expected, stated in (
        ("100g", "rdma_1x100g", 0.8, "SLO met", MORE, (0.053, 0.053)),
        ("100g-half", "rdma_1x100g", 0.4, "SLO met", MORE, (0.053, 0.053)),
        ("200g", "rdma_1x200g", 0.8, "long hand-over", LESS, (-1.96, -1.96)),
    ):
        rows.append(
            Claim(
                f"chunks-{name}",
                "a long prompt handed over piece by piece is not waited for behind its last piece",
                "SGLang (each chunk is sent as it ends); " + PROBE,
                "long-context",
                Side(changes={"cluster.network.handover": "last_chunk"}),
                Side(changes={"cluster.network.handover": "chunked"}),
                metric,
                expected,
                {"cluster.network.link": link, "workload.rate_rps": rate},
                stated=stated,
            )
        )
    rows.append(
        Claim(
            "chunks-alone",
            "a prompt of 139,664 tokens alone: its hand-over at 22 GB/s hides behind its prefill",
            PROBE + ", 2.08 s visible",
            "kimi-chat",
            Side(changes={"cluster.network.handover": "last_chunk"}),
            Side(changes={"cluster.network.handover": "chunked"}),
            "long hand-over",
            LESS,
            {"cluster.network.link": "rdma_1x200g", "cluster.network.handover_load_gbytes_per_s": None},
            stated=(-1.96, -1.96),
            workload=lone_prompt,
        )
    )
    return rows


def rescheduling() -> list[Claim]:
    """STAR's forecasts."""
    source = "STAR (arXiv 2510.13668), order of its variants; sizes: " + PROBE

    def row(name: str, claim: str, off: Side, on: Side, stated: tuple[float, float] | None) -> Claim:
        return Claim(
            name, claim, source, "reasoning", off, on, "KV spread", LESS, stated=stated, timeline_s=10.0
        )  # fmt: skip

    def star(variant: str, candidates: int | None) -> Side:
        return Side(f"least_backlog+{variant}(horizon_tokens=10000)", {"reschedule.candidates": candidates})

    return [
        row(
            "star-moves",
            "moving requests by present load evens out KV",
            Side("least_backlog"),
            star("star_nopred", None),
            None,
        ),
        row(
            "star-predicted",
            "predicted lengths even it out further, with all requests as candidates",
            star("star_nopred", None),
            star("star", None),
            (-0.021, -0.021),
        ),
        row(
            "star-oracle",
            "true lengths further still",
            star("star", None),
            star("star_oracle", None),
            (-0.002, -0.002),
        ),
        row(
            "star-predicted-32",
            "with 32 candidates an instance prediction gains little",
            star("star_nopred", 32),
            star("star", 32),
            (-0.003, -0.003),
        ),
    ]  # fmt: skip


def lmetric() -> list[Claim]:
    """The product against sums that are tuned for each rate."""
    tuned = tuple(
        f"linear(unmatched={cache / 10:.1f},requests={requests * (10 - cache) / 10:.1f},"
        f"tokens={tokens * (10 - cache) / 10:.1f})"
        for requests, tokens in ((1, 0), (0, 1))
        for cache in range(1, 10)
    )
    return [
        Claim(
            f"{policy.replace('_', '-')}-{rate}",
            "the product without parameters is within 10 % of the best tuned weighted sum"
            + (", batch size counted until the hand-over has ended" if policy != "lmetric" else ""),
            "LMetric (OSDI'26, arXiv 2603.15202)",
            "kimi-chat",
            Side(tuned),
            Side(policy),
            "TTFT mean",
            AT_MOST,
            {"workload.rate_rps": float(rate)},
            margin=0.1,
        )
        for policy, rate in product(("lmetric", "lmetric_prefilling"), (4, 5, 6))
    ]


def mla() -> dict[str, Any]:
    """`long-context` on two prefill instances with the KV of an MLA model, 35,136 bytes a token, and turns 90 s apart.

    The bytes of a token are the preset's, so what moves KV is faster by the same factor, and what is kept is more: on
    the prefill side the rest stands in host memory that loads in no time.
    """
    factor = 327_680 / 35_136
    return {
        "cluster.prefill.count": 2,
        "cluster.prefill.host_cache_tokens": round(1_425_080 * (factor - 1)),
        "cluster.prefill.host_gbytes_per_s": 1e6,
        "cluster.network.nic_gbytes_per_s": 89.0 * factor,
        "cluster.store.nic_gbytes_per_s": 100.0 * factor,
        "workload.params.think_s": 90.0,
        "workload.params.turn_gap_sigma": 0.0,
    }


def cold_prompts() -> list[Claim]:
    """A prefill node of its own for cold prompts; 3 of 10 requests begin a session.

    In a closed loop the users of cold prompts wait in the cold node's queue and send no turns meanwhile, which a median
    over all requests does not see; hence open arrivals, and one rival in both.
    """
    rivals = (
        ("random", "open", "routing that sees no load"),
        ("blind_store", "open", "routing that sees no load over the same store"),
        ("least_requests", "open", "the fewest requests"),
        ("blind_store", "closed", "routing that sees no load over the same store"),
    )
    rows = []
    for share, (other, arrivals, text) in product((0.05, 0.08, 0.12), rivals):
        weak = other == "least_requests"
        rows.append(
            Claim(
                f"cpd-{100 * share:.0f}-{other}" + ("-closed" if arrivals == "closed" else ""),
                f"one node of two for cold prompts serves more than {text}, cold share {share:.2f}",
                f"{PROBE}, 9-21 % over this rival" if weak else "Together CPD (2026-03-04), 35-40 %",
                "long-context",
                Side(other),
                Side("cpd"),
                "capacity",
                MORE,
                {**mla(), "workload.params.warm_share": round(1.0 - share / 0.3, 4), "workload.arrivals": arrivals},
                stated=(0.09, 0.21) if weak else (0.35, 0.40),
                relative=True,
                rates=tuple(round(0.1 * 1.15**step, 4) for step in range(30)),
            )
        )
    return rows


def users() -> list[Claim]:
    """Users who wait for their answers."""
    return [
        Claim(
            f"closed-{rate}" + (f"-{policy}" if policy != "mooncake" else ""),
            "with closed arrivals no turn comes before the answer before has ended",
            PROBE,
            "kimi-chat",
            Side(policy, {"workload.arrivals": "open"}),
            Side(policy, {"workload.arrivals": "closed"}),
            "early turns",
            LESS,
            {"workload.rate_rps": float(rate)},
            stated=(-early, -early),
        )
        for rate, policy, early in ((5, "mooncake", 0.24), (5, "random", 0.24), (8, "mooncake", 0.80))
    ]


def admission() -> list[Claim]:
    """Who is refused under overload."""
    source = "Mooncake (arXiv 2407.00079) section 7; `kv_reject` is ours"
    kinds = ("late_reject", "early_reject", "predictive_reject", "kv_reject")
    trace = {"cluster.decode.count": 2, "slo.ttft_s": 30.0, "slo.tbt_tail_s": 0.1}
    rows = [
        Claim(
            f"trace-{kind.replace('_', '-')}",
            "refusing meets more objectives, on the trace at twice its speed with two decode instances",
            source,
            "kimi-chat",
            Side(),
            Side(f"mooncake+{kind}"),
            "SLO met",
            MORE,
            trace,
            trace=("conversation_trace.jsonl", 2.0),
        )
        for kind in kinds
    ]
    for kind, metric in product(kinds, ("SLO met", "TPOT missed")):
        rows.append(
            Claim(
                f"long-{kind.replace('_', '-')}-{metric.split()[0].lower()}",
                "refusing meets more objectives where KV room is what makes steps late",
                source,
                "long-context",
                Side(),
                Side(f"mooncake+{kind}"),
                metric,
                MORE if metric == "SLO met" else LESS,
                {"workload.rate_rps": 1.6},
            )
        )
    return rows


def caches() -> list[Claim]:
    """What is evicted, and what is locked."""
    rows = [
        Claim(
            f"eviction-{kind.replace('_', '-')}",
            f"least recently used pages first finds more hits than `{kind}`, in caches of 300,000 tokens",
            "Mooncake (arXiv 2407.00079) table 1 for LFU and length-aware, at its smaller capacities",
            "kimi-chat",
            Side("mooncake_local", {"cluster.prefill.eviction": kind}),
            Side("mooncake_local", {"cluster.prefill.eviction": "lru"}),
            "hit rate",
            MORE,
            {"cluster.prefill.cache_tokens": 300_000, "cluster.prefill.host_cache_tokens": 0},
        )
        for kind in ("fifo", "lfu", "length_aware", "lru_node")
    ]
    for name, rate, arrivals in (("open", 0.6, "open"), ("closed", 0.6, "closed"), ("crowded", 1.5, "open")):
        rows.append(
            Claim(
                f"pulls-{name}",
                "what was pulled for a waiting request is still there when it is computed",
                PROBE + " without the lock: 84 % computed again",
                "kimi-chat",
                Side(constant=0.84),
                Side(),
                "pulls lost",
                LESS,
                {
                    "cluster.prefill.count": 2,
                    "cluster.prefill.host_cache_tokens": 0,
                    "cluster.store.capacity_tokens": 40_000_000,
                    "workload.rate_rps": rate,
                    "workload.arrivals": arrivals,
                },
            )
        )
    return rows


def damping() -> list[Claim]:
    """Preemption with and without hysteresis."""
    return [
        Claim(
            f"damping-{name}",
            text,
            "SGLang (new-token ratio raised after a retraction)",
            "reasoning",
            Side("least_backlog", {"cluster.decode.damping": "none"}),
            Side("least_backlog", {"cluster.decode.damping": "sglang"}),
            metric,
            LESS,
            {"workload.rate_rps": 1.4},
        )
        for name, metric, text in (
            ("preemptions", "preemptions", "admission that grows careful after a preemption preempts less"),
            ("twice", "preempted twice", "it preempts fewer requests more than once"),
            ("rework", "rework", "it computes less again"),
        )
    ]


def all_claims() -> dict[str, Claim]:
    """Every row by its name, in the order of the table."""
    groups = (
        index_learns, backlog, network, rescheduling, lmetric, cold_prompts, users, admission, caches, damping,
    )  # fmt: skip
    return {row.name: row for group in groups for row in group()}


def trace_file(shared: Path, claim: Claim) -> Path:
    """Where the trace of a row should be."""
    assert claim.trace is not None
    return shared / "traces/mooncake-fast25" / claim.trace[0]
