"""`lookahead`, `hindsight`: try each candidate action on a copy of the world and take the one that ends best.

A planner in Python over compiled copies (`cacheenv.policy`: `plans`, `attach`). At each decision the base policy names
its own action; candidates are that one and the most promising others. Each is carried out on a copy, the base decides
from then on, and the copy runs `horizon_s` further. The best outcome wins, and the base's action where none is better.
Source: rollout, one step of policy improvement (Bertsekas and Castanon 1999; Tesauro and Galperin 1996).
`hindsight` plays the true future: a bound on what may be learned, not a scheduler. `lookahead` knows no more than a
router does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cacheenv.errors import InputError, suggestion
from cacheenv.policy import DECISION_ADMIT, DECISION_ROUTE, PolicyBundle, View, make_policy

#: Parameter -> default; see :class:`Lookahead`.
DEFAULTS: dict[str, Any] = {
    "base": "mooncake",
    "horizon_s": 40.0,
    "future": "sampled",
    "routes": 0,
    "decodes": 1,
    "moves": 0,
    "on_track": 1.0,
    "samples": 4,
    "seed": 0,
}
TEXTS = ("base", "future")  # no numbers; `registry.py` says so too
FUTURES = ("true", "none", "sampled")


class Lookahead:
    """The planner: `act` as any Python object, and `attach`, which gives it the world to try actions on.

    Args:
        horizon_s: Seconds of simulated time that a candidate is played on; `inf` for the episode's end.
        future: `true` (the requests that will come, with their true lengths), `none` (nobody comes any more) or
            `sampled` (requests that the workload's model draws); with the latter two lengths are as predicted.
        routes: (prefill instance, pull) pairs tried at an arrival, those of the least forecast of the first token
            besides the base's; 0 for all. Refusing is tried too where it is allowed.
        decodes: Decode instances tried with each of them: the base's, and those with the fewest tokens promised.
        moves: Moves tried at a rescheduling tick besides the base's action and staying; 0: the base decides ticks.
        on_track: What a request counts whose fate is open at the horizon and that is on track, 1 is as if it were met.
        samples: Futures that each candidate is played against, the same ones for all (sampled).
        seed: Of these futures.
    """

    plans = True

    def __init__(
        self,
        *,
        horizon_s: float,
        future: str,
        routes: int,
        decodes: int,
        moves: int,
        on_track: float,
        samples: int,
        seed: int,
    ) -> None:
        self.horizon_s, self.future = horizon_s, future
        self.routes, self.decodes, self.moves = routes, decodes, moves
        self.on_track, self.samples, self.seed = on_track, samples, seed
        self.migrates = moves > 0
        self.name = "hindsight" if future == "true" else "lookahead"
        self._trials: Any = None

    def attach(self, trials: Any) -> None:
        """The world in which the next decisions are: what simulators call before they ask."""
        self._trials = trials

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to no world: it has to be attached to its own."""
        return {**self.__dict__, "_trials": None}

    # -- a decision ----------------------------------------------------------------------------------------------

    def act(self, view: View, mask: np.ndarray) -> int:
        """The action that ends best."""
        trials = self._trials
        if trials is None:
            raise InputError(f"policy {self.name}: it tries actions in its world; call attach(trials) first")
        own = trials.base_action()
        others = [action for action in self._candidates(view, mask, own) if action != own and mask[action]]
        if not others:
            return int(own)
        actions = [own, *others]
        scores = np.zeros(len(actions))
        for future in trials.futures(self.future, self.horizon_s, self.samples, self.seed):
            scores += [self._score(outcome) for outcome in trials.play(actions, self.horizon_s, future)]
        best = int(np.argmax(scores))  # the first of equal ones, and the base's stands first
        return int(actions[best])

    def _score(self, outcome: Any) -> float:
        """The scenario's reward within the horizon, and what is on track beyond it."""
        reward = self._trials.scenario.reward
        if reward.kind == "latency":
            return -float(outcome.seconds)
        score = outcome.met - reward.violation * outcome.violated - reward.rejection * outcome.rejected
        score += self.on_track * outcome.on_track
        return float(score - 0.01 * outcome.seconds if reward.kind == "shaped" else score)

    # -- candidates ----------------------------------------------------------------------------------------------

    def _candidates(self, view: View, mask: np.ndarray, own: int) -> list[int]:
        decision = int(view.cluster[0].decision)
        if decision == DECISION_ROUTE:
            return self._routes(view, mask, own)
        if decision == DECISION_ADMIT:
            return [0, 1]
        return self._moves(view, mask) if self.moves > 0 else []

    def _routes(self, view: View, mask: np.ndarray, own: int) -> list[int]:
        """The least forecasts of the first token, then refusing."""
        trials, refusal = self._trials, len(mask) - 1
        promised = view.decode["kv_tokens"] + view.decode["pending_tokens"] + view.decode["preempted_tokens"]
        proposed = own if own != refusal else int(view.cluster[0].proposed)
        ranked = [int(d) for d in np.argsort(promised, kind="stable")]
        first = trials.route_parts(proposed)[1]
        first = first if first >= 0 else ranked[0]
        goals = [first, *(d for d in ranked if d != first)][: self.decodes]
        prefill = view.prefill
        here_s = prefill["backlog_s"] + prefill["prefill_s"]
        pulled_s = prefill["backlog_s"] + prefill["transfer_s"] + prefill["prefill_pull_s"]
        pulled_s = np.where(prefill["pull_tokens"] > 0, pulled_s, math.inf)
        forecasts = [*((s, p, 0) for p, s in enumerate(here_s)), *((s, p, 1) for p, s in enumerate(pulled_s))]
        pairs = sorted(forecasts)[: self.routes or len(forecasts)]
        return [*(trials.route(p, d, pull) for _, p, pull in pairs for d in goals), refusal]

    def _moves(self, view: View, mask: np.ndarray) -> list[int]:
        """From where most KV tokens are to where fewest are."""
        stay = len(mask) - 1
        legal = np.flatnonzero(mask[:stay])
        rows, goals = self._trials.move_parts(legal)
        tokens = view.decode["kv_tokens"]
        moved = view.candidate["kv_tokens"][rows]
        gain = tokens[view.candidate["source"][rows]] - tokens[goals] - moved
        return [*(int(action) for action in legal[np.argsort(-gain, kind="stable")[: self.moves]]), stay]


def make(name: str, **params: Any) -> PolicyBundle:
    """The bundle of a planner and its base.

    Args:
        name: `lookahead`, or `hindsight`, whose future is the true one.
        **params: See :class:`Lookahead`; and `base`, the name of the policy that decides after the tried action.
    """
    values = {**DEFAULTS, **({"future": "true"} if name == "hindsight" else {})}
    for key, value in params.items():
        if key not in values or (key == "future" and name == "hindsight"):
            known = ", ".join(key for key in values if key != "future" or name != "hindsight")
            raise InputError(f"policy {name}: unknown parameter '{key}'{suggestion(key, values)}; it has: {known}")
        values[key] = value
    base = make_policy(values.pop("base"))
    if base.actor is not None or base.router is None:
        raise InputError(f"policy {name}: base must be compiled policies with a router, got '{base.name}'")
    planner = Lookahead(**_checked(name, values))
    return PolicyBundle(name, base.router, base.decode_choice, base.admission, base.rescheduler, planner)


def _checked(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    checked = dict(values)
    if values["future"] not in FUTURES:
        raise InputError(f"policy {name}: future must be one of {', '.join(FUTURES)}, got '{values['future']}'")
    for key, value in values.items():
        if key in TEXTS:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
            raise InputError(f"policy {name}: {key} must be a number >= 0, got {value!r}")
        if key not in ("horizon_s", "on_track"):
            if value != int(value) if math.isfinite(value) else True:
                raise InputError(f"policy {name}: {key} must be a whole number, got {value!r}")
            checked[key] = int(value)
    for key in ("horizon_s", "decodes", "samples"):
        if not checked[key] > 0:
            raise InputError(f"policy {name}: {key} must be above 0, got {checked[key]!r}")
    return checked
