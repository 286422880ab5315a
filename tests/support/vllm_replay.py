"""A plain replica of vLLM's scheduler (v1: chunked prefill, FCFS, preemption by recomputation) that replays a run.

Blocks that a preempted request leaves stay cached until another request takes them, the last ones first.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from cacheenv.physics import Preset
from cacheenv.physics.fit import Errors, relative_errors

BLOCK_TOKENS = 16
BATCH_TOKENS = 2048


@dataclass
class Request:
    """A request: what the run measured, and where the replay is with it; times in seconds, sizes in tokens."""

    number: int
    arrival_s: float
    prompt: int
    output: int
    ttft_s: float
    tpot_s: float
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    cached_blocks: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated


@dataclass
class Memory:
    """KV blocks: free ones in the order in which they are taken, some with what a preempted request left in them."""

    requests: list[Request]
    count: int
    free: OrderedDict[tuple[int, int], None] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.free.update(((-1, block), None) for block in range(self.count))

    def take(self, request: Request, count: int) -> None:
        for _ in range(count):
            (owner, block), _ = self.free.popitem(last=False)
            if owner >= 0:
                left = self.requests[owner]
                left.cached_blocks = min(left.cached_blocks, block)
        request.blocks += count

    def release(self, request: Request) -> None:
        request.cached_blocks = request.computed // BLOCK_TOKENS
        self.free.update(((request.number, block), None) for block in reversed(range(request.blocks)))
        request.blocks = 0


def blocks_of(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)


def read_run(folder: Path) -> list[Request]:
    """The requests of a run, by arrival."""
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    rows.sort(key=lambda row: row["queued_ts"])
    return [
        Request(
            number=number,
            arrival_s=row["queued_ts"] - rows[0]["queued_ts"],
            prompt=row["input_toks"],
            output=row["output_toks"],
            ttft_s=row["first_token_ts"] - row["queued_ts"],
            tpot_s=(row["last_token_ts"] - row["first_token_ts"]) / max(1, row["output_toks"] - 1),
        )
        for number, row in enumerate(rows)
    ]


def replay(preset: Preset, requests: list[Request], max_requests: int) -> None:
    """Runs the requests; their `first_s` and `last_s` are set.

    Args:
        preset: Coefficients, and the KV capacity.
        requests: From :func:`read_run`.
        max_requests: Requests of a batch at most.
    """
    memory = Memory(requests, preset.capacity_tokens // BLOCK_TOKENS)
    coming, waiting, running = list(requests), [], []  # type: ignore[var-annotated]
    now_s = 0.0
    while coming or waiting or running:
        if not waiting and not running:
            now_s = max(now_s, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now_s:
            waiting.append(coming.pop(0))
        pieces, preempted = _continue(memory, waiting, running)
        if not preempted:
            _admit(memory, waiting, running, pieces, max_requests)
        now_s += _seconds(preset, pieces)
        for request, tokens in pieces:
            request.computed += tokens
            if request.computed == request.tokens:
                request.generated += 1
                request.first_s = request.first_s or now_s
                request.last_s = now_s
                if request.generated >= request.output:
                    running.remove(request)
                    memory.release(request)
                    request.cached_blocks = 0


def _continue(memory, waiting, running):  # type: ignore[no-untyped-def]
    """Pieces of the running requests, and whether some were preempted: the youngest go where blocks run out."""
    pieces, left, position, preempted = [], BATCH_TOKENS, 0, False
    while position < len(running):
        request = running[position]
        tokens = min(request.tokens - request.computed, left)
        if tokens <= 0:
            position += 1
            continue
        needed = blocks_of(request.computed + tokens) - request.blocks
        while request.blocks and needed > len(memory.free):
            victim = running.pop()
            memory.release(victim)
            victim.computed = 0
            waiting.insert(0, victim)
            preempted = True
        if not request.blocks:  # it had to go itself
            break
        memory.take(request, needed)
        left -= tokens
        pieces.append((request, tokens))
        position += 1
    return [piece for piece in pieces if piece[0].blocks], preempted


def _admit(memory, waiting, running, pieces, max_requests):  # type: ignore[no-untyped-def]
    """Waiting requests join in order while tokens and blocks last."""
    left = BATCH_TOKENS - sum(tokens for _, tokens in pieces)
    while waiting and left > 0 and len(running) < max_requests:
        request = waiting[0]
        hit = min(request.cached_blocks, (request.tokens - 1) // BLOCK_TOKENS)
        tokens = min(request.tokens - hit * BLOCK_TOKENS, left)
        needed = blocks_of(hit * BLOCK_TOKENS + tokens) - hit
        if needed > len(memory.free) - hit:
            return
        waiting.pop(0)
        for block in range(hit):
            del memory.free[request.number, block]
        request.blocks, request.computed = hit, hit * BLOCK_TOKENS
        memory.take(request, needed)
        running.append(request)
        left -= tokens
        pieces.append((request, tokens))


def _seconds(preset: Preset, pieces) -> float:  # type: ignore[no-untyped-def]
    """A step: pieces of prompts, decodes, or both (the fixed part counts once)."""
    batch = context = new = 0
    attention = 0.0
    for request, tokens in pieces:
        if tokens == 1 and request.generated and request.computed == request.tokens - 1:
            batch += 1
            context += request.tokens
        else:
            new += tokens
            attention += tokens * tokens + 2.0 * max(tokens, preset.n_tile) * request.computed
    prefill_s = preset.prefill_b_s * new + preset.prefill_c_s * attention
    if batch:
        return preset.decode_d_s + preset.decode_e_s * batch + preset.decode_f_s * context + prefill_s
    return max(preset.min_prefill_s, preset.prefill_a_s + prefill_s)


def replay_errors(shared: Path, preset: Preset, gpu: str) -> tuple[Errors, Errors]:
    """Errors of TPOT and TTFT of the run on a GPU."""
    folder = shared / "calibration" / "llmservingsim" / "e2e" / gpu / "Llama-3.1-8B" / "vllm"
    requests = read_run(folder)
    settings = json.loads((folder / "meta.json").read_text())["engine_kwargs"]
    replay(preset, requests, settings["max_num_seqs"])
    names = [str(request.number) for request in requests]
    ttft = relative_errors(
        [request.first_s - request.arrival_s for request in requests], [request.ttft_s for request in requests], names
    )
    long = [request for request in requests if request.output > 1]
    tpot = relative_errors(
        [(request.last_s - request.first_s) / (request.output - 1) for request in long],
        [request.tpot_s for request in long],
        [str(request.number) for request in long],
    )
    return tpot, ttft
