"""What a planner may do with the world that it decides in: try an action on a copy, and see what becomes of it.

A copy has all tables of the world. The action is carried out there, a base policy decides from then on, and the world
itself stays as it is, but for one thing: asking the base for its action advances its random stream and its state, as
having decided would have. What a copy believes of the future is another matter (`futures.py`, `sampled.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cacheenv.errors import InputError
from cacheenv.policy import DECISION_ADMIT, DECISION_MIGRATE, DECISION_ROUTE, PolicyBundle, View
from cacheenv.policy.compiled import bundle_addresses
from cacheenv.run.futures import Future, NoFuture, RealFuture
from cacheenv.run.sampled import Model, SampledFuture
from cacheenv.run.worlds import Worlds
from cacheenv.scenario import TRACE_KIND, Scenario
from cacheenv.sim.actions import move_count, move_parts, reject_number, route_number, route_parts
from cacheenv.sim.policies.compose import ADMISSION, HAS_ADMISSION, HAS_RESCHEDULER, RESCHEDULER
from cacheenv.sim.state.codes import DONE, FUTURE, RUNNING, STOP_GROW
from cacheenv.sim.state.world import WORKLOAD_TABLES, World
from cacheenv.sim.view.columns import allocate_view, handles_of, view_rows

#: Tables that are work space (written before they are read), or that are copied in part.
NOT_COPIED = {*WORKLOAD_TABLES, "holder_mask", "queue_order", "slot_gaps", "policy_rng", "policy_params"}
#: What is read to tell who is on track.
REQUEST_COLUMNS = ("arrival_s", "state")
DECODE_COLUMNS = ("batch", "base_s", "slope_s", "step", "start_s", "stall_s", "planned")
#: Apart from the seeds of episodes.
MODEL_STREAM = 0x6C6F6F6B


class Outcome(NamedTuple):
    """What became of an action within the horizon.

    Attributes:
        met: Requests whose end within it met all objectives, of those that count.
        violated: Requests that have missed one.
        rejected: Requests that were refused for good.
        on_track: Requests in the system at the horizon whose fate is open and that would meet the objectives if their
            instances kept their present pace; who waits for its first token is on track until it is late.
        seconds: Integral over the time of the counted requests in the system.
    """

    met: int
    violated: int
    rejected: int
    on_track: int
    seconds: float


class Trials:
    """Tries actions at the decision at which a world stands.

    Args:
        worlds: Worlds, of which
        index: one is decided in.
        base: What decides after the tried action; an object in it is left out.
        streams: Random streams and parameters of the base, (int64 (parts, 4), float64 (parts, longest)), where they are
            not those of the world's own policies.
    """

    def __init__(
        self, worlds: Worlds, index: int, base: PolicyBundle, streams: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        self.base = replace(base, actor=None)
        self._worlds = worlds
        self._index = index
        self._own_streams = streams
        self._policies, self._parts = bundle_addresses(self.base)
        self._copies: dict[str, _Copy] = {}
        self._models: dict[tuple[int, int], Model] = {}

    @property
    def scenario(self) -> Scenario:
        """The scenario, with what policies require."""
        return self._worlds.scenario

    @property
    def view(self) -> View:
        """The view of the decision."""
        return self._worlds.view(self._index)

    def route(self, prefill: int, decode: int, pull: int) -> int:
        """The number of a route."""
        return int(route_number(prefill, decode, pull, len(self.view.decode)))

    def route_parts(self, action: int) -> tuple[int, int, int]:
        """(prefill, decode, pull) of a route's number; (-1, -1, 0) where it refuses or is none."""
        view = self.view
        if not 0 <= action < reject_number(len(view.prefill), len(view.decode)):
            return -1, -1, 0
        prefill, decode, pull = route_parts(action, len(view.decode))
        return int(prefill), int(decode), int(pull)

    def move_parts(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows in the table of candidates, decode instances) of the numbers of moves."""
        rows, goals = move_parts(actions, len(self.view.decode))
        return rows, goals

    def number(self) -> int:
        """Decisions taken so far in this episode."""
        return int(self._worlds.world(self._index).state[0].decisions)

    def _streams(self) -> tuple[np.ndarray, np.ndarray]:
        if self._own_streams is not None:
            return self._own_streams
        tables = self._worlds.tables
        assert tables is not None
        return tables.policy_rng[self._index], tables.policy_params[self._index]

    def base_action(self) -> int:
        """What the base does here; to be asked once a decision, since its random stream and its state go on."""
        from cacheenv.sim.policies.python_entry import compose

        view, (rng, params) = self.view, self._streams()
        decision = int(view.cluster[0].decision)
        if decision == DECISION_ROUTE:
            return int(compose(view, self._policies, self._parts, rng, params))
        if decision == DECISION_MIGRATE:
            return self._ask("rescheduler", RESCHEDULER, _last_move(view))
        return self._ask("admission", ADMISSION, 1)

    def _ask(self, kind: str, row: int, otherwise: int) -> int:
        part, (rng, params) = getattr(self.base, kind), self._streams()
        return int(part.function(self.view, rng[row], params[row])) if part else otherwise

    def futures(self, kind: str, horizon_s: float, samples: int = 1, seed: int = 0) -> list[Future]:
        """Futures for :meth:`play`.

        Args:
            kind: `true`: what will come. `none`: nobody comes, and lengths are as predicted. `sampled`: requests that
                the workload's model draws come, and lengths are as predicted.
            horizon_s: How long :meth:`play` will look ahead.
            samples: Futures of kind `sampled`.
            seed: Of these.
        """
        if kind == "true":
            return [RealFuture()]
        if kind == "none":
            return [NoFuture()]
        world = self._worlds.world(self._index)
        return [
            SampledFuture(world, self._model(seed, k), horizon_s, np.random.default_rng([seed, k, self.number()]))
            for k in range(samples)
        ]

    def _model(self, seed: int, number: int) -> Model:
        """An episode of the workload's model, the same one at every decision."""
        scenario = self.scenario
        if scenario.workload.kind == TRACE_KIND:
            raise InputError(f"scenario {scenario.name}: expected a generator to sample the future from, got a trace")
        if (seed, number) not in self._models:
            drawn = np.random.SeedSequence([MODEL_STREAM, seed, number]).generate_state(1)[0]
            self._models[seed, number] = Model(scenario.make_workload(int(drawn)))
        return self._models[seed, number]

    def play(self, actions: Sequence[int], horizon_s: float, future: Future | None = None) -> list[Outcome]:
        """Tries actions: what becomes of each until `horizon_s` from now (inf: to the episode's end).

        Args:
            actions: Numbers of actions of this decision, as `act` returns them.
            horizon_s: Seconds of simulated time.
            future: What is yet to come; None for what will come.
        """
        future = future or RealFuture()
        return [self._try(int(action), horizon_s, future) for action in actions]

    def _try(self, action: int, horizon_s: float, future: Future) -> Outcome:
        worlds = self._worlds
        end_s = np.inf if self.scenario.horizon_s is None else self.scenario.horizon_s
        while True:
            copy = self._copies.get(future.kind)
            if copy is None or not copy.fits(worlds, self._index, future):
                copy = self._copies[future.kind] = _Copy(worlds, self._index, self._streams(), future)
            outcome = copy.play(action, horizon_s, end_s, self._streams(), future, self._policies, self._parts)
            if outcome is not None:
                return outcome
            worlds.grow()  # pools are as long in the copy as in the world; longer ones change nothing there


