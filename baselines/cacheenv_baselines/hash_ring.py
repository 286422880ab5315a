"""`hash_ring`: consistent hashing with bounded loads.

Source: consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, arXiv 1608.01350), as KubeAI's
PrefixHash uses it for LLM engines (bound of 125 %, kubeai-project/kubeai#447); 150 virtual nodes are those of
`consistent_hashing` of the SGLang gateway (nokiaMS/sglang @30cb848d). The paper's text was not read.
Rule: each prefill instance has `virtual_nodes` places on a ring, each key one. From the place of its key a request goes
clockwise to the first instance that may take it: whose requests in flight, with this one, are at most
ceil(`load_factor` x (requests in flight on all + 1) / instances). The key is the session, or the first page of the
prompt where the request has none.
Decode: the fewest requests in flight, ties at random. No pull.
Parameters:
  virtual_nodes (count): places of an instance on the ring
  load_factor (ratio): bound on an instance's share of the load; 0 = none, and then it is plain consistent hashing
  by_prefix (0 or 1): 1 takes the first page as key of all requests, as KubeAI does with the first 100 characters
Ours: the key, as sources use a header or the prefix; the hash function; the decode rule, as nothing is cached there. A
prompt shorter than a page has no key and gets a place of its own.
Deviation: a page (`cluster.page_tokens`) is longer than KubeAI's 100 characters, so it tells more prompts apart.
Quirks kept: what is cached where is not looked at, and a prompt that was sent past its instance is cached twice.
"""

from __future__ import annotations

import math

from cacheenv.policy import jit, policy, route
from cacheenv_baselines.ring import RING, clockwise, prefix_place, ring_owner, session_place
from cacheenv_baselines.rules import fewest_requests_decode


@jit
def largest_load(view, load_factor):
    """Requests in flight that an instance may have at most, the new one included."""
    total, num_prefill = 1, view.cluster[0].num_prefill
    for i in range(num_prefill):
        total += view.prefill[i].inflight_requests
    return math.ceil(load_factor * total / num_prefill)


@policy(params={"virtual_nodes": 150, "load_factor": 1.25, "by_prefix": 0})
def hash_ring(view, rng, params):
    """Consistent hashing of sessions, or of first pages, with bounded loads."""
    virtual_nodes, load_factor, by_prefix = int(params[0]), params[1], params[2] > 0
    place = prefix_place(view) if by_prefix or view.request[0].session < 0 else session_place(view)
    prefill, nearest = -1, RING
    if load_factor > 0.0:
        bound = largest_load(view, load_factor)
        for i in range(view.cluster[0].num_prefill):
            if view.prefill[i].accepts == 1 and view.prefill[i].inflight_requests + 1 <= bound:
                distance = clockwise(place, i, virtual_nodes)
                if distance < nearest:
                    prefill, nearest = i, distance
    if prefill < 0:  # no bound, or one below 1 that nobody meets
        prefill = ring_owner(view, place, virtual_nodes)
    return route(view, prefill, fewest_requests_decode(view, rng), 0)
