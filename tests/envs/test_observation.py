"""Observations: inside their space, each feature from its own columns, and nothing that a policy may not know."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any

import numba
import numpy as np
import pytest
from env_tools import IDS, SMALL, arrays_workload, legal_player, make, random_legal

import cacheenv
from cacheenv.envs import features
from cacheenv.envs.env import CacheEnv
from cacheenv.envs.features import TABLES
from cacheenv.envs.record_rows import rows_over
from cacheenv.policy import DECISION_MIGRATE, DECISION_ROUTE, View
from cacheenv.sim.core.jit import disabled
from cacheenv.sim.view.columns import allocate_view

#: View column -> features that it drives, with the sign of the effect.
DRIVES = {
    "cluster": {
        "requests_in_system": {"requests_in_system": 1},
        "allow_reject": {"reject_allowed": 1},
        "slo_ttft_s": {"ttft_over_slo": -1},
        "schedule_s": {"ttft_over_slo": 1},
        "slo_tpot_s": {"step_over_slo": -1, "step_after_over_slo": -1},
        "slo_tbt_tail_s": {},  # the larger of the two objectives of the gap does not bind
    },
    "request": {
        "prompt_tokens": {
            "prompt_tokens": 1, "best_hit_share": -1, "store_hit_share": -1, "memory_hit_share": -1,
            "hit_share": -1, "pull_share": -1,
        },
        "predicted_output_tokens": {"predicted_output_tokens": 1},
        "best_hit_tokens": {"best_hit_share": 1},
        "store_hit_tokens": {"store_hit_share": 1},
        "memory_hit_tokens": {"memory_hit_share": 1},
    },
    "prefill": {
        "backlog_s": {"backlog_s": 1, "ttft_over_slo": 1},
        "delivery_s": {"ttft_over_slo": 1},
        "running_left_s": {"running_left_s": 1},
        "queued_requests": {"queued_requests": 1},
        "queued_tokens": {"queued_tokens": 1},
        "inflight_requests": {"inflight_requests": 1},
        "hit_tokens": {"hit_share": 1},
        "pull_tokens": {"pull_share": 1},
        "prefill_s": {"prefill_s": 1, "ttft_over_slo": 1},
        "prefill_pull_s": {"prefill_pull_s": 1},
        "transfer_s": {"transfer_s": 1},
        "cache_used_tokens": {"cache_used_share": 1},
        "cache_capacity_tokens": {"cache_used_share": -1},
        "role": {"is_pre_prefill": 1},
        "outgoing_flows": {"outgoing_flows": 1},
    },
    "decode": {
        "running_requests": {"batch_share": 1, "running_requests": 1},
        "max_batch": {"batch_share": -1},
        "waiting_requests": {"waiting_requests": 1},
        "pending_requests": {"pending_requests": 1},
        "preempted_requests": {"preempted_requests": 1},
        "kv_tokens": {"kv_share": 1},
        "pending_tokens": {"pending_share": 1},
        "reserved_tokens": {"reserved_share": 1},
        "capacity_tokens": {"kv_share": -1, "pending_share": -1, "reserved_share": -1},
        "step_s": {"step_over_slo": 1},
        "step_after_s": {"step_after_over_slo": 1},
        "can_send": {"can_send": 1},
        "can_receive": {"can_receive": 1},
    },
    "candidate": {
        "kv_tokens": {"kv_share": 1, "kv_tokens": 1},
        "generated_tokens": {"generated_tokens": 1},
        "predicted_remaining_tokens": {"predicted_remaining_tokens": 1},
        "migrate_s": {"migrate_s": 1},
        "migrations": {"migrations": 1},
    },
}  # fmt: skip
FLAGS = ("can_send", "can_receive", "role", "allow_reject")
LARGE = {"prompt_tokens": 1000, "cache_capacity_tokens": 1000, "capacity_tokens": 1000, "max_batch": 100}


def observation_of(env: CacheEnv, view: View) -> np.ndarray:
    layout = env.stepper.layout
    seen = layout.fill(view, np.full(len(layout), 7.0, np.float32))
    assert np.array_equal(seen, layout.fill(view, np.zeros_like(seen)))  # every number is written
    return seen


def test_every_feature_is_filled_once_under_its_name() -> None:
    """The code that fills a table assigns to `out.NAME`, in the order of the table, and to nothing else of `out`."""
    functions = {node.name: node for node in ast.walk(ast.parse(inspect.getsource(features)))
                 if isinstance(node, ast.FunctionDef)}  # fmt: skip
    for table, columns in TABLES.items():
        assigned = [
            target.attr
            for node in ast.walk(functions[f"_fill_{table}"])
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Attribute)
        ]
        assert assigned == [feature.name for feature in columns], table


@pytest.mark.skipif(disabled(), reason="nothing is compiled under NUMBA_DISABLE_JIT=1")
def test_a_name_that_no_feature_has_does_not_compile() -> None:
    @numba.njit
    def fill(out: Any) -> None:
        rows_over(out, features.PREFILL_ROW)[0].backlog = 1.0

    out = np.zeros(len(TABLES["prefill"]), np.float32)
    with pytest.raises((numba.TypingError, KeyError), match="backlog"):
        fill(out)
    with pytest.raises(AttributeError, match="backlog"):  # as plain Python
        out.view(features.PREFILL_ROW)[0].backlog = 1.0


@pytest.mark.parametrize("name", IDS)
def test_the_layout_names_every_number(name: str) -> None:
    layout = make(name).stepper.layout
    assert len(layout) == len(layout.rows) == len(layout.names) == len(set(layout.names)) == layout.edges[-1]
    for table, place in layout.slices.items():
        assert {kind for kind, _, _ in layout.rows[place]} == {table}
        assert [feature for _, _, feature in layout.rows[place]][: len(TABLES[table])] == list(TABLES[table])
    assert set(layout.slices) == set(layout.space("dict"))
    assert sum(space.shape[0] for space in layout.space("dict").values()) == layout.space("flat").shape[0]


def half_full_view(decision: int) -> View:
    view = View(*(table[0] for table in allocate_view(1, 3, 3, 2, 4)))
    for table in view:
        for name in table.dtype.names:
            table[name] = 0 if name in FLAGS else LARGE.get(name, 3)
    view.cluster.decision = decision
    view.cluster.slo_tbt_tail_s = 5.0
    view.candidate.valid = 1
    for slot, row in enumerate(view.candidate):
        row.source = slot // 2
    return view


@pytest.mark.parametrize("decision", [DECISION_ROUTE, DECISION_MIGRATE])
@pytest.mark.parametrize("name", IDS)
def test_each_feature_follows_its_columns_and_no_others(name: str, decision: int) -> None:
    env = make(name)
    kinds = {table for table, _, _ in env.stepper.layout.rows}
    view = half_full_view(decision)
    base = observation_of(env, view)
    assert base in env.observation_space
    moved = set()
    for table_name, table in view._asdict().items():
        for row in range(len(table)):
            for column in table.dtype.names:
                if (table_name, column) in (("cluster", "decision"), ("candidate", "valid"), ("candidate", "source")):
                    continue
                kept = table[column][row]
                table[column][row] = 1 if column in FLAGS else kept + 1
                changed = observation_of(env, view)
                table[column][row] = kept
                signs = np.sign(changed - base).astype(int)
                effects = dict(DRIVES.get(table_name, {}).get(column, {}))
                for number, (kind, label, feature) in enumerate(env.stepper.layout.rows):
                    index = int(label.split("[")[1][:-1]) if "[" in label else 0
                    here = (kind == table_name and index == row) or (kind != table_name and table_name != "prefill")
                    expected = effects.get(feature.name, 0) if here else 0
                    if table_name in ("decode", "candidate") and kind != table_name:
                        expected = 0
                        if table_name == "decode" and column == "capacity_tokens" and kind == "candidate":
                            expected = -1 if index // 2 == row and feature.name == "kv_share" else 0
                    if kind == "candidate" and decision == DECISION_ROUTE:
                        expected = 0
                    if feature.name == "reject_allowed" and decision != DECISION_ROUTE:
                        expected = 0
                    assert signs[number] == expected, (table_name, column, label, feature.name)
                    if expected:
                        moved.add((kind, feature.name))
    wanted = {(kind, feature.name) for kind in kinds for feature in TABLES[kind]}
    wanted -= {("cluster", "is_route"), ("cluster", "is_migrate"), ("candidate", "valid")}
    if decision == DECISION_ROUTE:
        wanted = {pair for pair in wanted if pair[0] != "candidate"}
    else:
        wanted -= {("request", "reject_allowed")}
    assert moved == wanted
    named = dict(zip([feature.name for feature in TABLES["cluster"]], base, strict=False))
    assert (named["is_route"], named["is_migrate"]) == (decision == DECISION_ROUTE, decision == DECISION_MIGRATE)


def test_scales_are_the_values_at_one_half() -> None:
    env = make(IDS[2])
    view = half_full_view(DECISION_MIGRATE)
    tables = view._asdict()
    checked = 0
    for kind, columns in TABLES.items():
        for feature in columns:
            if feature.scale and feature.name in tables[kind].dtype.names:
                tables[kind][feature.name] = feature.scale
    for value, (_, _, feature) in zip(observation_of(env, view), env.stepper.layout.rows, strict=True):
        if feature.scale == int(feature.scale) and feature.scale > 0 and "over_slo" not in feature.name:
            assert value == pytest.approx(0.5), feature
            checked += 1
    assert checked > 30


def test_an_empty_slot_is_all_zeros() -> None:
    env = make(IDS[1], observation="dict")
    view = half_full_view(DECISION_MIGRATE)
    view.candidate.valid[3] = 0
    rows = observation_of(env, view)[env.stepper.layout.slices["candidate"]].reshape(6, -1)
    assert not rows[3].any() and rows[2].all()


def test_extreme_numbers_stay_inside() -> None:
    env = make(IDS[2])
    for value in (-1e-12, -5.0, 0.0, 1e-30, 1e9, 1e30):
        view = half_full_view(DECISION_MIGRATE)
        for table in (view.prefill, view.decode, view.candidate, view.request):
            for name in table.dtype.names:
                if table.dtype[name] == np.float64:
                    table[name] = value
                elif name not in FLAGS and name not in LARGE and name not in ("valid", "source"):
                    table[name] = int(np.clip(value, -(2**40), 2**40))
        seen = observation_of(env, view)
        assert seen in env.observation_space, value


@pytest.mark.parametrize("observation", ["flat", "dict"])
@pytest.mark.parametrize(
    "scenario",
    [
        SMALL,
        {**SMALL, "slo": {"ttft_s": None, "tbt_tail_s": None}, "prediction": {"kind": "none"}},
        {**SMALL, "cluster": {**SMALL["cluster"], "index": {"delay_s": 0.5, "memory_tokens": 50_000}}},
        "kimi-chat",
        "reasoning",
        "long-context",
    ],
)
def test_rollouts_stay_inside_the_space(scenario: Any, observation: str) -> None:
    for name in IDS:
        overrides = {"workload.requests": 60, "workload.rate_rps": 8.0}
        env = make(name, scenario=scenario, overrides=overrides, observation=observation)
        rng, steps, done = np.random.default_rng(0), 0, False
        seen, _ = env.reset(seed=0)
        while not done and steps < 300:
            assert seen in env.observation_space
            anything = int(rng.integers(env.action_space.n))  # illegal ones too
            action = anything if steps % 5 == 0 else random_legal(env.action_masks(), rng)
            seen, reward, terminated, truncated, _ = env.step(action)
            assert np.isfinite(reward)
            done = terminated or truncated
            steps += 1
        assert seen in env.observation_space


def with_outputs(workload: cacheenv.Workload, outputs: np.ndarray) -> cacheenv.Workload:
    """The same requests, which generate other numbers of tokens; what is known of the population stays."""
    requests = workload.requests.copy()
    requests["output_tokens"] = outputs
    return dataclasses.replace(workload, requests=requests)


def walk(env: CacheEnv, workload: cacheenv.Workload) -> tuple[list[Any], float]:
    """What is seen at each decision, and when the first request ends."""
    seen, _ = env.reset(options={"episode_seed": 1, "workload": workload})
    rng, log, done = np.random.default_rng(0), [], False
    while not done:
        view = env.view
        now_s = float(view.cluster.now_s[0])
        copies = {name: table.copy() for name, table in view._asdict().items()}
        copies["running"] = copies["running"][: int(view.cluster.num_running[0])]
        if env.decision == DECISION_ROUTE:
            copies.pop("candidate")  # left from the last tick
        log.append((now_s, copies, seen, env.action_masks()))
        seen, _, terminated, truncated, _ = env.step(random_legal(env.action_masks(), rng))
        done = terminated or truncated
    return log, float(np.nanmin(env.result().requests.finish_s))


@pytest.mark.parametrize("name", IDS)
def test_output_lengths_are_hidden(name: str) -> None:
    # Equal until the first request of either run ends: only then do the lengths become known.
    workload = arrays_workload(60, rate_rps=20.0)
    rng = np.random.default_rng(0)
    env = make(name, overrides={"prediction.kind": "none", "reschedule.period_s": 0.1})
    first, end_s = walk(env, with_outputs(workload, rng.integers(300, 600, 60)))
    second, other_end_s = walk(env, with_outputs(workload, rng.integers(1000, 4000, 60)))
    until_s = min(end_s, other_end_s)
    known = [entry for entry in first if entry[0] < until_s]
    assert len(known) > 20 and (name == IDS[0] or any(len(entry[1]["running"]) > 5 for entry in known))
    for (now_s, tables, seen, mask), (other_s, others, other_seen, other_mask) in zip(known, second, strict=False):
        assert now_s == other_s and np.array_equal(mask, other_mask) and np.array_equal(seen, other_seen)
        for table in tables:
            assert tables[table].tobytes() == others[table].tobytes(), (now_s, table)
    assert [entry[0] for entry in first] != [entry[0] for entry in second] or name == IDS[0]


def test_only_predictions_depend_on_output_lengths() -> None:
    workload = arrays_workload(60, rate_rps=20.0)
    env = make(IDS[0], overrides={"prediction.kind": "star"})
    first, end_s = walk(env, with_outputs(workload, np.full(60, 500)))
    second, other_end_s = walk(env, with_outputs(workload, np.full(60, 2000)))
    predicted = {"predicted_output_tokens", "predicted_remaining_tokens"}
    known = [entry for entry in first if entry[0] < min(end_s, other_end_s)]
    assert len(known) > 20
    for (_, tables, _, _), (_, others, _, _) in zip(known, second, strict=False):
        for table, rows in tables.items():
            for column in set(rows.dtype.names) - predicted:
                assert np.array_equal(rows[column], others[table][column], equal_nan=True), (table, column)
    assert first[5][1]["request"].predicted_output_tokens != second[5][1]["request"].predicted_output_tokens


def test_observations_are_functions_of_the_view() -> None:
    env = make(IDS[2])
    seen, _ = env.reset(seed=0)
    player, done = legal_player(0), False
    while not done:
        assert np.array_equal(observation_of(env, env.view), seen)
        seen, _, done, _, _ = env.step(player(env))
    assert np.array_equal(observation_of(env, env.view), seen)
