"""Stacked worlds: N independent simulators of one scenario, side by side in the same tables."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from cacheenv.errors import InputError
from cacheenv.physics import Link, Preset, load_link, load_preset
from cacheenv.policy import PolicyBundle
from cacheenv.policy.compiled import policy_params, policy_streams
from cacheenv.scenario import Scenario
from cacheenv.sim.state.allocate import Sizes, allocate, clear_world, grow
from cacheenv.sim.state.world import (
    ORDER_REMAINING_PER_KV,
    ORDER_SHORTEST_KV,
    PREDICT_NOISY,
    PREDICT_NONE,
    PREDICT_ORACLE,
    PREEMPT_RECOMPUTE,
    PREEMPT_SWAP,
    QUEUE_FCFS,
    QUEUE_LPM,
    World,
)
from cacheenv.sim.view.columns import ROLE_PRE_PREFILL, ROLE_PREFILL, View, allocate_view
from cacheenv.sim.view.fill import fill_constants
from cacheenv.workload import Workload

WORKLOAD_TABLES = ("load", "blocks", "residual")
NOISE = {"star": (0.14, 6000.0, 0.4, 0.03), "weak": (0.05, 20000.0, 0.6, 0.03)}
TAU_SHARE = {"star": 0.6, "weak": 2.0}  # of the mean output length, where tau_tokens is not given


def checked_seed(seed: Any, place: str = "seed") -> int:
    """A seed as an integer; anything but a whole number >= 0 is an :class:`InputError`."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"{place}: expected a whole number >= 0, got {seed!r}")
    return number


def split_seed(seed: int | np.random.SeedSequence) -> tuple[int, np.random.SeedSequence, np.random.SeedSequence]:
    """Separate streams for workload, predictor noise and policies, so that every policy meets the same arrivals.

    Returns:
        (workload seed, seed sequence of the predictor, seed sequence of the policies).
    """
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    key = root.spawn_key
    streams = [np.random.SeedSequence(root.entropy, spawn_key=(*key, part)) for part in range(3)]
    return int(streams[0].generate_state(1, np.uint64)[0] >> 1), streams[1], streams[2]


