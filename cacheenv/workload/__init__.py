"""Workloads: the request table, the trace loader, the generators and the statistics of a workload."""

from cacheenv.workload.chat import ChatParams
from cacheenv.workload.coding_agent import CodingAgentParams
from cacheenv.workload.generators import GENERATORS, check_params, generate
from cacheenv.workload.mooncake import load_mooncake
from cacheenv.workload.reasoning import ReasoningParams
from cacheenv.workload.stats import hit_ceiling, lru_hit_blocks, workload_stats
from cacheenv.workload.table import REFRESH_TOKENS, WORKLOAD_DTYPE, Workload, mean_residual_tokens

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
    "load_mooncake",
    "lru_hit_blocks",
    "mean_residual_tokens",
    "workload_stats",
]
