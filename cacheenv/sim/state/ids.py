"""Where an instance stands in each table. Every conversion between the numberings is here.

* An *instance* number is a row of `w.instance`: the prefill instances first, then the decode instances.
* `p` and `d` number the prefill and the decode parts, as actions, views and records do.
* A *NIC* is a row of `w.nic`: one an instance, and one of the store.
* A *tree* is a row of `w.tree`: one a prefill instance, one of the store, the router's memory of each instance, and
  the host memory of each.
* A *holder* is a bit of the index: prefill part p is bit p, the store is the bit behind the last, and the host memories
  of the parts come behind it.
* A *timer* is a row of `w.heap_position`: one an instance, three of the cluster, one a flow.
"""

from __future__ import annotations

import numpy as np

from cacheenv.sim.core.jit import inner, once

#: Timers of the cluster, behind those of the instances: rescheduling ticks, news for the index, arrivals.
TIMER_TICK, TIMER_NEWS, TIMER_ARRIVAL, CLUSTER_TIMERS = (np.int64(number) for number in range(4))


@inner
def prefill_instance(w, p):
    """Instance of prefill part `p`."""
    return w.prefill[p].instance


@inner
def decode_instance(w, d):
    """Instance of decode part `d`."""
    return w.decode[d].instance


@inner
def prefill_of(w, instance):
    """Prefill part of an instance that has one."""
    return w.instance[instance].prefill


@once
def decode_of(w, instance):
    """Decode part of an instance that has one."""
    return w.instance[instance].decode


@inner
def prefill_nic(w, p):
    """NIC of prefill part `p`."""
    return w.instance[w.prefill[p].instance].nic


@inner
def decode_nic(w, d):
    """NIC of decode part `d`."""
    return w.instance[w.decode[d].instance].nic


@inner
def store_nic(w):
    """NIC of the cluster store."""
    return w.nic.shape[0] - 1


@inner
def tree_of(w, p):
    """Prefix cache of prefill part `p`."""
    return w.instance[w.prefill[p].instance].tree


@inner
def memory_tree(w, p):
    """The router's memory of what it sent to prefill part `p`."""
    return w.instance[w.prefill[p].instance].memory_tree


@inner
def host_tree_of(w, p):
    """Tree of what the host memory of prefill part `p` holds, -1 where it has none."""
    return w.instance[w.prefill[p].instance].host_tree


@inner
def has_host(w, p):
    """Whether prefill part `p` keeps prefixes in host memory; the first test is for clusters without any."""
    return w.config[0].host_enabled == 1 and host_tree_of(w, p) >= 0


@inner
def landing_tree(w, p):
    """Where pulled pages arrive: in host memory, where there is one."""
    return host_tree_of(w, p) if has_host(w, p) else tree_of(w, p)


@inner
def store_tree(w):
    """Tree of the cluster store."""
    return w.prefill.shape[0]


@inner
def store_holder(w):
    """Bit of the cluster store in the index."""
    return w.prefill.shape[0]


@inner
def prefill_of_holder(w, holder):
    """Prefill part that a holder belongs to, -1 for the store."""
    prefills = w.prefill.shape[0]
    if holder == prefills:
        return -1
    return holder if holder < prefills else holder - prefills - 1


@inner
def host_holder(w, p):
    """Bit of a prefill part's host memory in the index."""
    return w.prefill.shape[0] + 1 + p


@inner
def tree_of_holder(w, holder):
    """Tree in which a holder keeps its pages."""
    prefills = w.prefill.shape[0]
    if holder > prefills:
        return host_tree_of(w, holder - prefills - 1)
    return tree_of(w, holder) if holder < prefills else store_tree(w)


@inner
def nic_of_holder(w, holder):
    """NIC through which a holder sends."""
    return prefill_nic(w, holder) if holder < w.prefill.shape[0] else store_nic(w)


@inner
def cluster_timer(w, which):
    """Timer of the cluster: `TIMER_TICK`, `TIMER_NEWS` or `TIMER_ARRIVAL`."""
    return w.instance.shape[0] + which


@inner
def flow_timer(w, flow):
    """Timer of a flow."""
    return w.instance.shape[0] + CLUSTER_TIMERS + flow


@once
def flow_of_timer(w, timer):
    """Flow that owns a timer."""
    return timer - w.instance.shape[0] - CLUSTER_TIMERS
