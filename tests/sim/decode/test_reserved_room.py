"""Room that is reserved for an incoming migration belongs to it, even where a single request runs."""

import numpy as np
from engine_invariants import check_world
from tiny_cluster import Script, requests, run, tiny

MOVE_AT_S = 20.0


def move(view, mask):
    """Request 1 goes from instance 0 to instance 1, at one tick."""
    legal = [int(action) for action in np.flatnonzero(mask[:-1])]
    slots, decodes = int(view.cluster[0].num_candidates), int(view.cluster[0].num_decode)
    wanted = 0 * slots * decodes + 1  # first candidate of instance 0 to instance 1
    return wanted if view.cluster[0].now_s == MOVE_AT_S and wanted in legal else len(mask) - 1


def test_a_lone_request_does_not_grow_into_reserved_room() -> None:
    # Steps of 0.1 s, 0.1 GB/s, 1 MB a token. The two prompts come to their instances, one each, after 6 s (300 tokens)
    # and 8.45 s (545). At 20 s request 1 has 441 tokens and starts its copy, which takes 4.41 s. Then it has 486, 487
    # are reserved, and 713 of 1,200 are left for request 0, which has 706. Request 1 stands still for 8 s and its
    # delta, but request 0 only has room for 7 steps: it goes, and is back when request 1 has ended. Small requests
    # arrive in between: their decisions are when the tables are looked at.
    rows = [(0.0, 545, 500), (0.0, 300, 400), *((MOVE_AT_S + 0.5 * k, 1, 2) for k in range(1, 20))]
    scenario = tiny(
        decode__count=3, decode__kv_tokens=1200, decode__damping="sglang", network__nic_gbytes_per_s=0.1,
        reschedule__period_s=MOVE_AT_S, reschedule__stall_s=8.0, horizon_s=None,
    )  # fmt: skip
    seen: list[tuple[int, int]] = []

    def watch(worlds) -> None:
        check_world(worlds)
        row = worlds.world(0).decode[1]
        seen.append((int(row.reserved_tokens), int(row.preempted)))

    script = Script([(0, 1), (0, 0), (0, 2)], move)
    done = run(scenario, requests(rows), script, watch=watch, decode_d_s=0.1, prefill_b_s=1e-9)
    assert done.rows.migrations.tolist()[:2] == [0, 1]
    assert done.rows.preemptions.tolist()[:2] == [1, 0]
    assert any(reserved > 0 and preempted == 1 for reserved, preempted in seen)
