"""The reference simulator against scenarios computed by hand; the arithmetic stands in the comments."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from reference import ReferenceCluster, ReferenceRequest, ReferenceSimulator, RequestRecord, ScriptedActions
from reference.cache import PageCache
from reference.links import Links
from reference.predictor import predicted_remaining
from reference.records import bin_value_s, gap_bin, percentile_99_s, tail_mean_s


def request(
    arrival_s: float, prompt: int, output: int, name: int = 0, shared: int = 0, page: int = 1
) -> ReferenceRequest:
    """A prompt whose first `shared` pages are those of prompt family 0, the rest is its own."""
    pages = -(-prompt // page)
    blocks = tuple(number if number < shared else (name + 1) * 1_000_000 + number for number in range(pages))
    return ReferenceRequest(arrival_s, prompt, output, blocks)


def action(cluster: ReferenceCluster, prefill: int, decode: int, pull: int = 0) -> int:
    """The route action."""
    return (prefill * cluster.num_decode + decode) * 2 + pull


def run(
    cluster: ReferenceCluster, requests: list[ReferenceRequest], routes: list[int], moves: list[int] | None = None
) -> tuple[list[RequestRecord], ReferenceSimulator]:
    """Serves requests with a script; ticks only where moves are given."""
    script = ScriptedActions(routes, moves or [])
    sim = ReferenceSimulator(cluster, requests, script.route, script.migrate if moves is not None else None)
    return sim.run(), sim


BASE = ReferenceCluster(
    page_tokens=10,
    prefill_a_s=0.1,
    prefill_b_s=0.001,
    prefill_c_s=1e-6,
    cache_tokens=10_000,
    kv_bytes_per_token=10.0,
    decode_kv_bytes_per_token=10.0,
    decode_d_s=0.02,
    decode_e_s=0.001,
    decode_f_s=1e-5,
    nic_bytes_per_s=10_000.0,
    setup_s=0.05,
)


def test_zero_load_times() -> None:
    cluster = replace(BASE, response_overhead_s=0.5, per_block_s=0.001, slo_ttft_s=0.71, slo_tpot_s=0.1)
    (record,), sim = run(cluster, [request(2.0, 100, 4, page=10)], [0])
    # prefill: 0.1 + 0.001*100 + 1e-6*100^2 = 0.21 s
    assert record.prefill_start_s == 2.0
    assert record.prefill_end_s == pytest.approx(2.21)
    assert record.ttft_s == pytest.approx(0.21 + 0.5)
    # hand-over: 100*10/10000 = 0.1 s, then 0.05 + 10 pages*0.001 = 0.06 s
    assert record.transfer_end_s == pytest.approx(2.37)
    assert record.decode_start_s == pytest.approx(2.37)
    # three steps with C = 101, 102, 103: 0.021 + 0.00101, 0.00102, 0.00103
    assert record.gaps_s == pytest.approx([0.16 + 0.02201, 0.02202, 0.02203])
    assert record.finish_s == pytest.approx(2.37 + 0.06606)
    assert record.tpot_s == pytest.approx((0.16 + 0.06606) / 3)
    assert record.e2e_s == pytest.approx(0.37 + 0.06606 + 0.5)
    # worst ceil(3/10) = 1 gap: 0.18201, alone in its bin; a bin is within 2.5 %
    assert record.tbt_tail_exact_s == pytest.approx(0.18201)
    assert record.tbt_tail_s == pytest.approx(0.18201, rel=0.025)
    assert (record.slo_met, record.counted, record.outcome) == (1, 1, 1)
    prefill, decode, store = sim.instance_records()
    assert (prefill.tokens, prefill.bytes_out, decode.tokens, decode.bytes_in) == (100, 1000.0, 3, 1000.0)
    assert (prefill.busy_s, decode.busy_s) == pytest.approx((0.21, 0.06606))
    assert (store.kind, store.bytes_in) == (2, 0.0)


def test_one_token_is_finished_by_the_prefill() -> None:
    (record,), sim = run(BASE, [request(0.0, 100, 1, page=10)], [0])
    assert record.finish_s == record.prefill_end_s == pytest.approx(0.21)
    assert (record.tpot_s, record.tbt_tail_s, record.e2e_s) == (0.0, 0.0, record.ttft_s)
    assert math.isnan(record.transfer_end_s)
    assert sim.links.created == 0
    assert (sim.caches[0].private, sim.caches[0].evictable()) == (0, 10)


def test_prefix_hit() -> None:
    # The second prompt shares 7 pages of 10. 95 tokens: 25 new behind 70; T = 0.1 + 0.025 + 1e-6*(625 + 2*25*70)
    cluster = replace(BASE, n_tile=0.0)
    requests = [request(0.0, 100, 1, 0, 10, 10), request(1.0, 95, 1, 1, 7, 10), request(2.0, 100, 1, 0, 10, 10)]
    records, _ = run(cluster, requests, [0])
    assert [record.hit_tokens for record in records] == [0, 70, 90]  # fully cached: one page less, a token is computed
    assert [record.hit_available_tokens for record in records] == [0, 70, 90]
    assert records[1].ttft_s == pytest.approx(0.129125)
    # with n_tile = 50 the attention counts max(25, 50): 625 + 2*50*70 = 7625
    records, _ = run(replace(cluster, n_tile=50.0), requests, [0])
    assert records[1].ttft_s == pytest.approx(0.132625)


def test_two_requests_in_a_batch() -> None:
    # One batch: T = 0.1 + 0.001*150 + 1e-6*(100^2 + 50^2) = 0.2625
    records, _ = run(BASE, [request(0.0, 100, 1, 0, 0, 10), request(0.0, 50, 1, 1, 0, 10)], [0])
    assert [record.prefill_end_s for record in records] == pytest.approx([0.2625, 0.2625])
    # With 120 tokens a batch and no chunks the second one waits: 0.21, then 0.1 + 0.05 + 0.0025
    cluster = replace(BASE, batch_tokens=120, chunk_tokens=0)
    records, _ = run(cluster, [request(0.0, 100, 1, 0, 0, 10), request(0.0, 50, 1, 1, 0, 10)], [0])
    assert [record.prefill_end_s for record in records] == pytest.approx([0.21, 0.3625])


def test_chunked_prefill() -> None:
    # S-5: 10,000 tokens in chunks of 4,096 (page 1): 4096, 4096, 1808; sum n^2 + 2*n*before over the chunks is 10000^2
    cluster = replace(BASE, page_tokens=1, cache_tokens=20_000, chunk_tokens=4096, prefill_c_s=1e-9)
    (record,), sim = run(cluster, [request(0.0, 10_000, 1)], [0])
    assert sim.prefill[0].computed_tokens == 10_000
    assert record.finish_s == pytest.approx(3 * 0.1 + 0.001 * 10_000 + 1e-9 * 10_000**2)
    # Page-aligned: budget 64 of pages of 10 gives 60, 60, 5; the second prompt of 30 joins the last piece (64 - 5 left)
    cluster = replace(BASE, batch_tokens=64, chunk_tokens=64)
    records, _ = run(cluster, [request(0.0, 125, 1, 0, 0, 10), request(0.0, 30, 1, 1, 0, 10)], [0])
    first = 0.1 + 0.06 + 0.0036
    second = 0.1 + 0.06 + 1e-6 * (3600 + 2 * 60 * 60)
    third = 0.1 + 0.035 + 1e-6 * (25 + 2 * 5 * 120 + 900)
    assert records[1].prefill_start_s == pytest.approx(first + second)
    assert [record.finish_s for record in records] == pytest.approx([first + second + third] * 2)
    assert records[0].prefill_start_s == 0.0
    # A chunk smaller than a page still makes progress, a page at a time: 25 tokens are 10, 10, 5
    (record,), _ = run(replace(BASE, chunk_tokens=4, prefill_c_s=0.0), [request(0.0, 25, 1, 0, 0, 10)], [0])
    assert record.finish_s == pytest.approx(3 * 0.1 + 0.025)


@pytest.mark.parametrize("nic", [10_000.0, 4000.0, 100_000.0])
def test_handover_overlaps_the_prefill(nic: float) -> None:
    # T = 0.21, L = 4. nic 1e4: T_tx = 0.1: visible max(0.1 - 0.1575, 0.025) = 0.025
    #                  nic 4e3: T_tx = 0.25: visible max(0.25 - 0.1575, 0.0625) = 0.0925
    cluster = replace(BASE, handover="last_chunk", layers=4, nic_bytes_per_s=nic)
    (record,), sim = run(cluster, [request(0.0, 100, 2, page=10)], [0])
    t_tx = 1000.0 / nic
    visible = 0.05 + max(t_tx - 0.21 * 3 / 4, t_tx / 4)
    assert record.transfer_end_s - record.prefill_end_s == pytest.approx(visible)
    assert sim.links.bytes_out[0] == pytest.approx(1000.0)


def test_two_flows_share_a_nic() -> None:
    # 0 -> 2 and 0 -> 3 share the way out: 500 B/s each. At 1 s the third flow 1 -> 3 joins: shares 0:500, 1:1000 out,
    # 3: 500 in, so it gets 500. Flow a (1000 B) ends at 2.0; b (2000 B) has 1000 left, still 500 B/s because of the way
    # in; c (500 B) ends at 2.0 as well; then b has 1000 B/s: ends at 3.0.
    links = Links([1000.0] * 4)
    ends: dict[str, float] = {}
    links.start(0.0, 0, 2, 1000.0, 0.0, lambda now: ends.update(a=now))
    links.start(0.0, 0, 3, 2000.0, 0.25, lambda now: ends.update(b=now))
    links.start(0.0, 1, 3, 500.0, 0.0, lambda now: ends.update(c=now), begin_s=1.0)
    while links.flows:
        now, number = links.next_event()
        links.handle(number, now)
    assert ends == pytest.approx({"a": 2.0, "b": 3.25, "c": 2.0})
    assert links.bytes_out == [3000.0, 500.0, 0.0, 0.0]
    # The same in the cluster: two hand-overs leave prefill 0 together.
    cluster = replace(BASE, num_decode=2, prefill_c_s=0.0)
    records, _ = run(cluster, [request(0.0, 100, 2, 0, 0, 10), request(0.0, 100, 2, 1, 0, 10)], [0, 2])
    # T = 0.1 + 0.001*200 = 0.3; 1000 B each at 5,000 B/s: 0.2 s, setup 0.05
    assert [record.transfer_end_s for record in records] == pytest.approx([0.55, 0.55])


def test_pull() -> None:
    cluster = replace(BASE, num_prefill=2, prefill_c_s=0.0, per_block_s=0.01)
    requests = [request(0.0, 100, 1, 0, 10, 10), request(1.0, 105, 1, 1, 8, 10)]
    routes = [action(cluster, 0, 0), action(cluster, 1, 0, pull=1)]
    records, sim = run(cluster, requests, routes)
    # 8 pages: 800 B at 10,000 B/s = 0.08 s, 0.05 + 8*0.01 = 0.13: there at 1.21; 25 tokens: 0.125 s
    assert records[1].pulled_tokens == records[1].hit_tokens == records[1].hit_predicted_tokens == 80
    assert records[1].prefill_start_s == pytest.approx(1.21)
    assert records[1].finish_s == pytest.approx(1.335)
    assert (sim.links.bytes_out[0], sim.links.bytes_in[1]) == (800.0, 800.0)
    assert all(cache.private == 0 for cache in sim.caches)
    # Others pass the request that waits for its pull, and nothing to pull is no pull.
    requests.append(request(1.0, 50, 1, 2, 0, 10))
    records, _ = run(cluster, requests, [*routes, action(cluster, 1, 0, pull=1)])
    assert records[2].prefill_start_s == 1.0
    assert records[2].pulled_tokens == 0
    # Without peers there is no source.
    records, _ = run(replace(cluster, peer_pulls=False), requests[:2], routes)
    assert (records[1].pulled_tokens, records[1].prefill_start_s) == (0, 1.0)


def test_store() -> None:
    cluster = replace(BASE, num_prefill=2, prefill_c_s=0.0, peer_pulls=False, store_tokens=80)
    requests = [request(0.0, 100, 1, 0, 10, 10), request(1.0, 100, 1, 0, 10, 10)]
    records, sim = run(cluster, requests, [action(cluster, 0, 0), action(cluster, 1, 0, pull=1)])
    # All 10 pages are written, by 0.2 + 1000/10000 + 0.05; 8 fit. 8 pages come back: 0.08 + 0.05, then 20 tokens: 0.12
    assert len(sim.caches[2].pages) == 8
    assert records[1].pulled_tokens == 80
    assert records[1].finish_s == pytest.approx(1.25)
    # the 2 pages that did not fit are sent once more by the second request, after its end
    assert sim.instance_records()[-1].bytes_in == 1200.0


def test_delayed_index_predicts_less_than_is_delivered() -> None:
    cluster = replace(BASE, index_delay_s=5.0)
    requests = [request(time, 100, 1, 0, 10, 10) for time in (0.0, 1.0, 6.0)]
    records, _ = run(cluster, requests, [0])
    assert [record.hit_predicted_tokens for record in records] == [0, 0, 90]
    assert [record.hit_tokens for record in records] == [0, 90, 90]


def test_eviction_takes_the_tail_first() -> None:
    # room for 8 pages; A has 8, then B has 4: A keeps 4. A again (8 pages, of which 4 hit) evicts B.
    cluster = replace(BASE, cache_tokens=80)
    requests = [request(0.0, 80, 1, 0, 0, 10), request(1.0, 40, 1, 1, 0, 10), request(2.0, 80, 1, 0, 0, 10)]
    records, sim = run(cluster, requests, [0])
    assert [record.hit_tokens for record in records] == [0, 0, 40]
    assert set(sim.caches[0].pages) == set(requests[0].blocks)


def test_cache_accounting() -> None:
    cache = PageCache(10)
    assert cache.reserve(10)
    cache.insert(range(10), 0)
    cache.lock(range(3))  # T-2: protected 3, evictable 7
    assert cache.evictable() == 7
    assert not cache.reserve(8)
    assert len(cache.pages) == 10  # a try that fails evicts nothing
    assert cache.reserve(7)
    assert sorted(cache.pages) == [0, 1, 2]
    cache.unlock(range(3))
    with pytest.raises(AssertionError):
        cache.unlock(range(3))


def test_same_prompt_twice_in_a_batch_is_cached_once() -> None:
    # T-3: both are computed; at the end the cache has 5 pages, the other 5 are free again.
    records, sim = run(BASE, [request(0.0, 50, 1, 0, 5, 10), request(0.0, 50, 1, 0, 5, 10)], [0])
    assert [record.hit_tokens for record in records] == [0, 0]
    assert (sim.prefill[0].computed_tokens, sim.caches[0].free()) == (100, 995)


def test_cache_is_held_until_the_handover_ends() -> None:
    # D-4: prefill takes no time, the transfer of 1,000 tokens 1 s, room for 1,000: the second prompt waits until 1.0.
    cluster = ReferenceCluster(cache_tokens=1000, nic_bytes_per_s=1000.0)
    records, _ = run(cluster, [request(0.0, 1000, 2, 0), request(0.5, 1000, 2, 1)], [0])
    assert records[0].transfer_end_s == pytest.approx(1.0)
    assert records[1].prefill_start_s == records[0].transfer_end_s


def test_a_pull_from_a_full_source_does_not_leave_it_asleep() -> None:
    # Prefill 0 has room for 10 pages and holds a prompt of 10, from which prefill 1 pulls 9 pages from 1.0 to
    # 1.0 + 900/10000 + 0.05 = 1.14. A prompt of 10 other pages on prefill 0 starts when the source path is let go.
    cluster = replace(BASE, num_prefill=2, cache_tokens=100)
    requests = [request(0.0, 100, 1, 0, 10, 10), request(1.0, 100, 1, 0, 10, 10), request(1.1, 100, 1, 1, 0, 10)]
    records, _ = run(cluster, requests, [0, action(cluster, 1, 0, 1), 0])
    assert records[2].prefill_start_s == pytest.approx(1.14)


def test_cache_is_held_until_the_store_is_written() -> None:
    # One token: computed at 0.21, no hand-over; the write of 1,000 B takes until 0.21 + 0.1 + 0.05 = 0.36 and holds the
    # whole cache. A prompt that came at 0.3 starts then.
    cluster = replace(BASE, cache_tokens=100, store_tokens=100)
    records, _ = run(cluster, [request(0.0, 100, 1, 0, 0, 10), request(0.3, 100, 1, 1, 0, 10)], [0])
    assert records[1].prefill_start_s == pytest.approx(0.36)


def test_too_large() -> None:
    # S-6: 1,200 tokens never fit 1,000; the 100 behind it are served. 990 + 20 outgrow the decode instance.
    cluster = replace(BASE, cache_tokens=1000, kv_tokens=1000)
    requests = [request(0.0, 1200, 2, 0, 0, 10), request(0.0, 100, 2, 1, 0, 10), request(0.0, 990, 20, 2, 0, 10)]
    records, _ = run(cluster, requests, [0])
    assert [record.outcome for record in records] == [3, 1, 3]
    records, _ = run(cluster, requests, [2])  # 2PD: reject
    assert [record.outcome for record in records] == [3, 2, 3]


def test_lpm_order_and_deferral() -> None:
    # page 1; "x" runs from 0 to 0.1 and caches pages 0..99. Then wait: cold A, cold A', hit of 60, cold B.
    # A' begins as A does (page 31) and is deferred. One request a batch, 0.1 s each: hit, A; then A' is a hit of 100
    # and overtakes B.
    cluster = ReferenceCluster(
        prefill_a_s=0.1, queue="lpm", max_batch_requests=1, cache_tokens=10_000, chunk_tokens=0, lpm_check_tokens=32
    )
    family = tuple(range(50_000, 50_100))
    requests = [
        request(0.0, 100, 1, 0, 100),
        ReferenceRequest(0.01, 100, 1, family),
        ReferenceRequest(0.02, 101, 1, (*family, 60_000)),
        request(0.03, 100, 1, 5, 60),
        request(0.04, 100, 1, 6),
    ]
    records, _ = run(cluster, requests, [0])
    assert [record.prefill_start_s for record in records] == pytest.approx([0.0, 0.2, 0.3, 0.1, 0.4])
    assert [record.hit_tokens for record in records] == [0, 0, 100, 60, 0]
    # Above the fall-back length: as they came.
    records, _ = run(replace(cluster, lpm_fallback=0), requests, [0])
    assert [record.prefill_start_s for record in records] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    # Two a batch: hit and A first, then A' (a hit now) and B.
    records, _ = run(replace(cluster, max_batch_requests=2), requests, [0])
    assert [record.prefill_start_s for record in records] == pytest.approx([0.0, 0.1, 0.2, 0.1, 0.2])
    # Three a batch: hit, A, B; then A' alone, as a hit. Without deferral A' would go with A and B wait.
    records, _ = run(replace(cluster, max_batch_requests=3), requests, [0])
    assert [record.prefill_start_s for record in records] == pytest.approx([0.0, 0.1, 0.2, 0.1, 0.1])
    assert records[2].hit_tokens == 100


PREEMPTING = ReferenceCluster(
    kv_tokens=30, decode_d_s=1.0, kv_bytes_per_token=0.0, decode_prefill_b_s=0.01, swap_bytes_per_s=10.0
)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption(mode: str) -> None:
    # Prompts of 10 and 12, outputs 10 and 10, room 30, steps of 1 s from 0 on. Prefill and hand-over take no
    # time. Both have 1 token at 0: C = 24, and 2 more each second. A step of both needs C + 2 <= 30: steps at 0, 1, 2
    # (C = 24, 26, 28) run, at 3 it is 30 + 2 > 30: preempt: both have 4 tokens, the longer prompt goes: request 1
    # (16 tokens). Request 0 (C = 14) runs alone. Request 1 resumes if C + 16 + 2*1 <= 30: only when 0 is done.
    # Request 0 needs 9 steps: done at 9. Then 1 resumes: stall 0.01*16 = 0.16 s by recomputation,
    # 16 B / 10 B/s = 1.6 s by swapping; it has 4 tokens, needs 6 steps more: ends at 15 + stall.
    stall = {"recompute": 0.16, "swap": 1.6}[mode]
    cluster = replace(PREEMPTING, preemption=mode)
    records, sim = run(cluster, [request(0.0, 10, 10, 0), request(0.0, 12, 10, 1)], [0])
    assert [record.finish_s for record in records] == pytest.approx([9.0, 15.0 + stall])
    assert [record.preemptions for record in records] == [0, 1]
    assert records[1].rework_tokens == (16 if mode == "recompute" else 0)
    assert records[1].gaps_s == pytest.approx([1, 1, 1, 7 + stall, 1, 1, 1, 1, 1])
    assert sim.decode[0].generated_tokens == 18
    # A third request behind the preempted one: it would fit beside request 0 at t = 4 (C 15 + 3 + 2*1 <= 30), but
    # preempted requests come first. It joins with request 1 at 9 (16 + 3 + 1*2 <= 30).
    records, _ = run(cluster, [request(0.0, 10, 10, 0), request(0.0, 12, 10, 1), request(3.5, 2, 2, 2)], [0])
    assert records[2].decode_start_s == pytest.approx(9.0)
    assert records[2].finish_s == pytest.approx(10.0 + stall)


def test_admission_keeps_reserve_and_join_stall() -> None:
    # Room 40, reserve 5: the second (10 + 1) joins if C + 11 + 5*2 <= 40. First has C = 11 at 0: yes.
    # A third: 22 + 11 + 15 > 40: waits until the first two end. Each join stalls the first step by 0.5 s.
    cluster = replace(PREEMPTING, kv_tokens=40, reserve_tokens=5, join_stall_s=0.5)
    records, _ = run(cluster, [request(0.0, 10, 3, name) for name in range(3)], [0])
    # steps: 0 to 2 (two joins), to 3; the third: 3 to 4.5, to 5.5
    assert [record.finish_s for record in records] == pytest.approx([3.0, 3.0, 5.5])


MIGRATING = ReferenceCluster(
    num_decode=2, decode_d_s=0.5, decode_kv_bytes_per_token=10.0, kv_bytes_per_token=0.0, nic_bytes_per_s=100.0,
    setup_s=0.25, per_block_s=0.1, page_tokens=5, stall_s=0.05, period_s=1.2, candidates=2, reserve_tokens=4,
)  # fmt: skip


def test_migration_times() -> None:
    # Prompt 8 (2 pages): hand-over 0 B, 0.25 + 2*0.1 = 0.45: decode starts at 0.45; boundaries 0.95, 1.45, ...
    # Tick at 1.2: generated 2 (step at 0.95), kv 10: copy 100 B at 100 B/s: 1 s, latency 0.25 + 2 pages*0.1: t1 = 2.65.
    # Boundaries up to 2.95: (2.95 - 0.45)/0.5 = 5 steps: generated 6, kv 14: leaves with delta 4 tokens: 40 B: 0.4 s,
    # latency 0.25 + 0.1 + 0.05: joins at 3.75; 10 tokens in all: 4 more steps: 5.75.
    # Move: source 0, slot 0, destination 1 = ((0*2)+0)*2+1 = 1.
    (record,), sim = run(MIGRATING, [request(0.0, 8, 10, page=5)], [0], [1])
    assert record.gaps_s == pytest.approx([0.95, 0.5, 0.5, 0.5, 0.5, 1.3, 0.5, 0.5, 0.5])
    assert record.finish_s == pytest.approx(5.75)
    assert (record.migrations, record.migrated_tokens, record.decode_instance) == (1, 14, 1)
    assert (sim.links.bytes_out[1], sim.links.bytes_in[2]) == pytest.approx((140.0, 140.0))
    assert (sim.decode[0].generated_tokens, sim.decode[1].generated_tokens) == (5, 4)
    assert sim.decode[1].reserved_tokens() == 0


def test_migration_of_a_request_that_finishes_first_is_cancelled() -> None:
    # As above with 5 tokens: done at 0.45 + 4*0.5 = 2.45, before the copy's last byte's latency is over at 2.65.
    # Meanwhile request 1 (20 tokens, room 30) waits at decode 1, blocked by the reservation 10 + 4: 14 + 21 + 4 > 30.
    cluster = replace(MIGRATING, kv_tokens=30)
    requests = [request(0.0, 8, 5, 0, 0, 5), request(1.3, 20, 3, 1, 0, 5)]
    records, sim = run(cluster, requests, [0, action(cluster, 0, 1)], [1])
    assert records[0].finish_s == pytest.approx(2.45)
    assert (records[0].migrations, records[0].migrated_tokens) == (0, 0)
    # hand-over of request 1: 0.25 + 4*0.1: waits from 1.95 on; starts when the reservation ends
    assert records[1].transfer_end_s == pytest.approx(1.95)
    assert records[1].decode_start_s == records[0].finish_s
    assert sim.links.bytes_out[1] == pytest.approx(100.0)


def test_illegal_moves_mean_stay() -> None:
    # to itself (action 0), from an empty instance (action 4), stay (8): each tick asks once
    records, sim = run(MIGRATING, [request(0.0, 8, 10, page=5)], [0], [0, 4, 8])
    assert records[0].migrations == 0
    # done at 0.45 + 9*0.5 = 4.95: ticks at 1.2, 2.4, 3.6, 4.8
    assert sim.move_decisions == 4
    # A request in migration is no candidate, and one outgoing migration an instance: no further decision in the tick.
    _, sim = run(MIGRATING, [request(0.0, 8, 10, page=5)], [0], [1, 1, 1])
    assert sim.move_decisions == 2  # 1.2; not while it moves (2.4, 3.6); 4.8 at instance 1


def test_prediction() -> None:
    cluster = ReferenceCluster(mean_residual_tokens=(50.0, 40.0))
    assert predicted_remaining(cluster, 0, 100, 25, None) == 100 - 20 - 5
    assert predicted_remaining(replace(cluster, prediction="none"), 0, 100, 45, None) == 40 - 5
    # star at 0: a = 0.14, sigma = 0.43: (0.86*50 + 0.14*100)*exp(0.43*z - 0.09245) with z = 0.215: 57
    star = replace(cluster, prediction="star")
    assert predicted_remaining(star, 0, 100, 0, lambda request, refresh: 0.215) == pytest.approx(57.0)


def test_gap_statistics() -> None:
    assert gap_bin(1e-4) == gap_bin(1e-9) == 0
    for gap in (0.00011, 0.03, 1.7, 400.0):
        assert bin_value_s(gap_bin(gap)) == pytest.approx(gap, rel=0.025)
    gaps = [float(value) for value in range(1, 71)]
    assert tail_mean_s(gaps) == 67.0  # ceil(70/10) = 7: 64..70
    assert percentile_99_s(gaps) == 70.0  # ceil(69.3)


@pytest.mark.parametrize("seed", range(12))
def test_random_runs_keep_the_invariants(seed: int) -> None:
    rng = random.Random(seed)
    page = rng.choice([1, 4])
    cluster = ReferenceCluster(
        page_tokens=page, num_prefill=3, num_decode=3, prefill_a_s=0.01, prefill_b_s=1e-3, prefill_c_s=1e-5,
        cache_tokens=200, queue=rng.choice(["fcfs", "lpm"]), batch_tokens=60, chunk_tokens=rng.choice([0, 32]),
        kv_bytes_per_token=7.0, decode_d_s=0.01, decode_e_s=1e-3, decode_f_s=1e-5, kv_tokens=220, max_batch=5,
        preemption=rng.choice(["recompute", "swap"]), decode_prefill_b_s=1e-3, swap_bytes_per_s=1e3,
        nic_bytes_per_s=rng.choice([300.0, 3000.0]), setup_s=0.01, per_block_s=0.001, layers=4,
        handover=rng.choice(["blocking", "last_chunk", "chunked"]), store_tokens=rng.choice([0, 120]),
        index_delay_s=rng.choice([0.0, 0.2]),
        memory_tokens=80, period_s=0.1, candidates=2, stall_s=0.02, prediction="none",
    )  # fmt: skip
    requests, time = [], 0.0
    for index in range(60):
        time += rng.expovariate(12.0)
        prompt = rng.randint(1, 150)
        requests.append(request(time, prompt, rng.randint(1, 60), index, rng.randint(0, prompt // page), page))
    script = [rng.randrange(10**6) for _ in range(97)], [rng.randrange(10**6) for _ in range(10_000)]
    records, sim = run(cluster, requests, *script)
    for record in records:
        assert record.outcome in (1, 2)
        if record.outcome == 2:
            continue
        times = [record.arrival_s, record.routed_s, record.prefill_start_s, record.prefill_end_s]
        if record.output_tokens > 1:
            times += [record.transfer_end_s, record.decode_start_s]
        times.append(record.finish_s)
        assert times == sorted(times)
        assert sum(record.gaps_s) == pytest.approx(record.e2e_s - record.ttft_s)
        assert record.tbt_tail_s == pytest.approx(record.tbt_tail_exact_s, rel=0.025)
        assert record.hit_tokens < record.prompt_tokens
    served = [record for record in records if record.outcome == 1]
    assert sum(p.computed_tokens for p in sim.prefill) == sum(r.prompt_tokens - r.hit_tokens for r in served)
    assert sum(d.generated_tokens for d in sim.decode) == sum(r.output_tokens - 1 for r in served)
    assert not sim.links.flows
    for cache in sim.caches:
        cache.check()
        assert cache.private == 0
        assert all(entry.locks == 0 for entry in cache.pages.values())
    assert all(decode.reserved_tokens() == 0 and not decode.batch for decode in sim.decode)
