"""Mooncake's Table 3: who is refused under overload, and what that is good for.

    python experiments/mooncake_table3.py [--trace FILE] [--decode 2] [--tbt 0.1] [--out FILE]

The paper (arXiv 2407.00079, 8P+8D, 23,000 requests of a real trace at twice its speed) prints 4183 refusals for its
baseline (a check of the prefill load at arrival, one of the decode load after the prefill), 3771 for early rejection
and 3589 for early rejection based on prediction. Neither that trace nor its thresholds are published; here it is the
conversation trace of the FAST'25 release at twice its speed. With eight decode instances steps stay far below the
objective, so two of them make decode bind. What the table shows is what the policies do, not the paper's numbers.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cacheenv import load_scenario, simulate
from cacheenv.commands.text import csv_text
from cacheenv.scenario.objectives import objectives_text

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CACHEENV_SHARED", ROOT.parent / "shared"))
ADMISSION = ("", "late_reject", "early_reject", "predictive_reject", "kv_reject")
FIELDS = (
    "admission", "rejected", "rejected_late", "wasted_prefill_tokens", "mean_refused_prompt", "slo_attainment",
    "goodput_rps",
)  # fmt: skip


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=SHARED / "traces/mooncake-fast25/conversation_trace.jsonl")
    parser.add_argument("--decode", type=int, default=2, help="decode instances (2)")
    parser.add_argument("--tbt", type=float, default=0.1, help="objective of the worst tenth of the gaps, s (0.1)")
    parser.add_argument("--out", type=Path, help="CSV to write")
    options = parser.parse_args()
    changes = {
        "workload": {"kind": "mooncake", "trace": str(options.trace), "rate_scale": 2.0},
        "cluster.decode.count": options.decode,
        "slo.ttft_s": 30.0,
        "slo.tbt_tail_s": options.tbt,
    }
    scenario = load_scenario("kimi-chat", changes)
    print(f"8P+{options.decode}D, twice the trace's speed; {objectives_text(scenario.to_dict()['slo'])}")
    rows = []
    for admission in ADMISSION:
        result = simulate(scenario, "+".join(filter(None, ["mooncake", admission])))
        refused = result.requests.prompt_tokens[(result.requests.outcome == 2) | (result.requests.outcome == 4)]
        mean = round(float(refused.mean())) if len(refused) else None
        row = {name: result.summary.get(name) for name in FIELDS}
        rows.append({**row, "admission": admission or "none", "mean_refused_prompt": mean})
        print("  ".join(f"{name}={rows[-1][name]}" for name in FIELDS), flush=True)
    if options.out is not None:
        options.out.write_text(csv_text(rows, FIELDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
