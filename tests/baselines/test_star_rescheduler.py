"""STAR: workload, classification, filters, gain."""

from __future__ import annotations

import pytest

from cacheenv_baselines import make
from cacheenv_baselines.star import weighted_load


def three(build, add_running, sizes, **columns):
    """Three decode instances with running requests of the given KV sizes."""
    view = build(1, 3, candidates=4)
    rows = [{"instance": d, "kv_tokens": kv, **columns} for d, group in enumerate(sizes) for kv in group]
    add_running(view, rows)
    return view


def moves(view, decider, draws=40):
    """All answers of one policy to the same view."""
    return {decider.move(view) for _ in range(draws)}


def test_weighted_load_by_hand():
    """Grid 0, 1, ..., 7 steps; weights 1/2, 1/4, ..., 1/128, 1/128."""
    whole = sum(0.5 ** (k + 1) * (10 + k) for k in range(7)) + 0.5**7 * 17
    assert weighted_load(10, 1e9, 7.0, 0.5) == pytest.approx(whole)
    assert weighted_load(10, 2.0, 7.0, 0.5) == pytest.approx(0.5 * 10 + 0.25 * 11), "gone at step 2"
    assert weighted_load(10, 1e9, 7.0, 1.0) == 10.0


def test_moves_what_evens_out_most(build, add_running, decider):
    """W = 12,000, 2000, 1000 now, mean 5000: moving 5000 to instance 2 gains most."""
    view = three(build, add_running, [[2000, 5000, 4000, 1000], [2000], [1000]])
    assert decider("star", first_weight=1.0).move(view) == (1, 2)
    assert decider("star_nopred").move(view) == (1, 2)


def test_prediction_changes_the_choice(build, add_running, decider):
    """Equal now; the requests of instance 0 stay, those of instance 1 are about to end."""
    view = build(1, 2)
    stays, ends = {"predicted_remaining_tokens": 9000.0}, {"predicted_remaining_tokens": 10.0}
    add_running(view, [{"instance": 0, "kv_tokens": 2000, **stays}, {"instance": 0, "kv_tokens": 500, **stays},
                       {"instance": 1, "kv_tokens": 2500, **ends}])  # fmt: skip
    assert decider("star_nopred").move(view) == "stay"
    assert decider("star").move(view) == (1, 1)


def test_equal_load_does_not_ping_pong(build, add_running, decider):
    """Ten and nine equal requests: a move would only swap the two, whatever the margin."""
    view = build(1, 2, candidates=16)
    add_running(view, [{"instance": int(j >= 10), "kv_tokens": 1000} for j in range(19)])
    assert decider("star", theta=0.0, theta_low=0.0).move(view) == "stay"
    view = build(1, 2, candidates=16)
    add_running(view, [{"instance": int(j >= 11), "kv_tokens": 1000} for j in range(20)])
    assert decider("star", theta=0.0, theta_low=0.0).move(view) != "stay"


def test_margins(build, add_running, decider):
    """W = 5600, 5000, 4400: 1.12 and 0.88 of the mean."""
    view = three(build, add_running, [[5200, 400], [5000], [4400]])
    assert decider("star_nopred").move(view) == (1, 2)
    assert decider("star_nopred", theta=0.13).move(view) == "stay"
    assert decider("star_nopred", theta_low=0.13).move(view) == "stay"


def test_amortisation(build, add_running, decider):
    """1000 tokens at 0.02 s are 20 s; three copies of 6 s are 18 s, of 7 s are 21 s."""
    view = three(build, add_running, [[4000, 3000], [1000], [1000]], predicted_remaining_tokens=1000.0)
    for migrate_s, expected in ((6.0, {(1, 1), (1, 2)}), (7.0, {"stay"})):
        view.candidate.migrate_s = migrate_s
        assert moves(view, decider("star_nopred")) == expected
    assert moves(view, decider("star_nopred", kappa=2.0)) == {(1, 1), (1, 2)}


