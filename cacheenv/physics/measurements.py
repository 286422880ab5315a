"""Measurements of a user's own system: a CSV, the JSON of `vllm bench serve --save-detailed`, AIPerf's records.

Every complaint names the file, the row (its line, or its number in a list) and the column.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cacheenv.errors import InputError, kind_of, suggestion

COLUMNS = ("prompt", "cached", "output", "batch", "ttft", "tpot")
#: Factor to seconds of AIPerf's units.
UNITS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Measurement:
    """One request, or one batch of equal ones.

    Attributes:
        place: Row in messages.
        prompt: Prompt tokens of a request.
        cached: Of these, found in the cache.
        output: Output tokens of a request.
        batch: Requests that are prefilled together and decode together.
        context: Tokens that the batch holds on average while it decodes, all requests together.
        ttft_s: Time to the first token, without waiting; None = not measured.
        tpot_s: Mean gap between tokens; None = not measured.
    """

    place: str
    prompt: int
    cached: int
    output: int
    batch: float
    context: float
    ttft_s: float | None
    tpot_s: float | None


def read_measurements(path: str) -> list[Measurement]:
    """The measurements in a file.

    Args:
        path: A CSV with a header (`prompt`, `cached`, `output`, `batch` in tokens and requests, `ttft`, `tpot` in
            seconds; `cached` 0, `output` 1 and `batch` 1 where the column is absent; an empty `ttft` or `tpot` was not
            measured), a JSON of `vllm bench serve --save-result --save-detailed`, or AIPerf's `profile_export.jsonl`.

    Raises:
        InputError: Of one line, with file, row and column.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: no such file")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    if not text.strip():
        raise InputError(f"{path}: empty; expected a header and a row a measurement")
    rows = _from_json(path, text) if text.lstrip().startswith(("{", "[")) else _from_csv(path, text)
    if not rows:
        raise InputError(f"{path}: no measurements; expected at least one row")
    return rows


def _fail(path: str, row: str, column: str, message: str) -> NoReturn:
    raise InputError(f"{path}: {row}: column {column}: {message}")


def _from_csv(path: str, text: str) -> list[Measurement]:
    reader = csv.reader(io.StringIO(text, newline=""))
    header = [name.strip() for name in next(reader)]
    for name in header:
        if name not in COLUMNS:
            hint = suggestion(name, COLUMNS) or f"; known: {', '.join(COLUMNS)}"
            raise InputError(f"{path}: row 1: unknown column '{name}'{hint}")
        if header.count(name) > 1:
            raise InputError(f"{path}: row 1: column {name} stands twice")
    if "prompt" not in header or not {"ttft", "tpot"} & set(header):
        raise InputError(f"{path}: row 1: expected the columns prompt and ttft or tpot, got {', '.join(header)}")
    rows = []
    for cells in reader:
        row = f"row {reader.line_num}"
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise InputError(f"{path}: {row}: expected {len(header)} columns as in the header, got {len(cells)}")
        values = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
        prompt = _count(path, row, "prompt", values["prompt"], low=1)
        cached = _count(path, row, "cached", values.get("cached", "0"), low=0)
        output = _count(path, row, "output", values.get("output", "1"), low=1)
        batch = _count(path, row, "batch", values.get("batch", "1"), low=1)
        if cached >= prompt:
            _fail(path, row, "cached", f"expected less than the prompt's {prompt} tokens, got {cached}")
        ttft_s, tpot_s = (_seconds(path, row, name, values.get(name, "")) for name in ("ttft", "tpot"))
        if ttft_s is None and tpot_s is None:
            _fail(path, row, "ttft", "expected a number of seconds, or one in column tpot")
        context = batch * (prompt + output / 2)
        rows.append(Measurement(row, prompt, cached, output, batch, context, ttft_s, tpot_s))
    return rows


def _count(path: str, row: str, column: str, text: str, low: int) -> int:
    if not text.isdecimal() or int(text) < low or int(text) > 10**9:
        _fail(path, row, column, f"expected an integer >= {low}, got '{text}'")
    return int(text)


