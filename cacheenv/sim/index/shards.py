"""Index shards that take in a bounded number of events a second: what waits there, and what is lost.

Each page belongs to one shard, by a hash of its id, and each page that is stored or removed is an event of its own. A
shard takes in one event after the other, each in the same time. An event that finds as many waiting as the high-water
mark allows, the one that is being taken in included, is lost.

No timer tells when an event has been taken in: nothing happens then. Whoever asks a shard has it catch up first.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.rng import hash_32


@inner
def shard_of(w, block):
    """The shard to which a page belongs."""
    return hash_32(np.int64(block)) % w.shard.shape[0]


@inner
def is_absorbed(w, shard):
    """Whether the first event that waits at a shard has been taken in by now."""
    row = w.shard[shard]
    return row.waiting > 0 and row.next_s <= w.state[0].now_s


@inner
def first_event(w, shard):
    """Row in `shard_event` of the first event that waits at a shard."""
    return shard * w.config[0].index_high_water + w.shard[shard].head


@inner
def leave_shard(w, shard):
    """The first event does not wait any more; the next one is being taken in from then on."""
    row = w.shard[shard]
    row.head = (row.head + 1) % w.config[0].index_high_water
    row.waiting -= 1
    row.next_s += w.config[0].index_event_s


@once
def join_shard(w, shard, holder, at, stored):
    """The page `blocks[at]` was stored on, or removed from, a holder: the event waits for its shard, or is lost."""
    row = w.shard[shard]
    most = w.config[0].index_high_water
    if row.waiting >= most:
        w.state[0].news_lost += 1
        return
    if row.waiting == 0:
        row.next_s = w.state[0].now_s + w.config[0].index_event_s
    event = w.shard_event[shard * most + (row.head + row.waiting) % most]
    event.at = at
    event.holder = holder
    event.stored = stored
    row.waiting += 1
