"""How much a prefix cache saves: the optimum of depth-first orders, and exact LRU on a real trace."""

from __future__ import annotations

import random
from collections import OrderedDict

import numpy as np
import pytest
from tiny_cluster import requests, run, tiny

from cacheenv.workload import Workload


def prompts(seed: int, count: int = 60) -> list[tuple[int, ...]]:
    """Prompts that share prefixes of all lengths; some are prefixes of others, some occur twice."""
    rng = random.Random(seed)
    made: list[tuple[int, ...]] = [tuple(rng.randrange(3) for _ in range(8))]
    while len(made) < count:
        head = rng.choice(made)[: rng.randrange(12)]
        made.append(head + tuple(rng.randrange(3) for _ in range(rng.randrange(1, 8))))
    return made + made[:3]


def trie_tokens(made) -> int:
    return len({prompt[:end] for prompt in made for end in range(1, len(prompt) + 1)})


def computed(made, capacity, spacing_s, **settings):
    """Tokens computed for prompts in this order, one a batch, and the tokens of each."""
    scenario = tiny(prefill__cache_tokens=capacity, prefill__max_batch_requests=1, **settings)
    work = requests([(spacing_s * number, prompt, 1) for number, prompt in enumerate(made)])
    done = run(scenario, work)
    assert (done.rows.outcome == 1).all()
    return int(done.result.instances[0].tokens), done.rows


@pytest.mark.parametrize("seed", range(5))
def test_depth_first_order_computes_each_edge_once(seed):
    """SGLang (NeurIPS 2024), Theorem 3.1: with a cache of the longest prompt, a depth-first order is optimal.

    A prompt that is cached whole still computes its last token. In sorted order a prefix comes before what continues
    it, so that happens to repeated prompts only.
    """
    made = sorted(prompts(seed))
    repeats = len(made) - len(set(made))
    longest = max(map(len, made))
    tokens, rows = computed(made, longest, spacing_s=1.0)
    assert repeats >= 3
    assert tokens == trie_tokens(made) + repeats == (rows.prompt_tokens - rows.hit_tokens).sum()


@pytest.mark.parametrize("seed", range(5))
def test_other_orders_compute_more(seed):
    made = prompts(seed)
    random.Random(seed).shuffle(made)
    tokens, _ = computed(made, max(map(len, made)), spacing_s=1.0)
    assert tokens > 1.3 * trie_tokens(made)


@pytest.mark.parametrize("seed", range(5))
def test_longest_prefix_match_is_depth_first(seed):
    """The second half of the theorem: all prompts waiting, served by longest match, is such an order."""
    made = prompts(seed)
    random.Random(seed).shuffle(made)
    settings = {"prefill__queue": "lpm", "prefill__lpm_check_tokens": -1}
    tokens, rows = computed(made, max(map(len, made)), 0.0, **settings)
    order = [made[index] for index in np.argsort(rows.prefill_start_s, kind="stable")]
    whole = sum(any(other[: len(prompt)] == prompt for other in order[:at]) for at, prompt in enumerate(order))
    assert tokens == trie_tokens(made) + whole
    first_come, _ = computed(made, max(map(len, made)), 0.0)
    assert first_come > 1.3 * tokens


def test_with_room_for_everything_any_order_will_do():
    made = prompts(1)
    tokens, _ = computed(made, 10_000, spacing_s=1.0)
    whole = sum(any(other[: len(prompt)] == prompt for other in made[:at]) for at, prompt in enumerate(made))
    assert tokens == trie_tokens(made) + whole


def one_instance(workload: Workload, capacity: int) -> np.ndarray:
    """Hit tokens of each prompt when one prefill instance serves them one after the other."""
    scenario = tiny(
        page_tokens=512,
        prefill__cache_tokens=None,
        prefill__max_batch_requests=1,
        network__link="rdma_4x200g_te",
    )
    rows = workload.requests
    alone = Workload.from_arrays(
        rows["arrival_s"],
        rows["prompt_tokens"],
        np.ones(len(rows), np.int64),
        [workload.blocks_of(index) for index in range(len(rows))],
        page_tokens=512,
    )
    return np.asarray(run(scenario, alone, capacity_tokens=capacity * 512).rows.hit_tokens)


def least_recently_used(workload: Workload, capacity: int) -> list[int]:
    """The same by an ordered dictionary of pages: a prompt reads, makes room, and writes its whole pages.

    Later pages of a prompt are older than earlier ones. The prompt being computed takes room, its last page too.
    """
    pages: OrderedDict[int, None] = OrderedDict()

    def touch(path):
        for page in reversed(path):
            pages[page] = None
            pages.move_to_end(page)

    hits = []
    for index, length in enumerate(workload.requests["prompt_tokens"].tolist()):
        path = workload.blocks_of(index).tolist()
        usable = (length - 1) // 512
        hit = 0
        while hit < usable and path[hit] in pages:
            hit += 1
        touch(path[:hit])
        while len(pages) + len(path) - hit > capacity:
            pages.popitem(last=False)
        touch(path[: length // 512])
        hits.append(hit * 512)
    return hits


@pytest.fixture(scope="module")
def trace(conversation_trace) -> Workload:
    return Workload.from_mooncake(conversation_trace)


@pytest.mark.parametrize("capacity", [1_000, 5_859, 50_000])
def test_conversation_trace_through_one_instance(trace, capacity):
    delivered = one_instance(trace, capacity)
    assert delivered.tolist() == least_recently_used(trace, capacity)
    assert delivered.tolist() != least_recently_used(trace, capacity - 10), "ten pages less make a difference"


def test_conversation_trace_against_kvcache_simulator(conversation_trace, trace):
    """PyPI's kvcache-simulator replays the second half of the trace after warming up with the first.

    It keeps the partial last pages of prompts too, a few percent of its room that hardly ever hit: a little less.
    """
    trace_module = pytest.importorskip("kvcache_sim.trace", reason="needs PyPI's kvcache-simulator")
    from kvcache_sim.plan import build_execution_plan
    from kvcache_sim.policies import simulate_policy

    half = len(trace) // 2
    plan = build_execution_plan(trace_module.parse_trace_file(conversation_trace, block_size=512), 0.5)
    tokens = trace.requests["prompt_tokens"][half:].sum()
    for capacity in (1_000, 10_000):
        theirs = simulate_policy(plan, "lru", capacity).hitRate
        ours = one_instance(trace, capacity)[half:].sum() / tokens
        assert theirs - 0.001 < ours < theirs + 0.005
