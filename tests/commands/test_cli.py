"""The command line: each kind of bad input as one line and exit status 2; the program as a process."""

import json
import subprocess
import sys

import pytest
import yaml
from cli_tools import BENCH, TRACE_LINES, ok, refused

from cacheenv.cli import main
from cacheenv.scenario import load_scenario

TINY = [
    "--set", "workload.requests=30", "--set", "cluster.prefill.count=2", "--set", "cluster.decode.count=2",
]  # fmt: skip

# ---- bad input


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "required"),
        (["benhc"], "invalid choice: 'benhc'"),
        (["bench", "--polices", "random"], "unrecognized arguments: --polices"),
        (["bench", "--policies", "mooncak"], "did you mean 'mooncake'"),
        (["bench", "--policies", "random,random"], "'random' is given twice"),
        (["bench", "--policies", "random,,mooncake"], "expected names separated by commas"),
        (["bench", "--policies", ""], "expected names separated by commas"),
        (["bench", "--policies", "random+round_robin"], "is a router"),
        (["bench", "--policies", "random(x=1)"], "unknown parameter 'x'"),
        (["bench", "--policies", "random/random/random"], "at most one '/'"),
        (["bench", "--policies", "agent:nowhere"], "agent"),
        (["bench", "--policies", "mooncake+"], "expected a name on each side of '/' and '+'"),
        (["bench", "--policies", "mooncake(threshold=2,threshold=3)"], "parameter threshold is given twice"),
        (["bench", "--out", ""], "--out: expected a folder, got an empty name"),
        (["bench", "--trace", "."], "--trace .: expected a file"),
        (["bench", "--set", "router=mooncak"], "router: unknown policy 'mooncak' (did you mean 'mooncake'?)"),
        (["bench", "--set", "router=star"], "router: expected a router, got 'star'"),
        (["scenarios", "validate", "kimi-chat", "--set", "rescheduler=mooncake"], "expected a rescheduler"),
        (["bench", "--seeds", "0"], "expected an integer >= 1, got '0'"),
        (["bench", "--seeds", "two"], "expected an integer >= 1, got 'two'"),
        (["bench", "--jobs", "-1"], "expected an integer >= 1, got '-1'"),
        (["bench", "--rate", "0"], "expected a number > 0, got '0'"),
        (["bench", "--rate", "nan"], "expected a number > 0, got 'nan'"),
        (["bench", "--scenario", "kimi-chatt"], "did you mean 'kimi-chat'"),
        (["bench", "--scenario", "kimi-chat", "--scenario", "kimi-chat"], "two scenarios are named 'kimi-chat'"),
        (["bench", "--scenario", "kimi-chat", "--trace", "x.jsonl"], "not both"),
        (["bench", "--scenario", "kimi-chat", "--config", "x.yaml"], "not both"),
        (["bench", "--trace", "nowhere.jsonl"], "--trace nowhere.jsonl: no such file"),
        (["bench", "--config", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["bench", "--set", "workload.rate_rps"], "expected dotted.key=value"),
        (["bench", "--set", "workload.rate_rps=1e-3"], "write 1.0e-3"),
        (["bench", "--set", "workload.rate=3"], "did you mean 'rate_rps'"),
        (["bench", "--set", "slo.ttft_s=1", "--set", "slo.ttft_s=2"], "given twice"),
        (["goodput", "--target", "0"], "expected a number > 0 and <= 1"),
        (["goodput", "--tolerance", "x"], "expected a number > 0 and <= 1"),
        (["goodput", "--set", "slo.ttft_s=null", "--set", "slo.tbt_tail_s=null"], "no SLO is set"),
        (["trace"], "FILE"),
        (["trace", "nowhere.jsonl"], "nowhere.jsonl"),
        (["trace", "x.jsonl", "--start", "-1"], "expected a number >= 0, got '-1'"),
        (["trace", "x.jsonl", "--start", "nan"], "expected a number >= 0, got 'nan'"),
        (["scenarios"], "ACTION"),
        (["scenarios", "show", "nothing"], "unknown scenario 'nothing'"),
        (["scenarios", "validate", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["scenarios", "show", "kimi-chat", "--set", "slo.ttft=3"], "did you mean 'ttft_s'"),
    ],
)
def test_bad_arguments(fake, capsys, argv, part):
    assert part in refused(capsys, *argv)
    assert not fake.tasks


