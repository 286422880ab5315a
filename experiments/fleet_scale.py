"""How the cost of a request grows with the number of instances, equal ones and those of four kinds.

    python experiments/fleet_scale.py [--instances N ...] [--requests R] [--repeats K] [--policy NAME]

N instances are half prefill, half decode; the four kinds are two groups of each, of different hardware, sizes and
links. The traffic for each instance is that of `kimi-chat`. Prints microseconds a request, the best of K runs that take
turns, and the ratio of the two fleets.
"""

from __future__ import annotations

import argparse
from typing import Any

from speed import CompiledRun

from cacheenv import load_scenario


def fleet(instances: int, kinds: int, requests: int, policy: str) -> CompiledRun:
    """A fleet of one kind of instance for each role, or of two (`kinds` 2 or 4)."""
    half = instances // 2
    groups: list[dict[str, Any]] = [{"role": "prefill", "count": half}, {"role": "decode", "count": half}]
    if kinds == 4:
        new = {"preset": {"preset": "llama3-70b_8xH100", "model": "llama2-70b"}, "link": "rdma_8x200g_te"}
        groups = [
            {"role": "prefill", "count": half // 2},
            {"role": "prefill", "count": half - half // 2, **new, "batch_tokens": 16384, "cache_tokens": 1_000_000},
            {"role": "decode", "count": half // 2},
            {"role": "decode", "count": half - half // 2, **new, "max_batch": 128},
        ]
    changes = {
        "cluster.instances": groups,
        "workload.rate_rps": 4.0 * half / 8,
        "workload.requests": requests,
        "warmup_requests": 0,
    }
    return CompiledRun(load_scenario("kimi-chat", changes), policy)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policy", default="mooncake")
    options = parser.parse_args()
    for instances in options.instances:
        runs = [fleet(instances, kinds, options.requests, options.policy) for kinds in (2, 4)]
        turns = [[run.seconds() for run in runs] for _ in range(options.repeats)]
        equal_us, four_us = (1e6 * min(seconds) / options.requests for seconds in zip(*turns, strict=True))
        print(
            f"{instances} instances: equal {equal_us:.1f} us/request, four kinds {four_us:.1f} us/request, "
            f"ratio {four_us / equal_us:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
