"""What an action number means, which actions are legal, and what an illegal one stands for: written here, once.

A route is `((p * D) + d) * 2 + pull`, and the number behind the last route refuses the request. A move is
`row * D + d`, where `row = s * K + k` is candidate slot k of source s, and the number behind the last move moves
nothing. P prefill instances, D decode instances, K candidate slots of each.

The arithmetic is plain Python that compiled code may call too.
"""

from __future__ import annotations

from numba.extending import register_jitable

from cacheenv.sim.core.jit import inner, jit, once


@register_jitable
def route_number(prefill, decode, pull, decodes):
    """The number of the route over (prefill, decode); `pull` (0 or 1) fetches the longest remote prefix first."""
    return (prefill * decodes + decode) * 2 + pull


@register_jitable
def route_parts(number, decodes):
    """(prefill, decode, pull) of a route's number."""
    pair = number // 2
    return pair // decodes, pair % decodes, number % 2


@register_jitable
def reject_number(prefills, decodes):
    """The number that refuses the request (HTTP 429)."""
    return prefills * decodes * 2


@register_jitable
def route_count(prefills, decodes):
    """Numbers of the routing block, the refusal included."""
    return prefills * decodes * 2 + 1


@register_jitable
def candidate_row(source, slot, candidates):
    """Row of candidate slot `slot` of decode instance `source` in the table of candidates."""
    return source * candidates + slot


@register_jitable
def candidate_parts(row, candidates):
    """(source, slot) of a row of the table of candidates."""
    return row // candidates, row % candidates


@register_jitable
def move_number(row, destination, decodes):
    """The number of moving the candidate of a row to a decode instance."""
    return row * decodes + destination


@register_jitable
def move_parts(number, decodes):
    """(candidate row, destination) of a move's number."""
    return number // decodes, number % decodes


@register_jitable
def stay_number(decodes, candidates):
    """The number that moves nothing."""
    return decodes * candidates * decodes


@register_jitable
def move_count(decodes, candidates):
    """Numbers of the migration block, staying included."""
    return decodes * candidates * decodes + 1


@once
def route_is_legal(view, action):
    """Whether a route action may be taken in a filled view."""
    decodes = view.decode.shape[0]
    refusal = reject_number(view.prefill.shape[0], decodes)
    if action == refusal:
        return view.cluster[0].allow_reject == 1
    if action < 0 or action > refusal:
        return False
    prefill, decode, pull = route_parts(action, decodes)
    if view.prefill[prefill].accepts == 0 or view.decode[decode].accepts == 0:
        return False
    return pull == 0 or view.prefill[prefill].pull_tokens > 0


@once
def fallback_route(view):
    """What an illegal route action stands for: the least backlog, the fewest assigned tokens, no pull.

    Of the instances that accept the request: there is one of each kind, or nothing would be asked.
    """
    prefill, decode = -1, -1
    for i in range(view.prefill.shape[0]):
        if view.prefill[i].accepts == 1:
            if prefill < 0 or view.prefill[i].backlog_s < view.prefill[prefill].backlog_s:
                prefill = i
    for d in range(view.decode.shape[0]):
        if view.decode[d].accepts == 1:
            here = view.decode[d].kv_tokens + view.decode[d].pending_tokens
            if decode < 0 or here < view.decode[decode].kv_tokens + view.decode[decode].pending_tokens:
                decode = d
    return route_number(prefill, decode, 0, view.decode.shape[0])


@inner
def move_is_legal(view, row, target):
    """Whether candidate row `row` of a filled view may be moved to `target`."""
    candidate = view.candidate[row]
    goal = view.decode[target]
    return (
        candidate.valid == 1
        and candidate.source != target
        and view.decode[candidate.source].can_send == 1
        and goal.can_receive == 1
        and candidate.kv_tokens <= goal.room_tokens
        and candidate.needed_tokens <= goal.capacity_tokens
    )


@jit
def route_mask(view, mask):
    """Fills `mask` (bool, :func:`route_count` entries): which numbers of the routing block are legal."""
    decodes = view.decode.shape[0]
    at = 0
    for p in range(view.prefill.shape[0]):
        accepts = view.prefill[p].accepts == 1
        pullable = view.prefill[p].pull_tokens > 0
        for d in range(decodes):
            mask[at] = accepts and view.decode[d].accepts == 1
            mask[at + 1] = mask[at] and pullable
            at += 2
    mask[at] = view.cluster[0].allow_reject == 1


@jit
def migrate_mask(view, mask):
    """Fills `mask` (bool, :func:`move_count` entries): which numbers of the migration block are legal; staying is."""
    decodes = view.decode.shape[0]
    at = 0
    for row in range(view.candidate.shape[0]):
        if view.candidate[row].valid == 1:
            for d in range(decodes):
                mask[at + d] = move_is_legal(view, row, d)
        else:
            for d in range(decodes):
                mask[at + d] = False
        at += decodes
    mask[at] = True
