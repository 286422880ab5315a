"""The question to admission after a prefill, and the counters of the reward, on both sides of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference import ReferenceCluster, ReferenceSimulator, RequestRecord
from reference.live import LiveRequest
from reference.predictor import predicted_remaining

from cacheenv.sim.view.columns import View

COMPLETED, REJECTED, REJECTED_LATE = 1, 2, 4


def check_facts_of_view(view: View) -> dict[str, Any]:
    """What the view says at the end of a prefill."""
    request, proposed = view.request[0], int(view.cluster[0].proposed)
    return {
        "asked again": int(request.index),
        "predicted": float(request.predicted_output_tokens),
        "route": (proposed // 2 // len(view.decode), proposed // 2 % len(view.decode), proposed % 2),
        "hit": view.prefill["hit_tokens"].tolist(),
        "prefill_s": view.prefill["prefill_s"].tolist(),
    }


def check_facts_of_reference(sim: ReferenceSimulator, live: LiveRequest) -> dict[str, Any]:
    """The same facts as :func:`check_facts_of_view`."""
    nothing = [0] * sim.cluster.num_prefill
    return {
        "asked again": live.index,
        "predicted": predicted_remaining(sim.cluster, live.index, live.output_tokens, 0, sim.noise),
        "route": (live.record.prefill_instance, live.record.decode_instance, 0),
        "hit": nothing,
        "prefill_s": nothing,
    }


def reward_counters(records: Sequence[RequestRecord], cluster: ReferenceCluster) -> dict[str, float]:
    """The reward counters that the records of counted requests give.

    Who was late with the first token has been counted for that when it is refused after its prefill, unless the decode
    instance delivers that token.
    """
    completed = [record for record in records if record.outcome == COMPLETED]
    late = [record for record in records if record.outcome == REJECTED_LATE]
    met = sum(record.slo_met for record in completed)
    known_late = sum(_first_token_late(record, cluster) for record in late)
    in_system_s = [record.finish_s - record.entered_s for record in completed]
    in_system_s += [record.prefill_end_s - record.entered_s for record in late]
    return {
        "met": met,
        "rejected": sum(record.outcome == REJECTED for record in records) + len(late) - known_late,
        "violated": len(completed) - met + known_late,
        "integral_s": sum(in_system_s, 0.0),
    }


def _first_token_late(record: RequestRecord, cluster: ReferenceCluster) -> bool:
    if cluster.first_token == "decode":
        return False
    ttft_s = record.prefill_end_s + cluster.response_overhead_s - record.arrival_s
    return cluster.slo_ttft_s is not None and ttft_s > cluster.slo_ttft_s
