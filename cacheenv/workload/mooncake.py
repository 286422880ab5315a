"""Reads traces in the JSONL format of Mooncake (FAST'25): one request a line, plain or gzipped.

Each line is an object with `timestamp` (milliseconds, not going back), `input_length`, `output_length` (tokens) and
`hash_ids`: `ceil(input_length / 512)` numbers, of which number i names tokens `[512*i, 512*(i+1))` *and all before
them*. Optional keys: `session_id` (number or text), one or more of `namespace`, `lora`, `tenant` (number or text;
prompts in different namespaces share nothing), `priority` (whole number) and `delay` (milliseconds from the last token
of the session's turn before to this one). Other keys are ignored.

Nothing is repaired: the first line that breaks a rule stops the load with its number and what was expected.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cacheenv.errors import InputError, suggestion
from cacheenv.workload.blocks import CHAIN_RULE, dense_blocks, first_chain_break
from cacheenv.workload.lengths import MAX_TOKENS, mean_residual_tokens
from cacheenv.workload.think import recorded_think_s

REQUIRED_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
NAMESPACE_KEYS = ("namespace", "lora", "tenant")
SMALLEST_ID, LARGEST_ID = -(2**63), 2**64 - 1
LARGEST_TIME_MS = 1e15


class Trace(NamedTuple):
    """What a trace, or a window of it, holds.

    Attributes:
        columns: Name -> column of the requests, `arrival_s` counted from the start of the window.
        blocks: Int32 block ids of all prompts, one after the other, 0..num_blocks-1 in order of first appearance.
        num_blocks: Number of different ids.
        mean_residual_tokens: See :func:`cacheenv.workload.lengths.mean_residual_tokens`; of the whole file.
    """

    columns: dict[str, np.ndarray]
    blocks: np.ndarray
    num_blocks: int
    mean_residual_tokens: np.ndarray


def read_trace(
    path: Path,
    *,
    rate_scale: float,
    start_s: float,
    duration_s: float | None,
    limit: int | None,
    page_tokens: int,
) -> Trace:
    """Reads a trace, or a window of it; the arguments are those of :meth:`cacheenv.Workload.from_mooncake`.

    Raises:
        InputError: One line that names the file and the line and says what was expected.
    """
    _check_options(path, rate_scale, start_s, duration_s, limit, page_tokens)
    rows = _Rows(path, page_tokens)
    rows.read(_read_lines(path))
    time_ms = np.array(rows.time_ms, dtype=np.float64)
    prompt = np.array(rows.prompt_tokens, dtype=np.int64)
    output = np.array(rows.output_tokens, dtype=np.int64)
    namespace = np.array(rows.namespace, dtype=np.int64)

    dense, num_blocks = dense_blocks(rows.ids, namespace)
    pages = -(-prompt // page_tokens)
    starts = np.cumsum(pages) - pages
    owner = first_chain_break(dense, starts, pages, namespace, num_blocks)
    if owner >= 0:
        rows.refuse(owner + 1, f"hash_ids: {CHAIN_RULE}")

    trace_s = (time_ms - time_ms[0]) / 1000.0
    first = int(np.searchsorted(trace_s, start_s, side="left"))
    last = len(trace_s)
    if duration_s is not None:
        last = int(np.searchsorted(trace_s, start_s + duration_s, side="left"))
    if limit is not None:
        last = min(last, first + limit)
    if first >= last:
        end = "its end" if duration_s is None else f"{start_s + duration_s:g} s"
        raise InputError(
            f"{path}: the window from {start_s:g} s to {end} keeps no request; the trace lasts {trace_s[-1]:g} s"
        )
    if (first, last) != (0, len(trace_s)):
        window = dense[starts[first] : starts[last - 1] + pages[last - 1]]
        dense, num_blocks = dense_blocks([window.tolist()], np.zeros(1))
    session = np.array(rows.session, dtype=np.int64)
    think = recorded_think_s(trace_s, output, session, np.array(rows.delay_ms, dtype=np.float64) / 1000.0)
    columns = {
        "arrival_s": (trace_s[first:last] - start_s) / rate_scale,
        "prompt_tokens": prompt[first:last],
        "output_tokens": output[first:last],
        "session": session[first:last],
        "think_s": think[first:last],
        "namespace": namespace[first:last],
        "priority": np.array(rows.priority[first:last], dtype=np.int64),
    }
    return Trace(columns, dense, num_blocks, mean_residual_tokens(output))


def _check_options(path: Path, rate_scale: Any, start_s: Any, duration_s: Any, limit: Any, page_tokens: Any) -> None:
    def number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

    if not number(rate_scale) or rate_scale <= 0:
        raise InputError(f"{path}: rate_scale: expected a positive number, got {rate_scale!r}")
    if not number(start_s) or start_s < 0:
        raise InputError(f"{path}: start_s: expected seconds >= 0, got {start_s!r}")
    if duration_s is not None and (not number(duration_s) or duration_s <= 0):
        raise InputError(f"{path}: duration_s: expected seconds > 0 or null, got {duration_s!r}")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InputError(f"{path}: limit: expected a whole number >= 1 or null, got {limit!r}")
    if type(page_tokens) is not int or page_tokens < 1:
        raise InputError(f"{path}: page_tokens: expected a whole number >= 1, got {page_tokens!r}")


def _read_lines(path: Path) -> list[str]:
    """The lines of a file without their ends; gzip is recognised by its content."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InputError(f"{path}: cannot read the trace: {problem.strerror or problem}") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as problem:
            raise InputError(f"{path}: expected a complete gzip file: {problem}") from None
    elif path.suffix == ".gz" and data:
        raise InputError(f"{path}: expected a gzip file (the name ends in .gz), found something else")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise InputError(f"{path}: line {line}: expected UTF-8 text, found byte 0x{data[problem.start]:02x}") from None
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{path}: expected one JSON object a line, the file is empty")
    return lines


