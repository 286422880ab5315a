"""Workloads: the requests of an episode, from a trace or a generator, and their statistics."""

from cacheenv.sim.state.codes import REFRESH_TOKENS
from cacheenv.workload.chat import ChatParams
from cacheenv.workload.coding_agent import CodingAgentParams
from cacheenv.workload.generators import GENERATORS, check_params, generate
from cacheenv.workload.lengths import mean_residual_tokens
from cacheenv.workload.reasoning import ReasoningParams
from cacheenv.workload.stats import hit_ceiling, lru_hit_blocks, workload_stats
from cacheenv.workload.workload import WORKLOAD_DTYPE, Workload

__all__ = [
    "GENERATORS",
    "REFRESH_TOKENS",
    "WORKLOAD_DTYPE",
    "ChatParams",
    "CodingAgentParams",
    "ReasoningParams",
    "Workload",
    "check_params",
    "generate",
    "hit_ceiling",
    "lru_hit_blocks",
    "mean_residual_tokens",
    "workload_stats",
]
