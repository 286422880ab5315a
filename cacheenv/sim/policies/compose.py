"""How the parts of a bundle make one decision: a router, then a decode choice, then an admission policy."""

from __future__ import annotations

from cacheenv.sim.actions import reject_number, route_number, route_parts
from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.policies.address import policy_at

#: Kinds of policy parts, in the order of their rows in the tables of addresses, random streams and parameters.
PARTS = ("router", "decode_choice", "admission", "rescheduler")
ROUTER, DECODE_CHOICE, ADMISSION, RESCHEDULER = range(len(PARTS))

# Bits of `parts`: which of them are present.
HAS_ROUTER, HAS_CHOICE, HAS_ADMISSION, HAS_RESCHEDULER = (1 << part for part in range(len(PARTS)))


@inner
def decide_route(view, policies, parts, rng, params):
    """The route action of a router with its decode choice and admission policy, where `parts` has them."""
    action = policy_at(policies, ROUTER)(view, rng[ROUTER], params[ROUTER])
    decodes = view.cluster[0].num_decode
    refusal = reject_number(view.cluster[0].num_prefill, decodes)
    if parts & HAS_CHOICE and action != refusal:
        other = policy_at(policies, DECODE_CHOICE)(view, rng[DECODE_CHOICE], params[DECODE_CHOICE])
        if other != refusal:
            prefill, _, pull = route_parts(action, decodes)
            action = route_number(prefill, route_parts(other, decodes)[1], pull, decodes)
    if parts & HAS_ADMISSION and action != refusal:
        view.cluster[0].proposed = action
        if policy_at(policies, ADMISSION)(view, rng[ADMISSION], params[ADMISSION]) == 0:
            action = refusal
    return action


@once
def decide_after_prefill(view, policies, rng, params):
    """An admission policy's second answer: 0 refuses the request whose prefill has ended."""
    return policy_at(policies, ADMISSION)(view, rng[ADMISSION], params[ADMISSION])


@once
def decide_move(view, policies, rng, params):
    """The migration action of a rescheduler."""
    return policy_at(policies, RESCHEDULER)(view, rng[RESCHEDULER], params[RESCHEDULER])
