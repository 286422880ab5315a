"""Groups of instances: what they say for themselves, what they share, and what is refused."""

import numpy as np
import pytest
from tiny_cluster import requests, run, tiny

import cacheenv
from cacheenv.errors import InputError
from cacheenv.scenario import load_scenario, resolve
from cacheenv.scenario.saturation import decode_rps, prefill_rps, saturation_rps
from cacheenv.sim.core.kinds import code_of
from cacheenv.sim.prefill.discipline import DISCIPLINES

NEW, OLD = {"preset": "llama3-70b_8xH100", "model": "llama2-70b"}, "llama2-70b_8xA800_mooncake"
FLEET = [
    {"role": "prefill", "count": 2, "preset": NEW, "cache_tokens": 100_000, "queue": "lpm", "chunk_tokens": 2048},
    {"role": "decode", "count": 3, "max_batch": 64, "reserve_tokens": 100, "link": "rdma_1x100g"},
    {"role": "prefill", "preset": OLD, "host_cache_tokens": 50_000, "nic_gbytes_per_s": 12.5, "setup_s": 0.5},
    {"role": "decode", "name": "small", "kv_tokens": 40_000, "preemption": "swap"},
]


def fleet(groups, **more):
    return load_scenario("kimi-chat", {"cluster.instances": groups, "workload.requests": 20, **more})


def test_each_instance_has_what_its_group_says_and_the_rest_of_its_section():
    scenario = fleet(FLEET, **{"cluster.prefill.batch_tokens": 4096, "cluster.decode.max_batch": 99})
    assert (scenario.cluster.prefill.count, scenario.cluster.decode.count) == (3, 4)
    spec = resolve(scenario)
    assert [row.cache_tokens for row in spec.prefill[:2]] == [100_000, 100_000]
    assert [row.host_cache_tokens for row in spec.prefill] == [scenario.cluster.prefill.host_cache_tokens] * 2 + [
        50_000
    ]
    assert [row.queue for row in spec.prefill] == [code_of(DISCIPLINES, kind) for kind in ("lpm", "lpm", "fcfs")]
    assert [row.chunk_tokens for row in spec.prefill] == [2048, 2048, 8192]
    assert {row.batch_tokens for row in spec.prefill} == {4096}
    assert [row.prefill_b_s for row in spec.prefill] == [
        cacheenv.physics.load_preset(n).prefill_b_s for n in (NEW, NEW, OLD)
    ]
    assert [row.max_batch for row in spec.decode] == [64, 64, 64, 99]
    assert [row.kv_tokens for row in spec.decode][3] == 40_000 != spec.decode[0].kv_tokens
    link = cacheenv.physics.load_link("rdma_1x100g")
    assert {(row.nic_bytes_per_s, row.setup_s) for row in spec.decode[:3]} == {(link.gbytes_per_s * 1e9, link.setup_s)}
    assert (spec.prefill[2].nic_bytes_per_s, spec.prefill[2].setup_s) == (12.5e9, 0.5)


def test_a_link_of_its_own_comes_with_its_own_rate():
    """What the network says of all is of its link, not of another one."""
    groups = [{"role": "prefill", "link": "rdma_1x100g"}, {"role": "decode"}]
    spec = resolve(fleet(groups, **{"cluster.network.nic_gbytes_per_s": 1.0}))
    assert spec.prefill[0].nic_bytes_per_s == cacheenv.physics.load_link("rdma_1x100g").gbytes_per_s * 1e9
    assert spec.decode[0].nic_bytes_per_s == 1e9


