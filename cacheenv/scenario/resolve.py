"""From a scenario to the numbers of its cluster: presets and links looked up, one row an instance.

Behind this seam nobody knows a preset by name: the simulator's tables are filled from a :class:`ClusterSpec`, and
who wants other hardware hands in another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from cacheenv.physics import Preset, load_link, load_preset
from cacheenv.scenario.scenario import Scenario
from cacheenv.scenario.sections import PrefillConfig
from cacheenv.sim.cache.eviction import EVICTIONS
from cacheenv.sim.core.kinds import code_of
from cacheenv.sim.state.codes import ROLE_PRE_PREFILL, ROLE_PREFILL


@dataclass(frozen=True)
class PrefillSpec:
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
        nic_bytes_per_s: Bandwidth of the NIC, each direction.
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
    nic_bytes_per_s: float


@dataclass(frozen=True)
class DecodeSpec:
    """One decode instance; coefficients as in :class:`cacheenv.physics.Preset`.

    Attributes:
        decode_d_s: Fixed time of a step, seconds.
        decode_e_s: Seconds a step for each request of the batch.
        decode_f_s: Seconds a step for each resident token.
        prefill_a_s: Fixed time of a recomputation after a preemption, seconds.
        prefill_b_s: Seconds of it for each token.
        prefill_c_s: Seconds of it for each unit of attention.
        kv_tokens: KV capacity, tokens.
        nic_bytes_per_s: Bandwidth of the NIC, each direction.
    """

    decode_d_s: float
    decode_e_s: float
    decode_f_s: float
    prefill_a_s: float
    prefill_b_s: float
    prefill_c_s: float
    kv_tokens: int
    nic_bytes_per_s: float


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
        prefill: One row a prefill instance.
        decode: One row a decode instance.
        store: The store.
        setup_s: Fixed time of a transfer, seconds.
        handover_fixed_s: Fixed time of a hand-over, seconds.
        layers: Pieces of layer-wise overlap.
        prefill_kv_bytes: Bytes that a transfer from a prefill instance moves for one token, copies included.
        decode_kv_bytes: The same from a decode instance.
    """

    prefill: tuple[PrefillSpec, ...]
    decode: tuple[DecodeSpec, ...]
    store: StoreSpec
    setup_s: float
    handover_fixed_s: float
    layers: int
    prefill_kv_bytes: int
    decode_kv_bytes: int


def resolve(scenario: Scenario, *, prefill: Preset | None = None, decode: Preset | None = None) -> ClusterSpec:
    """The numbers of a scenario's cluster.

    Args:
        scenario: Names the presets and the link, and may replace some of their numbers.
        prefill: Stands for the preset that the scenario names for prefill instances.
        decode: The same for decode instances.

    Raises:
        InputError: An unknown preset or link. A scenario from :func:`cacheenv.load_scenario` has none.
    """
    cluster = scenario.cluster
    link = load_link(cluster.network.link)
    prefill = prefill or load_preset(cluster.prefill.preset)
    decode = decode or load_preset(cluster.decode.preset)
    nic_gbytes_per_s = cluster.network.nic_gbytes_per_s
    nic_bytes_per_s = (link.gbytes_per_s if nic_gbytes_per_s is None else nic_gbytes_per_s) * 1e9
    setup_s = link.setup_s if cluster.network.setup_s is None else cluster.network.setup_s
    handover_fixed_s = cluster.network.handover_fixed_s
    return ClusterSpec(
        prefill=tuple(
            PrefillSpec(
                role=ROLE_PRE_PREFILL if instance < cluster.prefill.pre_prefill else ROLE_PREFILL,
                prefill_a_s=prefill.prefill_a_s,
                prefill_b_s=prefill.prefill_b_s,
                prefill_c_s=prefill.prefill_c_s,
                min_prefill_s=prefill.min_prefill_s,
                n_tile=prefill.n_tile,
                cache_tokens=_cache_tokens(cluster.prefill, prefill),
                host_cache_tokens=cluster.prefill.host_cache_tokens,
                host_bytes_per_s=cluster.prefill.host_gbytes_per_s * 1e9,
                host_setup_s=cluster.prefill.host_setup_s,
                eviction=code_of(EVICTIONS, cluster.prefill.eviction),
                nic_bytes_per_s=nic_bytes_per_s,
            )
            for instance in range(cluster.prefill.count)
        ),
        decode=tuple(
            DecodeSpec(
                decode_d_s=decode.decode_d_s,
                decode_e_s=decode.decode_e_s,
                decode_f_s=decode.decode_f_s,
                prefill_a_s=decode.prefill_a_s,
                prefill_b_s=decode.prefill_b_s,
                prefill_c_s=decode.prefill_c_s,
                kv_tokens=decode.capacity_tokens if cluster.decode.kv_tokens is None else cluster.decode.kv_tokens,
                nic_bytes_per_s=nic_bytes_per_s,
            )
            for _ in range(cluster.decode.count)
        ),
        store=StoreSpec(
            cluster.store.capacity_tokens,
            cluster.store.nic_gbytes_per_s * 1e9,
            code_of(EVICTIONS, cluster.store.eviction),
        ),
        setup_s=setup_s,
        handover_fixed_s=setup_s if handover_fixed_s is None else handover_fixed_s,
        layers=prefill.layers if cluster.network.layers is None else cluster.network.layers,
        prefill_kv_bytes=prefill.moved_bytes_per_token,
        decode_kv_bytes=decode.moved_bytes_per_token,
    )


def _cache_tokens(section: PrefillConfig, preset: Preset) -> int:
    """Prefix cache of a prefill instance, tokens: as the scenario says, or what the hardware holds."""
    return preset.capacity_tokens if section.cache_tokens is None else section.cache_tokens
