"""`cpd`, `cpd_balanced`: cache-aware prefill-decode disaggregation, cold prompts on nodes of their own.

Source: Together CPD ("Cache-aware disaggregated inference", 2026-03-04); the rule from the authors' router code:
smg-project/smg pull request 469 (version 2, 2026-02), vschandramourya/sglang 0fa463ec7 (version 1, 2026-01).
Rule: with ratio = longest prefix that the router remembers sending anywhere / prompt, in characters:
  * Prompts shorter than `min_chars`: the normal policy, which is that of `sglang` over the normal prefill instances.
  * Cold ones (version 2: ratio < `match_threshold` and unmatched >= `unmatched_chars`; version 1: ratio <=
    `match_threshold` or unmatched >= `unmatched_chars`): the first pre-prefill instance; without one, the normal policy
    (version 1: a random instance). `cpd_balanced` (OURS): the pre-prefill instance with the least backlog in
    seconds, ties at random.
  * Warm ones: the normal policy (version 1: a uniformly random normal instance).
Decode: as `power_of_two`. Computed prompts are written to the cluster store, so a prompt that was cold once is pulled
from there later.
Parameters:
  version (1 or 2): which of the authors' two rules
  match_threshold (share of the prompt): see the rule
  unmatched_chars (characters): see the rule
  min_chars (characters): see the rule
  chars_per_token (characters): length of a token; OURS
  cache_threshold (share of the prompt): of the normal policy
  balance_abs (requests): of the normal policy
  balance_rel (ratio): of the normal policy
Brings: router memory as `sglang`.
Requires: at least one pre-prefill instance; a store with write-through, of at least 14,000,000 tokens (OURS: 500 GB,
the larger store of the authors' scripts, at the 35,136 bytes a token of their model); pulls from the store only.
Ours: the store is used where its prefix is longer than the local one and the estimated transfer and rest take less
time than computing; the real engines query it without an estimate.
Deviations: the memory works in pages; the normal policy has normal instances as candidates, as the post describes it,
where the list that version 2's code hands to it holds the pre-prefill worker too, which as the owner of what was cold
would get the warm prompts as well; no decode worker is paired with a pre-prefill one; version 1's length test is
applied although the excerpt of its code that is public does not show it.
Quirk kept: `cpd` sends all cold prompts to the first pre-prefill instance; a second one is never used while it is up.
Published: 35-40 % more requests a second at equal p50 TTFT, with two prefill nodes of which one is for cold prompts.
Neither the router that it is compared with nor lengths or the share of cold prompts are public. In probes of this
simulator (not among its experiments) that gain appeared against routing that sees no load, at two prefill nodes, judged
by the p50, with turns at least 90 s apart and KV of an MLA model: +32, +31 and +44 % at a cold share of .05, .08 and
.12. Against `least_requests` it was +9 to +21 %, against a cache-aware router nothing. The scenario `long-context`
as it stands does not show it.
"""

from __future__ import annotations

from cacheenv.policy import ROLE_PRE_PREFILL, ROLE_PREFILL, jit, policy, random_below, route
from cacheenv_baselines.rules import (
    ANY_ROLE,
    cache_aware,
    has_role,
    least_backlog_prefill,
    power_of_two_decode,
    store_helps,
)


@jit
def is_cold(version, matched_chars, total_chars, match_threshold, unmatched_chars):
    """The rule's test of one prompt, lengths in characters."""
    few_matched = matched_chars < match_threshold * total_chars
    many_unmatched = total_chars - matched_chars >= unmatched_chars
    if version < 2:
        return few_matched or matched_chars == match_threshold * total_chars or many_unmatched
    return few_matched and many_unmatched


@jit
def first_of_role(view, role):
    """Lowest prefill instance of a role; -1 if there is none."""
    for i in range(view.cluster[0].num_prefill):
        if has_role(view, i, role):
            return i
    return -1


@jit
def random_of_role(view, rng, role):
    """Uniformly random prefill instance of a role; -1 if there is none."""
    chosen, seen = -1, 0
    for i in range(view.cluster[0].num_prefill):
        if has_role(view, i, role):
            seen += 1
            if random_below(rng, seen) == 0:
                chosen = i
    return chosen


@jit
def route_by_context(view, rng, params, cold_instance):
    """The rule, with the instance that a cold prompt goes to (-1: there is none)."""
    version, match_threshold, unmatched_chars = params[0], params[1], params[2]
    min_chars, chars_per_token = params[3], params[4]
    cache_threshold, balance_abs, balance_rel = params[5], params[6], params[7]
    total_chars = view.request[0].prompt_tokens * chars_per_token
    matched_chars = view.request[0].memory_hit_tokens * chars_per_token
    prefill = -1
    if total_chars >= min_chars:
        if is_cold(version, matched_chars, total_chars, match_threshold, unmatched_chars):
            prefill = cold_instance
        if prefill < 0 and version < 2:
            prefill = random_of_role(view, rng, ROLE_PREFILL)
    if prefill < 0:
        prefill = cache_aware(view, rng, ROLE_PREFILL, cache_threshold, balance_abs, balance_rel)
    if prefill < 0:
        prefill = cache_aware(view, rng, ANY_ROLE, cache_threshold, balance_abs, balance_rel)
    return route(view, prefill, power_of_two_decode(view, rng), 1 if store_helps(view, prefill) else 0)


PARAMETERS = {
    "version": 2, "match_threshold": 0.1, "unmatched_chars": 10_000, "min_chars": 10_000, "chars_per_token": 4,
    "cache_threshold": 0.3, "balance_abs": 64, "balance_rel": 1.5,
}  # fmt: skip
ENGINE = {
    "max:cluster.prefill.pre_prefill": 1, "max:cluster.store.capacity_tokens": 14_000_000,
    "cluster.store.write_through": True, "cluster.network.peer_pulls": False,
}  # fmt: skip
MEMORY = {"cluster.index.memory_tokens": 2**26 // 4}


@policy(params=PARAMETERS, requires=ENGINE, brings=MEMORY)
def cpd(view, rng, params):
    """Together CPD: cold prompts to the pre-prefill instance, warm ones cache-aware, KV through the store."""
    return route_by_context(view, rng, params, first_of_role(view, ROLE_PRE_PREFILL))


@policy(params=PARAMETERS, requires=ENGINE, brings=MEMORY)
def cpd_balanced(view, rng, params):
    """Together CPD with cold prompts on the pre-prefill instance with the least backlog."""
    return route_by_context(view, rng, params, least_backlog_prefill(view, rng, ROLE_PRE_PREFILL))
