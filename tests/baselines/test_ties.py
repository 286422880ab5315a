"""Where a rule has no reason to prefer one instance, no instance gets everything."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tiny_cluster import requests

import cacheenv
from cacheenv_baselines import make, names

APART_S = 600.0  # far beyond the time of a request: each finds an idle cluster
ALONE = {"cluster.prefill.count": 2, "cluster.decode.count": 2, "warmup_requests": 0}


def shares(policy, prompt_tokens, prefills=2, count=10):
    """Requests on each prefill and each decode instance: unique prompts, one after the other, on an idle cluster.

    The real coefficients: near-equal numbers of equal instances would show.
    """
    scenario = cacheenv.load_scenario("kimi-chat", {**ALONE, "cluster.prefill.count": prefills})
    rows = [(APART_S * at, prompt_tokens, 20) for at in range(count)]
    rows = cacheenv.simulate(scenario, policy, 0, workload=requests(rows, 512)).requests
    assert np.all(rows.finish_s < rows.arrival_s + APART_S)
    return Counter(rows.prefill_instance.tolist()), Counter(rows.decode_instance.tolist())


def routers():
    return [name for name in names() if getattr(make(name), "kind", "") == "router" and not name.startswith("cpd")]


@pytest.mark.parametrize("prompt_tokens", [2000, 30_000], ids=["one batch", "chunks"])
@pytest.mark.parametrize("name", routers())
def test_unique_prompts_one_by_one_reach_both_instances_of_both_pools(name, prompt_tokens):
    """Ten of them. By lowest index all went to instance 0."""
    for pool in shares(name, prompt_tokens):
        assert set(pool) == {0, 1}, pool
        if name in ("round_robin", "longest_prefix"):
            assert set(pool.values()) == {5}


def test_a_decode_choice_reaches_both_instances():
    assert set(shares("round_robin/least_kv", 2000)[1]) == {0, 1}


def test_cpd_reaches_all_normal_instances():
    """Short prompts; instance 0 of three is for cold ones."""
    prefills, decodes = shares("cpd", 2000, prefills=3)
    assert set(prefills) == {1, 2} and set(decodes) == {0, 1}
