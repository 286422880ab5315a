"""Scenarios: what is read, what is changed by overrides, and each kind of bad configuration with its message."""

import pickle

import pytest
import yaml

from cacheenv.errors import InputError
from cacheenv.scenario import Scenario, list_scenarios, load_scenario
from cacheenv.scenario.keys import parse_assignment

TRACE_LINE = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'


def write(tmp_path, text, name="own.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def message(*args, **kwargs):
    with pytest.raises(InputError) as caught:
        load_scenario(*args, **kwargs)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["kimi-chat", "reasoning", "long-context"])
def test_packaged_scenarios_load(name):
    assert name in list_scenarios()
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.description != "-"


def test_default_is_kimi_chat():
    assert load_scenario().name == "kimi-chat"


def test_round_trip_through_dict_and_pickle():
    scenario = load_scenario("long-context", {"cluster.prefill.count": 5})
    assert load_scenario(scenario.to_dict()) == scenario
    assert pickle.loads(pickle.dumps(scenario)) == scenario
    assert load_scenario(yaml.safe_load(yaml.safe_dump(scenario.to_dict()))) == scenario


def test_overrides_dotted_nested_and_mixed():
    scenario = load_scenario(
        "kimi-chat", {"cluster.prefill.count": 3, "cluster": {"decode": {"count": 2}, "network.layers": 4}, "slo": {}}
    )
    assert (scenario.cluster.prefill.count, scenario.cluster.decode.count, scenario.cluster.network.layers) == (3, 2, 4)
    assert scenario.with_overrides({"workload.rate_rps": 2}).workload.rate_rps == 2.0
    assert scenario.with_overrides({}) is scenario


def test_int_becomes_float_where_a_number_is_meant():
    value = load_scenario("kimi-chat", {"workload.rate_rps": 3}).workload.rate_rps
    assert type(value) is float


def test_file_takes_its_stem_as_name(tmp_path):
    assert load_scenario(write(tmp_path, "cluster: {prefill: {count: 2}}\n")).name == "own"


def test_all_keys_have_a_meaning():
    def walk(schema, place):
        import dataclasses

        for item in dataclasses.fields(schema):
            if "section" in item.metadata:
                walk(item.metadata["section"], f"{place}{item.name}.")
            else:
                assert item.metadata["rule"].doc, place + item.name

    walk(Scenario, "")


def test_trace_is_found_beside_the_yaml_file_and_read_once(tmp_path, monkeypatch):
    (tmp_path / "t.jsonl").write_text(TRACE_LINE * 3)
    path = write(tmp_path, "workload: {kind: mooncake, trace: t.jsonl}\n")
    monkeypatch.chdir("/")
    scenario = load_scenario(path)
    workload = scenario.make_workload(1)
    assert len(workload) == 3
    assert scenario.make_workload(2) is workload
    assert load_scenario(path).make_workload(0) is workload
    assert scenario.with_overrides({"workload.limit": 2}).make_workload(0) is not workload
    (tmp_path / "t.jsonl").write_text(TRACE_LINE * 4)
    assert len(scenario.make_workload(1)) == 4


def test_changing_the_kind_drops_the_old_generator_parameters(tmp_path):
    (tmp_path / "t.jsonl").write_text(TRACE_LINE)
    base = load_scenario("reasoning")
    changed = base.with_overrides({"workload.kind": "mooncake", "workload.trace": str(tmp_path / "t.jsonl")})
    assert changed.workload.params == {}


@pytest.mark.parametrize("name", ["kimi-chat", "reasoning", "long-context"])
def test_generated_workload_depends_on_the_seed_only(name):
    scenario = load_scenario(name, {"workload.requests": 50})
    one, again, other = scenario.make_workload(1), scenario.make_workload(1), scenario.make_workload(2)
    assert len(one) == 50
    assert one.requests.tobytes() == again.requests.tobytes()
    assert one.requests.tobytes() != other.requests.tobytes()


