"""What a router keeps is its own: a common cluster leaves it, and takes the engine features away."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_cluster import requests

import cacheenv
from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle, make_policy

TURNS, DIALOGUES, PAGE = 6, 5, 512


@pytest.fixture(scope="module")
def dialogues():
    """Five dialogues in turn, each prompt one page longer than the last, a minute apart: 70 % of all pages recur."""
    rows = []
    for turn in range(TURNS):
        for dialogue in range(DIALOGUES):
            prompt = [(dialogue, at) for at in range(PAGE * (turn + 2) + 1)]
            rows.append((60.0 * len(rows), prompt, 4))
    return requests(rows, PAGE)


def hit_rate(policy, workload, common_cluster):
    scenario = cacheenv.load_scenario(
        "kimi-chat", {"cluster.prefill.count": 5, "cluster.decode.count": 1, "warmup_requests": 0}
    )
    result = cacheenv.simulate(scenario, policy, 0, workload=workload, common_cluster=common_cluster)
    rows = result.requests
    assert np.all(rows.outcome == rows.outcome[0])
    return rows.hit_tokens.sum() / rows.prompt_tokens.sum(), result.scenario.cluster


def test_sglang_finds_its_prefixes_on_a_common_cluster(dialogues):
    """Turns 2 to 6 find all but one page of the prompt: (2 + ... + 6) / (2 + ... + 7) = 20/27 of the full pages.

    Matches are above the threshold of 0.3 from the second turn on. Without the memory all prompts go to a random
    idle instance of five.
    """
    apart, _ = hit_rate("sglang", dialogues, common_cluster=False)
    common, cluster = hit_rate("sglang", dialogues, common_cluster=True)
    full = 20 * PAGE / (27 * PAGE + TURNS)
    assert apart == common == pytest.approx(full)
    assert cluster.index.memory_tokens == 16_777_216
    forgetful, _ = hit_rate(make_policy("random"), dialogues, common_cluster=True)
    assert forgetful < 0.5 * full


def test_engine_features_are_left_out(dialogues):
    queue = {"cluster.prefill.queue": "lpm"}
    scenario = cacheenv.load_scenario("kimi-chat", {**queue, "cluster.prefill.count": 2, "warmup_requests": 0})
    few = requests([(0.0, 1000, 4)], PAGE)
    runs = [cacheenv.simulate(scenario, "sglang", workload=few, common_cluster=common) for common in (False, True)]
    assert [run.scenario.cluster.prefill.queue for run in runs] == ["fcfs", "lpm"]


def test_two_parts_with_different_memories_are_refused():
    one, two = make_policy("sglang").router, make_policy("sglang_struct/sglang").decode_choice
    bundle = PolicyBundle("both", router=make_policy("sglang_struct").router, decode_choice=two)
    assert one.brings != bundle.router.brings
    with pytest.raises(InputError, match=r"both: its parts need different values of cluster\.index\.memory_tokens"):
        bundle.brings()
