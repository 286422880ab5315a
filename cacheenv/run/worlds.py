"""Stacked worlds: N independent simulators of one scenario, side by side in the same tables."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle
from cacheenv.policy.compiled import policy_params, policy_streams
from cacheenv.run.fill import (
    batch_places,
    fill_episode,
    flow_margin,
    has_host,
    holder_words,
    largest_batch,
    limited_shards,
    pool_margin,
    start_tables,
)
from cacheenv.run.seeds import split_seed
from cacheenv.run.workload_rows import WorkloadRows
from cacheenv.scenario import TRACE_KIND, Scenario
from cacheenv.scenario.resolve import ClusterSpec, resolve
from cacheenv.sim.decode.gaps import BINS
from cacheenv.sim.episode import grow, start_episode
from cacheenv.sim.state.allocate import POOLS, Sizes, allocate, lengthen, reset_tables
from cacheenv.sim.state.handle import point_to_workload
from cacheenv.sim.state.world import WORKLOAD_TABLES, World, world_rows
from cacheenv.sim.view.columns import View, allocate_view, handles_of, view_rows
from cacheenv.workload import Workload


class Worlds:
    """N stacked worlds of one scenario.

    Args:
        scenario: Resolved scenario (policies' requirements applied).
        count: Number of worlds.
        bundle: Compiled policies that decide inside the worlds; their parameters and state live in the tables.
        ticks: Whether rescheduling ticks are decision points.
        needs_running: Whether the view lists the running requests at arrivals too.
        spec: The cluster in numbers; None for those that the scenario's presets give.
    """

    def __init__(
        self,
        scenario: Scenario,
        count: int = 1,
        *,
        bundle: PolicyBundle | None = None,
        ticks: bool = False,
        needs_running: bool = False,
        spec: ClusterSpec | None = None,
    ) -> None:
        self.scenario = scenario
        self.count = count
        self.bundle = bundle or PolicyBundle("none")
        self.spec = spec or resolve(scenario)
        needs_running = needs_running or any(part.needs_running for part in self.bundle.parts())
        admits = self.bundle.admission is not None or bool(getattr(self.bundle.actor, "admits", False))
        self._start = start_tables(scenario, self.spec, ticks=ticks, needs_running=needs_running, admits=admits)
        self.workloads = WorkloadRows(count)
        self._tables: World | None = None
        self._handles: Any = None
        self.views: View = allocate_view(
            count,
            len(self.spec.prefill),
            len(self.spec.decode),
            scenario.candidate_slots,
            batch_places(self.spec),
        )

    @property
    def workload_of(self) -> np.ndarray:
        """Row of each world's requests in the workload tables: int64 (worlds,)."""
        return self.workloads.row_of

    @property
    def tables(self) -> World | None:
        """The stacked tables; None before the first reset."""
        return self._tables

    @tables.setter
    def tables(self, tables: World) -> None:
        self._tables = tables
        self._handles = None

    @property
    def handles(self) -> Any:
        """What compiled code takes for the worlds and their views: the addresses of their tables as they are now."""
        if self._handles is None:
            self._handles = handles_of(self._require(), self.workload_of, self.views)
        return self._handles

    # -- building ------------------------------------------------------------------------------------------------

    def reset(self, index: int, seed: int | np.random.SeedSequence, workload: Workload | None = None) -> None:
        """Starts an episode in world `index`: its workload, predictor noise and policy streams come from `seed`."""
        workload_seed, noise_seed, policy_seed = split_seed(seed)
        if workload is None:
            workload = self.scenario.make_workload(workload_seed)
        self._check_workload(workload)
        row, is_new = self.workloads.place(index, workload)
        self._make_room(workload)
        if is_new:
            try:
                self._store_workload(row, workload)
            except BaseException:  # interrupted: nobody may find it there
                self.workloads.forget(row)
                raise
        point_to_workload(self.handles, self._require(), self.workload_of, index)
        world = self.world(index)
        reset_tables(world, self._start)
        fill_episode(world, self.scenario, workload, int(noise_seed.generate_state(1, np.uint32)[0]))
        for table in self.view(index):
            table.view(np.uint8)[:] = 0
        start_episode(self.handles, index)
        world.policy_rng[:] = policy_streams(policy_seed)
        world.policy_params[:] = policy_params(self.bundle, world.policy_params.shape[1])

    def _check_workload(self, workload: Any) -> None:
        if not isinstance(workload, Workload):
            raise InputError(f"workload: expected a cacheenv.Workload, got {workload!r}")
        page_tokens = self.scenario.cluster.page_tokens
        if workload.page_tokens != page_tokens:
            raise InputError(
                f"workload {workload.name}: pages of {workload.page_tokens} tokens, but cluster.page_tokens is "
                f"{page_tokens}"
            )
        if len(workload) == 0:
            raise InputError(f"workload {workload.name}: expected at least one request")

    def _require(self) -> World:
        if self.tables is None:
            raise RuntimeError("no world has been reset yet")
        return self.tables

    def _make_room(self, workload: Workload) -> None:
        """Allocates the tables at the first reset, or longer ones where a workload does not fit."""
        needed = {
            "requests": len(workload),
            "block_entries": max(1, len(workload.blocks)),
            "distinct_blocks": max(1, workload.num_blocks),
            "residual_entries": len(workload.mean_residual_tokens),
        }
        if self.tables is None:
            options = self.scenario.workload
            if options.kind != TRACE_KIND or options.window_requests is not None:  # the next may be a little longer
                needed = {name: int(1.15 * size) + 64 for name, size in needed.items()}
            self.tables = allocate(self._sizes(**needed))
            return
        tables = self.tables
        have = {
            "requests": tables.workload.shape[1],
            "block_entries": tables.blocks.shape[1],
            "distinct_blocks": tables.holders.shape[1],
            "residual_entries": tables.mean_residual_tokens.shape[1],
        }
        short = [name for name in needed if needed[name] > have[name]]
        if short:
            have |= {name: int(1.3 * needed[name]) for name in short}
            shapes = self._sizes(**have).shapes()
            lengths = {
                name: shapes[name][0]
                for name, table in zip(World._fields, tables, strict=True)
                if name not in POOLS and shapes[name][0] > table.shape[1]
            }
            self.tables = tables = lengthen(tables, lengths)
        rows = tables.workload.shape[0]
        if self.workloads.rows > rows:
            rows = min(self.count, max(self.workloads.rows, 2 * rows))
            longer: dict[str, Any] = {name: _more_rows(getattr(tables, name), rows) for name in WORKLOAD_TABLES}
            self.tables = tables._replace(**longer)

    def _sizes(self, requests: int, block_entries: int, distinct_blocks: int, residual_entries: int) -> Sizes:
        cluster, margin = self.scenario.cluster, pool_margin(self.spec)
        prefills = len(self.spec.prefill)
        parts, longest = policy_params(self.bundle).shape
        return Sizes(
            worlds=self.count,
            workloads=self.workloads.rows,
            requests=requests,
            block_entries=block_entries,
            distinct_blocks=distinct_blocks,
            residual_entries=residual_entries,
            num_prefill=prefills,
            num_decode=len(self.spec.decode),
            max_batch=largest_batch(self.spec),
            batch_places=batch_places(self.spec),
            holder_words=holder_words(self.spec),
            gap_bins=BINS,
            learns_early=cluster.index.learns == "assigned",
            memory_enabled=cluster.index.memory_tokens > 0,
            host_enabled=has_host(self.spec),
            prices_now=cluster.prefill.backlog == "now",
            news=1 << 16 if cluster.index.delay_s > 0 else 1,
            shards=max(1, limited_shards(cluster.index)),
            shard_events=cluster.index.high_water if limited_shards(cluster.index) else 1,
            flows=max(256, 4 * margin, 2 * flow_margin(self.scenario, self.spec)),
            nodes=max(2048, 2 * (3 * prefills + 1) + 16 * margin),
            policy_parts=parts,
            policy_params=longest,
        )

    def _store_workload(self, row: int, workload: Workload) -> None:
        tables = self._require()
        tables.workload[row, : len(workload)] = workload.requests
        tables.blocks[row, : len(workload.blocks)] = workload.blocks
        residual = workload.mean_residual_tokens
        tables.mean_residual_tokens[row, : len(residual)] = residual
        tables.mean_residual_tokens[row, len(residual) :] = residual[-1]

    # -- access --------------------------------------------------------------------------------------------------

    def world(self, index: int) -> World:
        """World `index` as views into the stacked tables."""
        return world_rows(self._require(), self.workload_of, index)

    def view(self, index: int) -> View:
        """View of world `index`."""
        return view_rows(self.views, index)

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
            "workloads": self.workloads.copy(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Puts all worlds back to a state from :meth:`get_state` of worlds of the same scenario and number."""
        for mine, theirs in zip(self.views, state["views"], strict=True):
            if mine.shape != theirs.shape:
                raise InputError("set_state: the state is of another scenario or of another number of worlds")
        for mine, theirs in zip(self.views, state["views"], strict=True):
            mine[...] = theirs
        self.tables = _copied(state["tables"])
        self.workloads = state["workloads"].copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Worlds:
        """Independent copy; the scenario, policies and workloads (all immutable) are shared."""
        twin = Worlds.__new__(Worlds)
        memo[id(self)] = twin
        twin.__dict__.update(self.__dict__)
        twin.workloads = self.workloads.copy()
        twin.views = View(*(table.copy() for table in self.views))
        twin._handles = None
        if self.tables is not None:
            twin.tables = _copied(self.tables)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the addresses of the tables, which are others where it is unpickled."""
        return {**self.__dict__, "_handles": None}

    def __copy__(self) -> Worlds:
        """A shallow copy would share the tables; it is as deep as a deep copy."""
        return copy.deepcopy(self)


def _copied(tables: World) -> World:
    arrays: list[Any] = [table.copy() for table in tables]
    return World(*arrays)


def _more_rows(table: np.ndarray, rows: int) -> np.ndarray:
    """A copy of a stacked table with room for more workloads."""
    longer = np.zeros((rows, *table.shape[1:]), table.dtype)
    longer[: len(table)] = table
    return longer
