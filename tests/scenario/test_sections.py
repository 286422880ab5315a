"""Names that keys may take agree with the codes and the tables that they stand for."""

from cacheenv.scenario.sections import CANDIDATE_ORDERS, PREEMPTION_KINDS, QUEUE_KINDS, TRACE_KIND, WORKLOAD_KINDS
from cacheenv.sim.state import world
from cacheenv.workload import GENERATORS


def test_names_stand_in_the_order_of_the_simulators_codes():
    assert (QUEUE_KINDS.index("fcfs"), QUEUE_KINDS.index("lpm")) == (world.QUEUE_FCFS, world.QUEUE_LPM)
    codes = (world.PREEMPT_RECOMPUTE, world.PREEMPT_SWAP)
    assert (PREEMPTION_KINDS.index("recompute"), PREEMPTION_KINDS.index("swap")) == codes
    codes = (world.ORDER_REMAINING_PER_KV, world.ORDER_SHORTEST_KV)
    assert (CANDIDATE_ORDERS.index("remaining_per_kv"), CANDIDATE_ORDERS.index("shortest_kv")) == codes


def test_every_generator_is_a_kind_of_workload():
    assert WORKLOAD_KINDS == (*GENERATORS, TRACE_KIND)