def test_memory_keeps_room_for_half_of_what_is_to_come(build, add_running, decider):
    """1000 + 3000 + 0.5 * 5000 = 6500."""
    view = three(build, add_running, [[4000, 3000], [1000], [1000]])
    view.decode.capacity_tokens = [100_000, 6499, 6500]
    assert moves(view, decider("star_nopred")) == {(1, 2)}
    assert moves(view, decider("star_nopred", safety=0.4)) == {(1, 1), (1, 2)}, "equal destinations: a random one"


@pytest.mark.parametrize(
    ("column", "expected"),
    [("can_send", {"stay"}), ("can_receive", {(1, 2)}), ("room_tokens", {(1, 2)})],
)
def test_only_legal_moves(build, add_running, decider, column, expected):
    """Reported of others: the same request moved twice at once. Instance 0 or 1 may not take part."""
    view = three(build, add_running, [[4000, 3000], [1000], [1000]])
    assert moves(view, decider("star_nopred")) == {(1, 1), (1, 2)}
    view.decode[0 if column == "can_send" else 1][column] = 0
    assert moves(view, decider("star_nopred")) == expected


def test_empty_slots_and_recent_moves_are_passed_over(build, add_running, decider):
    view = three(build, add_running, [[4000, 3000], [1000], [1000]])
    view.candidate[1].since_move_s = 4.9
    assert moves(view, decider("star_nopred")) == {(0, 1), (0, 2)}
    assert moves(view, decider("star_nopred", cooldown_s=4.0)) == {(1, 1), (1, 2)}
    view.candidate[0].valid = 0
    assert decider("star_nopred").move(view) == "stay"


def test_request_on_its_way_counts_at_its_destination(build, add_running, decider):
    """3000 of instance 0 are on their way to instance 1, where 3512 tokens are reserved: all have 4000."""
    view = build(1, 3)
    add_running(view, [{"instance": 0, "kv_tokens": 3000, "migrating": 1}, {"instance": 0, "kv_tokens": 3000},
                       {"instance": 0, "kv_tokens": 1000}, {"instance": 1, "kv_tokens": 1000},
                       {"instance": 2, "kv_tokens": 4000}])  # fmt: skip
    view.decode[1].reserved_tokens = 3512
    assert decider("star_nopred").move(view) == "stay"
    view.decode[1].reserved_tokens = 0
    assert decider("star_nopred").move(view) == (1, 1), "4000, 1000, 4000"
    view.running[0].migrating = 0
    assert decider("star_nopred").move(view) == (0, 1), "7000, 1000, 4000"


def test_gain_min(build, add_running, decider):
    """Variance of 7000, 1000, 1000 is 8e6, of 4000, 4000, 1000 is 2e6: a gain of 6e6."""
    view = three(build, add_running, [[4000, 3000], [1000], [1000]])
    assert moves(view, decider("star_nopred", gain_min=5.9e6)) == {(1, 1), (1, 2)}
    assert decider("star_nopred", gain_min=6e6).move(view) == "stay"


def test_variance_trigger(build, add_running, decider):
    """7000, 5000, 4000: cv 0.234; 6400, 5000, 4000: cv 0.192."""
    view = three(build, add_running, [[6000, 1000], [5000], [4000]])
    assert decider("star_variance", first_weight=1.0).move(view) == (1, 2)
    view = three(build, add_running, [[5400, 1000], [5000], [4000]])
    assert decider("star_variance", first_weight=1.0).move(view) == "stay"
    assert decider("star_nopred").move(view) == (1, 2)


def test_idle_cluster_and_single_instance(build, decider, add_running):
    assert decider("star").move(build(1, 3)) == "stay"
    assert decider("star_variance").move(build(1, 3)) == "stay"
    view = build(1, 1)
    add_running(view, [{"instance": 0, "kv_tokens": 50_000}])
    assert decider("star").move(view) == "stay"


def test_variants_ask_for_their_predictor():
    assert make("star").requires == {"reschedule.candidates": None}
    assert make("star_oracle").requires["prediction.kind"] == "oracle"
    assert make("star_nopred").requires["prediction.kind"] == "none"
    assert {make(name).kind for name in ("star", "star_oracle", "star_nopred", "star_variance")} == {"rescheduler"}
