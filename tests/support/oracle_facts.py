"""What a policy sees at a decision, told by the engine's view and by the reference simulator: equal named facts."""

from __future__ import annotations

import math
from typing import Any

from oracle_forecasts import delivery_s
from reference import ReferenceSimulator
from reference.live import LiveRequest
from reference.predictor import predicted_remaining

from cacheenv.sim.view.columns import View

#: One decision: its kind, and named facts about the moment.
Facts = dict[str, Any]


def instances_of_view(view: View) -> Facts:
    prefill, decode = view.prefill, view.decode
    facts: Facts = {"now_s": float(view.cluster[0].now_s), "in_system": int(view.cluster[0].requests_in_system)}
    facts["decoded"] = int(view.cluster[0].decoded_requests)
    facts["decode_time_s"] = float(view.cluster[0].decode_time_s)
    for name in (
        "queued_requests queued_tokens running_requests inflight_requests inflight_tokens queue_s running_left_s "
        "cache_used_tokens outgoing_flows incoming_flows dispatched_requests "
        "unfinished_requests"
    ).split():
        facts[f"prefill {name}"] = prefill[name].tolist()
    for name in (
        "running_requests waiting_requests preempted_requests waiting_tokens preempted_tokens first_waiting_tokens "
        "pending_requests "
        "pending_tokens inflight_requests kv_tokens reserved_tokens preemptions outgoing_flows incoming_flows step_s "
        "room_tokens can_send can_receive"
    ).split():
        facts[f"decode {name}"] = decode[name].tolist()
    return facts


def route_facts_of_view(view: View) -> Facts:
    """What the view says about an arrival."""
    request = view.request[0]
    return {
        **instances_of_view(view),
        "request": int(request.index),
        "predicted": float(request.predicted_output_tokens),
        "store_hit": int(request.store_hit_tokens),
        "accepts": [view.prefill["accepts"].tolist(), view.decode["accepts"].tolist()],
        "hit": view.prefill["hit_tokens"].tolist(),
        "pull": view.prefill["pull_tokens"].tolist(),
        "memory": view.prefill["memory_hit_tokens"].tolist(),
        "prefill_s": view.prefill["prefill_s"].tolist(),
        "prefill_pull_s": view.prefill["prefill_pull_s"].tolist(),
        "delivery_s": view.prefill["delivery_s"].tolist(),
    }


def move_facts_of_view(view: View, legal: list[int]) -> Facts:
    """What the view says at a tick."""
    rows = view.candidate[view.candidate["valid"] == 1]
    running = view.running[: int(view.cluster[0].num_running)]
    return {
        **instances_of_view(view),
        "legal": legal,
        "candidates": [
            (int(row.source), int(row.request), int(row.kv_tokens), float(row.predicted_remaining_tokens))
            for row in rows
        ],
        "running": sorted((int(row.request), int(row.instance), int(row.kv_tokens)) for row in running),
    }


