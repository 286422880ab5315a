"""`cacheenv bench` and `goodput`: tables, files, resuming, and never destroying what is there."""

import csv
import json
import sys

import pytest
import yaml
from cli_tools import BENCH, TRACE_LINES, ok, refused

from cacheenv.cli import main
from cacheenv.commands import arguments, execute, identity
from cacheenv.commands.goodput import Search, natural_rate
from cacheenv.run.metrics import METRICS
from cacheenv.scenario import load_scenario

# ---- bench


def test_bench_prints_a_table_with_units_and_seeds(fake, capsys):
    out = ok(capsys, *BENCH).out
    assert "mean ± standard deviation over 2 seeds" in out
    assert "objectives: TTFT <= 10 s, TBT tail <= 0.2 s\n" in out
    for word in ("random", "round_robin", "TTFT mean", "[s]", "[ms]", "[% tokens]", "[req/s]"):
        assert word in out
    assert "11.0 ± 7.1" in out  # random: 6 and 16
    assert "nan" not in out
    assert len(fake.tasks) == 4


def test_policies_are_compared_seed_by_seed_with_the_scenario_s_router(fake, capsys, monkeypatch):
    # attainment .9, .7 against .8, .4: differences 10 and 30 points; mean 20, t(1, .975) = 12.706 x 10 = 127.1
    shares = {("random", 0): 0.9, ("random", 1): 0.7, ("mooncake", 0): 0.8, ("mooncake", 1): 0.4}
    plain = execute.simulate_summary
    attainment = lambda task: {**plain(task), "slo_attainment": shares[task.policy, task.seed]}  # noqa: E731
    monkeypatch.setattr(execute, "simulate_summary", attainment)
    out = ok(capsys, "bench", "--policies", "random,mooncake", "--seeds", 2).out
    assert "vs mooncake" in out
    assert "+20.0 ± 127.1" in out


def test_default_seeds_are_thirty_for_generators_and_three_for_a_trace(fake, capsys, trace):
    ok(capsys, "bench", "--policies", "random")
    assert [task.seed for task in fake.tasks] == list(range(30))
    ok(capsys, "bench", "--policies", "random", "--trace", trace)
    assert len(fake.tasks) == 33


