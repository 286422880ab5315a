"""What must hold in the engine's tables at every decision, and what must be left when a run has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cacheenv.run.worlds import Worlds
from cacheenv.sim.decode.run import steps_ended
from cacheenv.sim.state.codes import (
    DONE,
    FLOW_REPLICA,
    FUTURE,
    HANDOVER,
    LEARNS_ASSIGNED,
    MOVE_COPIED,
    MOVE_COPYING,
    MOVE_DELTA,
    MOVE_NONE,
    PHASE_FREE,
    PHASE_LAST,
    PHASE_MAIN,
    PREEMPTED,
    QUEUED,
    RUNNING,
    SHARING_MAX_MIN,
    WAITING,
)
from cacheenv.sim.state.world import World

NODE, REQUEST, FLOW = "node", "request", "flow"


def chain(table: Any, head: int, link: str) -> Iterator[int]:
    """Row numbers of a linked list; a loop fails."""
    following = table[link].tolist()
    for _ in range(len(table) + 1):
        if head < 0:
            return
        yield int(head)
        head = following[head]
    raise AssertionError("a list without an end")


def check_world(worlds: Worlds) -> None:
    """All invariants that hold between two events."""
    world = worlds.world(0)
    for tree_index in range(len(world.tree)):
        assert check_memory(world, tree_index)
        check_tree(world, tree_index)
    check_pools(world)
    check_heap(world)
    check_links(world)
    for instance in range(len(world.prefill)):
        check_prefill(world, instance)
    for instance in range(len(world.decode)):
        check_decode(world, instance)
    check_requests(world)
    check_copies(world)


def nodes_of(world: World, tree_index: int) -> np.ndarray:
    """Nodes of a tree, without its root."""
    node, root = world.node, int(world.tree[tree_index].root)
    mine = np.flatnonzero((node["used"] == 1) & (node["tree"] == tree_index))
    return mine[mine != root]


def check_tree(world: World, tree_index: int) -> None:
    tree, node = world.tree[tree_index], world.node
    mine = nodes_of(world, tree_index)
    assert len(mine) == tree.nodes
    assert tree.pages == node["length"][mine].sum()
    assert tree.locked_pages == node["length"][mine][node["locks"][mine] > 0].sum()
    assert np.all(node["length"][mine] > 0)
    assert np.all(node["locks"][mine] >= 0)
    root = int(tree.root)
    assert (node[root]["locks"], node[root]["parent"]) == (0, -1)
    listed = list(chain(node, int(tree.oldest), "newer"))
    assert sorted(listed) == mine[node["locks"][mine] == 0].tolist()
    assert (listed[-1] if listed else -1) == tree.newest
    place = {index: number for number, index in enumerate(listed)}
    children: dict[int, int] = {}
    locks, known = node["locks"].tolist(), {root, *mine.tolist()}
    for index, parent in zip(mine.tolist(), node["parent"][mine].tolist(), strict=True):
        children[parent] = children.get(parent, 0) + 1
        assert parent in known
        if parent != root:
            assert locks[parent] >= locks[index], "a page is held, the page before it is not"
            if index in place and parent in place:
                assert place[parent] > place[index], "a parent would be evicted before its child"
    counted = node["children"].tolist()
    assert all(counted[index] == children.get(index, 0) for index in known)


def check_memory(world: World, tree_index: int) -> bool:
    """Whether the pages of a tree add up: free + evictable + locked + private = capacity."""
    tree = world.tree[tree_index]
    evictable = sum(int(world.node[index]["length"]) for index in chain(world.node, int(tree.oldest), "newer"))
    fits = tree.pages + tree.private_pages <= tree.capacity_pages
    return bool(fits and tree.private_pages >= 0 and evictable == tree.pages - tree.locked_pages)


def check_pools(world: World) -> None:
    state = world.state[0]
    free = list(chain(world.flow, int(state.free_flow), "next_free"))
    assert len(free) == state.free_flows == np.count_nonzero(world.flow["phase"] == PHASE_FREE)
    free = list(chain(world.node, int(state.free_node), "newer"))
    assert len(free) == state.free_nodes == np.count_nonzero(world.node["used"] == 0)
    table = world.child_table[world.child_table >= 0]
    inner = np.flatnonzero((world.node["used"] == 1) & (world.node["parent"] >= 0))
    assert np.array_equal(np.sort(table), inner)
    free = list(chain(world.slot, int(state.free_slot), "next_free"))
    held = [int(request.slot) for request in world.request if request.state != 0 and request.slot >= 0]
    assert len(set(free)) == len(free) and not set(free) & set(held)
    assert len(free) + len(held) <= len(world.slot)


def check_heap(world: World) -> None:
    size = int(world.state[0].heap_size)
    heap, position = world.heap[:size], world.heap_position
    assert np.array_equal(position[heap["timer"]], np.arange(size))
    assert np.count_nonzero(position >= 0) == size
    keys = list(zip(heap["time_s"].tolist(), heap["order"].tolist(), strict=True))
    assert all(keys[(at - 1) // 2] <= keys[at] for at in range(1, size))
    assert all(time >= world.state[0].now_s for time, _ in keys)


def check_links(world: World) -> None:
    flow = world.flow
    sending = np.flatnonzero((flow["phase"] == PHASE_MAIN) | (flow["phase"] == PHASE_LAST))
    for index, nic in enumerate(world.nic):
        out, into = sending[flow["source"][sending] == index], sending[flow["sink"][sending] == index]
        assert sorted(chain(flow, int(nic.first_out), "next_out")) == out.tolist()
        assert sorted(chain(flow, int(nic.first_in), "next_in")) == into.tolist()
        assert (nic.flows_out, nic.flows_in) == (len(out), len(into))
        # no NIC carries more than its bandwidth
        assert flow["rate_bytes_per_s"][out].sum() <= nic.bytes_per_s * (1 + 1e-12)
        assert flow["rate_bytes_per_s"][into].sum() <= nic.bytes_per_s * (1 + 1e-12)
    if world.config[0].sharing == SHARING_MAX_MIN:
        check_fair(world)


def check_fair(world: World) -> int:
    """Max-min fairness: some end of each flow is full, with no faster flow. Returns the flows in transmission."""
    flow = world.flow
    sending = np.flatnonzero((flow["phase"] == PHASE_MAIN) | (flow["phase"] == PHASE_LAST))
    rate = flow["rate_bytes_per_s"]
    for index in sending:
        ends = [sending[flow[side][sending] == flow[side][index]] for side in ("source", "sink")]
        bandwidths = [world.nic["bytes_per_s"][flow[side][index]] for side in ("source", "sink")]
        held = [
            rate[end].sum() >= bandwidth * (1 - 1e-12) and rate[index] >= rate[end].max() * (1 - 1e-12)
            for end, bandwidth in zip(ends, bandwidths, strict=True)
        ]
        assert any(held), f"flow {index} is held by no end"
    return len(sending)


def check_prefill(world: World, instance: int) -> None:
    row, request = world.prefill[instance], world.request
    queued = list(chain(request, int(row.head), "queue_next"))
    assert len(queued) == row.queued
    assert (queued[-1] if queued else -1) == row.tail
    assert all(request[index]["state"] == QUEUED for index in queued)
    assert row.queued_tokens == sum(int(request[index]["price_tokens"]) for index in queued)
    assert np.isclose(row.queue_s, sum(float(request[index]["price_s"]) for index in queued), rtol=1e-9, atol=1e-9)
    batch = list(chain(request, int(row.batch_head), "batch_next")) if row.busy else []
    assert len(batch) == row.batch_size
    held = request["private_pages"][request["prefill_instance"] == instance].sum()
    pulled = world.flow[(world.flow["phase"] != PHASE_FREE) & (world.flow["sink"] == instance)]["reserved_pages"].sum()
    spec = world.instance[int(row.instance)]
    if spec.host_tree >= 0:  # pulls arrive there
        assert world.tree[int(spec.tree)].private_pages == held
        assert world.tree[int(spec.host_tree)].private_pages == pulled
    else:
        assert world.tree[instance].private_pages == held + pulled


def check_copies(world: World) -> None:
    """Each copy of a hot prefix is the one that its sink knows of, and holds its pages at both ends."""
    flow, node = world.flow, world.node
    sent = np.flatnonzero((flow["phase"] != PHASE_FREE) & (flow["kind"] == FLOW_REPLICA))
    known = world.prefill["replica_flow"]
    assert sorted(known[known >= 0].tolist()) == sent.tolist()
    assert len(sent) == 0 or world.config[0].replication_hits > 0
    for instance in np.flatnonzero(known >= 0).tolist():
        row = flow[known[instance]]
        assert row["sink"] == instance != row["source"]
        source, sink = int(row["source_node"]), int(row["sink_node"])
        assert node[source]["tree"] == row["source_tree"] == row["source"]
        assert node[source]["locks"] > 0 and int(node[source]["depth"] + node[source]["length"]) == row["path_pages"]
        spec = world.instance[instance]
        assert node[sink]["tree"] == (spec.host_tree if spec.host_tree >= 0 else spec.tree)
        there = int(node[sink]["depth"] + node[sink]["length"])
        assert there + row["reserved_pages"] == row["path_pages"] and (there == 0 or node[sink]["locks"] > 0)


def check_decode(world: World, instance: int) -> None:
    row, request, slot = world.decode[instance], world.request, world.slot
    slots = world.batch_heap[instance, : int(row.batch)]
    assert slot["position"][slots].tolist() == list(range(len(slots)))
    finish = slot["finish_step"][slots]
    assert all(finish[(at - 1) // 2] <= finish[at] for at in range(1, len(slots)))
    kv_tokens = 0
    for number in slots.tolist():
        index = int(slot[number]["request"])
        assert (request[index]["slot"], request[index]["state"]) == (number, RUNNING)
        assert request[index]["decode_instance"] == instance
        generated = int(request[index]["generated"] + row.step - slot[number]["join_step"])
        assert 1 <= generated < request[index]["output_tokens"]
        kv_tokens += int(request[index]["prompt_tokens"]) + generated
    capacity = world.instance[int(row.instance)].kv_capacity_tokens
    assert kv_tokens == row.kv_tokens
    assert row.kv_tokens <= capacity
    coming = int(row.incoming)
    assert row.reserved_tokens == (request[coming]["move_reserved_tokens"] if coming >= 0 else 0)
    resident = row.kv_tokens + steps_ended(row, world.state[0].now_s) * row.batch
    assert resident + row.reserved_tokens <= capacity, "grown into room that is reserved for a migration"
    if row.batch > 0 and row.planned > 0:
        assert row.kv_tokens + row.batch <= capacity - row.reserved_tokens or row.planned == 1
    thrown_out = list(chain(request, int(row.preempted_head), "wait_next"))
    assert row.preempted_tokens == (request["prompt_tokens"] + request["generated"])[thrown_out].sum()
    for head, count, state in (("head", "waiting", WAITING), ("preempted_head", "preempted", PREEMPTED)):
        waiting = list(chain(request, int(row[head]), "wait_next"))
        assert len(waiting) == row[count]
        held = sum(int(request[index]["prompt_tokens"] + request[index]["generated"]) for index in waiting)
        assert row[f"{count}_tokens"] == held
        assert all(request[index]["state"] == state for index in waiting)


def check_requests(world: World) -> None:
    state, request = world.state[0], world.request[: int(world.config[0].num_requests)]
    heap = world.coming[: int(state.coming)].tolist()
    inside = np.count_nonzero((request["state"] != DONE) & (request["state"] != FUTURE))
    deciding = int(state.deciding)
    assert state.in_system == inside + (deciding >= 0 and request[deciding]["state"] == FUTURE and deciding not in heap)
    due = [(float(request[row]["due_s"]), row) for row in heap]
    assert all(due[(at - 1) // 2] < due[at] for at in range(1, len(due)))
    outside = list(chain(request, int(state.gate_head), "gate_next"))
    assert (outside[-1] if outside else -1) == state.gate_tail
    assert not set(outside) & set(heap)
    assert all(request[row]["state"] == FUTURE for row in (*outside, *heap))
    bound = int(world.config[0].max_in_flight)
    assert bound == 0 or state.in_system <= bound
    assert state.unfinished == np.count_nonzero(request["state"] != DONE)
    for index in np.flatnonzero(request["move_state"] != MOVE_NONE).tolist():
        row = request[index]
        assert world.decode[int(row["move_target"])].incoming == index
        if row["move_state"] in (MOVE_COPYING, MOVE_COPIED):
            assert world.decode[int(row["decode_instance"])].outgoing == index
        if row["move_state"] in (MOVE_COPYING, MOVE_DELTA):
            assert world.flow[int(row["move_flow"])]["phase"] != PHASE_FREE
    asked = list(chain(request, int(state.check_head), "check_next"))
    assert all(request[index]["state"] == HANDOVER for index in asked)


def check_end(worlds: Worlds) -> None:
    """Nothing is left of a run but what is cached, and the index knows exactly that."""
    world = worlds.world(0)
    check_world(worlds)
    state, config = world.state[0], world.config[0]
    for name in ("unfinished", "in_system", "counted_in_system", "heap_size", "news_count", "tick_open"):
        assert state[name] == 0, name
    assert state.check_head == -1
    assert state.free_flows == len(world.flow)
    assert len(list(chain(world.slot, int(state.free_slot), "next_free"))) == len(world.slot)
    assert np.all(world.request["state"][: int(config.num_requests)] == DONE)
    assert not world.node["locks"].any()
    assert not world.tree["private_pages"].any() and not world.tree["locked_pages"].any()
    for name in "queued queued_tokens inflight inflight_tokens inflight_new_tokens batch_size busy queue_s".split():
        assert not world.prefill[name].any(), name
    assert np.all(world.prefill["chunked"] == -1) and np.all(world.prefill["replica_flow"] == -1)
    for name in (
        "batch kv_tokens reserved_tokens pending pending_tokens waiting preempted waiting_tokens preempted_tokens "
        "inflight pending_stall_s"
    ).split():
        assert not world.decode[name].any(), name
    for name in "head tail preempted_head preempted_tail outgoing incoming arrived joined_head".split():
        assert np.all(world.decode[name] == -1), name
    check_index(world)


def check_index(world: World) -> None:
    """With all news delivered, the index holds the caches' pages and no others; so does the router's memory.

    What waits at the shards of the index counts as delivered. Where they have lost events nothing is known.
    """
    holders, stored_on = with_waiting_events(world)
    prefills = int(world.config[0].num_prefill)
    places = {int(tree.holder): number for number, tree in enumerate(world.tree) if tree.holder >= 0}
    assert len(places) == len(world.hit)
    for holder, tree_index in places.items():
        if world.state[0].news_lost:
            break
        known = np.flatnonzero(holders[:, 0] >> holder & 1)
        if world.config[0].index_learns == LEARNS_ASSIGNED:
            assert known.tolist() == np.flatnonzero(stored_on[:, 0] >> holder & 1).tolist()
        assert known.tolist() == cached_blocks(world, tree_index)
    for tree_index in range(prefills + 1, prefills + 1 + (prefills if world.config[0].memory_enabled else 0)):
        known = np.flatnonzero(world.remembered[:, 0] >> (tree_index - prefills - 1) & 1)
        assert known.tolist() == cached_blocks(world, tree_index)


def with_waiting_events(world: World) -> tuple[np.ndarray, np.ndarray]:
    """Copies of `holders` and `stored_on` in which the shards have taken in what waits."""
    holders, stored_on = world.holders.copy(), world.stored_on.copy()
    for number, shard in enumerate(world.shard):
        most = int(world.config[0].index_high_water)
        for place in range(int(shard.head), int(shard.head + shard.waiting)):
            event = world.shard_event[number * most + place % most]
            block, bit = world.blocks[event["at"]], 1 << int(event["holder"])
            for table in (holders, stored_on[:0] if len(stored_on) < len(holders) else stored_on):
                if len(table):
                    table[block, 0] = table[block, 0] | bit if event["stored"] else table[block, 0] & ~bit
    return holders, stored_on


def cached_blocks(world: World, tree_index: int) -> list[int]:
    rows = world.node[nodes_of(world, tree_index)]
    return sorted(int(block) for row in rows for block in world.blocks[row["start"] : row["start"] + row["length"]])
