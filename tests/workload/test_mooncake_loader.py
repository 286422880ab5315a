"""The trace loader: what it reads, and a one-line message with file and line for everything that it refuses."""

import gzip
import json
import time

import numpy as np
import pytest

from cacheenv.errors import InputError
from cacheenv.workload import Workload, mean_residual_tokens

ROW = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}


def line(**changes):
    """One valid line with some keys changed; a key set to ... is left out."""
    return json.dumps({key: value for key, value in {**ROW, **changes}.items() if value is not ...})


@pytest.fixture
def load(tmp_path):
    """Writes lines (text, or bytes as they are) to a file and loads it."""

    def write_and_load(*lines, name="trace.jsonl", **options):
        path = tmp_path / name
        data = lines[0] if isinstance(lines[0], bytes) else ("\n".join(lines) + "\n").encode()
        path.write_bytes(data)
        return Workload.from_mooncake(path, **options)

    return write_and_load


def refused(load, *lines, **options):
    with pytest.raises(InputError) as caught:
        load(*lines, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert "trace.jsonl" in message
    return message


def test_reads_a_trace(load):
    workload = load(
        line(), line(timestamp=3000, input_length=1200, hash_ids=[1, 7, 9], output_length=40), line(timestamp=3000)
    )
    workload.validate()
    assert workload.requests["arrival_s"].tolist() == [0.0, 3.0, 3.0]
    assert workload.requests["prompt_tokens"].tolist() == [600, 1200, 600]
    assert workload.requests["output_tokens"].tolist() == [5, 40, 5]
    assert [workload.blocks_of(i).tolist() for i in range(3)] == [[0, 1], [0, 2, 3], [0, 1]]
    assert (workload.num_blocks, workload.page_tokens, workload.name) == (4, 512, "trace.jsonl")
    assert workload.requests["session"].tolist() == [-1, -1, -1]


def test_times_count_from_the_first_request(load):
    workload = load(line(timestamp=1_700_000_000_000), line(timestamp=1_700_000_000_500))
    assert workload.requests["arrival_s"].tolist() == [0.0, 0.5]


def test_crlf_and_missing_last_newline_are_the_same(load):
    text = line() + "\r\n" + line(timestamp=7)
    assert np.array_equal(load(text.encode()).requests, load(line(), line(timestamp=7)).requests)


def test_gzip_is_the_same(load):
    text = line() + "\n" + line(timestamp=7) + "\n"
    zipped = load(gzip.compress(text.encode()), name="trace.jsonl.gz")
    assert np.array_equal(zipped.requests, load(text.encode()).requests)


def test_64_bit_ids(load):
    large = [2**64 - 1, 2**63, 2**64 - 2]
    workload = load(line(hash_ids=large[:2]), line(input_length=1025, hash_ids=[large[0], large[1], -(2**63)]))
    assert [workload.blocks_of(i).tolist() for i in range(2)] == [[0, 1], [0, 1, 2]]


def test_extra_keys_are_ignored(load):
    workload = load(line(chat_id='a "quoted" text', nested={"timestamp": 1}), line())
    assert len(workload) == 2


def test_optional_keys(load):
    workload = load(
        line(session_id="b", namespace="red", priority=3),
        line(session_id="a", namespace="blue"),
        line(session_id="b", namespace="red", lora=4),
        line(),
        line(session_id=17, tenant="red"),
    )
    workload.validate()
    assert workload.requests["session"].tolist() == [0, 1, 0, -1, 2]
    assert workload.requests["namespace"].tolist() == [0, 1, 2, 3, 4]
    assert workload.requests["priority"].tolist() == [3, 0, 0, 0, 0]


def test_namespaces_share_no_block(load):
    workload = load(line(lora="x"), line(lora="y"), line(lora="x"), line(lora="y"))
    x, y, x_again, y_again = (workload.blocks_of(i).tolist() for i in range(4))
    assert (x, y) == ([0, 1], [2, 3])
    assert (x_again, y_again) == (x, y)


def test_window_rate_and_limit(load):
    lines = [line(timestamp=1000 * i, output_length=20 + i, hash_ids=[1, 100 + i]) for i in range(10)]
    workload = load(*lines, start_s=2.0, duration_s=5.0, rate_scale=2.0)
    workload.validate()
    assert workload.requests["arrival_s"].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert workload.requests["output_tokens"].tolist() == [22, 23, 24, 25, 26]
    assert workload.blocks_of(0).tolist() == [0, 1]
    assert workload.num_blocks == 6
    assert len(load(*lines, start_s=2.0, duration_s=5.0, limit=3)) == 3
    # A property of the whole file, whatever the window.
    assert np.array_equal(workload.mean_residual_tokens, mean_residual_tokens(range(20, 30)))


def test_whole_windows_keep_namespaces_apart(load):
    workload = load(line(), line(lora=1), line(timestamp=5, lora=2), line(timestamp=5, lora=1), start_s=0.005)
    workload.validate()
    assert [workload.blocks_of(i).tolist() for i in range(2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("bad", "expectation"),
    [
        (line()[:-20], "line 2: expected a JSON object: "),
        ("{'timestamp': 0}", "line 2: expected a JSON object: "),
        (line() + line(), "line 2: expected a JSON object: Extra data"),
        ("[1, 2]", "line 2: expected a JSON object, got [1, 2]"),
        ("", "line 2: expected a JSON object, got an empty line"),
        ("[" * 100_000, "line 2: expected a JSON object"),
        ('{"timestamp": ' + "9" * 5000 + "}", "line 2: expected a JSON object with numbers of at most 64 bits"),
        (line(input_length=...), "line 2: missing key 'input_length'; expected timestamp, input_length"),
        (line(input_length=..., input_len=600), "line 2: missing key 'input_length' (there is 'input_len')"),
        (line(timestamp="0"), 'line 2: timestamp: expected finite milliseconds, got "0"'),
        (line(timestamp=None), "line 2: timestamp: expected finite milliseconds, got null"),
        (line(timestamp=True), "line 2: timestamp: expected finite milliseconds, got true"),
        (line(timestamp=float("nan")), "line 2: timestamp: expected finite milliseconds, got NaN"),
        (line(timestamp=float("inf")), "line 2: timestamp: expected finite milliseconds, got Infinity"),
        (line(timestamp=-1), "line 2: timestamp: expected from 0 (times do not go back) to 1e15, got -1"),
        (line(timestamp=10**16), "line 2: timestamp: expected from 0"),
        (line(input_length=0), "line 2: input_length: expected a whole number >= 1 and <= 2^40, got 0"),
        (line(input_length=-600), "line 2: input_length: expected a whole number >= 1 and <= 2^40, got -600"),
        (line(input_length=600.0), "line 2: input_length: expected a whole number >= 1 and <= 2^40, got 600.0"),
        (line(input_length=2**70), "line 2: input_length: expected a whole number >= 1 and <= 2^40"),
        (line(output_length=0), "line 2: output_length: expected a whole number >= 1 and <= 2^40, got 0"),
        (line(output_length=True), "line 2: output_length: expected a whole number >= 1 and <= 2^40, got true"),
        (line(output_length="5"), 'line 2: output_length: expected a whole number >= 1 and <= 2^40, got "5"'),
        (line(hash_ids=[1]), "line 2: hash_ids: expected ceil(600/512) = 2 ids, got 1"),
        (line(hash_ids=[1, 2, 3]), "line 2: hash_ids: expected ceil(600/512) = 2 ids, got 3"),
        (line(hash_ids=12), "line 2: hash_ids: expected a list of whole numbers, got 12"),
        (line(hash_ids={"1": 2}), "line 2: hash_ids: expected a list of whole numbers"),
        (line(hash_ids=[1, "2"]), 'line 2: hash_ids: expected whole numbers, got "2"'),
        (line(hash_ids=[True, 2]), "line 2: hash_ids: expected whole numbers, got true"),
        (line(hash_ids=[1, 2.5]), "line 2: hash_ids: expected whole numbers, got 2.5"),
        (line(hash_ids=[1, 2**64]), "line 2: hash_ids: expected 64-bit whole numbers"),
        (line(hash_ids=[2, 1]), "line 2: hash_ids: a block id follows another block"),
        (line(hash_ids=[1, 1]), "line 2: hash_ids: a block id follows another block"),
        (line(priority=1.5), "line 2: priority: expected a 32-bit whole number, got 1.5"),
        (line(session_id=[1]), "line 2: session_id: expected a whole number or text, got [1]"),
        (line(namespace=True), "line 2: namespace: expected a whole number or text, got true"),
    ],
)
def test_bad_line(load, bad, expectation):
    assert expectation in refused(load, line(), bad, line())


def test_duplicate_key(load):
    twice = line()[:-1] + ', "output_length": 9}'
    assert "line 2: duplicate key 'output_length'; expected each key once" in refused(load, line(), twice)


def test_duplicate_key_inside_an_ignored_value(load):
    twice = line()[:-1] + ', "extra": {"a": 1, "a": 2}}'
    assert "line 2: duplicate key 'a'" in refused(load, line(), twice)


def test_duplicate_key_spelt_with_an_escape(load):
    twice = line()[:-1] + ', "output\\u005flength": 9}'
    assert "line 2: duplicate key 'output_length'" in refused(load, line(), twice)


def test_backward_time(load):
    message = refused(load, line(timestamp=10), line(timestamp=9))
    assert "line 2: timestamp: expected from 10 (times do not go back) to 1e15, got 9" in message


@pytest.mark.parametrize("content", [b"", b"\n\r\n  \n"])
def test_empty_file(load, content):
    assert "expected one JSON object a line, the file is empty" in refused(load, content)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.jsonl: cannot read the trace: No such file"):
        Workload.from_mooncake(tmp_path / "nowhere.jsonl")


def test_folder(tmp_path):
    with pytest.raises(InputError, match="cannot read the trace"):
        Workload.from_mooncake(tmp_path)


def test_truncated_gzip(load):
    data = gzip.compress((line() * 50).encode())
    assert "expected a complete gzip file" in refused(load, data[: len(data) // 2], name="trace.jsonl.gz")


def test_damaged_gzip(load):
    data = bytearray(gzip.compress(line().encode()))
    data[-6] ^= 0xFF
    assert "expected a complete gzip file" in refused(load, bytes(data), name="trace.jsonl.gz")


def test_gz_name_without_gzip(load):
    assert "expected a gzip file" in refused(load, line().encode(), name="trace.jsonl.gz")


def test_not_utf8(load):
    data = (line() + "\n").encode() + b'{"timestamp": \xff}\n'
    assert "line 2: expected UTF-8 text, found byte 0xff" in refused(load, data)


@pytest.mark.parametrize("options", [{"start_s": 100.0}, {"start_s": 0.5, "duration_s": 0.1}])
def test_window_that_keeps_nothing(load, options):
    message = refused(load, line(), line(timestamp=2000), **options)
    assert "keeps no request; the trace lasts 2 s" in message


@pytest.mark.parametrize(
    ("options", "expectation"),
    [
        ({"rate_scale": 0}, "rate_scale: expected a positive number, got 0"),
        ({"rate_scale": float("nan")}, "rate_scale: expected a positive number, got nan"),
        ({"start_s": -1.0}, "start_s: expected seconds >= 0, got -1.0"),
        ({"duration_s": 0.0}, "duration_s: expected seconds > 0 or null, got 0.0"),
        ({"limit": 0}, "limit: expected a whole number >= 1 or null, got 0"),
        ({"limit": True}, "limit: expected a whole number >= 1 or null, got True"),
        ({"page_tokens": 0}, "page_tokens: expected a whole number >= 1, got 0"),
    ],
)
def test_bad_option(load, options, expectation):
    assert expectation in refused(load, line(), **options)


def test_conversation_trace(conversation_trace):
    started = time.perf_counter()
    workload = Workload.from_mooncake(conversation_trace)
    seconds = time.perf_counter() - started
    workload.validate()
    assert (len(workload), workload.num_blocks, len(workload.blocks)) == (12_031, 182_790, 288_500)
    assert workload.requests["prompt_tokens"].mean() == pytest.approx(12_035, abs=1)
    assert workload.requests["output_tokens"].mean() == pytest.approx(343, abs=1)
    assert workload.mean_residual_tokens[0] == workload.requests["output_tokens"].mean()
    assert seconds < 1.5  # 0.11 s on one idle core; the limit only catches a loader of another order


def test_synthetic_trace(shared):
    path = shared / "traces" / "mooncake-fast25" / "synthetic_trace.jsonl"
    if not path.is_file():
        pytest.skip("needs traces/mooncake-fast25/synthetic_trace.jsonl in the shared folder")
    workload = Workload.from_mooncake(path)
    workload.validate()
    assert (len(workload), workload.num_blocks) == (3_993, 43_924)
