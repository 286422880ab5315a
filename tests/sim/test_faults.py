"""Faults that were reported of real routers, caches and PD systems, each as a tiny run that must come out right.

The ids name the kinds of fault: R routers, X indices of caches, S queues, T trees and memory, D disaggregation,
G migration, M metrics. Each test is named by its id. Where the others are:

* Policies on views made by hand, in `tests/baselines`: R-1 and R-6 (`test_sglang_router`), the rules behind R-2, R-3b,
  R-4 and R-9 (`test_simple_routers`), G-5 (`test_star_rescheduler`, `test_llumnix_rescheduler`).
* `tests/sim/cache/test_radix_tree.py`: T-2, X-7, and T-3 and X-2 on a tree alone.
* `tests/sim/decode/test_migration_faults.py`: G-1, G-3, G-5. `tests/sim/prefill/test_host_memory.py`: T-5.
* `tests/workload`: input of 0 tokens (D-8).

Not applicable to what is built: R-10 (hash ring), R-13 (busy thresholds), R-14 (no score stands for a count), X-4
(restart of a worker), T-6 except for cancelled migrations (nothing is aborted from outside), X-6 (events come from the
trees, so none is unknown), S-3 (priorities), the stale mode of R-4 (loads are always the router's own; only the index
can be late), ageing in S-1, and the parts of D-4, G-1 and G-3 in which a worker dies.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from fault_tools import assert_nothing_held, unique
from tiny_cluster import Run, Script, requests, run, tiny

from cacheenv import InputError
from cacheenv.workload import Workload

COMPLETED, REJECTED, TOO_LARGE = 1, 2, 3


# R: routers


def test_r2_load_counts_at_dispatch_and_ends_once():
    done = run(tiny(prefill__count=8, decode__count=8), requests(unique(480)), "least_requests")
    assert set(Counter(done.rows.prefill_instance.tolist()).values()) == {60}
    assert set(Counter(done.rows.decode_instance.tolist()).values()) == {60}
    assert_nothing_held(done)


def test_r3b_prefill_load_ends_with_the_prefill():
    seen = []
    script = Script([(0, 0)], watch=lambda view: seen.append(view.prefill.inflight_requests.tolist()))
    done = run(tiny(prefill__count=2), requests([(0.0, 1000, 9901), (2.0, 50, 1)]), script)
    assert done.rows[0].prefill_end_s == 1.0 and done.rows[0].finish_s == pytest.approx(100.0)
    assert seen == [[0, 0], [0, 0]]


def test_r3b_lengths_are_weighed():
    rows = [(0.0, 10_000, 1), *unique(99, output=1)]
    placed = run(tiny(prefill__count=2), requests(rows), "least_backlog").rows.prefill_instance
    assert (placed[1:] == 1 - placed[0]).all()


@pytest.mark.parametrize("policy", ["least_backlog", "random/least_kv", "mooncake", "lmetric"])
def test_r4_decisions_of_one_instant_see_each_other(policy):
    scenario = tiny(prefill__count=4, decode__count=4)
    placed = run(scenario, requests(unique(100)), policy, decode_f_s=1e-6).rows
    assert max(Counter(placed.decode_instance.tolist()).values()) <= 26
    if not policy.startswith("random"):
        assert max(Counter(placed.prefill_instance.tolist()).values()) <= 26


def test_r7_each_pool_follows_its_own_policy():
    prompt = range(500)
    work = requests([(10.0 * number, prompt, 5) for number in range(10)])
    rows = run(tiny(prefill__count=2, decode__count=2), work, "sglang/round_robin").rows
    assert len(set(rows.prefill_instance.tolist())) == 1
    assert sorted(Counter(rows.decode_instance.tolist()).values()) == [5, 5]
    assert rows.hit_tokens.tolist() == [0] + [499] * 9


@pytest.mark.parametrize("policy", ["sglang", "sglang_struct", "longest_prefix"])
def test_r8_affinity_starts_with_a_miss(policy):
    work = requests([(10.0 * number, range(512), 2) for number in range(10)])
    placed = run(tiny(prefill__count=4), work, policy, seed=3).rows.prefill_instance
    assert len(set(placed.tolist())) == 1


def test_r9_outstanding_work_is_the_load():
    """Decode 0 holds ten long requests; decode 1 finishes ten short ones a second."""
    rows = [*unique(10, output=10_000), *unique(30, output=2, spacing_s=0.1, start_s=1.0), (5.0, 100, 2)]
    turns = [(0, 0)] * 10 + [(0, 1)] * 30
    seen = []

    def last(view):
        seen.append((view.decode.inflight_requests.tolist(), view.decode.dispatched_requests.tolist()))
        return 0, int(np.argmin(view.decode.inflight_requests))

    done = run(tiny(decode__count=2), requests(rows), Script([*turns, last]), prefill_b_s=1e-5)
    assert seen == [([10, 0], [10, 30])]
    assert done.rows[40].decode_instance == 1


@pytest.mark.parametrize("policy", ["least_requests", "power_of_two", "least_backlog", "mooncake"])
def test_r11_no_worker_idles_under_unique_prompts(policy):
    """100 unique prompts of equal length, about ten of them running at any time."""
    work = requests(unique(100, output=100, spacing_s=0.1))
    rows = run(tiny(decode__count=5), work, policy, decode_f_s=1e-7).rows
    counts = Counter(rows.decode_instance.tolist())
    assert len(counts) == 5 and all(15 <= count <= 25 for count in counts.values()), counts


# X: indices of caches


def test_x1_router_memory_is_bounded_for_each_instance():
    sizes = []

    def measure(worlds):
        world = worlds.world(0)
        memories = world.tree[5:]
        sizes.append(memories["pages"].tolist())
        words = world.remembered[:, 0]
        assert [int(((words >> instance) & 1).sum()) for instance in range(4)] == sizes[-1]

    scenario = tiny(page_tokens=100, prefill__count=4, index__memory_tokens=10_000)
    turns = [(number % 4, 0) for number in range(600)]
    rows = [(0.0, 100 * int(pages), 1) for pages in np.random.default_rng(5).integers(1, 40, size=600)]
    done = run(scenario, requests(rows, 100), Script(turns), watch=measure)
    assert len(done.world.tree) == 4 + 1 + 4
    assert np.max(sizes) == 100, "10,000 tokens of each of the four, 40,000 in all"


def test_x2_tails_are_evicted_before_heads():
    first = range(8)
    rows = [(0.0, first, 1), (1.0, 4, 1), (2.0, [*first, -1], 1)]
    done = run(tiny(prefill__cache_tokens=9), requests(rows))
    # The second prompt takes the free page and the last three of eight.
    assert done.rows.hit_tokens.tolist() == [0, 0, 5]
    assert done.rows.hit_predicted_tokens.tolist() == [0, 0, 5]


def test_x6_the_index_is_what_the_caches_hold():
    """Stored and removed pages reach the index; with a delay, exactly that much later."""
    rng = np.random.default_rng(1)
    firsts = 100 * rng.integers(3, size=40)
    rows = [(float(number), range(first, first + 60), 1) for number, first in enumerate(firsts)]

    def holders(worlds):
        world = worlds.world(0)
        listed = [int(((world.holders[:, 0] >> holder) & 1).sum()) for holder in (0, 1)]
        assert listed == world.tree["pages"][:2].tolist()

    turns = [(int(rng.integers(2)), 0) for _ in rows]
    done = run(tiny(prefill__count=2, prefill__cache_tokens=100), requests(rows), Script(turns), watch=holders)
    assert 0 < done.rows.hit_tokens.sum() == done.rows.hit_predicted_tokens.sum()
    seen = []
    script = Script([(0, 0)], watch=lambda view: seen.append(int(view.prefill[0].hit_tokens)))
    late = [(0.0, range(60), 1)] + [(at, range(60), 1) for at in (0.06, 5.0, 5.0599, 5.0601)]
    delayed = run(tiny(index__delay_s=5.0), requests(late), script)
    assert seen == [0, 0, 0, 0, 59]
    assert delayed.rows.hit_tokens.tolist() == [0, 59, 59, 59, 59], "what is delivered is what the cache holds"
    assert delayed.rows.hit_available_tokens.tolist() == [0, 59, 59, 59, 59]


def test_x7_equal_tokens_behind_a_difference_are_no_hit():
    first, second = [*range(15), 15, *range(20, 36)], [*range(15), 99, *range(20, 36)]
    for page_tokens, expected in ((16, 0), (1, 15)):
        work = requests([(0.0, first, 1), (1.0, second, 1)], page_tokens)
        assert run(tiny(page_tokens=page_tokens), work).rows.hit_tokens.tolist() == [0, expected]


def test_x7_namespaces_share_nothing():
    work = requests([(float(number), range(100), 1) for number in range(4)], namespace=[0, 1, 0, 1])
    assert run(tiny(), work).rows.hit_tokens.tolist() == [0, 0, 99, 99]


# S: queues


@pytest.mark.parametrize(("queue", "served"), [("lpm", 50), ("fcfs", 2)])
def test_s1_longest_prefix_match_starves_the_cold_request(queue, served):
    """The defect belongs to the discipline: at each pass a new hot request waits, and the cold one is passed over."""
    hot = range(1000)
    rows = [(0.0, hot, 1), (0.5, [*hot, -1], 1), (0.6, 10, 1)]
    rows += [(1.0005 + 0.001 * number, [*hot, -2 - number], 1) for number in range(48)]
    scenario = tiny(prefill__queue=queue, prefill__max_batch_requests=1)
    done = run(scenario, requests(rows))
    order = np.argsort(done.rows.prefill_start_s, kind="stable").tolist()
    assert order.index(2) == served


def test_s5_chunks_make_progress():
    """10,000 tokens in chunks of 4096: 4096, 4096 and 1808, nothing computed twice."""
    scenario = tiny(page_tokens=16, prefill__chunk_tokens=4096, prefill__cache_tokens=10_000)
    done = run(scenario, requests([(0.0, 10_000, 1)], 16), prefill_b_s=0.0, prefill_a_s=1.0)
    assert done.rows[0].ttft_s == 3.0, "three batches"
    assert done.result.instances[0].tokens == 10_000
    squares = run(scenario, requests([(0.0, 10_000, 1)], 16), prefill_b_s=0.0, prefill_c_s=1.0, n_tile=5000)
    assert squares.rows[0].ttft_s == 4096**2 + (4096**2 + 2 * 5000 * 4096) + (1808**2 + 2 * 5000 * 8192)


@pytest.mark.parametrize("limits", [{"prefill__cache_tokens": 1000}, {"decode__kv_tokens": 1000}])
def test_s6_what_never_fits_is_refused_and_the_rest_goes_on(limits):
    done = run(tiny(**limits), requests([(0.0, 1200, 2), (0.0, 100, 2)]))
    assert done.rows.outcome.tolist() == [TOO_LARGE, COMPLETED]
    assert done.result.summary["too_large"] == 1
    assert_nothing_held(done)


# T: trees and memory


def test_t3_the_same_prompt_twice_in_a_batch_is_kept_once():
    sizes = []
    script = Script(watch=lambda view: sizes.append(int(view.prefill[0].cache_used_tokens)))
    rows = [(0.0, range(500), 9), (0.0, range(500), 9), (0.5, 3, 1), (1.0005, 3, 1), (50.0, 3, 1)]
    done = run(tiny(prefill__max_batch_requests=2), requests(rows), script)
    assert done.rows.hit_tokens.tolist()[:2] == [0, 0]
    assert done.rows.prefill_end_s.tolist()[:2] == [1.0, 1.0]
    assert sizes == [0, 0, 1000, 503, 506], "both reserve 500, the second copy is freed at the end"
    assert_nothing_held(done)


def test_t6_a_cancelled_migration_leaves_nothing():
    """The copy takes 1 s, the request ends after 0.5 s."""
    scenario = tiny(decode__count=2, network__nic_gbytes_per_s=1.0, reschedule__period_s=1.05)
    done = run(scenario, requests([(0.0, 1000, 52)]), Script(moves={0: (0, 1)}), prefill_b_s=1e-6, decode_d_s=0.01)
    assert done.rows[0].outcome == COMPLETED
    assert done.rows[0].transfer_end_s < 1.05 < done.rows[0].finish_s < 2.05
    assert (done.rows[0].migrations, done.rows[0].decode_instance) == (0, 0)
    assert_nothing_held(done)


def test_t6_a_pull_without_room_leaves_nothing():
    """A hand-over fills instance 1 for a second: what the next request would pull there does not fit."""
    rows = [(0.0, range(600), 2), (4.0, range(100), 1), (5.0, 900, 2), (5.5, range(601), 2)]
    script = Script([(0, 0), (1, 0), (1, 0), (1, 0, True)])
    scenario = tiny(prefill__count=2, prefill__cache_tokens=1000, network__nic_gbytes_per_s=1.0)
    done = run(scenario, requests(rows), script, prefill_b_s=1e-6)
    assert done.rows.hit_predicted_tokens.tolist() == [0, 0, 0, 600]
    assert done.rows.hit_tokens.tolist() == [0, 0, 0, 100]
    assert done.rows.pulled_tokens.tolist() == [0, 0, 0, 0]
    assert done.rows[3].prefill_start_s == done.rows[2].transfer_end_s
    assert_nothing_held(done)
    # With room the same pull is done.
    roomy = run(tiny(prefill__count=2), requests(rows), Script(script.routes), prefill_b_s=1e-6)
    assert roomy.rows.hit_tokens.tolist() == [0, 0, 0, 600]
    assert roomy.rows.pulled_tokens.tolist() == [0, 0, 0, 500]
    assert_nothing_held(roomy)


def test_t6_everything_is_released_after_a_busy_run():
    done = busy_run()
    summary = done.result.summary
    for name in ("preemptions", "migrations", "rejected", "too_large", "pulled_gbytes", "rework_tokens"):
        assert summary[name] > 0, name
    assert_nothing_held(done)


def busy_run() -> Run:
    """600 requests that meet everything: pulls, a store, chunks, preemptions, migrations, rejections."""
    rng = np.random.default_rng(6)
    rows = []
    for at in np.cumsum(rng.exponential(0.02, 600)):
        head = [int(rng.integers(4))] * int(rng.integers(1, 60))
        rows.append((at, [*head, *(-1 - rng.integers(10**6, size=int(rng.integers(1, 40)))).tolist()],
                     int(rng.choice([1, 2, 20, 80]))))  # fmt: skip
    rows[300] = (rows[300][0], 900, 2)
    scenario = tiny(
        page_tokens=4,
        prefill__count=2,
        prefill__cache_tokens=800,
        prefill__batch_tokens=64,
        prefill__chunk_tokens=32,
        decode__count=2,
        decode__kv_tokens=600,
        network__nic_gbytes_per_s=20.0,
        network__setup_s=0.001,
        network__handover="last_chunk",
        store__capacity_tokens=400,
        reschedule__period_s=0.05,
    )
    rolls = np.random.default_rng(7)

    def route(view):
        if rolls.random() < 0.1:
            return "reject"
        prefill = int(rolls.integers(2))
        return prefill, int(rolls.integers(2)), bool(view.prefill[prefill].pull_tokens > 0)

    def move(view, mask):
        return int(rolls.choice(np.flatnonzero(mask)))

    return run(scenario, requests(rows, 4), Script([route], moves=move), decode_f_s=1e-5)


# D: disaggregation, decode memory, transfers


def preempting(extra=()):
    """Two requests of 100 tokens in 250 tokens of decode memory: one must go when both have grown by 25."""
    scenario = tiny(decode__kv_tokens=250, prefill__max_batch_requests=1)
    return run(scenario, requests([(0.0, 100, 60), (0.0, 100, 60), *extra]))


def test_d2_a_preempted_request_resumes_before_new_ones_and_keeps_its_tokens():
    done = preempting(extra=[(0.3, 30, 2)])
    rows = done.rows
    assert (rows.outcome == COMPLETED).all()
    assert rows.preemptions.tolist() == [0, 1, 0]
    assert rows.output_tokens.tolist() == [60, 60, 2]
    assert done.result.instances[1].tokens == 59 + 59 + 1, "no token is made twice"
    # It had 100 + 16 tokens or more; recomputing them stalls its first step, with the newcomer behind it.
    assert rows[1].rework_tokens > 100
    assert rows[2].transfer_end_s < rows[2].decode_start_s
    assert rows[2].decode_start_s >= rows[0].finish_s
    assert_nothing_held(done)


def test_d4_the_prompt_is_held_until_it_is_sent():
    """1 GB at 1 GB/s: the second prompt of 1000 tokens waits for the first to leave the cache of 1000."""
    scenario = tiny(prefill__cache_tokens=1000, network__nic_gbytes_per_s=1.0)
    rows = run(scenario, requests([(0.0, 1000, 2), (0.5, 1000, 2)]), prefill_b_s=1e-6).rows
    assert rows[0].transfer_end_s == pytest.approx(1.001)
    assert rows[1].prefill_start_s == rows[0].transfer_end_s


def test_d6_decode_instances_compute_no_prompt():
    done = run(tiny(), requests([(0.0, 1000, 11)]), decode_e_s=0.001)
    row = done.rows[0]
    assert done.result.instances.tokens.tolist() == [1000, 10, 0]
    assert row.finish_s - row.decode_start_s == pytest.approx(10 * 0.011)
    assert row.rework_tokens == 0


def test_d7_memory_is_charged_where_it_is_used():
    """160 tokens in, 160 out, pages of 16; then two equal prompts on one decode instance."""
    used, held, peak = [], [], []

    def look(view):
        used.append(int(view.prefill[0].cache_used_tokens))
        held.append(int(view.decode[0].kv_tokens))

    def memory(worlds):
        tree = worlds.world(0).tree[0]
        peak.append(int(tree.locked_pages + tree.private_pages))

    prompt = range(160)
    rows = [(0.0, prompt, 160), (0.1, 1, 1), (1.745, 1, 1), (5.0, prompt, 50), (5.0, prompt, 50), (5.3, 1, 1)]
    done = run(tiny(page_tokens=16), requests(rows, 16), Script(watch=look), watch=memory)
    assert used[1] == 160 and peak[1] == 10, "ten pages while the prompt is computed"
    assert peak[2] == 0, "none is held after the hand-over"
    assert held[2] == 160 + 1 + 158, "twenty pages while the last of 160 tokens is made"
    # The two wait 0.032 s for the 16 tokens each that are not cached as whole pages; 26 steps of 0.01 s have ended.
    assert held[5] == 2 * (160 + 1 + 26), "equal prompts share nothing on a decode instance"
    assert held[0] == held[1] == held[3] == held[4] == 0
    assert_nothing_held(done)


def test_d8_outputs_of_one_and_two_tokens():
    done = run(tiny(), requests([(0.0, 100, 1), (10.0, 100, 2)]))
    one, two = done.rows
    assert one.finish_s == one.prefill_end_s and np.isnan(one.transfer_end_s) and np.isnan(one.decode_start_s)
    assert one.e2e_s == one.ttft_s == pytest.approx(0.1)
    assert two.finish_s - two.prefill_end_s == pytest.approx(0.01)
    assert done.result.instances.tokens.tolist() == [200, 1, 0]
    assert done.result.instances.bytes_out[0] == 100e6, "the first was not sent anywhere"
    with pytest.raises(InputError, match="prompt_tokens"):
        Workload.from_arrays([0.0], [0], [1], page_tokens=1)


# M: metrics


def test_m1_rework_is_no_hit():
    """Ten unique prompts of 100 tokens; decode memory so short that requests are preempted."""
    scenario = tiny(
        decode__kv_tokens=400, decode__damping="none", prefill__max_batch_requests=1, prefill__cache_tokens=150
    )
    done = run(scenario, requests(unique(10, output=100)))
    summary = done.result.summary
    assert summary["preemptions"] >= 3 and summary["rework_tokens"] >= 300
    assert summary["hit_rate"] == 0.0
    assert done.rows.hit_tokens.sum() == 0 and done.result.instances[0].tokens == 1000


def test_m3_causality():
    rows = busy_run().rows
    stages = ("arrival", "routed", "prefill_start", "prefill_end", "transfer_end", "decode_start", "finish")
    done = rows[rows.outcome == COMPLETED]
    assert len(done) > 400
    times = np.array([done[f"{name}_s"] for name in stages])
    later = np.fmax.accumulate(times, axis=0)
    assert np.all((times == later) | np.isnan(times)), "NaN only where a stage does not exist"
    assert (done.ttft_s <= done.e2e_s).all()
    one = done.output_tokens == 1
    assert one.any() and (done.e2e_s[one] == done.ttft_s[one]).all()
    assert np.allclose(done.e2e_s - done.ttft_s, done.tpot_s * (done.output_tokens - 1), rtol=1e-9, atol=1e-12)
    assert (done.tbt_tail_s[~one] >= done.tpot_s[~one] * 0.97).all()
    assert np.isnan(rows.finish_s[rows.outcome == REJECTED]).all()


def test_m5_in_flight_is_dispatched_and_not_finished_at_once():
    seen = []

    def look(view):
        seen.append((view.prefill[0].inflight_requests, view.prefill[0].running_requests,
                     view.decode[0].inflight_requests, view.decode[0].pending_requests))  # fmt: skip

    rows = [(0.0, 100, 50), (0.0, 100, 50), (0.05, 1, 1), (0.25, 1, 1), (9.0, 1, 1)]
    run(tiny(prefill__max_batch_requests=2), requests(rows), Script(watch=look))
    # At one instant; during the prefill; decoding; afterwards.
    expected = [(0, 0, 0, 0), (1, 0, 1, 1), (2, 2, 2, 2), (0, 0, 2, 0), (0, 0, 0, 0)]
    assert [tuple(map(int, entry)) for entry in seen] == expected
