"""Names that keys may take agree with the codes and the tables that they stand for."""

from cacheenv.scenario.sections import TRACE_KIND, WORKLOAD_KINDS
from cacheenv.sim.state import codes
from cacheenv.workload import GENERATORS


def test_names_stand_in_the_order_of_the_simulators_codes():
    orders = (codes.ORDER_REMAINING_PER_KV, codes.ORDER_SHORTEST_KV)
    assert [codes.CANDIDATE_ORDERS[code] for code in orders] == ["remaining_per_kv", "shortest_kv"]


def test_every_generator_is_a_kind_of_workload():
    assert WORKLOAD_KINDS == (*GENERATORS, TRACE_KIND)