def _last_move(view: View) -> int:
    """The number that moves nothing."""
    return move_count(len(view.decode), int(view.cluster[0].num_candidates)) - 1


class _Copy:
    """Room for a copy of one world."""

    def __init__(self, worlds: Worlds, index: int, streams: tuple[np.ndarray, np.ndarray], future: Future) -> None:
        tables = worlds.tables
        assert tables is not None
        self._of, self._row = tables, int(worlds.workload_of[index])
        source = worlds.world(index)
        arrays: dict[str, Any] = future.room(source)  # what it writes, or has more rows of
        for name in World._fields:
            if name not in arrays:
                whole = getattr(tables, name)
                if name in WORKLOAD_TABLES:
                    arrays[name] = whole[self._row : self._row + 1]
                elif name == "policy_params":
                    arrays[name] = np.zeros((1, *streams[1].shape))
                else:
                    arrays[name] = np.zeros((1, *whole.shape[1:]), whole.dtype)
        self.tables = World(**arrays)
        self.world = World(*(table[0] for table in self.tables))
        self._source = source
        self._pairs = [
            (_raw(getattr(source, name)), _raw(getattr(self.world, name))[: getattr(source, name).nbytes])
            for name in World._fields
            if name not in NOT_COPIED
        ]
        shown = worlds.views
        self._views = allocate_view(
            1, shown.prefill.shape[1], shown.decode.shape[1], int(source.config[0].candidates), shown.running.shape[1]
        )
        self.view, self._shown = view_rows(self._views, 0), worlds.view(index)
        self._view_pairs = [
            (_raw(getattr(self._shown, name)), _raw(getattr(self.view, name)))
            for name in View._fields
            if name != "running"
        ]
        self.workload_of = np.zeros(1, np.int64)
        self.handles = handles_of(self.tables, self.workload_of, self._views)
        self._used_slots = np.zeros(len(self.world.slot), np.bool_)
        self._counters = [self.world.state[name] for name in ("met", "violated", "rejected", "integral_s")]
        self._slot_requests = source.slot["request"], self.world.slot["request"]
        self._take_over(streams)
        self._progress = Progress(self.world)

    def fits(self, worlds: Worlds, index: int, future: Future) -> bool:
        """Whether the world's tables are still those that the copy was made for, and its future finds room in it."""
        return worlds.tables is self._of and int(worlds.workload_of[index]) == self._row and future.fits(self.world)

    def _take_over(self, streams: tuple[np.ndarray, np.ndarray]) -> None:
        """Makes the copy equal to the world."""
        for theirs, mine in self._pairs:
            np.copyto(mine, theirs)
        for theirs, mine in self._view_pairs:
            np.copyto(mine, theirs)
        running = int(self._shown.cluster[0].num_running)
        if running:
            self.view.running[:running] = self._shown.running[:running]
        self.world.policy_rng[...], self.world.policy_params[...] = streams
        used = self._slot_requests[0] >= 0  # of all other slots the histograms are 0
        rows = np.flatnonzero(used | self._used_slots)
        self.world.slot_gaps[rows] = self._source.slot_gaps[rows]

    def play(
        self,
        action: int,
        horizon_s: float,
        end_s: float,
        streams: tuple[np.ndarray, np.ndarray],
        future: Future,
        policies: Any,
        parts: int,
    ) -> Outcome | None:
        """Tries an action; None where the pools are too short for what follows."""
        from cacheenv.sim.policies.drive import run
        from cacheenv.sim.policies.python_entry import take

        self._take_over(streams)
        config, state, cluster = self.world.config[0], self.world.state[0], self.view.cluster[0]
        future.enter(self.world, self.handles)
        before = self._counts()
        config.horizon_s = min(end_s, float(state.now_s) + horizon_s)
        take(self.handles, 0, int(cluster.decision), action)
        while True:
            stop = int(run(self.handles, 0, policies, parts))
            if stop == DECISION_MIGRATE and not parts & HAS_RESCHEDULER:
                take(self.handles, 0, stop, _last_move(self.view))
            elif stop == DECISION_ADMIT and not parts & HAS_ADMISSION:
                take(self.handles, 0, stop, 1)
            else:
                break
        self._used_slots = self._slot_requests[1] >= 0
        if stop == STOP_GROW:
            return None
        met, violated, rejected, seconds = (now - then for now, then in zip(self._counts(), before, strict=True))
        return Outcome(int(met), int(violated), int(rejected), self._progress.on_track(), seconds)

    def _counts(self) -> list[float]:
        return [float(column[0]) for column in self._counters]