class _Rows:
    """Columns of a trace while it is read."""

    def __init__(self, path: Path, page_tokens: int) -> None:
        self.path = path
        self.page_tokens = page_tokens
        self.time_ms: list[float] = []
        self.prompt_tokens: list[int] = []
        self.output_tokens: list[int] = []
        self.ids: list[list[int]] = []
        self.session: list[int] = []
        self.namespace: list[int] = []
        self.priority: list[int] = []
        self.delay_ms: list[float] = []
        self.session_numbers: dict[Any, int] = {}
        self.namespace_numbers: dict[Any, int] = {}

    def refuse(self, line: int, message: str) -> NoReturn:
        raise InputError(f"{self.path}: line {line}: {message}")

    def read(self, lines: list[str]) -> None:
        """Parses and checks all lines."""
        page_tokens = self.page_tokens
        before_ms: float = 0
        whole = {int}
        for line, text in enumerate(lines, 1):
            row = self._parse(line, text)
            try:
                time_ms, prompt, output, ids = (
                    row["timestamp"], row["input_length"], row["output_length"], row["hash_ids"]
                )  # fmt: skip
            except KeyError as missing:
                key = missing.args[0]
                others = [name for name in row if name not in REQUIRED_KEYS]
                self.refuse(line, f"missing key '{key}'{_misspelt(key, others)}; expected {', '.join(REQUIRED_KEYS)}")
            if type(time_ms) is not int and (type(time_ms) is not float or not math.isfinite(time_ms)):
                self.refuse(line, f"timestamp: expected finite milliseconds, got {_shown(time_ms)}")
            if not before_ms <= time_ms <= LARGEST_TIME_MS:
                self.refuse(line, f"timestamp: expected from {before_ms} (times do not go back) to 1e15, got {time_ms}")
            for key, tokens in (("input_length", prompt), ("output_length", output)):
                if type(tokens) is not int or not 1 <= tokens <= MAX_TOKENS:
                    self.refuse(line, f"{key}: expected a whole number >= 1 and <= 2^40, got {_shown(tokens)}")
            if type(ids) is not list:
                self.refuse(line, f"hash_ids: expected a list of whole numbers, got {_shown(ids)}")
            if len(ids) != -(-prompt // page_tokens):
                self.refuse(
                    line,
                    f"hash_ids: expected ceil({prompt}/{page_tokens}) = {-(-prompt // page_tokens)} ids, "
                    f"got {len(ids)}",
                )
            if set(map(type, ids)) != whole:
                wrong = next(value for value in ids if type(value) is not int)
                self.refuse(line, f"hash_ids: expected whole numbers, got {_shown(wrong)}")
            if min(ids) < SMALLEST_ID or max(ids) > LARGEST_ID:
                self.refuse(line, "hash_ids: expected 64-bit whole numbers")
            before_ms = time_ms
            self.time_ms.append(time_ms)
            self.prompt_tokens.append(prompt)
            self.output_tokens.append(output)
            self.ids.append(ids)
            self._optional(line, row)

    def _parse(self, line: int, text: str) -> dict[str, Any]:
        """One line as an object without duplicate keys."""
        try:
            row = json.loads(text)
            # Each key brings two quotation marks, so a repeated key leaves more of them than the object has keys for.
            # Only such a line (or one with text values) is parsed again with its keys watched.
            if type(row) is dict and text.count('"') != 2 * len(row):
                json.loads(text, object_pairs_hook=lambda pairs: self._unique(line, pairs))
        except json.JSONDecodeError as problem:
            if not text.strip():
                self.refuse(line, "expected a JSON object, got an empty line")
            self.refuse(line, f"expected a JSON object: {problem.msg} at column {problem.colno}")
        except RecursionError:
            self.refuse(line, "expected a JSON object, got lists nested too deeply")
        except ValueError as problem:
            if isinstance(problem, InputError):
                raise
            self.refuse(line, "expected a JSON object with numbers of at most 64 bits")
        if type(row) is not dict:
            self.refuse(line, f"expected a JSON object, got {_shown(row)}")
        return row

    def _unique(self, line: int, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            self.refuse(line, f"duplicate key '{twice}'; expected each key once")
        return row

    def _optional(self, line: int, row: dict[str, Any]) -> None:
        session, namespace, priority, delay_ms = -1, 0, 0, math.nan
        if len(row) > len(REQUIRED_KEYS):
            if row.get("session_id") is not None:
                value = self._label(line, "session_id", row["session_id"])
                session = self.session_numbers.setdefault(value, len(self.session_numbers))
            priority = row.get("priority", 0)
            if type(priority) is not int or not -(2**31) <= priority < 2**31:
                self.refuse(line, f"priority: expected a 32-bit whole number, got {_shown(priority)}")
            if row.get("delay") is not None:
                delay_ms = row["delay"]
                if type(delay_ms) not in (int, float) or not 0 <= delay_ms <= LARGEST_TIME_MS:
                    self.refuse(line, f"delay: expected milliseconds from 0 to 1e15, got {_shown(delay_ms)}")
            labels = tuple(None if row.get(key) is None else self._label(line, key, row[key]) for key in NAMESPACE_KEYS)
        else:
            labels = (None, None, None)
        namespace = self.namespace_numbers.setdefault(labels, len(self.namespace_numbers))
        self.session.append(session)
        self.namespace.append(namespace)
        self.priority.append(priority)
        self.delay_ms.append(delay_ms)

    def _label(self, line: int, key: str, value: Any) -> Any:
        if type(value) is not int and type(value) is not str:
            self.refuse(line, f"{key}: expected a whole number or text, got {_shown(value)}")
        return value


def _shown(value: Any) -> str:
    """A value as JSON, cut short."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _misspelt(key: str, others: list[str]) -> str:
    close = suggestion(key, others)
    return f" (there is{close[len(' (did you mean') : -2]})" if close else ""
