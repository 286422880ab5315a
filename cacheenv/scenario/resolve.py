"""From a scenario to the numbers of its cluster: presets and links looked up, one row an instance.

Behind this seam nobody knows a preset by name: the simulator's tables are filled from a :class:`ClusterSpec`, and
who wants other hardware hands in another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cacheenv.physics import Preset, load_preset
from cacheenv.scenario.fleet import Group, groups_of
from cacheenv.scenario.scenario import Scenario
from cacheenv.sim.cache.eviction import EVICTIONS
from cacheenv.sim.core.kinds import code_of
from cacheenv.sim.decode.damping import DAMPINGS
from cacheenv.sim.decode.preemption import PREEMPTIONS
from cacheenv.sim.prefill.discipline import DISCIPLINES
from cacheenv.sim.state.codes import ROLE_PRE_PREFILL, ROLE_PREFILL

#: What stands for the presets that a scenario names: one for all instances of a role, or one an instance.
Presets = Preset | Sequence[Preset] | None


@dataclass(frozen=True, kw_only=True)
class LinkSpec:
    """What an instance is connected with, and what its KV weighs there.

    Attributes:
        nic_bytes_per_s: Bandwidth of the NIC, each direction.
        setup_s: Fixed time of a transfer, seconds.
        kv_bytes: Bytes of a token's KV on the instance, all copies.
        kv_copy_bytes: Bytes of one of them.
        tensor_parallel: GPUs of the instance, among which the copies are spread.
    """

    nic_bytes_per_s: float
    setup_s: float
    kv_bytes: int
    kv_copy_bytes: int
    tensor_parallel: int


@dataclass(frozen=True, kw_only=True)
class PrefillSpec(LinkSpec):
    """One prefill instance; coefficients as in :class:`cacheenv.physics.Preset`.

    Attributes:
        role: `ROLE_PREFILL` or `ROLE_PRE_PREFILL`.
        prefill_a_s: Fixed time of a batch, seconds.
        prefill_b_s: Seconds for each new token.
        prefill_c_s: Seconds for each unit of attention.
        min_prefill_s: Shortest batch, seconds.
        n_tile: New tokens below which attention over a cached prefix gets no cheaper.
        cache_tokens: Prefix cache, tokens.
        host_cache_tokens: Prefixes in host memory, tokens; 0 = none.
        host_bytes_per_s: Rate at which they are loaded.
        host_setup_s: Fixed time of a batch that loads, seconds.
        eviction: What goes when it is full: code of a kind of `cacheenv.sim.cache.eviction.EVICTIONS`.
        queue: Its discipline: code of a kind of `cacheenv.sim.prefill.discipline.DISCIPLINES`.
        lpm_fallback: Of `lpm`, as the next two: waiting requests above which it orders as fcfs.
        lpm_check_tokens: Hits up to this are candidates for deferral.
        lpm_defer_tokens: Tokens that a deferred one shares with an earlier one.
        lpm_ageing_tokens: Of `lpm_aged`: tokens of match that a round of waiting counts for.
        batch_tokens: New tokens of a batch at most.
        chunk_tokens: Longest piece of a prompt in a batch, tokens; 0 = prompts are not cut.
        max_batch_requests: Requests of a batch at most.
    """

    role: int
    prefill_a_s: float
    prefill_b_s: float
    prefill_c_s: float
    min_prefill_s: float
    n_tile: int
    cache_tokens: int
    host_cache_tokens: int
    host_bytes_per_s: float
    host_setup_s: float
    eviction: int
    queue: int
    lpm_fallback: int
    lpm_check_tokens: int
    lpm_defer_tokens: int
    lpm_ageing_tokens: int
    batch_tokens: int
    chunk_tokens: int
    max_batch_requests: int


@dataclass(frozen=True, kw_only=True)
class DecodeSpec(LinkSpec):
    """One decode instance; coefficients as in :class:`cacheenv.physics.Preset`.

    Attributes:
        decode_d_s: Fixed time of a step, seconds.
        decode_e_s: Seconds a step for each request of the batch.
        decode_f_s: Seconds a step for each resident token.
        prefill_a_s: Fixed time of a recomputation after a preemption, seconds.
        prefill_b_s: Seconds of it for each token.
        prefill_c_s: Seconds of it for each unit of attention.
        kv_tokens: KV capacity, tokens.
        max_batch: Requests in the batch at most.
        reserve_tokens: Head-room for growth of each request, tokens.
        join_stall_s: Stall of the first step after a join, seconds a join.
        preemption: What a preempted request pays: code of a kind of `cacheenv.sim.decode.preemption.PREEMPTIONS`.
        swap_bytes_per_s: Bandwidth of swapping in.
        damping: How careful admission is: code of a kind of `cacheenv.sim.decode.damping.DAMPINGS`.
    """

    decode_d_s: float
    decode_e_s: float
    decode_f_s: float
    prefill_a_s: float
    prefill_b_s: float
    prefill_c_s: float
    kv_tokens: int
    max_batch: int
    reserve_tokens: int
    join_stall_s: float
    preemption: int
    swap_bytes_per_s: float
    damping: int


@dataclass(frozen=True)
class StoreSpec:
    """The cluster-wide KV store.

    Attributes:
        capacity_tokens: Capacity, tokens; 0 where there is no store.
        nic_bytes_per_s: Bandwidth of its NIC, each direction.
        eviction: What goes when it is full: code of a kind of `cacheenv.sim.cache.eviction.EVICTIONS`.
    """

    capacity_tokens: int
    nic_bytes_per_s: float
    eviction: int


@dataclass(frozen=True)
class ClusterSpec:
    """The machines of a scenario in numbers.

    Attributes:
        prefill: One row a prefill instance, group after group.
        decode: One row a decode instance, likewise.
        store: The store.
        handover_fixed_s: Fixed time of a hand-over, seconds; None: the set-up of a transfer between its two ends.
        layers: Pieces of layer-wise overlap.
    """

    prefill: tuple[PrefillSpec, ...]
    decode: tuple[DecodeSpec, ...]
    store: StoreSpec
    handover_fixed_s: float | None
    layers: int


def resolve(scenario: Scenario, *, prefill: Presets = None, decode: Presets = None) -> ClusterSpec:
    """The numbers of a scenario's cluster.

    Args:
        scenario: Names the presets and the link, and may replace some of their numbers.
        prefill: Stands for the presets that the scenario names for prefill instances.
        decode: The same for decode instances.

    Raises:
        InputError: An unknown preset or link. A scenario from :func:`cacheenv.load_scenario` has none.
    """
    cluster = scenario.cluster
    rows: dict[str, list[Any]] = {"prefill": [], "decode": []}
    given = {"prefill": prefill, "decode": decode}
    layers = 0  # of the model, which is that of the first instance
    for group in groups_of(cluster):
        mine = rows[group.role]
        named = load_preset(group.section.preset) if given[group.role] is None else given[group.role]
        for number in range(len(mine), len(mine) + group.count):
            preset = named if isinstance(named, Preset) else named[number]  # type: ignore[index]
            layers = layers or preset.layers
            if group.role == "decode":
                mine.append(_decode(group, preset))
            else:
                mine.append(_prefill(group, preset, number < cluster.prefill.pre_prefill))
    return ClusterSpec(
        prefill=tuple(rows["prefill"]),
        decode=tuple(rows["decode"]),
        store=StoreSpec(
            cluster.store.capacity_tokens,
            cluster.store.nic_gbytes_per_s * 1e9,
            code_of(EVICTIONS, cluster.store.eviction),
        ),
        handover_fixed_s=cluster.network.handover_fixed_s,
        layers=layers if cluster.network.layers is None else cluster.network.layers,
    )


def _link(group: Group, preset: Preset) -> dict[str, Any]:
    """Fields of :class:`LinkSpec`."""
    nic_bytes_per_s, setup_s = group.link()
    return {
        "nic_bytes_per_s": nic_bytes_per_s,
        "setup_s": setup_s,
        "kv_bytes": preset.moved_bytes_per_token,
        "kv_copy_bytes": preset.kv_bytes_per_token,
        "tensor_parallel": preset.tensor_parallel,
    }


def _prefill(group: Group, preset: Preset, is_pre_prefill: bool) -> PrefillSpec:
    """One prefill instance of a group."""
    keys: Any = group.section
    return PrefillSpec(
        role=ROLE_PRE_PREFILL if is_pre_prefill else ROLE_PREFILL,
        prefill_a_s=preset.prefill_a_s,
        prefill_b_s=preset.prefill_b_s,
        prefill_c_s=preset.prefill_c_s,
        min_prefill_s=preset.min_prefill_s,
        n_tile=preset.n_tile,
        cache_tokens=preset.capacity_tokens if keys.cache_tokens is None else keys.cache_tokens,
        host_cache_tokens=keys.host_cache_tokens,
        host_bytes_per_s=keys.host_gbytes_per_s * 1e9,
        host_setup_s=keys.host_setup_s,
        eviction=code_of(EVICTIONS, keys.eviction),
        queue=code_of(DISCIPLINES, keys.queue),
        lpm_fallback=keys.lpm_fallback,
        lpm_check_tokens=keys.lpm_check_tokens,
        lpm_defer_tokens=keys.lpm_defer_tokens,
        lpm_ageing_tokens=keys.lpm_ageing_tokens,
        batch_tokens=keys.batch_tokens,
        chunk_tokens=keys.chunk_tokens,
        max_batch_requests=keys.max_batch_requests,
        **_link(group, preset),
    )


def _decode(group: Group, preset: Preset) -> DecodeSpec:
    """One decode instance of a group."""
    keys: Any = group.section
    return DecodeSpec(
        decode_d_s=preset.decode_d_s,
        decode_e_s=preset.decode_e_s,
        decode_f_s=preset.decode_f_s,
        prefill_a_s=preset.prefill_a_s,
        prefill_b_s=preset.prefill_b_s,
        prefill_c_s=preset.prefill_c_s,
        kv_tokens=preset.capacity_tokens if keys.kv_tokens is None else keys.kv_tokens,
        max_batch=keys.max_batch,
        reserve_tokens=keys.reserve_tokens,
        join_stall_s=keys.join_stall_s,
        preemption=code_of(PREEMPTIONS, keys.preemption),
        swap_bytes_per_s=keys.swap_gbytes_per_s * 1e9,
        damping=code_of(DAMPINGS, keys.damping),
        **_link(group, preset),
    )