def test_bench_writes_all_files(fake, capsys, tmp_path):
    ok(capsys, *BENCH, "--out", tmp_path)
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert [(row["policy"], row["seed"]) for row in rows] == [
        ("random", "0"), ("random", "1"), ("round_robin", "0"), ("round_robin", "1"),
    ]  # fmt: skip
    assert rows[0]["tpot_mean_s"] == ""
    assert list(rows[0]) == ["scenario", "policy", "seed", *METRICS]
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["results"][0]["tpot_mean_s"] is None
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert load_scenario(config["scenarios"]["kimi-chat"]) == load_scenario("kimi-chat")
    assert config["seeds"] == [0, 1]
    assert {"python", "numpy", "cacheenv"} <= set(config["versions"])
    assert (tmp_path / "bench-kimi-chat.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 4


def test_bench_without_matplotlib_still_works(fake, capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = ok(capsys, *BENCH, "--out", tmp_path)
    assert "no plots" in said.err
    assert (tmp_path / "results.csv").exists()


def test_json_is_one_document_and_nothing_else(fake, capsys):
    said = ok(capsys, *BENCH, "--json")
    document = json.loads(said.out, parse_constant=lambda name: pytest.fail(name))
    assert set(document) == {"results", "config", "version"}
    assert list(document["results"][0]) == ["scenario", "policy", "seed", *METRICS]
    assert said.err == ""


def test_several_scenarios_each_get_a_table(fake, capsys):
    out = ok(capsys, "bench", "--policies", "random", "--scenario", "reasoning", "--scenario", "long-context").out
    assert "reasoning: 2P+4D" in out
    assert "long-context: 3P+2D" in out


def test_rate_and_set_reach_the_scenario(fake, capsys, trace):
    ok(capsys, "bench", "--policies", "random", "--seeds", 1, "--rate", 2.5, "--set", "cluster.prefill.count=3")
    assert fake.tasks[0].scenario.workload.rate_rps == 2.5
    assert fake.tasks[0].scenario.cluster.prefill.count == 3
    ok(capsys, "bench", "--policies", "random", "--seeds", 1, "--rate", 1, "--trace", trace)
    scenario = fake.tasks[1].scenario
    assert scenario.name == "small"
    assert scenario.make_workload().requests["arrival_s"][-1] == pytest.approx(2.0)  # 2 gaps at 1 request/s
    assert natural_rate(scenario) == pytest.approx(1.0)


def test_another_rate_on_a_trace_with_sessions_says_what_it_does(fake, capsys, tmp_path, trace):
    talks = tmp_path / "talks.jsonl"
    talks.write_text("".join(line.replace("}", ', "session_id": 1}') + "\n" for line in TRACE_LINES))
    for command in (["bench", "--rate", 1], ["goodput"]):
        argv = [*command, "--policies", "random", "--seeds", 1]
        said = ok(capsys, *argv, "--trace", talks)
        assert "talks: another rate scales all arrivals" in said.err
        assert "workload.arrivals=closed" in said.err
        assert "another rate" not in ok(capsys, *argv, "--trace", talks, "--set", "workload.arrivals=closed").err
        assert "another rate" not in ok(capsys, *argv, "--trace", trace).err
    assert "another rate" not in ok(capsys, "bench", "--policies", "random", "--seeds", 1, "--trace", talks).err


def test_trace_on_the_cluster_of_a_config(fake, capsys, trace, tmp_path):
    config = tmp_path / "cluster.yaml"
    config.write_text("cluster: {prefill: {count: 5}}\nslo: {ttft_s: 1.5}\n")
    ok(capsys, "bench", "--policies", "random", "--seeds", 1, "--trace", trace, "--config", config)
    scenario = fake.tasks[0].scenario
    assert (scenario.cluster.prefill.count, scenario.slo.ttft_s, scenario.workload.kind) == (5, 1.5, "mooncake")


def test_needs_of_a_policy_are_applied_and_stated(fake, capsys):
    out = ok(capsys, "bench", "--policies", "random,cpd", "--seeds", 1).out
    assert "cpd*" in out
    assert "* cpd ran with" in out
    assert "cluster.prefill.pre_prefill=1" in out
    assert "memory_tokens" not in out, "the router's own is no change of the cluster"
    assert not fake.tasks[1].common_cluster
    out = ok(capsys, "bench", "--policies", "random,cpd", "--seeds", 1, "--common-cluster").out
    assert "*" not in out
    assert fake.tasks[3].common_cluster


def test_default_policies_exist_and_reschedulers_join_where_the_scenario_has_one(fake, capsys):
    ok(capsys, "bench", "--seeds", 1)
    assert [task.policy for task in fake.tasks] == list(arguments.DEFAULT_ROUTERS)
    fake.tasks.clear()
    ok(capsys, "bench", "--seeds", 1, "--scenario", "reasoning")
    assert {"least_backlog+star", "least_backlog+llumnix"} <= {task.policy for task in fake.tasks}


def test_names_with_parameters_may_hold_commas():
    assert arguments.split_names("a, b(x=1,y=2)+c,d") == ["a", "b(x=1,y=2)+c", "d"]


# ---- resuming


def test_an_interrupted_bench_goes_on_where_it_stopped(fake, capsys, tmp_path):
    ok(capsys, *BENCH, "--out", tmp_path / "whole")
    fake.tasks.clear()
    fake.interrupt_at = 3
    assert main([*BENCH, "--out", str(tmp_path / "cut")]) == 130
    said = capsys.readouterr()
    assert "interrupted; finished results are in" in said.err
    assert "the same command goes on" in said.err
    assert len((tmp_path / "cut" / "results.jsonl").read_text().splitlines()) == 3
    fake.interrupt_at = None
    fake.tasks.clear()
    said = ok(capsys, *BENCH, "--out", tmp_path / "cut")
    assert "3 of 4 results are in" in said.err
    assert [(task.policy, task.seed) for task in fake.tasks] == [("round_robin", 1)]
    for name in ("results.csv", "results.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_interruption_without_out_says_that_nothing_is_kept(fake, capsys):
    fake.interrupt_at = 0
    assert main(BENCH) == 130
    assert "nothing is kept without --out" in capsys.readouterr().err


def test_more_seeds_and_policies_only_add(fake, capsys, tmp_path):
    ok(capsys, *BENCH, "--out", tmp_path)
    fake.tasks.clear()
    ok(capsys, "bench", "--policies", "random,least_requests", "--seeds", 3, "--out", tmp_path)
    assert [(task.policy, task.seed) for task in fake.tasks] == [
        ("random", 2), ("least_requests", 0), ("least_requests", 1), ("least_requests", 2),
    ]  # fmt: skip


def test_half_a_last_line_is_dropped_and_computed_again(fake, capsys, tmp_path):
    ok(capsys, *BENCH, "--out", tmp_path)
    path = tmp_path / "results.jsonl"
    content = path.read_text()
    path.write_text(content[:-100])
    fake.tasks.clear()
    ok(capsys, *BENCH, "--out", tmp_path)
    assert [(task.policy, task.seed) for task in fake.tasks] == [("round_robin", 1)]
    assert path.read_text() == content


def test_a_last_line_that_lacks_only_its_end_is_kept(fake, capsys, tmp_path):
    ok(capsys, *BENCH, "--out", tmp_path)
    path = tmp_path / "results.jsonl"
    content = path.read_text()
    path.write_text(content[:-1])
    fake.tasks.clear()
    ok(capsys, *BENCH, "--out", tmp_path)
    assert not fake.tasks
    assert path.read_text() == content


def test_results_of_another_program_are_computed_again(fake, capsys, tmp_path, monkeypatch):
    ok(capsys, *BENCH, "--out", tmp_path)
    monkeypatch.setattr(identity, "_sources_digest", lambda: "other")
    fake.tasks.clear()
    ok(capsys, *BENCH, "--out", tmp_path)
    assert len(fake.tasks) == 4
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 8


def test_another_configuration_is_refused_and_fresh_sets_the_old_one_aside(fake, capsys, tmp_path):
    ok(capsys, *BENCH, "--out", tmp_path)
    before = (tmp_path / "results.jsonl").read_bytes()
    changed = [*BENCH, "--out", tmp_path, "--set", "slo.ttft_s=3.0"]
    assert "with another configuration" in refused(capsys, *changed)
    assert (tmp_path / "results.jsonl").read_bytes() == before
    ok(capsys, *changed, "--fresh")
    assert (tmp_path / "results.jsonl.1").read_bytes() == before
    assert (tmp_path / "results.csv.1").exists()
    assert (tmp_path / "bench-kimi-chat.png.1").exists()
    ok(capsys, *changed, "--fresh")
    assert (tmp_path / "results.jsonl.1").read_bytes() == before
    assert (tmp_path / "results.jsonl.2").exists()


def test_a_changed_trace_is_another_configuration(fake, capsys, tmp_path, trace):
    ok(capsys, *BENCH, "--trace", trace, "--out", tmp_path / "out")
    trace.write_text(TRACE_LINES[0] + "\n")
    assert "another configuration" in refused(capsys, *BENCH, "--trace", trace, "--out", tmp_path / "out")


def test_files_of_others_are_never_overwritten(fake, capsys, tmp_path):
    (tmp_path / "results.csv").write_text("mine")
    assert "results.csv exists" in refused(capsys, *BENCH, "--out", tmp_path)
    assert (tmp_path / "results.csv").read_text() == "mine"
    assert not fake.tasks


def test_a_broken_record_is_refused_with_its_line(fake, capsys, tmp_path):
    ok(capsys, *BENCH, "--out", tmp_path)
    path = tmp_path / "results.jsonl"
    path.write_text("not json\n" + path.read_text())
    assert "line 1: not a result row" in refused(capsys, *BENCH, "--out", tmp_path)


def test_out_that_is_a_file_or_cannot_be_made(fake, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "expected a folder" in refused(capsys, *BENCH, "--out", tmp_path / "file")
    assert "Not a directory" in refused(capsys, *BENCH, "--out", tmp_path / "file" / "deeper")


# ---- goodput


def test_goodput_finds_the_rate_between_good_and_bad(fake, capsys, tmp_path):
    fake.capacity_rps = {"random": 3.3, "round_robin": 12.0}
    command = ["goodput", "--policies", "random,round_robin", "--out", tmp_path, "--tolerance", 0.01]
    document = json.loads(ok(capsys, *command, "--json").out)
    for row in document["results"]:
        capacity = fake.capacity_rps[row["policy"]]
        assert row["sustainable_rps"] <= capacity < row["bracket_high_rps"]
        assert row["bracket_high_rps"] - row["sustainable_rps"] <= 0.01 * capacity
        assert row["attainment"] == 1.0
    count = len(fake.tasks)
    out = ok(capsys, *command).out
    assert len(fake.tasks) == count  # all from the record
    assert "sustainable [req/s]" in out
    assert {"goodput.csv", "goodput.json", "goodput_config.yaml"} <= {path.name for path in tmp_path.iterdir()}


def test_goodput_resumes(fake, capsys, tmp_path):
    command = ["goodput", "--policies", "random", "--out", str(tmp_path)]
    fake.interrupt_at = 2
    assert main(command) == 130
    assert "finished simulations are in" in capsys.readouterr().err
    fake.interrupt_at = None
    fake.tasks.clear()
    first = ok(capsys, *command).out
    resumed = len(fake.tasks)
    fake.tasks.clear()
    again = ok(capsys, *command[:3]).out
    assert len(fake.tasks) == resumed + 2
    assert first.split("\n\n")[0] == again.split("\n\n")[0]


def test_goodput_at_the_ends_of_the_search(fake, capsys):
    fake.capacity_rps = {"random": 0.0, "round_robin": 1e9}
    rows = json.loads(ok(capsys, "goodput", "--policies", "random,round_robin", "--json").out)["results"]
    assert (rows[0]["sustainable_rps"], rows[0]["attainment"]) == (None, None)
    assert rows[0]["reason"] == "no rate can pass: 50.00 % at the lowest (0.07812 req/s)"  # 5 / 64, halved from 5
    assert rows[1]["bracket_high_rps"] is None
    assert rows[1]["reason"] == "no rate fails: 100.00 % at the highest (320 req/s)"


def test_goodput_says_why_there_is_no_rate_and_for_which_objectives(fake, capsys, tmp_path):
    fake.capacity_rps = {"random": 0.0}
    command = ["goodput", "--policies", "random,round_robin", "--out", tmp_path, "--set", "slo.e2e_s=60"]
    out = ok(capsys, *command).out
    assert "objectives: TTFT <= 10 s, TBT tail <= 0.2 s, E2E <= 60 s" in out
    assert "random: no rate can pass: 50.00 % at the lowest" in out and "round_robin: no rate" not in out
    rows = list(csv.DictReader((tmp_path / "goodput.csv").read_text().splitlines()))
    assert rows[0]["sustainable_rps"] == "" and rows[0]["reason"].startswith("no rate can pass")
    assert float(rows[1]["sustainable_rps"]) > 0 and rows[1]["reason"] == ""


def test_search_asks_for_no_rate_twice():
    search = Search(entry=None, start_rps=4.0, target=0.9, tolerance=0.02)
    asked = []
    while (rate := search.next_rate()) is not None:
        asked.append(rate)
        search.learn(rate, 1.0 if rate <= 2.7 else 0.0)
    assert len(asked) == len(set(asked))
    assert search.low_rps <= 2.7 < search.high_rps <= 1.02 * search.low_rps
