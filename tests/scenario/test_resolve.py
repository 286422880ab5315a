"""From a scenario to the numbers of its cluster."""

import dataclasses

import numpy as np
import pytest

import cacheenv
from cacheenv.errors import InputError
from cacheenv.physics import list_links, list_presets, load_link, load_preset
from cacheenv.run.worlds import Worlds
from cacheenv.scenario.resolve import resolve
from cacheenv.sim.view.columns import ROLE_PRE_PREFILL, ROLE_PREFILL

SMALL = {"workload.requests": 4}
DECODE_COEFFICIENTS = ("decode_d_s", "decode_e_s", "decode_f_s")


@pytest.mark.parametrize("name", cacheenv.list_scenarios())
def test_one_row_an_instance_and_nothing_but_numbers(name):
    scenario = cacheenv.load_scenario(name)
    spec = resolve(scenario)
    assert (len(spec.prefill), len(spec.decode)) == (scenario.cluster.prefill.count, scenario.cluster.decode.count)
    for row in (spec.store, *spec.prefill, *spec.decode):
        assert all(isinstance(value, (int, float)) for value in dataclasses.astuple(row))


@pytest.mark.parametrize("prefill", list_presets())
def test_coefficients_come_from_the_preset_of_each_side(prefill):
    shown = load_preset(prefill)
    same = {key: getattr(shown, key) for key in ("model", "layers", "kv_bytes_per_token")}
    decode = {"preset": "llama3-8b_1xH100", **same}  # its coefficients stand for the other model
    presets = {"cluster.prefill.preset": prefill, "cluster.decode.preset": decode, "cluster.network.layers": None}
    spec = resolve(cacheenv.load_scenario("kimi-chat", presets))
    assert spec.layers == shown.layers
    for rows, preset in ((spec.prefill, load_preset(prefill)), (spec.decode, load_preset(decode))):
        for row in rows:
            shared = [item.name for item in dataclasses.fields(row) if hasattr(preset, item.name)]
            assert len(shared) >= 5
            assert all(getattr(row, field) == getattr(preset, field) for field in shared)
    assert {row.kv_bytes for row in spec.prefill} == {load_preset(prefill).moved_bytes_per_token}
    assert {row.kv_bytes for row in spec.decode} == {load_preset(decode).moved_bytes_per_token}
    assert {row.kv_tokens for row in spec.decode} == {load_preset(decode).capacity_tokens}


@pytest.mark.parametrize("name", list_links())
def test_rates_and_set_up_come_from_the_link(name):
    spec = resolve(cacheenv.load_scenario("kimi-chat", {"cluster.network.link": name}))
    link = load_link(name)
    assert {row.nic_bytes_per_s for row in (*spec.prefill, *spec.decode)} == {link.gbytes_per_s * 1e9}
    assert {row.setup_s for row in (*spec.prefill, *spec.decode)} == {link.setup_s}


def test_the_scenario_may_replace_numbers_of_presets_and_links():
    spec = resolve(
        cacheenv.load_scenario(
            "kimi-chat",
            {
                "cluster.prefill": {"count": 3, "pre_prefill": 2, "cache_tokens": 4096},
                "cluster.decode.kv_tokens": 9000,
                "cluster.network": {"nic_gbytes_per_s": 12.5, "setup_s": 0.0},
                "cluster.store": {"capacity_tokens": 2048, "nic_gbytes_per_s": 7.0},
            },
        )
    )
    assert [row.role for row in spec.prefill] == [ROLE_PRE_PREFILL, ROLE_PRE_PREFILL, ROLE_PREFILL]
    assert {row.cache_tokens for row in spec.prefill} == {4096}
    assert {row.kv_tokens for row in spec.decode} == {9000}
    assert {row.nic_bytes_per_s for row in (*spec.prefill, *spec.decode)} == {12.5e9}
    assert {row.setup_s for row in (*spec.prefill, *spec.decode)} == {0.0}
    assert (spec.store.capacity_tokens, spec.store.nic_bytes_per_s) == (2048, 7e9)


@pytest.mark.parametrize("key", ["prefill.preset", "decode.preset", "network.link"])
def test_an_unknown_name_is_bad_input(key):
    scenario = cacheenv.load_scenario("kimi-chat")
    room, field = key.split(".")
    changed = dataclasses.replace(getattr(scenario.cluster, room), **{field: "nonesuch"})
    with pytest.raises(InputError, match="nonesuch"):
        resolve(dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, **{room: changed})))


@pytest.mark.parametrize("name", cacheenv.list_scenarios())
def test_the_simulator_computes_with_these_numbers(name):
    scenario = cacheenv.load_scenario(name, SMALL)
    spec = resolve(scenario)
    worlds = Worlds(scenario)
    worlds.reset(0, 0)
    world, page = worlds.world(0), scenario.cluster.page_tokens
    coefficients = ["prefill_a_s", "prefill_b_s", "prefill_c_s"]
    renamed = {"min_prefill_s": "prefill_floor_s", "kv_tokens": "kv_capacity_tokens"}
    for rows, machines, names in (
        (world.instance[: len(spec.prefill)], spec.prefill, [*coefficients, "min_prefill_s", "n_tile", "role"]),
        (world.instance[len(spec.prefill) :], spec.decode, [*coefficients, *DECODE_COEFFICIENTS, "kv_tokens"]),
    ):
        for name in names:
            np.testing.assert_array_equal(rows[renamed.get(name, name)], [getattr(row, name) for row in machines])
    nics = [row.nic_bytes_per_s for row in (*spec.prefill, *spec.decode, spec.store)]
    np.testing.assert_array_equal(world.nic["bytes_per_s"], nics)
    pages = [row.cache_tokens // page for row in spec.prefill] + [spec.store.capacity_tokens // page]
    np.testing.assert_array_equal(world.tree["capacity_pages"][: len(pages)], pages)
    machines = (*spec.prefill, *spec.decode)
    for field in ("kv_bytes", "kv_copy_bytes", "setup_s", "tensor_parallel"):
        np.testing.assert_array_equal(world.nic[field][:-1], [getattr(row, field) for row in machines])
    for table, rows, names in (
        (world.prefill, spec.prefill, ["queue", "lpm_fallback", "chunk_tokens", "batch_tokens", "max_batch_requests"]),
        (world.decode, spec.decode, ["max_batch", "reserve_tokens", "preemption", "damping", "swap_bytes_per_s"]),
    ):
        for name in names:
            np.testing.assert_array_equal(table[name], [getattr(row, name) for row in rows])
