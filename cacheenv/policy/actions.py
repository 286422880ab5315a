"""What a policy answers with, and what it reads of an answer: actions by their parts, in compiled code.

The numbers are those of :mod:`cacheenv.sim.actions`; nothing else says what a number means.
"""

from __future__ import annotations

from cacheenv.sim.actions import (
    move_number,
    move_parts,
    reject_number,
    route_number,
    route_parts,
    stay_number,
)
from cacheenv.sim.core.jit import jit
from cacheenv.sim.core.rng import random_below


@jit
def route(view, prefill, decode, pull):
    """The route action to (prefill, decode); `pull` is dropped where there is nothing to pull to `prefill`."""
    flag = 1 if pull and view.prefill[prefill].pull_tokens > 0 else 0
    return route_number(prefill, decode, flag, view.cluster[0].num_decode)


@jit
def reject(view):
    """The route action that refuses the request (HTTP 429)."""
    return reject_number(view.cluster[0].num_prefill, view.cluster[0].num_decode)


@jit
def split_route(view, action):
    """A route action as (prefill, decode, pull); (-1, -1, 0) where it refuses the request or is none."""
    cluster = view.cluster[0]
    if action < 0 or action >= reject_number(cluster.num_prefill, cluster.num_decode):
        return -1, -1, 0
    return route_parts(action, cluster.num_decode)


@jit
def proposed_route(view):
    """The route so far, which a decode choice or an admission policy is asked about, as in :func:`split_route`."""
    return split_route(view, view.cluster[0].proposed)


@jit
def move(view, candidate, decode):
    """The migration action that moves the request in row `candidate` of `view.candidate` to a decode instance."""
    return move_number(candidate, decode, view.cluster[0].num_decode)


@jit
def stay(view):
    """The migration action that moves nothing."""
    return stay_number(view.cluster[0].num_decode, view.cluster[0].num_candidates)


@jit
def split_move(view, action):
    """A migration action as (candidate row, decode); (-1, -1) where it stays or is none."""
    cluster = view.cluster[0]
    if action < 0 or action >= stay_number(cluster.num_decode, cluster.num_candidates):
        return -1, -1
    return move_parts(action, cluster.num_decode)


@jit
def least(rng, best, count, value, best_value):
    """Reservoir rule for random ties: returns (take it?, ties so far) when scanning for a minimum.

    Call with `count = 0` at the start; an equal value replaces the best with probability 1/(ties + 1).
    """
    if best < 0 or value < best_value:
        return True, 1
    if value == best_value:
        return random_below(rng, count + 1) == 0, count + 1
    return False, count
