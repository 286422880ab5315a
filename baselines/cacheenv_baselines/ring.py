"""A hash ring of the prefill instances: places of virtual nodes and of keys, and who is next clockwise.

Nothing is stored: the places follow from the numbers of the instances, so a ring is the same in every run. A decision
costs one hash for each virtual node. All arithmetic stays within 63 bits, so that plain NumPy integers do not overflow.
"""

from __future__ import annotations

from cacheenv.policy import jit

RING = 2**32  # places
MASK = RING - 1
FACTOR = 0x45D9F3B  # of T. Mueller's 32-bit hash


@jit
def mix(number):
    """A place on the ring for a whole number: 32 mixed bits."""
    bits = (number ^ (number >> 32)) & MASK
    bits = (((bits >> 16) ^ bits) * FACTOR) & MASK
    bits = (((bits >> 16) ^ bits) * FACTOR) & MASK
    return (bits >> 16) ^ bits


@jit
def session_place(view):
    """Place of the request's session."""
    return mix(mix(view.request[0].session))


@jit
def prefix_place(view):
    """Place of the prompt's first page; a prompt shorter than a page has one of its own, as texts that differ have."""
    request = view.request[0]
    return mix(request.first_block) if request.first_block >= 0 else mix(mix(request.index))


@jit
def clockwise(place, instance, virtual_nodes):
    """How far it is clockwise from a place to the nearest virtual node of an instance."""
    start, nearest = mix(mix(instance) + 1), RING
    for node in range(virtual_nodes):
        nearest = min(nearest, (mix(start ^ node) - place) & MASK)
    return nearest


@jit
def ring_owner(view, place, virtual_nodes):
    """Prefill instance that accepts the request of the first such virtual node clockwise from a place."""
    best, nearest = 0, RING
    for i in range(view.cluster[0].num_prefill):
        if view.prefill[i].accepts == 0:
            continue
        distance = clockwise(place, i, virtual_nodes)
        if distance < nearest:
            best, nearest = i, distance
    return best
