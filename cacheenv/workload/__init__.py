"""Workloads: the request table, the trace loader, the generators and the statistics of a workload."""

from cacheenv.workload.mooncake import load_mooncake
from cacheenv.workload.table import REFRESH_TOKENS, WORKLOAD_DTYPE, Workload, mean_residual_tokens

__all__ = ["REFRESH_TOKENS", "WORKLOAD_DTYPE", "Workload", "load_mooncake", "mean_residual_tokens"]
