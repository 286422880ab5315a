"""What the tests of reported faults share: prompts that have nothing in common, and that nothing is held at the end."""

from __future__ import annotations

from engine_invariants import check_memory
from tiny_cluster import Run


def unique(count, tokens=100, output=2, spacing_s=0.0, start_s=0.0):
    return [(start_s + spacing_s * number, tokens, output) for number in range(count)]


def assert_nothing_held(done: Run) -> None:
    """All counters of load and memory are back where they began; caches keep unlocked pages only."""
    world = done.world
    for name in ("queued", "queued_tokens", "inflight", "inflight_tokens", "inflight_new_tokens", "busy"):
        assert not world.prefill[name].any(), name
    for name in (
        "batch",
        "kv_tokens",
        "reserved_tokens",
        "pending",
        "pending_tokens",
        "waiting",
        "preempted",
        "inflight",
    ):
        assert not world.decode[name].any(), name
    assert (world.decode["outgoing"] == -1).all() and (world.decode["incoming"] == -1).all()
    for name in ("private_pages", "locked_pages"):
        assert not world.tree[name].any(), name
    assert not world.nic["flows_out"].any() and not world.nic["flows_in"].any()
    assert all(check_memory(world, index) for index in range(len(world.tree)))
    assert world.state[0].in_system == 0