@pytest.mark.parametrize("parts", [1, 2])
def test_counts_are_the_short_form_of_groups(parts):
    """The same machines, and the same records to the last byte."""
    short = load_scenario("kimi-chat", {"cluster.prefill.count": 4, "cluster.decode.count": 2, "workload.requests": 40})
    groups = [{"role": "prefill", "count": 4 // parts}] * parts + [{"role": "decode", "count": 2 // parts}] * parts
    long = load_scenario("kimi-chat", {"cluster.instances": groups, "workload.requests": 40})
    assert resolve(short) == resolve(long)
    one, other = (cacheenv.simulate(scenario, "mooncake", 3) for scenario in (short, long))
    assert one.requests.tobytes() == other.requests.tobytes()
    assert one.instances.tobytes() == other.instances.tobytes()
    assert one.summary.keys() == other.summary.keys()


def test_a_fleet_survives_its_dictionary_and_changes():
    scenario = fleet(FLEET)
    assert load_scenario(scenario.to_dict()) == scenario
    assert scenario.with_overrides({"slo.ttft_s": 3.0}).cluster == scenario.cluster
    smaller = scenario.with_overrides({"cluster.instances": FLEET[:2]})
    assert (smaller.cluster.prefill.count, smaller.cluster.decode.count) == (2, 3)
    equal = scenario.with_overrides({"cluster.instances": []})
    assert (equal.cluster.prefill.count, equal.cluster.decode.count) == (3, 4)
    assert len({row for row in resolve(equal).prefill}) == 1


@pytest.mark.parametrize(
    ("groups", "parts"),
    [
        ({"role": "prefill"}, ["cluster.instances: expected a list of groups, got a mapping"]),
        ([3], ["cluster.instances[0]: expected a mapping"]),
        ([{"count": 2}], ["cluster.instances[0].role: expected one of prefill, decode"]),
        (
            [{"role": "prefil"}],
            ["cluster.instances[0].role: expected one of prefill, decode", "did you mean 'prefill'"],
        ),
        ([{"role": "decode"}], ["cluster.instances: expected at least one group with role prefill"]),
        ([{"role": "prefill"}], ["cluster.instances: expected at least one group with role decode"]),
        ([{"role": "prefill", "count": 0}, {"role": "decode"}], ["instances[0].count: expected an integer >= 1"]),
        ([{"role": "prefill", "count": "2"}, {"role": "decode"}], ["instances[0].count: expected an integer", "text"]),
        ([{"role": "prefill", "cout": 2}, {"role": "decode"}], ["instances[0].cout", "did you mean 'count'"]),
        ([{"role": "prefill"}, {"role": "decode", "queue": "lpm"}], ["unknown key cluster.instances[1].queue"]),
        (
            [{"role": "prefill", "backlog": "now"}, {"role": "decode"}],
            ["cluster.instances[0].backlog: one value holds for all instances: cluster.prefill.backlog"],
        ),
        ([{"role": "prefill", "layers": 3}, {"role": "decode"}], ["all instances: cluster.network.layers"]),
        ([{"role": "prefill", "preset": "lama3-70b_8xH100"}, {"role": "decode"}], ["instances[0].preset", "llama3"]),
        (
            [{"role": "prefill"}, {"role": "decode", "preset": "llama3-8b_1xH100"}],
            ["instances[1].preset: expected the model of"],
        ),
        (
            [{"role": "prefill"}, {"role": "decode", "kv_tokens": 2_000_000}],
            ["instances[1].kv_tokens: expected at most"],
        ),
        ([{"role": "prefill"}, {"role": "decode", "link": "rdma"}], ["cluster.instances[1].link: unknown link 'rdma'"]),
        ([{"role": "prefill"}, {"role": "decode", "kv_tokens": 100}], ["cluster.instances[1].kv_tokens", "one page"]),
        (
            [{"role": "prefill"}, {"role": "decode", "kv_tokens": 600, "reserve_tokens": 600}],
            ["cluster.instances[1].reserve_tokens: expected less than the KV capacity of 600 tokens"],
        ),
        (
            [{"role": "prefill", "cache_tokens": 2_000_000}, {"role": "decode"}],
            ["cluster.instances[0].cache_tokens: expected at most the", "cluster.instances[0].host_cache_tokens"],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(groups, parts):
    with pytest.raises(InputError) as caught:
        fleet(groups)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


def test_counts_that_contradict_the_groups_are_refused():
    with pytest.raises(InputError, match=r"cluster.prefill.count: cluster.instances has 3 prefill instances"):
        fleet(FLEET).with_overrides({"cluster.prefill.count": 5})
    with pytest.raises(InputError, match=r"cluster.decode.count: cluster.instances has 4 decode instances"):
        load_scenario({"cluster": {"instances": FLEET, "decode": {"count": 2}}})
    assert load_scenario({"cluster": {"instances": FLEET, "decode": {"count": 4}}}).cluster.decode.count == 4


def test_what_a_policy_requires_holds_for_every_group():
    """`sglang` needs FCFS queues; a group's own lpm would not be what the policy asked for."""
    result = cacheenv.simulate(fleet(FLEET), "sglang", 0)
    assert {row.queue for row in resolve(result.scenario).prefill} == {code_of(DISCIPLINES, "fcfs")}
    kept = cacheenv.simulate(fleet(FLEET), "sglang", 0, common_cluster=True)
    assert [row.queue for row in resolve(kept.scenario).prefill] == [1, 1, 0]


def test_candidates_of_all_who_run_need_the_largest_batch():
    scenario = fleet(FLEET, **{"reschedule.candidates": None, "cluster.decode.max_batch": 80})
    assert scenario.candidate_slots == 80
    assert fleet(FLEET, **{"reschedule.candidates": None, "cluster.decode.max_batch": 10}).candidate_slots == 64


def test_where_a_cluster_is_full():
    """Prefill of 1 ms a token: prompts of 1000 and 3000 tokens, 2 s on average, .5/s; twice as fast, 1/s.

    Decode in steps of 10 ms: 101 and 101 tokens of output, 100 steps each; a batch of 4 makes 4 / 1 s.
    """
    scenario = tiny(instances=[{"role": "prefill", "count": 2}, {"role": "decode", "max_batch": 4}])
    spec = run(
        scenario, requests([(0.0, 1000, 101), (1.0, 3000, 101)]), prefill=[{}, {"prefill_b_s": 5e-4}]
    ).worlds.spec
    workload = requests([(0.0, 1000, 101), (1.0, 3000, 101)])
    prompts, outputs = np.array([1000.0, 3000.0]), np.array([101.0, 101.0])
    assert [prefill_rps(row, prompts) for row in spec.prefill] == pytest.approx([0.5, 1.0])
    assert decode_rps(spec.decode[0], prompts, outputs) == pytest.approx(4.0)
    assert saturation_rps(spec, workload) == pytest.approx((1.5, 4.0))
