"""Policies that are wrong, each in one way."""

from __future__ import annotations

import random

import numpy as np

from cacheenv.policy import move, policy, proposed_route, random_below, reject, route, split_route, stay, uniform


class Object:
    """A Python policy that always takes the first legal action, unless a subclass says otherwise."""

    def act(self, view, mask):
        return int(np.flatnonzero(mask)[0])


class AnswersText(Object):
    def act(self, view, mask):
        return "0"


class AnswersFraction(Object):
    def act(self, view, mask):
        return 1.5


class AnswersBeyond(Object):
    def act(self, view, mask):
        return len(mask)


class Raises(Object):
    def act(self, view, mask):
        return int(1 / view.prefill.pull_tokens.sum().item())


class WritesView(Object):
    def act(self, view, mask):
        view.decode[0].kv_tokens += 1
        return 0


class WritesMask(Object):
    def act(self, view, mask):
        mask[0] = False
        return 2


class DrawsGlobally(Object):
    def act(self, view, mask):
        return 2 * random.randrange(len(mask) // 2)


class KeepsState(Object):
    """Goes round, and goes on where the episode before ended; 7 does not divide the number of requests."""

    turn = 0

    def act(self, view, mask):
        self.turn += 1
        return 2 * (self.turn % 7 % (len(mask) // 2))


class CannotBeCopied(KeepsState):
    def __deepcopy__(self, memo):
        raise TypeError("no")


class ReadsLeftovers(Object):
    """Sums all rows of the running requests, those that are left over too."""

    needs_running = True

    def act(self, view, mask):
        return 2 * (int(view.running.request.sum()) % (len(mask) // 2))


class AlwaysPulls(Object):
    def act(self, view, mask):
        return 1


class RefusesAll(Object):
    def act(self, view, mask):
        from cacheenv import InputError

        raise InputError("made for another cluster")


class NeverMoves(Object):
    migrates = True

    def act(self, view, mask):
        return len(mask) - 1 if int(view.request[0].index) < 0 else 0


@policy
def beyond(view, rng, params):
    return reject(view) + 1


@policy
def negative(view, rng, params):
    return -1


@policy(kind="rescheduler")
def routes_at_ticks(view, rng, params):
    return stay(view) + 1


@policy(kind="decode_choice")
def bare_instance(view, rng, params):
    return -1 - view.cluster[0].num_decode


@policy(kind="admission")
def answers_with_route(view, rng, params):
    return 2 * view.request[0].index


@policy
def writes_view(view, rng, params):
    view.cluster[0].proposed = 3
    return 0


@policy
def writes_outside(view, rng, params):
    view.prefill[view.cluster[0].num_prefill].queue_s = 1.5
    return 0


@policy(params={"a": 1.0}, state_size=1)
def too_much_state(view, rng, params):
    params[2] += 1.0
    return 0


@policy
def undeclared_state(view, rng, params):
    params[0] += 1.0
    return 0


@policy(params={"weight": 1.0}, state_size=1)
def writes_parameter(view, rng, params):
    params[0] += 1.0
    return 0


@policy
def draws_globally(view, rng, params):
    return 2 * np.random.randint(0, view.cluster[0].num_prefill)


@policy
def one_instance_too_many(view, rng, params):
    best = 0
    for p in range(view.cluster[0].num_prefill + 1):
        if view.prefill[p].prefill_s > view.prefill[best].prefill_s:
            best = p
    return route(view, best % view.cluster[0].num_prefill, 0, 0)


@policy(needs_running=True)
def all_running_rows(view, rng, params):
    total = 0
    for j in range(view.running.shape[0]):
        total += view.running[j].generated_tokens
    return route(view, total % view.cluster[0].num_prefill, 0, 0)


@policy
def candidates_at_arrivals(view, rng, params):
    total = 0
    for row in range(view.candidate.shape[0]):
        total += view.candidate[row].valid
    return route(view, total % view.cluster[0].num_prefill, 0, 0)


@policy
def running_not_asked_for(view, rng, params):
    return route(view, view.cluster[0].num_running % view.cluster[0].num_prefill, 0, 0)


@policy
def pulls_at_random(view, rng, params):
    return 1 if uniform(rng) < 0.5 else 0


@policy(requires={"max:cluster.store.capacity_tokens": 100_000})
def ignores_its_store(view, rng, params):
    return route(view, random_below(rng, view.cluster[0].num_prefill), 0, 0)


@policy(kind="rescheduler")
def stays(view, rng, params):
    return stay(view)


@policy
def raises(view, rng, params):
    if view.request[0].index == 5:
        raise ValueError("five")
    return 0


@policy(kind="admission")
def refuses_long(view, rng, params):
    """A good one: it reads the proposed route."""
    prefill, _, _ = proposed_route(view)
    return 1 if view.prefill[prefill].backlog_s < 0.1 else 0


@policy(kind="rescheduler")
def moves_first(view, rng, params):
    """A good one."""
    for row in range(view.candidate.shape[0]):
        candidate = view.candidate[row]
        if candidate.valid and view.decode[candidate.source].can_send:
            for d in range(view.cluster[0].num_decode):
                goal = view.decode[d]
                if d != candidate.source and goal.can_receive and candidate.kv_tokens <= goal.room_tokens:
                    return move(view, row, d)
    return stay(view)


@policy(state_size=2)
def keeps_what_it_declared(view, rng, params):
    """A good one."""
    params[0] += 1.0
    params[1] = split_route(view, view.cluster[0].proposed)[0]
    return route(view, int(params[0]) % view.cluster[0].num_prefill, 0, 1)
