"""What a run leaves: one record a request, and totals of each instance."""

from __future__ import annotations

import numpy as np

from cacheenv.sim.decode.run import steps_ended
from cacheenv.sim.state.codes import (
    COMPLETED,
    FUTURE,
    HANDOVER,
    KIND_DECODE,
    KIND_PREFILL,
    KIND_STORE,
    PHASE_LAST,
    PHASE_MAIN,
    PREFILLING,
    QUEUED,
    REJECTED_LATE,
    WAITING,
)
from cacheenv.sim.state.columns import columns
from cacheenv.sim.state.world import World

_TIMES = (
    "arrival_s routed_s prefill_start_s prefill_end_s transfer_end_s decode_start_s finish_s "
    "ttft_s tpot_s tbt_p99_s tbt_tail_s e2e_s"
).split()
#: The last state of a request in which a time is not known yet; the other times are known of completed requests.
_LAST_STATE_BEFORE = {
    "routed_s": FUTURE,
    "prefill_start_s": QUEUED,
    "prefill_end_s": PREFILLING,
    "transfer_end_s": HANDOVER,
    "decode_start_s": WAITING,
}
_COUNTS = (
    "prompt_tokens output_tokens hit_tokens hit_gpu_tokens hit_host_tokens hit_predicted_tokens hit_available_tokens "
    "pulled_tokens migrated_tokens rework_tokens preemptions migrations prefill_instance decode_instance outcome "
    "slo_met counted retries"
).split()

RECORD_DTYPE = columns(f"i8 request session namespace\nf8 {' '.join(_TIMES)} outside_s\ni8 {' '.join(_COUNTS)}").dtype
INSTANCE_DTYPE = columns(
    "i8 kind index tokens replicas replicated_tokens\nf8 busy_s bytes_out bytes_in nic_bytes_per_s"
).dtype


def request_records(world: World, count: int) -> np.recarray:
    """One :data:`RECORD_DTYPE` row for each of the first `count` requests, in the order of the workload."""
    source, load = world.request[:count], world.workload[:count]
    arrived = source["arrival_s"] >= 0.0
    prefill_instance = np.where(arrived, source["prefill_instance"], -1)
    routed = arrived & (prefill_instance >= 0)
    outcome, state = source["outcome"].copy(), source["state"].copy()
    decoded = routed & (load["output_tokens"] > 1) & (outcome != REJECTED_LATE)
    completed = outcome == COMPLETED
    called = (load["turn"] > 0) & (world.config[0].closed == 1)
    outside_s = source["outside_s"].copy()
    outside_s[outside_s < 0.0] += float(world.state[0].now_s)  # and still there
    found = {
        "request": np.arange(count),
        **{name: load[name] for name in ("session", "namespace", "prompt_tokens", "output_tokens")},
        "arrival_s": np.where(arrived, source["arrival_s"], np.where(called, np.nan, load["arrival_s"])),
        "outside_s": outside_s,
        "prefill_instance": prefill_instance,
        "decode_instance": np.where(arrived, source["decode_instance"], -1),
        "outcome": outcome,
        "counted": np.arange(count) >= int(world.config[0].warmup_requests),
    }
    for name in _TIMES[1:]:
        reached = completed
        if name in _LAST_STATE_BEFORE:
            passed = decoded if name in ("transfer_end_s", "decode_start_s") else routed
            reached = passed & (state > _LAST_STATE_BEFORE[name])
        found[name] = np.where(reached, source[name], np.nan)
    records = np.empty(count, RECORD_DTYPE)
    for name in RECORD_DTYPE.names or ():
        records[name] = found[name] if name in found else source[name]
    return records.view(np.recarray)


def instance_totals(world: World) -> np.recarray:
    """One :data:`INSTANCE_DTYPE` row for each instance and for the store, what is under way included."""
    prefills, decodes = len(world.prefill), len(world.decode)
    rows = np.zeros(prefills + decodes + 1, INSTANCE_DTYPE)
    rows["kind"] = [KIND_PREFILL] * prefills + [KIND_DECODE] * decodes + [KIND_STORE]
    rows["index"] = [*range(prefills), *range(decodes), 0]
    rows["busy_s"][:prefills] = world.prefill["busy_s"]
    rows["busy_s"][prefills : prefills + decodes] = world.decode["busy_s"]
    rows["tokens"][:prefills] = world.prefill["computed_tokens"]
    for name in ("replicas", "replicated_tokens"):
        rows[name][:prefills] = world.prefill[name]
    rows["tokens"][prefills : prefills + decodes] = world.decode["made_tokens"]
    for name, column in (("bytes_out", "bytes_out"), ("bytes_in", "bytes_in"), ("nic_bytes_per_s", "bytes_per_s")):
        rows[name] = world.nic[column]
    _add_under_way(world, rows)
    return rows.view(np.recarray)


def _add_under_way(world: World, rows: np.ndarray) -> None:
    """Adds what the tables book only at its end: the running batches and steps, and the flows in transmission."""
    now_s = float(world.state[0].now_s)
    busy = world.prefill["busy"] == 1
    rows["busy_s"][: len(busy)][busy] += now_s - world.prefill["batch_start_s"][busy]
    for d in np.flatnonzero((world.decode["batch"] > 0) & (world.decode["planned"] > 0)):
        row = world.decode[d]
        rows["busy_s"][len(busy) + d] += now_s - row.start_s
        rows["tokens"][len(busy) + d] += int(steps_ended(row, now_s)) * row.batch
    flows = world.flow[(world.flow["phase"] == PHASE_MAIN) | (world.flow["phase"] == PHASE_LAST)]
    whole = np.where(flows["phase"] == PHASE_MAIN, flows["main_bytes"], flows["last_bytes"])
    sent = whole - np.maximum(0.0, flows["remaining_bytes"] - flows["rate_bytes_per_s"] * (now_s - flows["updated_s"]))
    np.add.at(rows["bytes_out"], flows["source"], sent)
    np.add.at(rows["bytes_in"], flows["sink"], sent)
