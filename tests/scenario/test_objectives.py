"""An objective that a scenario does not name is not checked, and tables say which ones are."""

import dataclasses

import pytest

from cacheenv.scenario import list_scenarios, load_scenario
from cacheenv.scenario.objectives import NAMES, objectives_text


def test_what_is_not_named_is_not_checked():
    scenario = load_scenario({"slo": {"ttft_s": 2.0, "tpot_s": 0.05}})
    assert dataclasses.asdict(scenario.slo) == {"ttft_s": 2.0, "tpot_s": 0.05, "tbt_tail_s": None, "e2e_s": None}
    assert set(dataclasses.asdict(load_scenario({}).slo).values()) == {None}


@pytest.mark.parametrize("name", list_scenarios())
def test_bundled_scenarios_name_objectives_for_both_phases(name):
    slo = load_scenario(name).slo
    assert slo.ttft_s is not None
    assert slo.tpot_s is not None or slo.tbt_tail_s is not None


def test_objectives_in_words():
    slo = {"ttft_s": 10.0, "tpot_s": None, "tbt_tail_s": 0.2, "e2e_s": None}
    assert objectives_text(slo) == "objectives: TTFT <= 10 s, TBT tail <= 0.2 s"
    assert objectives_text({}) == "objectives: none, so every completed request meets them"
    assert set(NAMES) == set(dataclasses.asdict(load_scenario({}).slo))
