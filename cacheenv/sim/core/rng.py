"""A small random generator over four int64 words, for policies: xoshiro128++ (Blackman and Vigna, 2019).

State is data: the words live in the world's tables, are copied with them, and give the same numbers compiled and
plain. All arithmetic stays within 63 bits, so that plain NumPy integers do not overflow.
"""

from __future__ import annotations

import math

import numpy as np

from cacheenv.sim.core.jit import jit

MASK_32 = 0xFFFFFFFF


def seed_words(seed: np.random.SeedSequence) -> np.ndarray:
    """Four int64 words, each below 2**32 and not all zero, drawn from a seed sequence."""
    words = seed.generate_state(4, np.uint32).astype(np.int64)
    words[0] |= 1
    return words


@jit
def _rotate_left(word, count):
    return ((word << count) & MASK_32) | (word >> (32 - count))


@jit
def next_word(rng):
    """The next 32-bit word as an int64."""
    total = (rng[0] + rng[3]) & MASK_32
    result = (_rotate_left(total, 7) + rng[0]) & MASK_32
    shifted = (rng[1] << 9) & MASK_32
    rng[2] ^= rng[0]
    rng[3] ^= rng[1]
    rng[1] ^= rng[2]
    rng[0] ^= rng[3]
    rng[2] ^= shifted
    rng[3] = _rotate_left(rng[3], 11)
    return result


@jit
def uniform(rng):
    """A float64 in [0, 1) with 53 random bits."""
    high = next_word(rng) >> 5
    low = next_word(rng) >> 6
    return (high * 67108864.0 + low) / 9007199254740992.0


@jit
def random_below(rng, count):
    """An integer in [0, count), `count` from 1 to 2**31."""
    return int(uniform(rng) * count)


@jit
def hash_32(word):
    """Mixes a 32-bit word (the 0x45D9F3B integer hash); the product stays below 2**59."""
    word = ((word ^ (word >> 16)) * 0x45D9F3B) & MASK_32
    word = ((word ^ (word >> 16)) * 0x45D9F3B) & MASK_32
    return word ^ (word >> 16)


@jit
def hashed_normal(seed, first, second):
    """A standard normal that depends only on three integers (Box-Muller over hashed words)."""
    base = hash_32((seed ^ hash_32((int(first) * 2 + 1) & MASK_32)) & MASK_32)
    word = hash_32((base + hash_32((int(second) * 2 + 1) & MASK_32)) & MASK_32)
    radius = (hash_32(word ^ 0x5BD1E995) + 1.0) / 4294967297.0
    angle = hash_32((word + 0x3C6EF372) & MASK_32) / 4294967296.0
    return math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)
