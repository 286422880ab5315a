"""Schedulers choose among the instances that accept a request; the engine's fallback is not theirs to use."""

from __future__ import annotations

import pytest

from cacheenv.policy import make_policy
from cacheenv_baselines import names

ROUTERS = [name for name in names() if make_policy(name).router is not None and make_policy(name).admission is None]


@pytest.mark.parametrize("only", [0, 1, 2])
@pytest.mark.parametrize("name", ROUTERS)
def test_routers_take_the_one_that_accepts(name, only, build, fill, decider):
    view = build(3, 3, prompt_tokens=1000)
    fill(view.prefill, accepts=[int(i == only) for i in range(3)], hit_tokens=[900, 0, 900])
    fill(view.decode, accepts=[int(d == only) for d in range(3)])
    view.cluster[0].accepting_prefill = view.cluster[0].accepting_decode = 1
    assert decider(name).route(view)[:2] == (only, only)
