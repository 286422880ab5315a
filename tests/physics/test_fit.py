"""The form fitted to measurements: exact ones give their coefficients back; bad files are named by row and column."""

import json
import random

import pytest

from cacheenv.errors import InputError
from cacheenv.physics import decode_step_seconds, load_preset, prefill_batch_seconds
from cacheenv.physics.fit import fit_decode, fit_prefill, relative_errors
from cacheenv.physics.measurements import read_measurements

TRUTH = load_preset("llama3-8b_1xA100")
KNOWN = (1.0, 2e-5, 3e-8)


def csv_of(tmp_path, *lines, name="own.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def exact(tmp_path, sizes):
    lines = ["prompt,cached,output,batch,ttft,tpot"]
    for prompt, cached, output, batch in sizes:
        ttft_s = prefill_batch_seconds(TRUTH, [(prompt - cached, cached)] * batch)
        tpot_s = decode_step_seconds(TRUTH, batch, batch * (prompt + output / 2))
        lines.append(f"{prompt},{cached},{output},{batch},{ttft_s!r},{tpot_s!r}")
    return csv_of(tmp_path, *lines)


def test_exact_measurements_give_the_coefficients_back(tmp_path):
    sizes = [(500 * k, 400 * k * (k % 2), 100, 1 + k % 4) for k in range(2, 20)]
    rows = read_measurements(exact(tmp_path, sizes))
    prefill = fit_prefill(rows, n_tile=1, floor_s=TRUTH.min_prefill_s)
    # Suffixes of 100 k tokens: those of 300 to 1900 tell that the tile is below 300, where the truth has 169.
    assert prefill.coefficients["n_tile"] <= 256
    for field in ("prefill_a_s", "prefill_b_s", "prefill_c_s"):
        assert prefill.coefficients[field] == pytest.approx(getattr(TRUTH, field), rel=1e-6), field
    decode = fit_decode(rows, KNOWN)
    for field in ("decode_d_s", "decode_e_s", "decode_f_s"):
        assert decode.coefficients[field] == pytest.approx(getattr(TRUTH, field), rel=1e-6), field
    assert max(prefill.errors.p90, decode.errors.p90) < 1e-6
    assert decode.notes == ()


def test_the_tile_is_found_from_short_suffixes(tmp_path):
    tile = 192
    lines = ["prompt,cached,ttft"]
    for cached in (4000, 16000, 64000):
        for new in (16, 64, 256, 1024, 4096):
            seconds = 0.01 + 5e-5 * new + 2e-9 * (new * new + 2 * max(new, tile) * cached)
            lines.append(f"{new + cached},{cached},{seconds!r}")
    fit = fit_prefill(read_measurements(csv_of(tmp_path, *lines)), n_tile=1, floor_s=0.0)
    assert fit.coefficients["n_tile"] == tile
    assert fit.coefficients["prefill_c_s"] == pytest.approx(2e-9, rel=1e-6)


def test_noise_shows_in_the_errors(tmp_path):
    draws = random.Random(3)
    lines = ["prompt,ttft"]
    for k in range(200):
        tokens = 500 * (1 + k)
        seconds = 0.01 + 5e-5 * tokens + 2e-9 * tokens**2
        lines.append(f"{tokens},{seconds * draws.uniform(0.8, 1.2)!r}")
    fit = fit_prefill(read_measurements(csv_of(tmp_path, *lines)), n_tile=7, floor_s=0.0)
    assert 0.08 < fit.errors.mean < 0.12 and 0.16 < fit.errors.p90 < 0.2
    assert fit.coefficients["n_tile"] == 7 and "n_tile stays 7" in fit.notes[0]


def test_what_was_not_varied_stays_as_it_is(tmp_path):
    # Batch 1 all the time: d' + 2e-5 * 1 + f * context, and e cannot be told from d.
    rows = read_measurements(
        csv_of(tmp_path, "prompt,tpot", *(f"{n},{0.02 + 1e-8 * (n + 0.5)!r}" for n in (1, 5000, 90000)))
    )
    fit = fit_decode(rows, KNOWN)
    assert fit.coefficients["decode_e_s"] == 2e-5
    assert fit.coefficients["decode_d_s"] == pytest.approx(0.02 - 2e-5)
    assert fit.coefficients["decode_f_s"] == pytest.approx(1e-8)
    assert fit.notes == ("the batch never changes by itself: decode_e_s stays 2e-05",)


def test_errors_by_hand():
    errors = relative_errors([1.1, 0.8, 1.0], [1.0, 1.0, 1.0], ["x", "y", "z"])
    assert (errors.rows, errors.worst) == (3, "y")
    assert errors.median == pytest.approx(0.1)
    assert errors.mean == pytest.approx(0.1)
    assert errors.bias == pytest.approx(-0.1 / 3)
    assert errors.p90 == pytest.approx(0.18)  # 0.1 + 0.8 * (0.2 - 0.1)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (["prompt,ttft", "100,abc"], "row 2: column ttft: expected a number of seconds > 0, got 'abc'"),
        (["prompt,ttft", "100,1", "100,-1"], "row 3: column ttft: expected a number of seconds > 0, got '-1'"),
        (["prompt,ttft", "100,nan"], "row 2: column ttft"),
        (["prompt,ttft", "100,12000"], "row 2: column ttft: expected seconds, got 12000 (milliseconds?)"),
        (["prompt,ttft", "1.5,1"], "row 2: column prompt: expected an integer >= 1, got '1.5'"),
        (["prompt,cached,ttft", "100,100,1"], "row 2: column cached: expected less than the prompt's 100 tokens"),
        (["prompt,ttft,tpot", "100,,"], "row 2: column ttft: expected a number of seconds, or one in column"),
        (["prompt,batch,ttft", "100,0,1"], "row 2: column batch: expected an integer >= 1, got '0'"),
        (["prompt,ttft", "100,1,2"], "row 2: expected 2 columns as in the header, got 3"),
        (["prompt,tttf", "100,1"], "row 1: unknown column 'tttf' (did you mean 'ttft'?)"),
        (["prompt,ttft,ttft", "1,1,1"], "row 1: column ttft stands twice"),
        (["ttft", "1"], "row 1: expected the columns prompt and ttft or tpot"),
        (["prompt,ttft"], "no measurements"),
        ([""], "empty"),
    ],
)
def test_bad_rows_are_named(tmp_path, lines, part):
    path = csv_of(tmp_path, *lines)
    with pytest.raises(InputError) as caught:
        read_measurements(path)
    assert str(caught.value).startswith(f"{path}: ") and part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_sizes_are_refused(tmp_path):
    rows = read_measurements(csv_of(tmp_path, "prompt,ttft", "100,1", "200,2", "200,2.1"))
    with pytest.raises(InputError, match="at least three different numbers of computed tokens"):
        fit_prefill(rows, 1, 0.0)


