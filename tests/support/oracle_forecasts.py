"""Forecasts that the view gives, as the reference simulator sees them."""

from __future__ import annotations

from reference import ReferenceSimulator
from reference.live import LiveRequest


def delivery_s(sim: ReferenceSimulator, live: LiveRequest, prefill: int, hit_tokens: int) -> float:
    """From the end of the prefill to the first token: what the hand-over adds, and the shortest first step."""
    cluster = sim.prefill[prefill].cluster
    if cluster.first_token == "prefill":
        return 0.0
    steps = [
        decode.cluster.decode_d_s
        + decode.cluster.decode_e_s * (len(decode.batch) + 1)
        + decode.cluster.decode_f_s * (decode.kv_tokens() + live.prompt_tokens + 1)
        for decode, accepts in zip(sim.decode, sim.decode_accepts(live), strict=True)
        if accepts
    ]
    kv_bytes = live.prompt_tokens * cluster.kv_bytes_per_token
    rate = cluster.nic_bytes_per_s / (sim.links.out_flows(prefill) + 1)
    fixed_s = cluster.setup_s if cluster.handover_fixed_s is None else cluster.handover_fixed_s
    fixed_s += cluster.pages(live.prompt_tokens) * cluster.per_block_s + kv_bytes / cluster.handover_load_bytes_per_s
    if cluster.handover == "blocking":
        return min(steps) + fixed_s + kv_bytes / rate
    new = live.prompt_tokens - hit_tokens
    computing_s = sim.expected_prefill_s(live, prefill, hit_tokens)
    if cluster.handover == "last_chunk" and 0 < cluster.chunk_tokens < new:
        last = new % cluster.chunk_tokens or cluster.chunk_tokens
        computing_s = computing_s * last / new
    behind_s = computing_s - computing_s / cluster.layers  # all but the first layer
    return min(steps) + fixed_s + max(kv_bytes / rate - behind_s, kv_bytes / rate / cluster.layers)