def instances_of_reference(sim: ReferenceSimulator) -> Facts:
    cluster, page = sim.cluster, sim.cluster.page_tokens
    facts: Facts = {"now_s": sim.now}
    arrived = [live for live in sim.live if live.arrived]
    facts["in_system"] = sum(live.record.outcome == 0 for live in arrived)
    routed = [live for live in arrived if live.record.prefill_instance >= 0]
    decoded = [live.record for live in arrived if live.record.outcome == 1 and live.output_tokens > 1]
    spent_s = [record.finish_s - record.decode_start_s for record in decoded]
    squares = sum(seconds**2 for seconds in spent_s)
    facts["decoded"], facts["decode_time_s"] = len(decoded), squares / sum(spent_s) if decoded else 0.0

    def add(kind: str, name: str, value: Any) -> None:
        facts.setdefault(f"{kind} {name}", []).append(value)

    for index, instance in enumerate(sim.prefill):
        here = [live for live in routed if live.record.prefill_instance == index]
        held = [
            live
            for live in here
            if live.record.outcome == 0
            and (
                math.isnan(live.record.prefill_end_s)
                or (live.output_tokens > 1 and math.isnan(live.record.transfer_end_s))
            )
        ]
        add("prefill", "queued_requests", len(instance.queue))
        prices = instance.prices()
        add("prefill", "queued_tokens", sum(live.prompt_tokens - cached for live, cached, _ in prices))
        add("prefill", "running_requests", len(instance.batch))
        add("prefill", "inflight_requests", len(held))
        add("prefill", "inflight_tokens", sum(live.prompt_tokens for live in held))
        add("prefill", "queue_s", sum(sim.price_s(live, cached, on_gpu) for live, cached, on_gpu in prices))
        add("prefill", "running_left_s", max(0.0, instance.batch_end_s - sim.now) if instance.batch else 0.0)
        add("prefill", "cache_used_tokens", (sim.caches[index].capacity - sim.caches[index].free()) * page)
        add("prefill", "outgoing_flows", sim.links.out_flows(index))
        add("prefill", "incoming_flows", sim.links.in_flows(index))
        add("prefill", "dispatched_requests", len(here))
        add("prefill", "unfinished_requests", sum(live.record.outcome == 0 for live in here))
    for index, decode in enumerate(sim.decode):
        nic, kv_tokens, batch = cluster.num_prefill + index, decode.kv_tokens(), len(decode.batch)
        here = [live for live in routed if _decode_of(live) == index and live.record.outcome == 0]
        pending = [live for live in here if math.isnan(live.record.transfer_end_s)]
        add("decode", "running_requests", batch)
        add("decode", "waiting_requests", len(decode.waiting))
        add("decode", "preempted_requests", len(decode.preempted))
        add("decode", "waiting_tokens", sum(live.kv_tokens() for live in decode.waiting))
        add("decode", "preempted_tokens", sum(live.kv_tokens() for live in decode.preempted))
        add("decode", "first_waiting_tokens", next((one.kv_tokens() for one in decode.preempted + decode.waiting), 0))
        add("decode", "pending_requests", len(pending))
        add("decode", "pending_tokens", sum(live.prompt_tokens for live in [*pending, *decode.waiting]))
        add("decode", "inflight_requests", len(here))
        add("decode", "kv_tokens", kv_tokens)
        add("decode", "reserved_tokens", decode.reserved_tokens())
        add("decode", "preemptions", decode.preemptions)
        add("decode", "outgoing_flows", sim.links.out_flows(nic))
        add("decode", "incoming_flows", sim.links.in_flows(nic))
        like = decode.cluster
        step_s = like.decode_d_s + like.decode_e_s * batch + like.decode_f_s * kv_tokens
        add("decode", "step_s", step_s if batch else 0.0)
        room = like.kv_tokens - decode.reserved_tokens() - kv_tokens - like.reserve_tokens * (batch + 1)
        add("decode", "room_tokens", room)
        add("decode", "can_send", int(decode.outgoing is None))
        places = batch + len(decode.preempted) + 1
        add("decode", "can_receive", int(decode.incoming is None and places <= like.max_batch))
    return facts


def _decode_of(live: LiveRequest) -> int:
    """Decode instance to which a request belongs: after it has left, the destination of its migration."""
    if live.migration is not None and live.migration.left:
        return live.migration.destination.index
    return live.record.decode_instance


def route_facts_of_reference(sim: ReferenceSimulator, live: LiveRequest) -> Facts:
    """The same facts as :func:`route_facts_of_view`."""
    cluster, page = sim.cluster, sim.cluster.page_tokens
    instances = range(cluster.num_prefill)
    hits = [sim.index_hit(live, index) * page for index in instances]
    pulls = [0] * cluster.num_prefill
    for index in instances:
        source, pages = sim.transfers.pull_source(live, index)
        if source >= 0:
            pulls[index] = pages * page - hits[index]
    return {
        **instances_of_reference(sim),
        "request": live.index,
        "predicted": predicted_remaining(cluster, live.index, live.output_tokens, 0, sim.noise),
        "store_hit": sim.index_hit(live, cluster.num_prefill) * page,
        "accepts": [
            [int(accepts) for accepts in pool] for pool in (sim.prefill_accepts(live), sim.decode_accepts(live))
        ],
        "hit": hits,
        "pull": pulls,
        "memory": [sim.memory_hit(live, index) * page if cluster.memory_tokens else 0 for index in instances],
        "prefill_s": [sim.expected_prefill_s(live, p, hits[p]) for p in instances],
        "prefill_pull_s": [sim.expected_prefill_s(live, p, hits[p] + pulls[p]) for p in instances],
        "delivery_s": [delivery_s(sim, live, index, hits[index]) for index in instances],
    }


def move_facts_of_reference(sim: ReferenceSimulator, legal: list[int]) -> Facts:
    """The same facts as :func:`move_facts_of_view`."""
    return {
        **instances_of_reference(sim),
        "legal": legal,
        "candidates": [
            (
                decode.index,
                live.index,
                live.kv_tokens(),
                predicted_remaining(sim.cluster, live.index, live.output_tokens, live.generated, sim.noise),
            )
            for decode in sim.decode
            for live in sim.migrations.candidates(decode)
        ],
        "running": sorted(
            (live.index, decode.index, live.kv_tokens()) for decode in sim.decode for live in decode.batch
        ),
    }
