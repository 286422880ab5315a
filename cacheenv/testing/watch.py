"""A policy under watch: it decides in a run as usual, on guarded copies of what it may read, and each answer is judged.

A watch is an object with `act(view, mask)`, so :func:`cacheenv.simulate` runs it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from cacheenv.errors import InputError
from cacheenv.policy import DECISION_ADMIT, DECISION_MIGRATE, KINDS, Policy, PolicyBundle, View
from cacheenv.policy.actions import split_route
from cacheenv.policy.compiled import bundle_addresses, policy_params, policy_streams
from cacheenv.run.seeds import split_seed
from cacheenv.sim.policies.compose import HAS_ADMISSION
from cacheenv.testing.problems import PolicyCheckError
from cacheenv.testing.views import GuardedNumbers, GuardedView

ROUTER, DECODE_CHOICE, ADMISSION, RESCHEDULER = range(len(KINDS))


@dataclass
class Log:
    """What a policy did in one run.

    Attributes:
        actions: The actions, in order.
        ticks: How many of them are moves, or stays.
        pulls: Routes with a pull.
        moves: Moves.
        illegal: Actions that are numbers of the space and were not legal.
        first_illegal: The place of the first of them.
    """

    actions: list[int] = field(default_factory=list)
    ticks: int = 0
    pulls: int = 0
    moves: int = 0
    illegal: int = 0
    first_illegal: str = ""


class Watch:
    """What both kinds of policies share: the log, the place in messages, the judgement of a number.

    Args:
        bundle: The policy.
        world: Name of the world, for messages.
        noise: See :class:`GuardedView`.
        fill_running: List the running requests at arrivals, whether the policy asks for that or not.
    """

    def __init__(self, bundle: PolicyBundle, world: str, noise: frozenset[str], fill_running: bool) -> None:
        self.bundle = bundle
        self.name = bundle.name
        self.world = world
        self.noise = noise
        self.needs_running = fill_running or needs_running(bundle)
        self.migrates = has_moves(bundle)
        self.admits = bundle.admission is not None or bool(getattr(bundle.actor, "admits", False))
        self.log = Log()
        self._copy: GuardedView | None = None
        self._place = ""

    def act(self, view: View, mask: np.ndarray) -> int:
        """Asks the policy and judges what it says."""
        cluster = view.cluster[0]
        moving = int(cluster.decision) == DECISION_MIGRATE
        asked_again = int(cluster.decision) == DECISION_ADMIT
        kind = "tick" if moving else "end of a prefill" if asked_again else "arrival"
        self._place = (
            f"policy {self.name}: world '{self.world}', decision {len(self.log.actions)} "
            f"({kind} at {float(cluster.now_s):.4g} s)"
        )
        if self._copy is None:
            self._copy = GuardedView(view, self.noise)
        if asked_again:
            verdict = self.admit(view, mask)
            self.log.actions.append(verdict)
            return verdict
        action = self.decide(view, mask, moving)
        self._book(action, view, mask, moving)
        return action

    def decide(self, view: View, mask: np.ndarray, moving: bool) -> int:
        """The policy's action."""
        raise NotImplementedError

    def admit(self, view: View, mask: np.ndarray) -> int:
        """The policy's answer at the end of a prefill."""
        raise NotImplementedError

    def fail(self, message: str) -> NoReturn:
        """Stops the check."""
        raise PolicyCheckError(f"{self._place}: {message}") from None

    def in_space(self, answer: int, mask: np.ndarray, who: str, advice: str) -> int:
        """The answer, where it is a number of an action."""
        if not 0 <= answer < len(mask):
            self.fail(f"{who}: expected an action from 0 to {len(mask) - 1}, got {answer}; {advice}")
        return answer

    def unchanged(self, who: str) -> None:
        """Refuses changes of the view."""
        assert self._copy is not None
        table = self._copy.changed()
        if table is not None:
            self.fail(f"{who}: expected view.{table} unchanged, got other numbers in it; work on a copy")

    def _book(self, action: int, view: View, mask: np.ndarray, moving: bool) -> None:
        log = self.log
        log.actions.append(action)
        refusal = action == len(mask) - 1
        log.ticks += moving
        log.moves += moving and not refusal
        log.pulls += not moving and not refusal and action % 2
        # An admission policy only says yes or no; whether no counts is the scenario's affair.
        said_no = refusal and not moving and self.bundle.admission is not None
        if not mask[action] and not said_no:
            log.illegal += 1
            log.first_illegal = log.first_illegal or self._place.removeprefix(f"policy {self.name}: ")


def needs_running(bundle: PolicyBundle) -> bool:
    """Whether the policy asks for the running requests at arrivals."""
    return bool(getattr(bundle.actor, "needs_running", False)) or any(part.needs_running for part in bundle.parts())


def has_moves(bundle: PolicyBundle) -> bool:
    """Whether the policy decides at rescheduling ticks."""
    return bundle.rescheduler is not None or bool(getattr(bundle.actor, "migrates", False))


