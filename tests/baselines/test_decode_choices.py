"""Decode choices by forecast: the next step, the KV to come, the largest load of the next steps."""

from __future__ import annotations

import numpy as np
import pytest

from cacheenv_baselines.bf_io import fill_loads


def chosen(decider, name, view, **params):
    return decider(name, **params).route(view)[1]


def among(decider, name, view, draws=80, **params):
    choice = decider(name, **params)
    return {choice.route(view)[1] for _ in range(draws)}


def test_least_tbt_weighs_requests_and_tokens(build, fill, decider):
    """0.02 s + 1 ms a request + 1 us a token, with this one: 41, 35 and 38 ms."""
    view = build(1, 3)
    fill(view.decode, inflight_requests=[9, 2, 14], kv_tokens=[10_000, 10_000, 1000], pending_tokens=[0, 1000, 1000])
    assert chosen(decider, "least_tbt", view) == 1
    fill(view.decode, pending_tokens=[0, 5000, 1000])  # 39 ms
    assert chosen(decider, "least_tbt", view) == 2
    view.decode[0].decode_e_s = 0.0001  # its own coefficients: 0.02 + 0.001 + 0.011
    assert chosen(decider, "least_tbt", view) == 0


def test_least_tbt_is_the_decode_choice_of_mooncake(build, fill, decider):
    view = build(2, 4)
    for load in ([3, 9, 4, 4], [5, 5, 5, 1]):
        fill(view.decode, inflight_requests=load, kv_tokens=[9000, 100, 7000, 7000])
        assert among(decider, "least_tbt", view) == among(decider, "mooncake", view)


def test_predicted_kv_counts_what_is_to_come(build, fill, add_running, decider):
    """3,000 tokens that end soon, 2,500 that grow by 2,000."""
    view = build(1, 2)
    add_running(view, [{"instance": 0, "kv_tokens": 3000, "predicted_remaining_tokens": 10.0},
                       {"instance": 1, "kv_tokens": 2500, "predicted_remaining_tokens": 2000.0}])  # fmt: skip
    assert chosen(decider, "predicted_kv", view) == 0
    assert chosen(decider, "predicted_kv", view, growth=0.2) == 1  # 3,002 against 2,900
    assert chosen(decider, "predicted_kv", view, growth=0) == 1


def test_predicted_kv_counts_what_is_not_running(build, fill, decider):
    """The population's mean output is 2,000: 400 + 2,000, 300 + 100 + 2 x 2,000, and 2,500 reserved."""
    view = build(1, 3)
    fill(view.decode, pending_requests=[1, 0, 0], waiting_requests=[0, 1, 0], preempted_requests=[0, 1, 0])
    fill(view.decode, pending_tokens=[400, 300, 0], preempted_tokens=[0, 100, 0], reserved_tokens=[0, 0, 2500])
    assert chosen(decider, "predicted_kv", view) == 0
    assert chosen(decider, "predicted_kv", view, growth=0) in (0, 1)
    view.decode[0].pending_tokens = 501
    assert chosen(decider, "predicted_kv", view) == 2


# -- bf_io


def test_bf_io_loads_by_hand(build, fill, add_running):
    """1,000 tokens for 2 steps and 500 for 1.5 (so 2); 300 beyond the horizon; 40 of two that are on their way."""
    view, tokens = build(1, 2), np.zeros((2, 4))
    add_running(view, [{"instance": 0, "kv_tokens": 1000, "predicted_remaining_tokens": 2.0},
                       {"instance": 0, "kv_tokens": 500, "predicted_remaining_tokens": 1.5},
                       {"instance": 0, "kv_tokens": 300, "predicted_remaining_tokens": 99.0},
                       {"instance": 1, "kv_tokens": 700, "predicted_remaining_tokens": 0.0}])  # fmt: skip
    fill(view.decode, pending_requests=[0, 2], pending_tokens=[0, 40])
    fill_loads(view, tokens, np.zeros((2, 4)))
    assert tokens[:, :3].tolist() == [[1800, 1803, 302], [40, 42, 44]]


def test_bf_io_keeps_the_largest_load_small(build, fill, add_running, decider):
    """A prompt of 1,000 on 5,000, 4,500 or 3,000: two leave the largest at 5,500 or more, one at 5,000."""
    view = build(1, 3, predicted_output_tokens=500)
    add_running(view, [{"instance": d, "kv_tokens": kv} for d, kv in enumerate((5000, 4500, 3000))])
    assert chosen(decider, "bf_io", view) == 2


def test_bf_io_sees_who_leaves(build, add_running, decider):
    """Instance 0 has more now, and nothing after 3 steps of 40; with a horizon of 3 it has more throughout."""
    view = build(1, 3, predicted_output_tokens=500)
    add_running(view, [{"instance": 0, "kv_tokens": 4000, "predicted_remaining_tokens": 3.0},
                       {"instance": 1, "kv_tokens": 3900},
                       {"instance": 2, "kv_tokens": 4100}])  # fmt: skip
    assert chosen(decider, "bf_io", view) == 0
    assert chosen(decider, "bf_io", view, horizon_steps=3) == 1


def test_bf_io_counts_this_request_as_long_as_it_lasts(build, add_running, decider):
    """On 0 it would be on top of 5,000 for the 2 steps that these last; on 1 it adds to 4,000 that stay.

    Lasting 2 steps: 6,000 x 2 + 4,000 x 38 against 5,000 x 2 + 4,000 x 38, so 1. Lasting 40: 6,000 x 2 + 4,000 x 38
    against 5,000 x 40, so 0.
    """
    view = build(1, 2, predicted_output_tokens=2)
    add_running(view, [{"instance": 0, "kv_tokens": 5000, "predicted_remaining_tokens": 2.0},
                       {"instance": 1, "kv_tokens": 4000}])  # fmt: skip
    assert chosen(decider, "bf_io", view) == 1
    view.request[0].predicted_output_tokens = 500
    assert chosen(decider, "bf_io", view) == 0


def test_bf_io_breaks_ties_by_its_own_load_and_then_at_random(build, fill, add_running, decider):
    view = build(1, 4, prompt_tokens=100, predicted_output_tokens=500)
    add_running(view, [{"instance": 0, "kv_tokens": 9000}, {"instance": 1, "kv_tokens": 500}])
    assert among(decider, "bf_io", view) == {2, 3}
    fill(view.decode, pending_tokens=[0, 0, 700, 600])
    assert among(decider, "bf_io", view) == {1}


def test_bf_io_passes_over_full_batches(build, fill, decider):
    view = build(1, 2)
    fill(view.decode, max_batch=4, inflight_requests=[4, 3], pending_tokens=[0, 9000])
    assert among(decider, "bf_io", view) == {1}
    fill(view.decode, inflight_requests=4)
    assert among(decider, "bf_io", view) == {0}


@pytest.mark.parametrize("name", ["least_tbt", "predicted_kv", "bf_io"])
def test_all_equal_is_random(build, decider, name):
    assert among(decider, name, build(1, 3)) == {0, 1, 2}
    assert decider(name).policy.kind == "decode_choice"
