"""The generators: the distributions they promise, sessions and reuse, determinism, speed, and refused parameters."""

import hashlib
import subprocess
import sys
import time
from dataclasses import fields

import numba
import numpy as np
import pytest

from cacheenv.errors import InputError
from cacheenv.workload import GENERATORS, Workload, check_params, generate, hit_ceiling

KINDS = list(GENERATORS)
# Mooncake's conversation trace (FAST'25): level -> tokens, and means. The trace itself is checked where it is present.
TRACE_PROMPT = {0.1: 964, 0.25: 2306.5, 0.5: 6909, 0.75: 15_367, 0.9: 27_367, 0.99: 85_400}
TRACE_OUTPUT = {0.1: 24, 0.25: 156.5, 0.5: 350, 0.75: 472, 0.9: 597, 0.99: 1118}
TRACE_PROMPT_MEAN, TRACE_OUTPUT_MEAN = 12_035, 342.6
TRACE_REUSE = 0.373  # of prompt tokens, cache without eviction
TRACE_REQUESTS = 12_031
GAPS = {"turn_gap_requests": 20.0}
DIGEST_CODE = """
import hashlib
from cacheenv.workload import GENERATORS, generate
for kind in GENERATORS:
    made = generate(kind, requests=150, rate_rps=2.0, page_tokens=64, seed=11)
    parts = (made.requests, made.blocks, made.mean_residual_tokens)
    print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""


def make(kind, requests=400, rate_rps=4.0, page_tokens=512, seed=0, **params):
    return generate(kind, requests=requests, rate_rps=rate_rps, page_tokens=page_tokens, seed=seed, params=params)


@pytest.fixture(scope="module")
def chats():
    """Four chat workloads of the length of the trace."""
    return [make("chat", requests=TRACE_REQUESTS, rate_rps=3.4, seed=seed) for seed in range(4)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page_tokens", [16, 512])
def test_workloads_keep_the_promises_of_the_table(kind, page_tokens):
    for seed in range(5):
        workload = make(kind, seed=seed, page_tokens=page_tokens)
        workload.validate()
        assert len(workload) == 400
        assert list(dict.fromkeys(workload.blocks.tolist())) == list(range(workload.num_blocks))
    make(kind, requests=1).validate()


@pytest.mark.parametrize("kind", KINDS)
def test_seed_decides_everything(kind):
    first, again, other = make(kind, seed=7), make(kind, seed=7), make(kind, seed=8)
    assert first.requests.tobytes() == again.requests.tobytes()
    assert first.blocks.tobytes() == again.blocks.tobytes()
    assert first.requests.tobytes() != other.requests.tobytes()
    assert first.mean_residual_tokens is other.mean_residual_tokens  # a property of the distribution, computed once
    from_sequence = make(kind, seed=np.random.SeedSequence(7))
    assert from_sequence.requests.tobytes() == first.requests.tobytes()


def test_the_same_in_any_process_compiled_or_not(monkeypatch):
    outputs = []
    for hash_seed, plain in (("1", "0"), ("2", "1")):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        monkeypatch.setenv("NUMBA_DISABLE_JIT", plain)
        outputs.append(subprocess.run([sys.executable, "-c", DIGEST_CODE], check=True, capture_output=True).stdout)
    here = []
    for kind in KINDS:
        made = generate(kind, requests=150, rate_rps=2.0, page_tokens=64, seed=11)
        parts = (made.requests, made.blocks, made.mean_residual_tokens)
        here.append(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
    assert outputs[0] == outputs[1]
    assert outputs[0].decode().split() == here


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_scales_times_and_leaves_answers(kind):
    slow, fast = make(kind, rate_rps=1.0), make(kind, rate_rps=8.0)
    assert np.allclose(slow.requests["arrival_s"], 8.0 * fast.requests["arrival_s"], rtol=1e-12)
    assert np.array_equal(slow.requests["output_tokens"], fast.requests["output_tokens"])
    # who thinks for seconds has more users between two turns at a higher rate
    gaps = [np.flatnonzero(rows["next_turn"] >= 0) for rows in (slow.requests, fast.requests)]
    if kind == "reasoning":
        assert not gaps[0].size
    else:
        between = [np.median(made.requests["next_turn"][at] - at) for made, at in zip((slow, fast), gaps, strict=True)]
        assert between[1] > 2.0 * between[0]


@pytest.mark.parametrize(("kind", "params"), [("reasoning", {}), ("chat", GAPS), ("coding_agent", GAPS)])
def test_with_gaps_in_requests_the_rate_only_scales_times(kind, params):
    slow, fast = make(kind, rate_rps=1.0, **params), make(kind, rate_rps=8.0, **params)
    assert np.allclose(slow.requests["arrival_s"], 8.0 * fast.requests["arrival_s"], rtol=1e-12)
    for field in ("prompt_tokens", "output_tokens", "session", "namespace"):
        assert np.array_equal(slow.requests[field], fast.requests[field])
    assert np.array_equal(slow.blocks, fast.blocks)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_rate_and_burstiness(kind):
    for gap_cv in (1.0, 0.4, 2.5):
        gaps = np.diff(make(kind, requests=8000, rate_rps=5.0, gap_cv=gap_cv).requests["arrival_s"])
        assert gaps.mean() == pytest.approx(0.2, rel=0.1)
        assert gaps.std() / gaps.mean() == pytest.approx(gap_cv, rel=0.1)


def test_bursts_gather_arrivals():
    arrival = make("chat", requests=3000, rate_rps=3.4, burst_s=3.0).requests["arrival_s"]
    assert np.array_equal(arrival, 3.0 * np.round(arrival / 3.0))
    times, counts = np.unique(arrival, return_counts=True)
    assert counts.mean() == pytest.approx(10.2, rel=0.1)  # the trace: 10.2 requests share a timestamp
    assert counts.var() / counts.mean() == pytest.approx(1.10, abs=0.25)  # the trace: 1.10
    assert len(times) < 1000


def test_chat_lengths_are_those_of_the_trace(chats):
    prompt = np.concatenate([chat.requests["prompt_tokens"] for chat in chats])
    output = np.concatenate([chat.requests["output_tokens"] for chat in chats])
    for level, tokens in TRACE_PROMPT.items():
        assert np.quantile(prompt, level) == pytest.approx(tokens, rel=0.12), level
    for level, tokens in TRACE_OUTPUT.items():
        assert np.quantile(output, level) == pytest.approx(tokens, rel=0.05, abs=2), level
    assert prompt.mean() == pytest.approx(TRACE_PROMPT_MEAN, rel=0.05)
    assert output.mean() == pytest.approx(TRACE_OUTPUT_MEAN, rel=0.02)
    assert prompt.max() <= 126_000 and prompt.min() >= 891  # the trace: 126,195 and 891


def test_chat_reuse_is_near_the_trace(chats):
    for chat in chats:
        reuse = hit_ceiling(chat)["token_hit_rate"]
        assert TRACE_REUSE <= reuse <= TRACE_REUSE + 0.08


def test_chat_reuse_of_an_episode():
    reuse = [hit_ceiling(make("chat", requests=2000, seed=seed))["token_hit_rate"] for seed in range(8)]
    assert 0.33 < np.mean(reuse) < 0.42


def test_the_trace_is_as_the_chat_test_says(conversation_trace):
    trace = Workload.from_mooncake(conversation_trace)
    prompt, output = trace.requests["prompt_tokens"], trace.requests["output_tokens"]
    assert len(trace) == TRACE_REQUESTS
    for level, tokens in TRACE_PROMPT.items():
        assert np.quantile(prompt, level) == pytest.approx(tokens, abs=1)
        assert np.quantile(output, level) == pytest.approx(TRACE_OUTPUT[level], abs=1)
    assert prompt.mean() == pytest.approx(TRACE_PROMPT_MEAN, abs=1)
    assert output.mean() == pytest.approx(TRACE_OUTPUT_MEAN, abs=0.1)
    assert hit_ceiling(trace)["token_hit_rate"] == pytest.approx(TRACE_REUSE, abs=0.001)


@pytest.mark.parametrize("kind", ["chat", "coding_agent"])
def test_a_turn_repeats_the_dialogue_before_it(kind):
    workload = make(kind, requests=1500)
    rows, page = workload.requests, workload.page_tokens
    last, continued = {}, 0
    for index, row in enumerate(rows):
        before = last.get(int(row["session"]))
        if before is not None:
            continued += 1
            shorter = int(rows[before]["prompt_tokens"])
            limit = check_params(kind, {}).max_prompt_tokens
            assert row["prompt_tokens"] > min(shorter + int(rows[before]["output_tokens"]), limit - 1)
            whole = shorter // page
            mine, earlier = workload.blocks_of(index), workload.blocks_of(before)
            assert np.array_equal(mine[:whole], earlier[:whole])
            assert not set(mine[whole:].tolist()) & set(earlier[whole:].tolist())
        last[int(row["session"])] = index
    sessions = list(dict.fromkeys(rows["session"].tolist()))
    assert sessions == list(range(len(sessions)))
    assert continued > 300


@pytest.mark.parametrize("kind", ["chat", "coding_agent"])
def test_the_start_is_like_the_rest(kind):
    """Sessions from before the start keep the mix of lengths level."""
    first, rest = [], []
    for seed in range(40):
        prompt = make(kind, requests=1200, seed=seed).requests["prompt_tokens"]
        first.append(prompt[:200].mean())
        rest.append(prompt[600:].mean())
    assert np.mean(first) == pytest.approx(np.mean(rest), rel=0.05)


def test_system_prompts_are_shared_and_some_are_popular():
    workload = make("chat", requests=2000, system_tokens=2048, continue_probability=0.0, turn_gap_requests=0.0)
    heads, counts = np.unique([workload.blocks_of(i)[3] for i in range(len(workload))], return_counts=True)
    assert len(heads) == 4
    weights = np.arange(1, 5) ** -1.2
    assert np.sort(counts)[::-1] / 2000 == pytest.approx(weights / weights.sum(), abs=0.04)
    without = make("chat", requests=2000, system_tokens=0, continue_probability=0.0)
    assert hit_ceiling(without)["block_hit_rate"] == 0.0


def test_namespaces_never_share_blocks():
    workload = make("chat", requests=2000, namespaces=3)
    owner = {}
    for index, space in enumerate(workload.requests["namespace"].tolist()):
        for block in workload.blocks_of(index).tolist():
            assert owner.setdefault(block, space) == space
    assert sorted(set(owner.values())) == [0, 1, 2]


def test_reasoning_lengths_and_reuse():
    workload = make("reasoning", requests=20_000, page_tokens=64)
    output = workload.requests["output_tokens"]
    assert np.mean(output < 1000) == pytest.approx(0.292, abs=0.01)
    assert np.mean(output >= 30_000) == pytest.approx(0.173, abs=0.01)
    assert output.min() >= 100 and output.max() <= 32_000
    assert np.median(output) == pytest.approx(3_754, rel=0.06)
    assert output.mean() == pytest.approx(10_000, rel=0.03)
    # log-uniform: the middle of a part is its geometric mean
    assert np.median(output[output < 1000]) == pytest.approx(316, rel=0.05)
    assert np.median(output[output >= 30_000]) == pytest.approx(31_000, rel=0.01)
    assert workload.requests["prompt_tokens"].mean() == pytest.approx(194, rel=0.06)
    assert hit_ceiling(workload)["token_hit_rate"] < 0.02
    assert set(workload.requests["session"].tolist()) == {-1}


def test_coding_agent_lengths_and_reuse():
    workloads = [make("coding_agent", requests=600, seed=seed) for seed in range(20)]
    prompt = np.concatenate([workload.requests["prompt_tokens"] for workload in workloads])
    output = np.concatenate([workload.requests["output_tokens"] for workload in workloads])
    assert prompt.mean() == pytest.approx(107_000, rel=0.08)
    assert prompt.min() >= 45_000 and prompt.max() <= 200_000
    assert output.mean() == pytest.approx(450, rel=0.06)
    reuse = [hit_ceiling(workload)["token_hit_rate"] for workload in workloads]
    assert 0.75 < np.mean(reuse) < 0.9


def test_warm_share_moves_coding_agents_between_cold_and_warm():
    def reuse(warm_share):
        workload = make("coding_agent", requests=3000, warm_share=warm_share, continue_probability=0.0)
        return hit_ceiling(workload)["token_hit_rate"]

    assert reuse(0.0) == 0.0
    assert reuse(0.5) == pytest.approx(0.5, abs=0.05)
    assert reuse(1.0) > 0.97


@pytest.mark.parametrize(("kind", "mean"), [("chat", 342.6), ("reasoning", 10_038), ("coding_agent", 450)])
def test_mean_residual_is_that_of_the_nominal_distribution(kind, mean):
    workload = make(kind, requests=20_000)
    output, residual = workload.requests["output_tokens"], workload.mean_residual_tokens
    assert residual[0] == pytest.approx(mean, rel=0.02)
    assert len(residual) >= (output.max() - 1) // 20
    for generated in (100, 400):
        longer = output[output > generated]
        assert residual[generated // 20] == pytest.approx((longer - generated).mean(), rel=0.05)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="times compiled code")
def test_an_episode_is_generated_in_no_time():
    times = []
    for seed in range(60):
        started = time.perf_counter()
        make("chat", requests=2000, seed=seed)
        times.append(time.perf_counter() - started)
    assert min(times) < 1.5e-3


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_is_documented_and_checked(kind):
    params_type = GENERATORS[kind][0]
    for entry in fields(params_type):
        assert f"    {entry.name}: " in params_type.__doc__
        for bad in (float("nan"), "1", None, True, -1.0):
            with pytest.raises(InputError, match=f"^{entry.name}: expected a "):
                check_params(kind, {entry.name: bad})


@pytest.mark.parametrize(
    ("kind", "params", "expectation"),
    [
        ("chat", {"system_promts": 3}, r"system_promts: unknown parameter \(did you mean 'system_prompts'\?\)"),
        ("chat", {"system_prompts": 2.5}, "system_prompts: expected a whole number from 1 to 10000, got 2.5"),
        ("chat", {"continue_probability": 1.0}, "continue_probability: expected a number from 0 to 0.95, got 1.0"),
        ("chat", {"system_tokens": 126_000}, "system_tokens: expected less than max_prompt_tokens = 126000"),
        ("reasoning", {"output_short_share": 0.9}, "output_short_share: expected output_short_share . output_long"),
        ("reasoning", {"output_min_tokens": 2000}, "output_min_tokens: expected min <= short <= long <= max"),
        ("reasoning", {"system_tokens": 8192}, "system_tokens: expected less than max_prompt_tokens = 8192"),
        ("coding_agent", {"context_max_tokens": 250_000}, "context_min_tokens: expected context min <= context max"),
    ],
)
def test_bad_parameters(kind, params, expectation):
    with pytest.raises(InputError, match=expectation):
        check_params(kind, params)


@pytest.mark.parametrize(
    ("changes", "expectation"),
    [
        ({"kind": "chats"}, r"unknown generator 'chats' \(did you mean 'chat'\?\); known: chat, reasoning"),
        ({"requests": 0}, "chat: requests: expected a whole number >= 1, got 0"),
        ({"requests": True}, "chat: requests: expected a whole number >= 1, got True"),
        ({"page_tokens": 1.5}, "chat: page_tokens: expected a whole number >= 1, got 1.5"),
        ({"rate_rps": 0.0}, "chat: rate_rps: expected a positive number"),
        ({"rate_rps": float("inf")}, "chat: rate_rps: expected a positive number"),
    ],
)
def test_bad_arguments(changes, expectation):
    with pytest.raises(InputError, match=expectation):
        make(**{"kind": "chat", **changes})


def test_more_blocks_than_ids_are_refused():
    with pytest.raises(InputError, match=r"expected at most 2\^31 blocks in all, got \d+; use larger pages"):
        make("coding_agent", requests=30_000, page_tokens=1)


@pytest.mark.parametrize("kind", ["chat", "coding_agent"])
def test_the_next_turn_continues_prompt_and_answer(kind):
    workload = generate(kind, requests=400, rate_rps=2.0, page_tokens=16, seed=3)
    workload.validate()
    last: dict[int, int] = {}
    continued = answered = 0
    for index, row in enumerate(workload.requests):
        before = last.get(int(row["session"]))
        last[int(row["session"])] = index
        answered += int(row["answer_pages"])
        if before is None:
            continue
        first = workload.requests[before]
        full = int(first["prompt_tokens"]) // 16
        path = [*workload.blocks_of(before)[:full].tolist(), *workload.answer_blocks_of(before).tolist()]
        assert len(path) == (first["prompt_tokens"] + first["output_tokens"]) // 16
        assert workload.blocks_of(index)[: len(path)].tolist() == path
        # What follows is the text of this turn, which nobody has seen.
        assert workload.blocks_of(index)[len(path)] not in path
        continued += 1
    assert continued > 50
    assert answered > 0


def test_independent_requests_have_no_ids_of_answers():
    workload = generate("reasoning", requests=20, rate_rps=1.0, page_tokens=16)
    assert not workload.requests["answer_pages"].any()