class ActorWatch(Watch):
    """A Python object with `act(view, mask)` under watch; it is asked for routes and moves alike."""

    def __init__(self, bundle: PolicyBundle, world: str, noise: frozenset[str], fill_running: bool) -> None:
        super().__init__(bundle, world, noise, fill_running)
        self.actor = bundle.actor

    def admit(self, view: View, mask: np.ndarray) -> int:
        """One call of `act`, whose mask has two entries: refuse and accept."""
        return self.decide(view, mask, False)

    def decide(self, view: View, mask: np.ndarray, moving: bool) -> int:
        """One call of `act`."""
        assert self._copy is not None
        who = f"{type(self.actor).__name__}.act"
        shown = mask.copy()
        try:
            answer = self.actor.act(self._copy.take(view), shown)
        except InputError:
            raise
        except Exception as problem:
            self.fail(f"{who}: expected an action, got {_one_line(problem)}; make it work in this world too")
        self.unchanged(who)
        if not np.array_equal(shown, mask):
            self.fail(f"{who}: expected the mask unchanged, got another one; work on a copy")
        try:
            number = operator.index(answer)
        except TypeError:
            self.fail(f"{who}: expected a whole number, got {answer!r}; return int(...) of the action's number")
        return self.in_space(number, mask, who, "the mask has one entry for each action")


class CompiledWatch(Watch):
    """Compiled policies under watch, each part called by itself and then composed as the simulator does it.

    Args:
        bundle: The policy.
        world: Name of the world, for messages.
        noise: See :class:`GuardedView`.
        fill_running: List the running requests at arrivals, whether the policy asks for that or not.
        seed: Seed of the run; the policy's streams are those of :func:`cacheenv.simulate`.
    """

    def __init__(
        self, bundle: PolicyBundle, world: str, noise: frozenset[str], fill_running: bool, seed: int = 0
    ) -> None:
        super().__init__(bundle, world, noise, fill_running)
        self.brings = bundle.brings()
        self.parts: list[Policy | None] = [getattr(bundle, kind) for kind in KINDS]
        self.addresses, self.present = bundle_addresses(bundle)
        self.params = policy_params(bundle)
        self.rng = policy_streams(split_seed(seed)[2])
        self.guarded = [GuardedNumbers(len(part.parameter_array()), noise) if part else None for part in self.parts]
        self._scratch: GuardedView | None = None

    def admit(self, view: View, mask: np.ndarray) -> int:
        """The admission policy's second answer."""
        return self._verdict(self._ask(ADMISSION, view, keep=True))

    def decide(self, view: View, mask: np.ndarray, moving: bool) -> int:
        """The composed action, after each part has been judged."""
        if moving:
            answer = self._ask(RESCHEDULER, view, keep=True)
            return self.in_space(answer, mask, self._who(RESCHEDULER), "return move(...) or stay(view)")
        advice = "return route(...) or reject(view) with instances of the view"
        answer = self.in_space(self._ask(ROUTER, view), mask, self._who(ROUTER), advice)
        if self.parts[DECODE_CHOICE] is not None and answer != len(mask) - 1:
            choice = self._ask(DECODE_CHOICE, view)
            self.in_space(choice, mask, self._who(DECODE_CHOICE), "return route(view, 0, decode, 0)")
        if self.parts[ADMISSION] is not None:
            proposed = self._compose(view, self.present & ~HAS_ADMISSION, self.rng.copy(), self.params.copy())
            if split_route(view, proposed)[0] >= 0:
                self._verdict(self._ask(ADMISSION, view, proposed))
        return self._compose(view, self.present, self.rng, self.params)

    def _verdict(self, verdict: int) -> int:
        if verdict not in (0, 1):
            self.fail(
                f"{self._who(ADMISSION)}: expected 1 (accept) or 0 (reject), got {verdict}; an admission policy "
                "returns no action"
            )
        return verdict

    def _who(self, row: int) -> str:
        part = self.parts[row]
        assert part is not None
        return f"{KINDS[row].replace('_', ' ')} {part.name}"

    def _compose(self, view: View, parts: int, rng: np.ndarray, params: np.ndarray) -> int:
        from cacheenv.sim.policies.python_entry import compose

        if self._scratch is None:
            self._scratch = GuardedView(view, self.noise)
        return int(compose(self._scratch.take(view), self.addresses, parts, rng, params))

    def _ask(self, row: int, view: View, proposed: int | None = None, keep: bool = False) -> int:
        """What a part answers by itself; its random stream and state advance only where `keep`."""
        part, numbers, who = self.parts[row], self.guarded[row], self._who(row)
        assert part is not None and numbers is not None and self._copy is not None
        rng = self.rng[row].copy()
        numbers.values[:] = self.params[row, : len(numbers.values)]
        try:
            answer = int(part.function(self._copy.take(view, proposed), rng, numbers.values))
        except Exception as problem:
            self.fail(f"{who}: expected an action, got {_one_line(problem)}; make it work in this world too")
        self.unchanged(who)
        self._check_params(part, numbers, row, who)
        if keep:
            self.rng[row] = rng
            self.params[row, : len(numbers.values)] = numbers.values
        return answer

    def _check_params(self, part: Policy, numbers: GuardedNumbers, row: int, who: str) -> None:
        """Refuses writes into parameters, and into numbers that the policy has not declared."""
        declared, names = len(part.params), list(part.params)
        outside = numbers.overrun()
        if outside is None and declared + part.state_size == 0 and numbers.values[0] != 0.0:
            outside = 0
        if outside is not None:
            self.fail(
                f"{who}: expected writes into params[{declared}] to params[{declared + part.state_size - 1}] at most "
                f"(state_size={part.state_size}), got one into params[{outside}]; declare a larger state_size"
                if part.state_size
                else f"{who}: expected no writes into params (state_size=0), got one into params[{outside}]; declare "
                "a state_size"
            )
        wrong = np.flatnonzero(numbers.values[:declared] != self.params[row, :declared])
        if len(wrong):
            self.fail(
                f"{who}: expected parameters unchanged, got {numbers.values[wrong[0]]:g} in params[{wrong[0]}] "
                f"('{names[wrong[0]]}'); private state begins at params[{declared}]"
            )


def _one_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}".rstrip(": ")