# ---- bad input: keys


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("cluster: {prefil: {count: 2}}", ["cluster.prefil", "did you mean 'prefill'"]),
        ("cluster: {prefill: {cout: 2}}", ["cluster.prefill.cout", "did you mean 'count'"]),
        ("zzz: 1", ["unknown key zzz", "known: name, description"]),
        ("cluster: 3", ["cluster: expected a mapping", "3" if False else "int"]),
        ("cluster: [1]", ["cluster: expected a mapping, got a list"]),
        ("cluster: null", ["cluster: expected a mapping, got nothing"]),
        ("name: a\nname: b", ["line 2", "'name' stands twice (first in line 1)"]),
        ("cluster:\n  prefill:\n    count: 1\n    count: 2", ["line 4", "'count' stands twice"]),
        ("1: 2", ["line 1", "keys must be text"]),
        ("[a]: 2", ["line 1", "keys must be text"]),
        ("- 1\n- 2", ["expected a mapping at the top, got a list"]),
        ("", ["empty"]),
        ("# only a comment\n", ["empty"]),
        ("a: [1,\n", ["line", "not valid YAML"]),
        ("a: b: c", ["line 1", "not valid YAML"]),
        ("a: !!python/name:os.system x", ["line 1", "not valid YAML"]),
        ("name: 'a\x01b'", ["not valid YAML"]),
    ],
)
def test_bad_keys_and_yaml(tmp_path, text, parts):
    path = write(tmp_path, text)
    said = message(path)
    assert said.startswith(str(path))
    for part in parts:
        assert part in said


# ---- bad input: values


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("cluster.network.setup_s", "1e-3", ["a number >= 0 or null", "write 1.0e-3"]),
        ("workload.rate_rps", "3e5", ["write 3.0e+5"]),
        ("workload.rate_rps", "'4.0'", ["remove the quotes"]),
        ("workload.rate_rps", "fast", ["expected a number > 0, got the text 'fast'"]),
        ("workload.rate_rps", "0", ["expected a number > 0, got 0"]),
        ("workload.rate_rps", "-1.5", ["expected a number > 0, got -1.5"]),
        ("workload.rate_rps", ".nan", ["expected a number > 0, got nan"]),
        ("workload.rate_rps", ".inf", ["expected a number > 0, got inf"]),
        ("workload.rate_rps", "null", ["expected a number > 0, got None"]),
        ("workload.rate_rps", "true", ["expected a number > 0, got True"]),
        ("workload.rate_rps", "[4]", ["expected a number > 0, got [4]"]),
        ("workload.rate_rps", "1:30", ["plain decimal", "1:30"]),
        ("workload.requests", "010", ["plain decimal integer", "010"]),
        ("workload.requests", "2.5", ["expected an integer >= 1", "got 2.5"]),
        ("workload.requests", "2.0", ["expected an integer >= 1", "got 2.0"]),
        ("workload.requests", "0", ["expected an integer >= 1", "got 0"]),
        ("workload.requests", "99999999999999999999", ["expected an integer"]),
        ("workload.kind", "chatt", ["one of chat, reasoning", "did you mean 'chat'"]),
        ("workload.kind", "7", ["expected one of chat", "got 7"]),
        ("workload.params", "3", ["workload.params: expected a mapping"]),
        ("workload.params", "{no_such_parameter: 1}", ["workload.params", "no_such_parameter"]),
        ("workload.limit", "0", ["an integer >= 1 or null"]),
        ("workload.trace", "some.jsonl", ["workload.trace: expected null for kind chat"]),
        ("cluster.network.peer_pulls", "1", ["expected true or false, got 1"]),
        (
            "cluster.network.overlap",
            "true",
            ["unknown key cluster.network.overlap", "replaced by handover", "blocking"],
        ),
        ("cluster.network.nic_gbytes_per_s", ".nan", ["cluster.network.nic_gbytes_per_s", "got nan"]),
        ("cluster.network.nic_gbytes_per_s", "0", ["a number > 0 or null"]),
        ("cluster.network.link", "rdma_4x200g", ["cluster.network.link", "rdma_4x200g"]),
        ("cluster.prefill.preset", "lama3-8b_1xH100", ["cluster.prefill.preset", "llama3-8b_1xH100"]),
        ("cluster.decode.preset", "lama3-8b_1xH100", ["cluster.decode.preset", "llama3-8b_1xH100"]),
        ("cluster.prefill.count", "0", ["cluster.prefill.count: expected an integer >= 1"]),
        ("cluster.decode.count", "0", ["cluster.decode.count: expected an integer >= 1"]),
        ("cluster.prefill.cache_tokens", "511", ["cluster.prefill.cache_tokens", "one page of 512 tokens, got 511"]),
        ("cluster.decode.kv_tokens", "100", ["cluster.decode.kv_tokens", "one page"]),
        ("cluster.decode.reserve_tokens", "0", ["cluster.decode.reserve_tokens: expected an integer >= 1"]),
        ("cluster.decode.reserve_tokens", "9000000", ["less than the KV capacity"]),
        ("cluster.store.capacity_tokens", "100", ["cluster.store.capacity_tokens", "one page"]),
        ("cluster.index.memory_tokens", "100", ["cluster.index.memory_tokens", "one page"]),
        (
            "cluster.index.kind",
            "central",
            ["unknown key cluster.index.kind", "known in cluster.index: delay_s, learns, shards, "],
        ),
        ("cluster.prefill.pre_prefill", "8", ["cluster.prefill.pre_prefill", "less than cluster.prefill.count = 8"]),
        ("cluster.prefill.queue", "lifo", ["expected one of fcfs, lpm"]),
        ("cluster.page_tokens", "0", ["cluster.page_tokens"]),
        ("slo.ttft_s", "0", ["slo.ttft_s: expected a number > 0 or null"]),
        ("reward.kind", "sparse", ["expected one of slo, latency, shaped"]),
        ("prediction.kind", "starr", ["did you mean 'star'"]),
        ("admission.allow_reject", "'yes'", ["expected true or false"]),
        ("warmup_requests", "2000", ["warmup_requests: expected less than workload.requests"]),
        ("horizon_s", "-1", ["horizon_s"]),
        ("name", "''", ["name: expected one line of text"]),
        ("name", "12", ["name: expected text, got 12"]),
        ("router", "null", ["router: expected text"]),
        ("clusterr.x", "1", ["unknown key clusterr", "did you mean 'cluster'"]),
        ("cluster.prefill.count.x", "1", ["cluster.prefill.count: expected an integer >= 1"]),
    ],
)
def test_bad_values_name_the_key(key, value, parts):
    with pytest.raises(InputError) as caught:
        load_scenario("kimi-chat", dict([parse_assignment(f"{key}={value}")]))
    said = str(caught.value)
    assert "\n" not in said
    for part in parts:
        assert part in said


