"""Mean waiting times of one prefill instance against queueing theory, and what any queue must conserve.

Poisson arrivals, one request a batch, service time proportional to the prompt: M/D/1, M/M/1 and M/G/1
(Pollaczek-Khinchine: W = rate E[S^2] / (2 (1 - rate E[S])), e.g. Kleinrock, Queueing Systems I, section 5.6).
"""

from __future__ import annotations

import numpy as np
import pytest
from tiny_cluster import Script, requests, run, tiny

from cacheenv.workload import Workload

COUNT, BATCHES, WARM = 100_000, 25, 1_000
MEAN_TOKENS, MEAN_S, LOAD = 10_000, 1.0, 0.6
STUDENT_999 = 3.745  # two-sided 99.9 % point of Student's t with 24 degrees of freedom

#: Prompt lengths: how they are drawn, and E[S^2] of the service time over (E[S])^2.
LENGTHS = {
    "M/D/1": (lambda rng: np.full(COUNT, MEAN_TOKENS), 1.0),
    "M/M/1": (lambda rng: np.ceil(rng.exponential(MEAN_TOKENS, COUNT)), 2.0),
    "M/G/1": (lambda rng: rng.choice([MEAN_TOKENS // 10, MEAN_TOKENS * 37 // 10], COUNT, p=[0.75, 0.25]), 3.43),
}


def poisson(lengths, rate, seed) -> Workload:
    """Prompts of less than a page, which nobody shares, of one output token each."""
    rng = np.random.default_rng(seed)
    prompt = lengths(rng).astype(np.int64)
    arrival = np.cumsum(rng.exponential(1.0 / rate, COUNT))
    return Workload.from_arrays(arrival, prompt, np.ones(COUNT, np.int64), page_tokens=1_000_000)


def one_at_a_time(workload, instances=1, policy="round_robin", slower=1.0):
    scenario = tiny(
        page_tokens=1_000_000,
        prefill__count=instances,
        prefill__cache_tokens=None,
        prefill__max_batch_requests=1,
    )
    slow = slower * MEAN_S / MEAN_TOKENS
    return run(scenario, workload, policy, prefill_b_s=slow, capacity_tokens=2_000_000)


def interval(waits: np.ndarray) -> tuple[float, float]:
    """99.9 % confidence interval of the mean by batch means."""
    means = waits[WARM:][: (COUNT - WARM) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    half = STUDENT_999 * means.std(ddof=1) / np.sqrt(BATCHES)
    return means.mean() - half, means.mean() + half


@pytest.mark.parametrize("queue", LENGTHS)
def test_mean_wait(queue):
    lengths, moment = LENGTHS[queue]
    workload = poisson(lengths, LOAD / MEAN_S, seed=5)
    expected = LOAD * MEAN_S * moment / (2.0 * (1.0 - LOAD))

    def measure(slower):
        rows = one_at_a_time(workload, slower=slower).rows
        return interval(rows.prefill_start_s - rows.arrival_s)

    low, high = measure(1.0)
    assert low < expected < high
    low, high = measure(1.05)
    assert expected < low, "an error of 5 % in the service times would be seen"


def test_random_routing_makes_independent_queues():
    """A Poisson stream split at random is Poisson: each of two instances is M/D/1 with half of the rate."""
    lengths, moment = LENGTHS["M/D/1"]
    rows = one_at_a_time(poisson(lengths, 2 * LOAD / MEAN_S, seed=9), instances=2, policy="random").rows
    assert abs(np.mean(rows.prefill_instance == 0) - 0.5) < 0.01
    low, high = interval(rows.prefill_start_s - rows.arrival_s)
    assert low < LOAD * MEAN_S * moment / (2.0 * (1.0 - LOAD)) < high
    assert (high - low) / (high + low) < 0.1


def test_work_is_conserved():
    """An instance is busy for exactly the work that it gets, and never idle while something waits."""
    lengths, _ = LENGTHS["M/M/1"]
    workload = poisson(lengths, 0.9 / MEAN_S, seed=2)
    done = one_at_a_time(workload)
    rows = done.rows
    service = rows.prompt_tokens * MEAN_S / MEAN_TOKENS
    assert np.allclose(rows.prefill_end_s - rows.prefill_start_s, service, rtol=1e-9)
    assert done.result.instances[0].busy_s == pytest.approx(service.sum(), rel=1e-9)
    assert done.result.instances[0].tokens == rows.prompt_tokens.sum()
    # Lindley's recursion: a request starts at its arrival or when the one before has ended, whichever is later.
    before = np.concatenate([[0.0], rows.prefill_end_s[:-1]])
    assert np.array_equal(rows.prefill_start_s, np.maximum(rows.arrival_s, before))


@pytest.mark.parametrize("warmup", [0, 300])
def test_littles_law(warmup):
    """The integral of the requests in the system is the sum of the times that they spend in it."""
    rng = np.random.default_rng(4)
    rows = [(at, int(rng.integers(1, 400)), int(rng.integers(1, 60))) for at in np.cumsum(rng.exponential(0.05, 1000))]
    rows.insert(500, (rows[499][0], 3000, 5))  # too large: leaves at once
    scenario = tiny(prefill__count=2, decode__count=2, decode__kv_tokens=2000, warmup_requests=warmup)
    choices = [(0, 0), (1, 1), "reject", (0, 1), (1, 0)]
    turns = [choices[number % len(choices)] for number in range(1001)]
    done = run(scenario, requests(rows), Script(turns), decode_e_s=1e-3)
    table = done.rows[warmup:]
    assert set(table.outcome.tolist()) == {1, 2, 3}, "completed, rejected and too large"
    spent = np.nansum(table.e2e_s)
    assert done.world.state[0].integral_s == pytest.approx(spent, rel=1e-9)
    assert np.nansum(done.rows.e2e_s[:300]) > 0.1 * spent