def test_all_requests_at_once_have_no_rate_to_change(fake, capsys, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(TRACE_LINES[0] + "\n" + TRACE_LINES[0] + "\n")
    assert "arrive at once" in refused(capsys, *BENCH, "--trace", path, "--rate", 1)


def test_a_window_may_start_at_zero_and_not_after_the_end(capsys, trace):
    assert ok(capsys, "trace", trace, "--start", "0.00").out == ok(capsys, "trace", trace).out
    assert "the window from 9 s to its end keeps no request" in refused(capsys, "trace", trace, "--start", "9")


def test_bad_traces_name_file_and_line(fake, capsys, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(TRACE_LINES[0] + "\n{oops\n")
    for command in (["trace", path], [*BENCH, "--trace", path, "--rate", 1]):
        said = refused(capsys, *command)
        assert "bad.jsonl" in said
        assert "2" in said


@pytest.mark.parametrize("argv", [["--help"], ["bench", "--help"], ["goodput", "--help"], ["trace", "--help"]])
def test_help(capsys, argv):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 0
    assert "usage: cacheenv" in capsys.readouterr().out


# ---- trace, scenarios, the program


def test_trace_statistics(capsys, trace):
    out = ok(capsys, "trace", trace).out
    for word in ("requests", "[req/s]", "hits [% tokens]", "no limit (ceiling)"):
        assert word in out
    document = json.loads(ok(capsys, "trace", trace, "--json", "--limit", 2).out)
    assert document["requests"] == 2


def test_scenarios_list_show_validate(capsys, tmp_path):
    assert "kimi-chat" in ok(capsys, "scenarios", "list").out
    assert {row["name"] for row in json.loads(ok(capsys, "scenarios", "list", "--json").out)} >= {"kimi-chat"}
    shown = yaml.safe_load(ok(capsys, "scenarios", "show", "reasoning", "--set", "slo.ttft_s=2.5").out)
    assert load_scenario(shown) == load_scenario("reasoning", {"slo.ttft_s": 2.5})
    assert json.loads(ok(capsys, "scenarios", "show", "reasoning", "--json").out)["name"] == "reasoning"
    path = tmp_path / "own.yaml"
    path.write_text("workload: {requests: 20}\n")
    assert "valid; own, 8P+8D, 20 requests" in ok(capsys, "scenarios", "validate", path).out


def run_program(*argv, **options):
    return subprocess.run([sys.executable, "-m", "cacheenv.cli", *argv], capture_output=True, text=True, **options)


def test_the_program_refuses_without_a_traceback():
    done = run_program("bench", "--scenario", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cacheenv: error: unknown scenario 'nothing'")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m cacheenv.cli scenarios show kimi-chat | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_ascii_terminals_do_not_break_the_table():
    done = run_program("scenarios", "list", env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("cacheenv ")


# ---- with the simulator


def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    outputs = []
    for jobs, seed in (("1", "0"), ("2", "77")):
        out = tmp_path / jobs
        done = run_program(
            "bench", "--policies", "random,mooncake", "--seeds", "2", *TINY, "--jobs", jobs, "--out", str(out),
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        table = done.stdout.split("written to")[0]
        outputs.append((table, (out / "results.csv").read_bytes(), (out / "results.json").read_bytes()))
    assert outputs[0] == outputs[1]


def test_bench_of_a_trace_on_the_simulator(capsys, trace):
    document = json.loads(ok(capsys, "bench", "--policies", "mooncake", "--seeds", 1, "--trace", trace, "--json").out)
    row = document["results"][0]
    assert (row["scenario"], row["requests"], row["completed"]) == ("small", 3, 3)
    assert row["hit_rate"] == pytest.approx(2 * 512 / (600 + 1024 + 700))
