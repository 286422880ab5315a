"""What a scenario resolves to, as text: its instances by group, their coefficients and sizes, and where it is full."""

from __future__ import annotations

from typing import Any

from cacheenv.commands.text import align, number
from cacheenv.scenario import Scenario, resolve
from cacheenv.scenario.fleet import Group, groups_of
from cacheenv.scenario.saturation import decode_rps, prefill_rps, saturation_rps
from cacheenv.workload import Workload

#: Role -> (header, of a row of the cluster's numbers the value in that unit).
COLUMNS: dict[str, list[tuple[str, Any]]] = {
    "prefill": [
        ("a\n[ms]", lambda row: number(1e3 * row.prefill_a_s)),
        ("b\n[us/token]", lambda row: number(1e6 * row.prefill_b_s)),
        ("c\n[ns/token^2]", lambda row: number(1e9 * row.prefill_c_s)),
        ("cache\n[tokens]", lambda row: f"{row.cache_tokens:,}"),
        ("host\n[tokens]", lambda row: f"{row.host_cache_tokens:,}" if row.host_cache_tokens else "-"),
        ("batch / piece\n[tokens]", lambda row: f"{row.batch_tokens:,} / {row.chunk_tokens:,}"),
    ],
    "decode": [
        ("d\n[ms]", lambda row: number(1e3 * row.decode_d_s)),
        ("e\n[us/request]", lambda row: number(1e6 * row.decode_e_s)),
        ("f\n[ns/token]", lambda row: number(1e9 * row.decode_f_s)),
        ("KV\n[tokens]", lambda row: f"{row.kv_tokens:,}"),
        ("batch\n[requests]", lambda row: f"{row.max_batch:,}"),
    ],
}
LINK: list[tuple[str, Any]] = [
    ("TP", lambda row: str(row.tensor_parallel)),
    ("KV\n[KB/token]", lambda row: number(row.kv_bytes / 1e3)),
    ("NIC\n[GB/s]", lambda row: number(row.nic_bytes_per_s / 1e9)),
]


def resolved(scenario: Scenario, workload: Workload) -> str:
    """Tables of the instances, and the estimate of :mod:`cacheenv.scenario.saturation`."""
    spec = resolve(scenario)
    prompts = workload.requests["prompt_tokens"].astype(float)
    outputs = workload.requests["output_tokens"].astype(float)
    parts = []
    for role, rows in (("prefill", spec.prefill), ("decode", spec.decode)):
        lines, first = [], 0
        for group in groups_of(scenario.cluster):
            if group.role != role or group.count == 0:
                continue
            row: Any = rows[first]
            rps = prefill_rps(row, prompts) if role == "prefill" else decode_rps(row, prompts, outputs)
            cells = [str(make(row)) for _, make in (*COLUMNS[role], *LINK)]
            lines.append([group.name, _numbers(role, first, group), _preset(group), *cells, number(group.count * rps)])
            first += group.count
        titles = [title for title, _ in (*COLUMNS[role], *LINK)]
        parts.append(align(["group", "instances", "preset", *titles, "full at\n[req/s]"], lines))
    prefill, decode = saturation_rps(spec, workload)
    span_s = float(workload.requests["arrival_s"][-1] - workload.requests["arrival_s"][0])
    offered = number((len(workload) - 1) / span_s) if span_s > 0.0 else "-"
    parts.append(
        f"full at about {number(min(prefill, decode))} req/s: prefill {number(prefill)} (prompts of "
        f"{number(prompts.mean())} tokens on average, nothing cached), decode {number(decode)} (answers of "
        f"{number(outputs.mean())} tokens, full batches); the workload brings {offered}"
    )
    return "\n\n".join(parts)


def _numbers(role: str, first: int, group: Group) -> str:
    letter = role[0].upper()
    return f"{letter}{first}" if group.count == 1 else f"{letter}{first}-{letter}{first + group.count - 1}"


def _preset(group: Group) -> str:
    preset: Any = group.section.preset
    return preset if isinstance(preset, str) else str(preset.get("preset", preset.get("gpu", "own")))