def test_bad_value_in_a_file_names_the_file_and_in_an_override_the_override(tmp_path):
    path = write(tmp_path, "workload: {rate_rps: -1}\n")
    assert message(path).startswith(f"{path}: workload.rate_rps: ")
    good = write(tmp_path, "workload: {rate_rps: 1}\n", "good.yaml")
    assert message(good, {"workload.rate_rps": -1}).startswith("override: workload.rate_rps: ")


def test_an_override_may_repair_a_file(tmp_path):
    path = write(tmp_path, "workload: {rate_rps: -1}\n")
    assert load_scenario(path, {"workload.rate_rps": 2.0}).workload.rate_rps == 2.0


def test_unknown_scenario_and_unreadable_files(tmp_path):
    assert "did you mean 'kimi-chat'" in message("kimi-chatt")
    assert "no-such.yaml" in message("no-such.yaml")
    assert "cannot be read" in message(tmp_path / "folder" / "x.yaml")
    (tmp_path / "dir.yaml").mkdir()
    assert "cannot be read" in message(tmp_path / "dir.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("name: k\xe4se\n".encode("latin-1"))
    assert "not UTF-8" in message(latin)
    assert "expected a scenario name" in message(3)


def test_trace_workloads_need_a_file(tmp_path):
    assert "expected the path of a trace" in message("kimi-chat", {"workload.kind": "mooncake"})
    gone = {"workload.kind": "mooncake", "workload.trace": str(tmp_path / "gone.jsonl")}
    assert "no such file" in message("kimi-chat", gone)
    (tmp_path / "t.jsonl").write_text(TRACE_LINE)
    extra = {"workload.kind": "mooncake", "workload.trace": tmp_path / "t.jsonl", "workload.params": {"x": 1}}
    assert "traces have no generator parameters" in message("kimi-chat", extra)


@pytest.mark.parametrize("bad", ["", "a..b", ".a"])
def test_bad_override_keys(bad):
    assert "expected a dotted key" in message("kimi-chat", {bad: 1})


@pytest.mark.parametrize("bad", ["slo.ttft_s=1", ["slo.ttft_s=1"], 3])
def test_overrides_are_a_mapping(bad):
    assert "overrides: expected a mapping of dotted keys to values" in message("kimi-chat", bad)