def _raw(table: np.ndarray) -> np.ndarray:
    """A contiguous table as bytes: NumPy copies records column by column."""
    return table.reshape(-1).view(np.ndarray).view(np.uint8)


class Progress:
    """Reads off a world which of its requests are on track; see :class:`Outcome`."""

    def __init__(self, world: World) -> None:
        config = world.config[0]
        self._request = {name: world.request[name] for name in REQUEST_COLUMNS}  # views: looking up columns takes long
        self._decode = {name: world.decode[name] for name in DECODE_COLUMNS}
        self._request_rows, self._join_step, self._now_s = world.request, world.slot["join_step"], world.state["now_s"]
        self._idle_step_s = world.instance["decode_d_s"][world.decode["instance"]]
        self._limits = [float(config[name]) for name in ("slo_ttft_s", "slo_tpot_s", "slo_tbt_tail_s", "slo_e2e_s")]
        self._overhead_s = float(config.response_overhead_s)

    def on_track(self) -> int:
        """Counted requests in the system that are not settled and would meet the objectives at the present pace."""
        request, decode, now_s = self._request, self._decode, float(self._now_s[0])
        here = np.flatnonzero((request["arrival_s"] >= 0.0) & (request["state"] != DONE))
        rows = self._request_rows[here]
        here = here[
            (rows["counted"] == 1) & (rows["settled"] == 0) & ((rows["state"] != FUTURE) | (rows["retries"] == 0))
        ]
        if not len(here):
            return 0
        ttft_s, tpot_s, tail_s, e2e_s = self._limits
        rows = self._request_rows[here]
        waits, age_s = rows["first_token_s"] == 0.0, now_s - rows["arrival_s"]
        at = rows["decode_instance"]
        pace_s = np.where(decode["batch"] > 0, decode["base_s"], self._idle_step_s)[at]
        steps = (decode["step"] + _steps_ended(decode, now_s))[at] - self._join_step[rows["slot"]]
        made = rows["generated"] + np.where(rows["state"] == RUNNING, steps, 0.0)
        left_s = np.maximum(rows["output_tokens"] - made, 0.0) * pace_s
        gap_s = (now_s - rows["first_token_s"] + left_s) / np.maximum(rows["output_tokens"] - 1, 1)
        ends_well = (gap_s <= tpot_s) & (pace_s <= tail_s) & (age_s + left_s + self._overhead_s <= e2e_s)
        return int(np.count_nonzero(np.where(waits, age_s <= ttft_s, ends_well)))


def _steps_ended(decode: Mapping[str, np.ndarray], now_s: float) -> np.ndarray:
    """Steps of each instance's present run that have ended, a fraction of one counted: see `sim/decode/run.py`."""
    left_s = np.maximum(now_s - decode["start_s"] - decode["stall_s"], 0.0)
    half_s = np.maximum(decode["base_s"] - 0.5 * decode["slope_s"], 1e-12)
    steps = 2.0 * left_s / (half_s + np.sqrt(half_s * half_s + 2.0 * decode["slope_s"] * left_s))
    return np.where(decode["batch"] > 0, np.minimum(steps, decode["planned"]), 0.0)
