"""`random`: shuffled anew for each batch, as SGLang's `random` does.

The shuffle is Fisher and Yates's. Its numbers are hashes of the episode's seed, the instance, its round and the place,
so they are the same whoever else draws something.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner, jit
from cacheenv.sim.core.rng import MASK_32, hash_32
from cacheenv.sim.prefill.queue import count_round, link_queue, list_queue, swap_listed

SALT = 0x2545F491  # keeps the numbers apart from those of the predictor, which has the same seed


@jit
def drawn(seed, p, round_number, place):
    """A 32-bit number for a place of an instance's queue in one of its rounds."""
    word = hash_32((seed ^ SALT) & MASK_32)
    word = hash_32((word + hash_32((int(p) * 2 + 1) & MASK_32)) & MASK_32)
    word = hash_32((word + hash_32((int(round_number) * 2 + 1) & MASK_32)) & MASK_32)
    return hash_32((word + hash_32((int(place) * 2 + 1) & MASK_32)) & MASK_32)


@inner
def order(w, p):
    """Shuffles the queue."""
    count_round(w, p)
    count = list_queue(w, p)
    seed, number = w.config[0].prediction_seed, w.prefill[p].rounds
    for place in range(count - 1, 0, -1):
        swap_listed(w, place, drawn(seed, p, number, place) % (place + 1))
    link_queue(w, p, count)