def _seconds(path: str, row: str, column: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        _fail(path, row, column, f"expected a number of seconds > 0, got '{text}'")
    if value > 3600:
        _fail(path, row, column, f"expected seconds, got {text} (milliseconds?)")
    return value


def _from_json(path: str, text: str) -> list[Measurement]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return _from_aiperf(path, text)
    if isinstance(document, Mapping) and "metrics" in document:
        return _from_aiperf(path, text)
    if not isinstance(document, Mapping):
        raise InputError(f"{path}: expected the JSON of vllm bench serve, got {kind_of(document)}")
    return _from_vllm(path, document)


@dataclass(frozen=True)
class _Request:
    """A request of a log; times in seconds on one clock, `first_s` and `end_s` None where there is no clock."""

    place: str
    prompt: int
    output: int
    ttft_s: float
    tpot_s: float | None
    start_s: float | None

    @property
    def first_s(self) -> float:
        assert self.start_s is not None
        return self.start_s + self.ttft_s

    @property
    def end_s(self) -> float:
        return self.first_s + (self.tpot_s or 0.0) * max(0, self.output - 1)


def _from_vllm(path: str, document: Mapping[str, Any]) -> list[Measurement]:
    """`input_lens`, `output_lens`, `ttfts`, `itls` (seconds), `errors`, and `start_times` in newer versions."""
    columns: dict[str, Sequence[Any]] = {}
    for name in ("input_lens", "output_lens", "ttfts", "itls"):
        values = document.get(name)
        if not isinstance(values, list):
            raise InputError(
                f"{path}: column {name}: expected a list a request, got {kind_of(values)} (vllm bench serve "
                "--save-result --save-detailed writes it)"
            )
        columns[name] = values
    sizes = {len(values) for values in columns.values()}
    if len(sizes) != 1:
        raise InputError(
            f"{path}: expected lists of one length, got {', '.join(f'{n} {len(columns[n])}' for n in columns)}"
        )
    starts = document.get("start_times")
    if starts is None and document.get("max_concurrency") != 1:
        raise InputError(
            f"{path}: column start_times: missing, so the batch of a request is not known; expected it, or a run with "
            "--max-concurrency 1"
        )
    errors = document.get("errors") or [""] * len(columns["ttfts"])
    requests = []
    for index in range(len(columns["ttfts"])):
        row = f"request {index}"
        if errors[index]:
            continue
        prompt = _whole(path, row, "input_lens", columns["input_lens"][index])
        output = _whole(path, row, "output_lens", columns["output_lens"][index])
        ttft_s = _time(path, row, "ttfts", columns["ttfts"][index])
        gaps = columns["itls"][index]
        if not isinstance(gaps, list):
            _fail(path, row, "itls", f"expected a list of gaps, got {kind_of(gaps)}")
        total_s = sum(_time(path, row, "itls", gap, low=0.0) for gap in gaps)
        start_s = None if starts is None else _time(path, row, "start_times", starts[index], low=0.0)
        requests.append(_Request(row, prompt, output, ttft_s, total_s / (output - 1) if output > 1 else None, start_s))
    return _alone_and_together(requests)


def _from_aiperf(path: str, text: str) -> list[Measurement]:
    """Records of `profile_export.jsonl`: `metadata` and `metrics`, one request a line."""
    requests = []
    for number, line in enumerate(text.splitlines(), 1):
        row = f"row {number}"
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as problem:
            raise InputError(f"{path}: {row}: not valid JSON: {problem.msg}") from None
        if not isinstance(record, Mapping) or not isinstance(record.get("metrics"), Mapping):
            raise InputError(f"{path}: {row}: column metrics: expected AIPerf's metrics of a request")
        data = record.get("metadata") or {}
        if record.get("error") or data.get("was_cancelled") or data.get("benchmark_phase", "profiling") != "profiling":
            continue
        metrics = record["metrics"]
        prompt = _whole(path, row, "input_sequence_length", _metric(metrics, "input_sequence_length"))
        output = _whole(path, row, "output_sequence_length", _metric(metrics, "output_sequence_length"))
        ttft_s = _scaled(path, row, metrics, "time_to_first_token")
        tpot_s = _scaled(path, row, metrics, "inter_token_latency") if output > 1 else None
        start = _time(path, row, "request_start_ns", data.get("request_start_ns"), low=0.0, high=math.inf)
        requests.append(_Request(row, prompt, output, ttft_s, tpot_s, start * 1e-9))
    return _alone_and_together(requests)


def _metric(metrics: Mapping[str, Any], name: str) -> Any:
    entry = metrics.get(name)
    return entry.get("value") if isinstance(entry, Mapping) else None


def _scaled(path: str, row: str, metrics: Mapping[str, Any], name: str) -> float:
    unit = metrics[name].get("unit", "ms") if isinstance(metrics.get(name), Mapping) else "ms"
    if unit not in UNITS:
        _fail(path, row, name, f"expected a unit of {', '.join(UNITS)}, got {unit!r}")
    return _time(path, row, name, _metric(metrics, name), high=math.inf) * UNITS[unit]


def _whole(path: str, row: str, column: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1 or not 1 <= value <= 1e9:
        _fail(path, row, column, f"expected an integer >= 1, got {value!r}")
    return int(value)


def _time(path: str, row: str, column: str, value: Any, low: float | None = None, high: float = 1e12) -> float:
    bad = isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value > high
    if bad or (value < low if low is not None else value <= 0):
        _fail(path, row, column, f"expected a number {'> 0' if low is None else f'>= {low:g}'}, got {value!r}")
    return float(value)


def _alone_and_together(requests: Sequence[_Request]) -> list[Measurement]:
    """Measurements of logged requests.

    The batch of a request is the mean number that decode while it does. A TTFT counts where nobody else waits for a
    first token at the same time: it holds no wait behind another prefill. Cached tokens are not in these
    logs: 0 is assumed.
    """
    rows = []
    for own in requests:
        batch, context, ttft_s = 1.0, own.prompt + own.output / 2, own.ttft_s
        waits = False
        if own.start_s is not None:
            for other in requests:
                if other is own:
                    continue
                waits = waits or (other.start_s < own.first_s and other.first_s > own.start_s)  # type: ignore[operator]
                length = own.end_s - own.first_s
                shared = min(own.end_s, other.end_s) - max(own.first_s, other.first_s)
                if length > 0 and shared > 0:
                    batch += shared / length
                    context += shared / length * (other.prompt + other.output / 2)
        rows.append(
            Measurement(own.place, own.prompt, 0, own.output, batch, context, None if waits else ttft_s, own.tpot_s)
        )
    return rows
