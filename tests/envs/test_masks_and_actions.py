"""Masks are exactly the legal actions, and an illegal one becomes the documented legal one."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from env_tools import IDS, SMALL, arrays_workload, make, random_legal

from cacheenv import InputError
from cacheenv.envs.actions import ActionCodec
from cacheenv.envs.env import CacheEnv
from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.policy import DECISION_NONE, DECISION_ROUTE
from cacheenv.sim.actions import candidate_row, move_number, route_number


def is_legal(env: CacheEnv, state: dict, action: object) -> bool:
    """Whether an action is carried out as it is, found out by trying it."""
    env.set_state(state)
    *_, info = env.step(action)
    return not info["invalid_action"]


@pytest.mark.parametrize("allow_reject", [True, False])
@pytest.mark.parametrize("name", IDS)
def test_masks_are_the_legal_actions(name: str, allow_reject: bool) -> None:
    overrides = {"admission.allow_reject": allow_reject, "cluster.decode.kv_tokens": 40_000}
    env, probe = make(name, overrides=overrides), make(name, overrides=overrides)
    env.reset(seed=0, options={"workload": arrays_workload(30, output=400)})
    rng, seen, done, step = np.random.default_rng(0), set(), False, 0
    while not done:
        mask = env.action_masks()
        assert mask.any() and mask.shape == (env.action_space.n,)
        if step % 6 == 0:
            state = env.get_state()
            legal = [is_legal(probe, state, action) for action in range(env.action_space.n)]
            assert np.array_equal(mask, legal)
            seen.add((env.decision, int(mask.sum())))
        _, _, done, _, info = env.step(random_legal(mask, rng))
        assert not info["invalid_action"]
        assert np.array_equal(info["action_mask"], env.action_masks())
        step += 1
    assert len(seen) > 1
    final = env.action_masks()
    assert env.decision == DECISION_NONE and final[-1] and final.sum() == 1


@pytest.mark.parametrize("name", IDS)
def test_factored_masks_are_what_some_legal_action_has(name: str) -> None:
    joint, env = make(name), make(name, action_format="factored")
    options = {"workload": arrays_workload(40, output=400)}
    joint.reset(seed=0, options=options)
    env.reset(seed=0, options=options)
    rng, done = np.random.default_rng(0), False
    sizes = env.action_space.nvec
    edges = np.concatenate([[0], np.cumsum(sizes)])
    while not done:
        actions = np.flatnonzero(joint.action_masks())
        routing = joint.decision == DECISION_ROUTE
        wanted = [np.arange(size) == 0 for size in sizes]  # parts that are not read
        if name == IDS[2] and routing:
            wanted[4] = np.array([False, True])
        first = 0 if routing or name != IDS[2] else 4
        for part in range(first, first + 4):
            wanted[part][:] = False
        for action in actions:
            parts = list(joint.decode_action(action).values())
            for part, value in enumerate(parts):
                if part == 0 or not parts[0]:  # reject and stay read no other part
                    wanted[first + part][int(value)] = True
        for part in range(first, first + 4):  # nothing but reject or stay is legal: the others are not read either
            wanted[part][0] |= not wanted[part].any()
        assert np.array_equal(env.action_masks(), np.concatenate(wanted))
        assert all(env.action_masks()[a:b].any() for a, b in itertools.pairwise(edges))
        action = random_legal(joint.action_masks(), rng)
        _, _, done, _, _ = env.step(env.encode_action(**joint.decode_action(action)))
        joint.step(action)


def test_factored_actions_out_of_range_are_illegal() -> None:
    env = make(IDS[2], action_format="factored")
    env.reset(seed=0)
    state = env.get_state()
    good = env.encode_action(prefill=2, decode=2)
    assert is_legal(env, state, good)
    for part, value in ((0, 2), (0, -1), (1, 3), (1, -1), (2, 3), (3, 2), (3, -1)):
        bad = good.copy()
        bad[part] = value
        assert not is_legal(env, state, bad)


@pytest.mark.parametrize("action_format", ["joint", "factored"])
def test_an_illegal_route_goes_to_the_least_loaded_pair(action_format: str) -> None:
    env = make(IDS[2], action_format=action_format)
    env.reset(seed=0, options={"workload": arrays_workload(60)})
    tried = 0
    while tried < 10:
        view = env.view
        illegal = env.encode_action(prefill=0, decode=0, pull=True)
        if env.decision != DECISION_ROUTE:
            env.step(env.encode_action(stay=True))
            continue
        if view.prefill.pull_tokens[0] > 0:
            env.step(env.encode_action(prefill=tried % 3, decode=0))
            continue
        request = int(view.request.index[0])
        prefill = int(np.argmin(view.prefill.backlog_s))
        decode = int(np.argmin(view.decode.kv_tokens + view.decode.pending_tokens))
        *_, info = env.step(illegal)
        assert info["invalid_action"] is True
        record = env.result().requests[request]
        assert (record.prefill_instance, record.decode_instance) == (prefill, decode)
        assert record.pulled_tokens == 0
        tried += 1


def test_an_illegal_move_stays() -> None:
    env = make(IDS[1])
    env.reset(seed=0, options={"workload": arrays_workload(60)})
    for _ in range(10):
        twin = copy.deepcopy(env)
        illegal = int(np.flatnonzero(~env.action_masks())[0])
        seen, reward, terminated, _, info = env.step(illegal)
        other, reward2, terminated2, _, info2 = twin.step(twin.encode_action(stay=True))
        assert info.pop("invalid_action") and not info2.pop("invalid_action")
        assert np.array_equal(seen, other) and (reward, terminated, info["dt"]) == (reward2, terminated2, info2["dt"])


@pytest.mark.parametrize("action", [-1, 10**9])
@pytest.mark.parametrize("name", IDS)
def test_numbers_outside_the_space_are_illegal(name: str, action: int) -> None:
    env = make(name)
    env.reset(seed=0)
    *_, info = env.step(action)
    assert info["invalid_action"]


def test_the_other_half_of_the_space_is_illegal() -> None:
    env = make(IDS[2])
    env.reset(seed=0, options={"workload": arrays_workload(60)})
    decisions = set()
    while len(decisions) < 2:
        decisions.add(env.decision)
        routing = env.decision == DECISION_ROUTE
        *_, info = env.step(env.encode_action(stay=True) if routing else env.encode_action(reject=True))
        assert info["invalid_action"]


@pytest.mark.parametrize("name", IDS)
def test_actions_have_parts(name: str) -> None:
    env = make(name)
    for action in range(env.action_space.n):
        assert env.encode_action(**env.decode_action(action)) == action
    for outside in (-1, int(env.action_space.n)):
        with pytest.raises(InputError, match=f"action: expected 0 to {env.action_space.n - 1}, got {outside}"):
            env.decode_action(outside)
    if name != IDS[1]:
        assert env.encode_action(prefill=2, decode=1, pull=True) == (2 * 3 + 1) * 2 + 1
        assert env.decode_action(2 * 3 * 3) == {"reject": True, "prefill": 0, "decode": 0, "pull": False}
        with pytest.raises(InputError, match="prefill: expected 0 to 2, got 3"):
            env.encode_action(prefill=3)
    if name != IDS[0]:
        block = 0 if name == IDS[1] else 2 * 3 * 3 + 1
        assert env.encode_action(source=2, candidate=1, destination=0) == block + (2 * 2 + 1) * 3
        assert env.encode_action(stay=True) == env.action_space.n - 1
        with pytest.raises(InputError, match="candidate: expected 0 to 1, got 2"):
            env.encode_action(candidate=2)
    else:
        with pytest.raises(InputError, match="nothing to move"):
            env.encode_action(stay=True)


def test_grids_are_the_numbers_by_their_parts() -> None:
    codec = ActionCodec(num_prefill=2, num_decode=3, candidates=4, routes=True, moves=True, factored=False)
    routes, moves = np.arange(codec.route_count), np.arange(codec.move_count)
    for place, number in np.ndenumerate(codec.route_grid(routes)):
        assert number == route_number(*place, codec.num_decode)
    for (source, slot, target), number in np.ndenumerate(codec.move_grid(moves)):
        assert number == move_number(candidate_row(source, slot, codec.candidates), target, codec.num_decode)
    assert (codec.reject_number, codec.stay_number) == (routes[-1], moves[-1])


def test_masks_of_a_batch_are_never_empty() -> None:
    for action_format in ("joint", "factored"):
        batch = CacheVectorEnv(8, scenario=SMALL, action_format=action_format, overrides={"workload.requests": 15})
        batch.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(150):
            assert batch.action_masks().any(1).all()
            actions = batch.action_space.sample() if action_format == "factored" else rng.integers(0, 37, 8)
            batch.step(actions)