VLLM = {
    "max_concurrency": 2, "input_lens": [1000, 2000, 500], "output_lens": [3, 5, 2], "ttfts": [0.1, 0.2, 0.1],
    "itls": [[0.02, 0.04], [0.02, 0.02, 0.03, 0.03], [0.05]], "errors": ["", "", ""],
    "start_times": [10.0, 10.11, 99.0],
}  # fmt: skip


def test_a_log_of_vllm_bench(tmp_path):
    path = csv_of(tmp_path, json.dumps(VLLM), name="run.json")
    first, second, third = read_measurements(path)
    assert (first.prompt, first.output, first.tpot_s) == (1000, 3, pytest.approx(0.03))
    # The first decodes from 10.10 to 10.16, alone: the second's first token comes at 10.31.
    assert (first.batch, first.context) == (1.0, 1001.5)
    assert (second.ttft_s, third.ttft_s) == (0.2, 0.1)
    assert second.tpot_s == pytest.approx(0.025)
    # Two at once, 4 gaps of 25 ms and 3 of 40 ms: the first is half of its time beside the second.
    both = {**VLLM, "start_times": [10.0, 10.0, 99.0], "ttfts": [0.1, 0.1, 0.1], "output_lens": [4, 5, 2]}
    both["itls"] = [[0.05, 0.05, 0.1], [0.025] * 4, [0.05]]
    first, second, third = read_measurements(csv_of(tmp_path, json.dumps(both), name="both.json"))
    assert (first.ttft_s, second.ttft_s, third.ttft_s) == (None, None, 0.1)  # both wait for a first token at once
    assert first.batch == pytest.approx(1.5) and second.batch == pytest.approx(2.0)
    assert first.context == pytest.approx(1002 + 0.5 * 2002.5)


def test_bad_logs_of_vllm_bench(tmp_path):
    for change, part in (
        ({"itls": None}, "column itls: expected a list a request, got nothing (null)"),
        ({"ttfts": [0.1]}, "expected lists of one length"),
        ({"start_times": None}, "column start_times: missing"),
        ({"ttfts": [0.1, "x", 0.1]}, "request 1: column ttfts: expected a number > 0, got 'x'"),
        ({"input_lens": [1000, 0, 5]}, "request 1: column input_lens: expected an integer >= 1, got 0"),
    ):
        path = csv_of(tmp_path, json.dumps({**VLLM, **change}), name="bad.json")
        with pytest.raises(InputError) as caught:
            read_measurements(path)
        assert part in str(caught.value)
    alone = {**VLLM, "max_concurrency": 1}
    del alone["start_times"]
    assert [row.batch for row in read_measurements(csv_of(tmp_path, json.dumps(alone), name="one.json"))] == [1.0] * 3


def record(start_s, prompt, output, ttft_ms, gap_ms, **metadata):
    metrics = {
        "time_to_first_token": {"value": ttft_ms, "unit": "ms"}, "inter_token_latency": {"value": gap_ms, "unit": "ms"},
        "input_sequence_length": {"value": prompt, "unit": "tokens"},
        "output_sequence_length": {"value": output, "unit": "tokens"},
    }  # fmt: skip
    data = {"request_start_ns": int(start_s * 1e9), "benchmark_phase": "profiling", "was_cancelled": False, **metadata}
    return json.dumps({"metadata": data, "metrics": metrics, "error": None})


def test_records_of_aiperf(tmp_path):
    lines = [
        record(1.0, 1000, 11, 100, 10), record(1.15, 2000, 11, 50, 10),
        record(5.0, 9, 9, 9, 9, benchmark_phase="warmup"),
        record(6.0, 9, 9, 9, 9, was_cancelled=True),
    ]  # fmt: skip
    first, second = read_measurements(csv_of(tmp_path, *lines, name="profile_export.jsonl"))
    # The first decodes from 1.10 to 1.20, the second from 1.20 on.
    assert (first.ttft_s, first.tpot_s, first.batch) == (pytest.approx(0.1), pytest.approx(0.01), 1.0)
    assert (second.prompt, second.ttft_s) == (2000, pytest.approx(0.05))
    with pytest.raises(InputError, match="row 2: not valid JSON"):
        read_measurements(csv_of(tmp_path, lines[0], "{", name="cut.jsonl"))
    with pytest.raises(InputError, match="row 1: column time_to_first_token: expected a number > 0, got None"):
        read_measurements(csv_of(tmp_path, record(1.0, 5, 5, None, 1), name="none.jsonl"))
