"""The prefix index: which holders have a page, as the router believes.

`holders[block]` is a bit set over the prefill instances and the cluster store. It is fed by stored/removed news that
arrive `index_delay_s` after the fact and may wait for the shard that takes them in (`shards.py`); with neither it is
exact.

An index that learns at the assignment also counts a prompt as cached where it is sent, at once, before it is computed.
The next news of a page, whatever they say, take the place of that belief. Unless a shard loses them, they always come:
whoever is sent to an instance is computed there, and then the pages are either stored or are there already. Who is
refused, or fits nowhere, is not sent anywhere and is not believed. What the news alone say stands in `stored_on` then:
a page that is believed cannot be pulled.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.core.jit import inner, once
from cacheenv.sim.core.timers import clear_timer, set_timer
from cacheenv.sim.index.shards import first_event, is_absorbed, join_shard, leave_shard, shard_of
from cacheenv.sim.state.codes import EVENT_INDEX, LEARNS_ASSIGNED
from cacheenv.sim.state.ids import TIMER_NEWS, cluster_timer

BITS = 62  # holder bits in one int64 word


@inner
def index_is_exact(w):
    """Whether the index says what is cached at this moment, and nothing else."""
    return not w.config[0].index_late and w.config[0].index_learns != LEARNS_ASSIGNED


@inner
def _apply(w, holder, start, count, stored):
    """Takes in news."""
    word = holder // BITS
    bit = 1 << (int(holder) % BITS)
    learns_early = w.config[0].index_learns == LEARNS_ASSIGNED
    for at in range(start, start + count):
        block = w.blocks[at]
        if stored:
            w.holders[block, word] |= bit
            if learns_early:
                w.stored_on[block, word] |= bit
        else:
            w.holders[block, word] &= ~bit
            if learns_early:
                w.stored_on[block, word] &= ~bit


@once
def expect_stored(w, holder, start, count):
    """A run of pages is believed to be on a holder from now on; news of them take the place of the belief."""
    word = holder // BITS
    bit = 1 << (int(holder) % BITS)
    for at in range(start, start + count):
        w.holders[w.blocks[at], word] |= bit


@inner
def publish(w, holder, start, count, stored):
    """A run of pages was stored on, or removed from, a holder: the index learns it now or later."""
    if count <= 0:
        return
    if not w.config[0].index_late:
        _apply(w, holder, start, count, stored)
        return
    if w.config[0].index_delay_s <= 0.0:
        _line_up(w, holder, start, count, stored)
        return
    state = w.state[0]
    at = (state.news_head + state.news_count) % w.news.shape[0]
    news = w.news[at]
    news.time_s = state.now_s + w.config[0].index_delay_s
    news.start = start
    news.count = count
    news.holder = holder
    news.stored = stored
    state.news_count += 1
    if state.news_count == 1:
        _expect_next(w)


@inner
def _line_up(w, holder, start, count, stored):
    """Each page of the news is an event for its shard: stored ones from the head of the path on, removed from its tail.

    That is the order in which they were stored and removed.
    """
    for number in range(count):
        at = start + number if stored else start + count - 1 - number
        shard = shard_of(w, w.blocks[at])
        _catch_up(w, shard)
        join_shard(w, shard, holder, at, stored)


@inner
def _catch_up(w, shard):
    """Applies the events that a shard has taken in by now."""
    while is_absorbed(w, shard):
        event = w.shard_event[first_event(w, shard)]
        _apply(w, np.int64(event.holder), event.at, np.int64(1), np.int64(event.stored))
        leave_shard(w, shard)


@once
def catch_up(w):
    """The same for all shards."""
    for shard in range(w.shard.shape[0]):
        _catch_up(w, shard)


@inner
def _expect_next(w):
    """Arms the timer for the oldest news; all take equally long, so they arrive in their order."""
    set_timer(w, cluster_timer(w, TIMER_NEWS), w.news[w.state[0].news_head].time_s, EVENT_INDEX, 0)


@once
def deliver_next(w):
    """The oldest news that are on their way arrive."""
    state = w.state[0]
    news = w.news[state.news_head]
    if w.config[0].index_shards > 0:
        _line_up(w, news.holder, news.start, news.count, news.stored)
    else:
        _apply(w, news.holder, news.start, news.count, news.stored)
    state.news_head = (state.news_head + 1) % w.news.shape[0]
    state.news_count -= 1
    if state.news_count > 0:
        _expect_next(w)
    else:
        clear_timer(w, cluster_timer(w, TIMER_NEWS))


@once
def unwrap_news(w, old_places):
    """The ring has become at least twice as long: news that had wrapped around follow the others again."""
    state = w.state[0]
    for at in range(state.news_head + state.news_count - old_places):
        old, new = w.news[at], w.news[old_places + at]
        new.time_s = old.time_s
        new.start = old.start
        new.stored = old.stored
        new.count = old.count
        new.holder = old.holder
