"""The workload: which requests arrive when, how long they are, and which prompts share a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cacheenv.errors import InputError
from cacheenv.sim.state.columns import WORKLOAD
from cacheenv.workload.blocks import CHAIN_RULE, MAX_INT32, dense_blocks, first_chain_break, renumbered
from cacheenv.workload.lengths import MAX_TOKENS, mean_residual_tokens
from cacheenv.workload.mooncake import read_trace
from cacheenv.workload.think import recorded_think_s
from cacheenv.workload.turns import turn_columns

#: Columns of a request; see `sim/state/columns.py`.
WORKLOAD_DTYPE = WORKLOAD.dtype


@dataclass(frozen=True, eq=False)
class Workload:
    """A table of requests in order of arrival. The arrays are shared with the simulator: do not change them.

    Attributes:
        requests: :data:`WORKLOAD_DTYPE`, one row a request.
        blocks: Int32 ids; request i owns `blocks[block_start : block_start + ceil(prompt_tokens / page_tokens)]`,
            numbers 0..num_blocks-1 in order of first appearance. The last id of a prompt may name a partial page.
            Behind all prompts come the answers: `blocks[answer_start : answer_start + answer_pages]` are the full pages
            of prompt and output that follow the full pages of the prompt, or none where they are not known.
        page_tokens: Tokens of a page.
        num_blocks: Number of different ids.
        name: Name in tables and messages.
        mean_residual_tokens: Float64, see :func:`mean_residual_tokens`; a property of the population from which the
            workload was taken (the generator's distribution or the whole trace file), not of these requests.
        arrivals: `open` or `closed`, where a scenario leaves it to the workload: whether a later turn of a session
            comes at its `arrival_s`, or `think_s` after the last token of the turn before.
    """

    requests: np.ndarray
    blocks: np.ndarray
    page_tokens: int
    num_blocks: int
    name: str
    mean_residual_tokens: np.ndarray
    arrivals: str = "open"

    dtype: ClassVar[np.dtype] = WORKLOAD_DTYPE

    @classmethod
    def from_mooncake(
        cls,
        path: str | Path,
        *,
        rate_scale: float = 1.0,
        start_s: float = 0.0,
        duration_s: float | None = None,
        limit: int | None = None,
        page_tokens: int = 512,
    ) -> Workload:
        """Reads a trace in Mooncake's JSONL format, or a window of it.

        Args:
            path: `.jsonl` or gzipped JSONL file.
            rate_scale: Replay speed: arrival times are divided by it (after the window is cut).
            start_s: Start of the window, seconds of trace time after the first request.
            duration_s: Length of the window, seconds of trace time; None: to the end.
            limit: Keep at most this many requests of the window.
            page_tokens: Tokens that one id stands for.

        Returns:
            The workload; arrivals count from the start of the window. `mean_residual_tokens` comes from the whole file.
        """
        trace = read_trace(
            Path(path),
            rate_scale=rate_scale,
            start_s=start_s,
            duration_s=duration_s,
            limit=limit,
            page_tokens=page_tokens,
        )
        return assemble(
            trace.columns, trace.blocks, page_tokens, trace.num_blocks, Path(path).name, trace.mean_residual_tokens
        )

    @classmethod
    def from_arrays(
        cls,
        arrival_s: Any,
        prompt_tokens: Any,
        output_tokens: Any,
        blocks: Sequence[Sequence[int]] | None = None,
        *,
        page_tokens: int,
        namespace: Any = None,
        session: Any = None,
        priority: Any = None,
        answers: Sequence[Sequence[int]] | None = None,
        think_s: Any = None,
        name: str = "arrays",
    ) -> Workload:
        """A checked workload from columns.

        Args:
            arrival_s: Seconds, not decreasing.
            prompt_tokens: Whole numbers >= 1.
            output_tokens: Whole numbers >= 1.
            blocks: For each request `ceil(prompt_tokens / page_tokens)` ids (any 64-bit numbers); an id names its
                page, everything before it, and is looked up within its namespace. None: no two prompts share anything.
            page_tokens: Tokens of a page.
            namespace: Whole numbers >= 0; default 0.
            session: Whole numbers >= -1; default -1 (none).
            priority: Whole numbers; default 0.
            answers: For each request the ids of the pages that its output fills: `(prompt_tokens + output_tokens) //
                page_tokens - prompt_tokens // page_tokens` of them, or none where they are not known. With them a
                prompt that continues prompt and answer can find both in a cache. Needs `blocks`.
            think_s: Seconds from the last token of a session's turn to its next turn, >= 0, used where arrivals are
                `closed`; None: estimated from the gaps, see :func:`cacheenv.workload.think.recorded_think_s`.
            name: Name in tables and messages.
        """
        arrival = _numbers(name, "arrival_s", arrival_s)
        count = len(arrival)
        if isinstance(page_tokens, bool) or not isinstance(page_tokens, (int, np.integer)) or page_tokens < 1:
            raise InputError(f"{name}: page_tokens: expected a whole number >= 1, got {page_tokens!r}")
        prompt = _whole_numbers(name, "prompt_tokens", prompt_tokens, count, 1)
        output = _whole_numbers(name, "output_tokens", output_tokens, count, 1)
        spaces = _whole_numbers(name, "namespace", namespace, count, 0, 0, MAX_INT32)
        pages = -(-prompt // int(page_tokens))
        if answers is not None and blocks is None:
            raise InputError(f"{name}: answers: expected blocks as well")
        answer_pages = np.zeros(count, dtype=np.int64)
        if blocks is None:
            dense, num_blocks = np.arange(int(pages.sum()), dtype=np.int32), int(pages.sum())
        else:
            if len(blocks) != count:
                raise InputError(f"{name}: blocks: expected {count} lists, one a request, got {len(blocks)}")
            for index, ids in enumerate(blocks):
                if len(ids) != pages[index]:
                    raise InputError(
                        f"{name}: request {index}: expected ceil({prompt[index]}/{page_tokens}) = {pages[index]} "
                        f"block ids, got {len(ids)}"
                    )
                _refuse_other_ids(name, index, ids)
            if answers is None:
                dense, num_blocks = dense_blocks(blocks, spaces)
            else:
                answer_pages = _answer_pages(name, answers, prompt, output, int(page_tokens))
                dense, num_blocks = dense_blocks([*blocks, *answers], np.concatenate([spaces, spaces]))
        columns = {
            "arrival_s": arrival,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "session": _whole_numbers(name, "session", session, count, -1, default=-1),
            "namespace": spaces,
            "priority": _whole_numbers(name, "priority", priority, count, -MAX_INT32, 0, MAX_INT32),
            "answer_pages": answer_pages,
        }
        if think_s is None:
            columns["think_s"] = recorded_think_s(arrival, output, columns["session"])
        else:
            columns["think_s"] = _numbers(name, "think_s", think_s)
            if len(columns["think_s"]) != count:
                raise InputError(f"{name}: think_s: expected {count} numbers, one a request")
        workload = assemble(columns, dense, int(page_tokens), num_blocks, name, mean_residual_tokens(output))
        workload.validate()
        return workload

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.requests)

    def pages(self) -> np.ndarray:
        """Pages of each prompt, int64, the last one possibly partial."""
        return np.asarray(-(-self.requests["prompt_tokens"] // self.page_tokens))

    def blocks_of(self, request: int) -> np.ndarray:
        """Block ids of one prompt (a view)."""
        row = self.requests[request]
        start = int(row["block_start"])
        return self.blocks[start : start - (-int(row["prompt_tokens"]) // self.page_tokens)]

    def answer_blocks_of(self, request: int) -> np.ndarray:
        """Block ids of what the output of a request fills (a view), empty where they are not known."""
        row = self.requests[request]
        return self.blocks[int(row["answer_start"]) : int(row["answer_start"] + row["answer_pages"])]

    def scaled(self, rate: float) -> Workload:
        """The same requests arriving `rate` times as fast."""
        if not np.isfinite(rate) or rate <= 0:
            raise InputError(f"{self.name}: rate scale: expected a positive number, got {rate!r}")
        requests = self.requests.copy()
        requests["arrival_s"] /= rate
        return replace(self, requests=requests)

    def window(self, first: int, count: int) -> Workload:
        """`count` requests from row `first` on; times count from the first of them, turns from the first inside.

        Args:
            first: Row, from 0.
            count: Number of requests, at least 1.
        """
        rows = self.requests[first : first + count]
        if first < 0 or count < 1 or len(rows) < count:
            raise InputError(f"{self.name}: expected a window within {len(self)} requests, got {count} from {first}")
        start = int(rows["block_start"][0])
        answers = int(rows["answer_start"][0])
        prompts = self.blocks[start : start + int(self.pages()[first : first + count].sum())]
        answered = self.blocks[answers : answers + int(rows["answer_pages"].sum())]
        blocks, num_blocks = renumbered(np.concatenate([prompts, answered]))
        names = ("prompt_tokens", "output_tokens", "session", "namespace", "priority", "think_s", "answer_pages")
        columns = {name: rows[name] for name in names}
        columns["arrival_s"] = rows["arrival_s"] - rows["arrival_s"][0]
        part = assemble(columns, blocks, self.page_tokens, num_blocks, self.name, self.mean_residual_tokens)
        return replace(part, arrivals=self.arrivals)

    def validate(self) -> None:
        """Checks every promise of the class; the first broken one is a one-line :class:`InputError`."""
        rows, place = self.requests, self.name
        if len(rows) == 0:
            raise InputError(f"{place}: expected at least one request, got none")
        arrival = rows["arrival_s"]
        _refuse(~np.isfinite(arrival) | (arrival < 0), place, "expected a finite arrival_s >= 0", arrival)
        _refuse(np.diff(arrival, prepend=0.0) < 0, place, "arrival_s goes back", arrival)
        for field in ("prompt_tokens", "output_tokens"):
            bad = (rows[field] < 1) | (rows[field] > MAX_TOKENS)
            _refuse(bad, place, f"expected {field} from 1 to 2^40", rows[field])
        _refuse(rows["session"] < -1, place, "expected session >= -1", rows["session"])
        think = rows["think_s"]
        _refuse(~np.isfinite(think) | (think < 0), place, "expected a finite think_s >= 0", think)
        _refuse(rows["namespace"] < 0, place, "expected namespace >= 0", rows["namespace"])
        pages = self.pages()
        starts = np.cumsum(pages) - pages
        _refuse(rows["block_start"] != starts, place, "block_start does not follow the prompt before", starts)
        answered = rows["answer_pages"]
        filled = _filled_pages(rows["prompt_tokens"], rows["output_tokens"], self.page_tokens)
        _refuse((answered != 0) & (answered != filled), place, "expected all ids of an answer, or none", answered)
        answer_starts = int(pages.sum()) + np.cumsum(answered) - answered
        _refuse(
            rows["answer_start"] != answer_starts, place, "answer_start does not follow those before", answer_starts
        )
        total = int(pages.sum() + answered.sum())
        if len(self.blocks) != total:
            raise InputError(f"{place}: expected {total} block ids in all, got {len(self.blocks)}")
        if self.blocks.min() < 0 or self.blocks.max() >= self.num_blocks:
            raise InputError(f"{place}: expected block ids from 0 to {self.num_blocks - 1}")
        full = rows["prompt_tokens"] // self.page_tokens
        chained = (answer_starts, answered, full) if answered.any() else None
        owner = first_chain_break(self.blocks, starts, pages, rows["namespace"], self.num_blocks, chained)
        if owner >= 0:
            raise InputError(f"{place}: request {owner}: {CHAIN_RULE}")
        turn, next_turn = turn_columns(rows["session"])
        for field, values in (("turn", turn), ("next_turn", next_turn)):
            _refuse(rows[field] != values, place, f"{field} does not follow from the sessions", rows[field])
        if self.arrivals not in ("open", "closed"):
            raise InputError(f"{place}: arrivals: expected 'open' or 'closed', got {self.arrivals!r}")
        residual = self.mean_residual_tokens
        if residual.ndim != 1 or residual.size == 0 or not np.all(np.isfinite(residual)) or residual.min() < 0:
            raise InputError(f"{place}: mean_residual_tokens: expected finite numbers >= 0, at least one")


def assemble(
    columns: dict[str, Any],
    blocks: np.ndarray,
    page_tokens: int,
    num_blocks: int,
    name: str,
    residual: np.ndarray,
    arrivals: str = "open",
) -> Workload:
    """A workload from its columns (unchecked); missing ones are 0, sessions -1.

    Offsets of ids, `turn` and `next_turn` are derived.
    """
    prompt = columns["prompt_tokens"]
    requests = np.zeros(len(prompt), dtype=WORKLOAD_DTYPE)
    requests["session"] = -1
    for field, values in columns.items():
        requests[field] = values
    pages = -(-prompt // page_tokens)
    requests["block_start"] = np.cumsum(pages) - pages
    requests["answer_start"] = pages.sum() + np.cumsum(requests["answer_pages"]) - requests["answer_pages"]
    requests["turn"], requests["next_turn"] = turn_columns(requests["session"])
    return Workload(requests, blocks, page_tokens, num_blocks, name, residual, arrivals)


def _filled_pages(prompt: np.ndarray, output: np.ndarray, page_tokens: int) -> np.ndarray:
    """Pages that outputs fill behind the full pages of their prompts."""
    return np.asarray((prompt + output) // page_tokens - prompt // page_tokens)


def _answer_pages(
    name: str, answers: Sequence[Sequence[int]], prompt: np.ndarray, output: np.ndarray, page_tokens: int
) -> np.ndarray:
    """Checked numbers of the ids of answers."""
    if len(answers) != len(prompt):
        raise InputError(f"{name}: answers: expected {len(prompt)} lists, one a request, got {len(answers)}")
    filled = _filled_pages(prompt, output, page_tokens)
    for index, ids in enumerate(answers):
        if len(ids) not in (0, filled[index]):
            raise InputError(
                f"{name}: request {index}: expected {filled[index]} ids of its answer, or none, got {len(ids)}"
            )
        _refuse_other_ids(name, index, ids)
    return np.array([len(ids) for ids in answers], dtype=np.int64)


def _refuse_other_ids(name: str, index: int, ids: Sequence[int]) -> None:
    if not all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in ids):
        raise InputError(f"{name}: request {index}: expected whole numbers as block ids")


def _refuse(bad: np.ndarray, place: str, expectation: str, values: np.ndarray) -> None:
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(f"{place}: request {index}: {expectation}, got {values[index]}")


def _numbers(name: str, field: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iuf":
        raise InputError(f"{name}: {field}: expected a list of at least one number")
    return array.astype(np.float64)


def _whole_numbers(
    name: str, field: str, values: Any, count: int, smallest: int, default: int | None = None, largest: int = MAX_TOKENS
) -> np.ndarray:
    if values is None and default is not None:
        return np.full(count, default, dtype=np.int64)
    array = np.asarray(values)
    if array.shape != (count,) or array.dtype.kind not in "iuf":
        raise InputError(f"{name}: {field}: expected {count} whole numbers, one a request")
    wrong = ~np.isfinite(array) | (array != np.floor(array)) | (array < smallest) | (array > largest)
    _refuse(wrong, name, f"expected a whole {field} from {smallest} to {largest}", array)
    return array.astype(np.int64)