class Worlds:
    """N stacked worlds of one scenario.

    Args:
        scenario: Resolved scenario (policies' requirements applied).
        count: Number of worlds.
        bundle: Compiled policies that decide inside the worlds; their parameters and state live in the tables.
        ticks: Whether rescheduling ticks are decision points.
        needs_running: Whether the view lists the running requests at arrivals too.
    """

    def __init__(
        self,
        scenario: Scenario,
        count: int = 1,
        *,
        bundle: PolicyBundle | None = None,
        ticks: bool = False,
        needs_running: bool = False,
    ) -> None:
        self.scenario = scenario
        self.count = count
        self.bundle = bundle or PolicyBundle("none")
        self.ticks = ticks
        self.needs_running = needs_running or any(part.needs_running for part in self.bundle.parts())
        self.shares_workload = scenario.workload.kind == "mooncake"
        self.workload_of = np.zeros(count, np.int64)
        if not self.shares_workload:
            self.workload_of[:] = np.arange(count)
        self.workloads: list[Workload | None] = [None] * count
        self.tables: World | None = None
        self.views: View = allocate_view(
            count,
            scenario.cluster.prefill.count,
            scenario.cluster.decode.count,
            scenario.reschedule.candidates,
            scenario.cluster.decode.count * scenario.cluster.decode.max_batch,
        )

    # -- building ------------------------------------------------------------------------------------------------

    def reset(self, index: int, seed: int | np.random.SeedSequence, workload: Workload | None = None) -> None:
        """Starts an episode in world `index`: its workload, predictor noise and policy streams come from `seed`."""
        workload_seed, noise_seed, policy_seed = split_seed(seed)
        if workload is None:
            workload = self.scenario.make_workload(workload_seed)
        if not isinstance(workload, Workload):
            raise InputError(f"workload: expected a cacheenv.Workload, got {workload!r}")
        if workload.page_tokens != self.scenario.cluster.page_tokens:
            raise InputError(
                f"workload {workload.name}: pages of {workload.page_tokens} tokens, but cluster.page_tokens is "
                f"{self.scenario.cluster.page_tokens}"
            )
        if len(workload) == 0:
            raise InputError(f"workload {workload.name}: expected at least one request")
        tables = self._make_room(workload)
        row = int(self.workload_of[index])
        if self.workloads[index] is not workload:
            if not self.shares_workload or all(known is not workload for known in self.workloads):
                if self.shares_workload and any(known is not None for known in self.workloads):
                    self._unshare()
                    tables = self._require()
                    row = int(self.workload_of[index])
                self._store_workload(tables, row, workload)
            self.workloads[index] = workload
        world = self.world(index)
        world.request.view(np.uint8)[:] = 0
        self._fill_config(world, workload, noise_seed)
        self._fill_instances(world)
        clear_world(world)
        world.policy_rng[:] = policy_streams(policy_seed)
        world.policy_params[:] = policy_params(self.bundle, world.policy_params.shape[1])
        view = self.view(index)
        for table in view:
            table.view(np.uint8)[:] = 0
        fill_constants(world, view)

    def _require(self) -> World:
        if self.tables is None:
            raise RuntimeError("no world has been reset yet")
        return self.tables

    def _unshare(self) -> None:
        """Different workloads were handed in: every world gets a row of its own."""
        tables = self._require()
        self.shares_workload = False
        self.workload_of[:] = np.arange(self.count)
        stacked: dict[str, Any] = {
            name: np.repeat(getattr(tables, name)[:1], self.count, axis=0) for name in WORKLOAD_TABLES
        }
        self.tables = tables._replace(**stacked)

    def _make_room(self, workload: Workload) -> World:
        """Allocates the tables at the first reset, or longer ones when a workload does not fit."""
        needed: tuple[int, ...] = (
            len(workload),
            len(workload.blocks),
            workload.num_blocks,
            len(workload.mean_residual_tokens),
        )
        if self.tables is not None:
            have = (
                self.tables.load.shape[1],
                self.tables.blocks.shape[1],
                self.tables.holders.shape[1],
                self.tables.residual.shape[1],
            )
            if all(want <= got for want, got in zip(needed, have, strict=True)):
                return self.tables
            needed = tuple(max(int(1.3 * w) if w > g else g, g) for w, g in zip(needed, have, strict=True))
        elif not self.shares_workload:
            needed = tuple(int(1.15 * value) + 64 for value in needed)
        fresh = allocate(self._sizes(*needed))
        if self.tables is not None:
            for name, old in zip(World._fields, self.tables, strict=True):
                new = getattr(fresh, name)
                if new.shape == old.shape:
                    new[...] = old
                    continue
                if name in ("flow", "heap", "heap_position", "node", "table", "event"):
                    fresh = fresh._replace(**cast(Any, {name: old}))  # pools that had grown keep their size
                    continue
                new[tuple(slice(0, length) for length in old.shape)] = old
        self.tables = fresh
        return fresh

    def _sizes(self, requests: int, entries: int, distinct: int, residual: int) -> Sizes:
        cluster = self.scenario.cluster
        trees = cluster.prefill.count * 2 + 1
        return Sizes(
            worlds=self.count,
            workloads=1 if self.shares_workload else self.count,
            requests=requests,
            block_entries=max(1, entries),
            distinct_blocks=max(1, distinct),
            residual_entries=residual,
            num_prefill=cluster.prefill.count,
            num_decode=cluster.decode.count,
            max_batch=cluster.decode.max_batch,
            memory_enabled=cluster.index.memory_tokens > 0,
            index_events=1 << 16 if cluster.index.delay_s > 0 else 1,
            lpm_fallback=cluster.prefill.lpm_fallback,
            flows=max(256, 4 * self._margin()),
            nodes=max(2048, 2 * trees + 16 * self._margin()),
            policy_params=policy_params(self.bundle).shape[1],
        )

    def _margin(self) -> int:
        """Most pool rows that one event may take: a batch of requests, or the queue that lpm matches."""
        prefill = self.scenario.cluster.prefill
        queue = prefill.lpm_fallback if prefill.queue == "lpm" else 0
        return 2 * prefill.max_batch_requests + queue + 8

    def _store_workload(self, tables: World, row: int, workload: Workload) -> None:
        tables.load[row, : len(workload)] = workload.requests
        tables.blocks[row, : len(workload.blocks)] = workload.blocks
        residual = workload.mean_residual_tokens
        tables.residual[row, : len(residual)] = residual
        tables.residual[row, len(residual) :] = residual[-1]

    def _fill_config(self, world: World, workload: Workload, noise_seed: np.random.SeedSequence) -> None:
        scenario, cluster = self.scenario, self.scenario.cluster
        link = load_link(cluster.network.link)
        prefill_preset, decode_preset = load_preset(cluster.prefill.preset), load_preset(cluster.decode.preset)
        values: dict[str, Any] = {
            "num_prefill": cluster.prefill.count,
            "num_decode": cluster.decode.count,
            "num_requests": len(workload),
            "page_tokens": cluster.page_tokens,
            "words": world.holders.shape[1],
            "layers": cluster.network.layers,
            "overlap": cluster.network.overlap,
            "peer_pulls": cluster.network.peer_pulls,
            "store_enabled": cluster.store.capacity_tokens >= cluster.page_tokens,
            "write_through": cluster.store.write_through,
            "memory_enabled": cluster.index.memory_tokens > 0,
            "candidates": scenario.reschedule.candidates,
            "candidate_order": ORDER_SHORTEST_KV
            if scenario.reschedule.candidate_order == "shortest_kv"
            else ORDER_REMAINING_PER_KV,
            "max_batch": cluster.decode.max_batch,
            "reserve_tokens": cluster.decode.reserve_tokens,
            "preemption": PREEMPT_SWAP if cluster.decode.preemption == "swap" else PREEMPT_RECOMPUTE,
            "warmup_requests": scenario.warmup_requests,
            "allow_reject": scenario.admission.allow_reject,
            "ticks": self.ticks,
            "needs_running": self.needs_running,
            "batch_margin": self._margin(),
            "queue": QUEUE_LPM if cluster.prefill.queue == "lpm" else QUEUE_FCFS,
            "lpm_fallback": cluster.prefill.lpm_fallback,
            "lpm_check_tokens": cluster.prefill.lpm_check_tokens,
            "lpm_defer_tokens": cluster.prefill.lpm_defer_tokens,
            "batch_tokens": cluster.prefill.batch_tokens,
            "chunk_tokens": cluster.prefill.chunk_tokens,
            "max_batch_requests": cluster.prefill.max_batch_requests,
            "prefill_kv_bytes": prefill_preset.kv_bytes_per_token * prefill_preset.kv_copies,
            "decode_kv_bytes": decode_preset.kv_bytes_per_token * decode_preset.kv_copies,
            "setup_s": link.setup_s if cluster.network.setup_s is None else cluster.network.setup_s,
            "per_block_s": cluster.network.per_block_s,
            "index_delay_s": cluster.index.delay_s,
            "response_overhead_s": cluster.response_overhead_s,
            "period_s": scenario.reschedule.period_s,
            "stall_s": scenario.reschedule.stall_s,
            "join_stall_s": cluster.decode.join_stall_s,
            "swap_bytes_per_s": cluster.decode.swap_gbytes_per_s * 1e9,
            "slo_ttft_s": _limit(scenario.slo.ttft_s),
            "slo_tpot_s": _limit(scenario.slo.tpot_s),
            "slo_tbt_tail_s": _limit(scenario.slo.tbt_tail_s),
            "slo_e2e_s": _limit(scenario.slo.e2e_s),
            "horizon_s": _limit(scenario.horizon_s),
            "prediction_seed": int(noise_seed.generate_state(1, np.uint32)[0]),
            **self._prediction(workload),
        }
        for name, value in values.items():
            world.config[name] = value

    def _prediction(self, workload: Workload) -> dict[str, Any]:
        settings = self.scenario.prediction
        kind = settings.kind
        if kind in ("oracle", "none"):
            return {"prediction": PREDICT_ORACLE if kind == "oracle" else PREDICT_NONE, "prediction_tau": 1.0}
        a0, _, s0, s_inf = NOISE[kind]
        tau = settings.tau_tokens
        if tau is None:
            tau = TAU_SHARE[kind] * float(workload.mean_residual_tokens[0])
        return {
            "prediction": PREDICT_NOISY,
            "prediction_a0": a0,
            "prediction_tau": tau,
            "prediction_s0": s0,
            "prediction_s_inf": s_inf,
        }

    def _fill_instances(self, world: World) -> None:
        cluster = self.scenario.cluster
        page = cluster.page_tokens
        link = load_link(cluster.network.link)
        _fill_prefill(world, load_preset(cluster.prefill.preset), cluster.prefill.pre_prefill)
        _fill_decode(world, load_preset(cluster.decode.preset), cluster.decode.kv_tokens)
        _fill_links(world, link, cluster.network.nic_gbytes_per_s, cluster.store.nic_gbytes_per_s)
        prefills = cluster.prefill.count
        world.tree["capacity"][:prefills] = cluster.prefill.cache_tokens // page
        world.tree["capacity"][prefills] = cluster.store.capacity_tokens // page
        world.tree["capacity"][prefills + 1 :] = cluster.index.memory_tokens // page

    # -- access --------------------------------------------------------------------------------------------------

    def world(self, index: int) -> World:
        """World `index` as views into the stacked tables."""
        tables = self._require()
        which = int(self.workload_of[index])
        rows: list[Any] = [
            table[which] if name in WORKLOAD_TABLES else table[index]
            for name, table in zip(World._fields, tables, strict=True)
        ]
        return World(*rows)

    def view(self, index: int) -> View:
        """View of world `index`."""
        return View(*(table[index] for table in self.views))

    def grow(self) -> None:
        """Doubles the pools of all worlds, keeping their state."""
        self.tables = grow(self._require(), self.workload_of)

    def check_served(self, index: int) -> None:
        """Raises when no event is left although requests are not finished: a defect of the simulator, never silent."""
        state = self.world(index).state[0]
        if state.unfinished:
            raise RuntimeError(f"simulation stuck at t = {state.now_s} s with {state.unfinished} requests unfinished")

    def get_state(self) -> dict[str, Any]:
        """A copy of everything that the worlds' future depends on; :meth:`set_state` takes it back."""
        return {
            "tables": _copied(self._require()),
            "views": View(*(table.copy() for table in self.views)),
            "workload_of": self.workload_of.copy(),
            "workloads": list(self.workloads),
            "shares_workload": self.shares_workload,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Puts all worlds back to a state from :meth:`get_state` of worlds of the same scenario and number."""
        for mine, theirs in zip(self.views, state["views"], strict=True):
            if mine.shape != theirs.shape:
                raise InputError("set_state: the state is of another scenario or of another number of worlds")
        for mine, theirs in zip(self.views, state["views"], strict=True):
            mine[...] = theirs
        self.tables = _copied(state["tables"])
        self.workload_of = state["workload_of"].copy()
        self.workloads = list(state["workloads"])
        self.shares_workload = state["shares_workload"]

    def __deepcopy__(self, memo: dict[int, Any]) -> Worlds:
        """Independent copy; the scenario, policies and workloads (all immutable) are shared."""
        twin = Worlds.__new__(Worlds)
        memo[id(self)] = twin
        twin.__dict__.update(self.__dict__)
        twin.workload_of = self.workload_of.copy()
        twin.workloads = list(self.workloads)
        twin.views = View(*(table.copy() for table in self.views))
        if self.tables is not None:
            twin.tables = _copied(self.tables)
        return twin

    def __copy__(self) -> Worlds:
        """A shallow copy would share the tables; it is as deep as a deep copy."""
        return copy.deepcopy(self)


def _copied(tables: World) -> World:
    arrays: list[Any] = [table.copy() for table in tables]
    return World(*arrays)


def _limit(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def _fill_prefill(world: World, preset: Preset, pre_prefill: int) -> None:
    columns = {
        "a": preset.prefill_a_s,
        "b": preset.prefill_b_s,
        "c": preset.prefill_c_s,
        "floor_s": preset.min_prefill_s,
        "n_tile": preset.n_tile,
        "role": ROLE_PREFILL,
    }
    for name, value in columns.items():
        world.prefill[name] = value
    world.prefill["role"][:pre_prefill] = ROLE_PRE_PREFILL


def _fill_decode(world: World, preset: Preset, kv_tokens: int | None) -> None:
    columns = {
        "d": preset.decode_d_s,
        "e": preset.decode_e_s,
        "f": preset.decode_f_s,
        "prefill_a": preset.prefill_a_s,
        "prefill_b": preset.prefill_b_s,
        "prefill_c": preset.prefill_c_s,
        "capacity": preset.capacity_tokens if kv_tokens is None else kv_tokens,
    }
    for name, value in columns.items():
        world.decode[name] = value


def _fill_links(world: World, link: Link, nic_gbytes_per_s: float | None, store_gbytes_per_s: float) -> None:
    world.nic["bytes_per_s"] = (link.gbytes_per_s if nic_gbytes_per_s is None else nic_gbytes_per_s) * 1e9
    world.nic["bytes_per_s"][-1] = store_gbytes_per_s * 1e9
