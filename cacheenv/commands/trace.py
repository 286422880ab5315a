"""`cacheenv trace FILE`: what is in a trace, and how much of it a prefix cache could reuse."""

from __future__ import annotations

import argparse
import json
from typing import Any

from cacheenv.command_line import not_negative, positive, positive_number
from cacheenv.commands.text import align, number
from cacheenv.files.plain import json_ready

help = "statistics and reuse ceiling of a trace"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("file", metavar="FILE", help="trace in Mooncake's JSONL format (.gz too)")
    parser.add_argument("--page-tokens", metavar="N", type=positive, default=512, help="tokens a block (512)")
    parser.add_argument("--start", metavar="S", type=not_negative, default=0.0, help="start of the window, s (0)")
    parser.add_argument("--duration", metavar="S", type=positive_number, help="length of the window, s (to the end)")
    parser.add_argument("--limit", metavar="N", type=positive, help="at most this many requests")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Reads the trace and prints its statistics."""
    from cacheenv.workload import Workload, workload_stats

    workload = Workload.from_mooncake(
        arguments.file,
        start_s=arguments.start,
        duration_s=arguments.duration,
        limit=arguments.limit,
        page_tokens=arguments.page_tokens,
    )
    stats = workload_stats(workload)
    if arguments.json:
        print(json.dumps(json_ready({"file": str(arguments.file), **stats}), allow_nan=False))
    else:
        print(_text(stats))
    return 0


def _text(stats: dict[str, Any]) -> str:
    """The statistics as tables with units."""
    arrivals, blocks = stats["arrivals"], stats["blocks"]
    page_tokens = stats["page_tokens"]
    facts = [
        ["requests", number(stats["requests"])],
        ["duration [s]", number(arrivals["duration_s"])],
        ["mean rate [req/s]", number(arrivals["rate_rps"])],
        ["CV of the gaps between arrivals", number(arrivals["gap_cv"])],
        ["largest number of arrivals at one instant", number(arrivals["largest_burst"])],
        ["sessions", number(stats["sessions"])],
        ["namespaces", number(stats["namespaces"])],
        [f"blocks of {page_tokens} tokens, with repeats", number(blocks["total"])],
        ["distinct blocks", number(blocks["distinct"])],
        ["distinct blocks that are used once [%]", number(100 * blocks["seen_once_share"])],
        ["requests that share the most common block", number(blocks["most_shared"])],
    ]
    columns = ("mean", "min", "p50", "p90", "p99", "max", "total")
    lengths = [
        [name.replace("_", " "), *(number(round(float(stats[name][column]), 1)) for column in columns)]
        for name in ("prompt_tokens", "output_tokens")
    ]
    reuse = [_reuse("no limit (ceiling)", None, page_tokens, stats["reuse"]["infinite"])]
    reuse += [_reuse(number(size), size, page_tokens, rates) for size, rates in stats["reuse"]["lru"].items()]
    return "\n\n".join(
        [
            align([stats["name"], ""], facts),
            align(["", *columns], lengths),
            align(["one LRU cache of [blocks]", "[million tokens]", "hits [% blocks]", "hits [% tokens]"], reuse),
        ]
    )


def _reuse(label: str, size: int | None, page_tokens: int, rates: dict[str, float]) -> list[str]:
    tokens = "-" if size is None else number(size * page_tokens / 1e6)
    return [label, tokens, number(100 * rates["block_hit_rate"]), number(100 * rates["token_hit_rate"])]
