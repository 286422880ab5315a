"""What the reference simulator is given: a cluster and requests, as plain dataclasses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class ReferenceRequest:
    """One request of the workload.

    `blocks` names the pages of the prompt, `ceil(prompt_tokens / page_tokens)` of them; a block id names its tokens and
    everything before them. `answer_blocks` names the pages that the output fills behind the full pages of the prompt;
    it is empty where they are not known.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    session: int = -1
    namespace: int = 0
    answer_blocks: tuple[int, ...] = ()
    think_s: float = 0.0  # after the last token of the session's turn before, where arrivals are closed


@dataclass(frozen=True)
class ReferenceCluster:
    """Everything that a scenario says about the cluster; seconds, tokens, bytes."""

    page_tokens: int = 1
    response_overhead_s: float = 0.0
    first_token: str = "prefill"  # prefill | decode
    # prefill instances
    num_prefill: int = 1
    prefill_a_s: float = 0.0
    prefill_b_s: float = 0.0
    prefill_c_s: float = 0.0
    min_prefill_s: float = 0.0
    n_tile: float = 0.0
    cache_tokens: int = 1_000_000
    eviction: str = "lru"  # lru | lru_node | lfu | fifo | length_aware | watermark
    cache_outputs: bool = True
    protect_queued: bool = False
    host_cache_tokens: int = 0  # 0: no host memory
    host_bytes_per_s: float = 1e9
    host_setup_s: float = 0.0
    host_write: str = "write_through"  # write_through | write_through_selective | write_back
    host_write_after_hits: int = 1
    load: str = "layerwise"  # layerwise | blocking
    queue: str = "fcfs"  # fcfs | lpm | lpm_aged | dfs_weight | random
    lpm_fallback: int = 128
    lpm_check_tokens: int = 32
    lpm_defer_tokens: int = 32
    lpm_ageing_tokens: int = 100
    batch_tokens: int = 8192
    chunk_tokens: int = 8192  # 0: no chunking
    max_batch_requests: int = 64
    schedule_s: float = 0.0
    kv_bytes_per_token: float = 1.0  # copies included
    backlog: str = "now"  # now | dispatch: when waiting prompts are priced
    # decode instances
    num_decode: int = 1
    decode_d_s: float = 0.0
    decode_e_s: float = 0.0
    decode_f_s: float = 0.0
    kv_tokens: int = 1_000_000
    max_batch: int = 256
    reserve_tokens: int = 1
    join_stall_s: float = 0.0
    preemption: str = "recompute"  # recompute | swap
    swap_bytes_per_s: float = 25e9
    damping: str = "none"  # none | sglang
    decode_kv_bytes_per_token: float = 1.0  # copies included
    decode_prefill_a_s: float = 0.0  # prefill on the decode hardware: recomputation after a preemption
    decode_prefill_b_s: float = 0.0
    decode_prefill_c_s: float = 0.0
    decode_min_prefill_s: float = 0.0
    # network
    nic_bytes_per_s: float = 1e9
    setup_s: float = 0.0
    per_block_s: float = 0.0
    layers: int = 1
    sharing: str = "max_min"  # max_min | equal_split
    handover: str = "blocking"  # chunked | last_chunk | blocking
    handover_fixed_s: float | None = None  # None: as setup_s
    handover_load_bytes_per_s: float = math.inf  # from the decode instance's DRAM to its GPU
    peer_pulls: bool = True
    # GPUs of an instance, and how many copies of a token's KV they hold together
    tensor_parallel: int = 1
    kv_copies: int = 1
    # fields that an instance has for itself, one mapping an instance; empty: all are equal
    prefill_own: tuple[dict[str, Any], ...] = ()
    decode_own: tuple[dict[str, Any], ...] = ()
    # store
    store_tokens: int = 0  # 0: no store
    store_nic_bytes_per_s: float = 1e9
    store_eviction: str = "lru"
    write_through: bool = True
    # what the router knows
    index_delay_s: float = 0.0
    index_learns: str = "stored"  # stored | assigned
    shards: int = 1
    events_per_s: float | None = None  # of a shard; None: all at once
    high_water: int = 100_000  # events waiting at a shard
    memory_tokens: int = 0
    memory_policy: str = "lru"  # lru | ttl
    memory_ttl_s: float = 120.0
    # the router's own time, one decision after the other
    decide_s: float = 0.0
    decide_s_per_block: float = 0.0
    # copies of hot prefixes
    replication_hits: int | None = None  # None: off
    window_s: float = 10.0
    replicas: int = 2  # the first one included
    # rescheduling
    period_s: float = 1.0
    candidates: int | None = 4  # None: all
    candidate_order: str = "remaining_per_kv"  # remaining_per_kv | shortest_kv
    stall_s: float = 0.0
    # prediction
    prediction: str = "oracle"  # oracle | none | star | weak
    tau_tokens: float | None = None
    mean_residual_tokens: tuple[float, ...] = (100.0,)
    # targets; None: not checked
    after_prefill: bool = False  # admission is asked again at the end of each prefill
    slo_ttft_s: float | None = None
    slo_tpot_s: float | None = None
    slo_tbt_tail_s: float | None = None
    slo_e2e_s: float | None = None
    warmup_requests: int = 0
    # users
    arrivals: str = "open"  # open | closed
    on_reject: str = "end_session"  # end_session | retry
    retry_s: float = 1.0
    max_retries: int = 3
    max_in_flight: int | None = None  # None: no bound

    def of_prefill(self, index: int) -> ReferenceCluster:
        """The cluster as if all instances were as this prefill instance."""
        return replace(self, **self.prefill_own[index]) if self.prefill_own else self

    def of_decode(self, index: int) -> ReferenceCluster:
        """The cluster as if all instances were as this decode instance."""
        return replace(self, **self.decode_own[index]) if self.decode_own else self

    def candidate_slots(self) -> int:
        """Candidates of a decode instance at most."""
        if self.candidates is not None:
            return self.candidates
        return max(self.of_decode(index).max_batch for index in range(self.num_decode))

    def cache_pages(self) -> int:
        """Capacity of one prefill instance's cache."""
        return self.cache_tokens // self.page_tokens

    def host_pages(self) -> int:
        """Capacity of one prefill instance's host memory."""
        return self.host_cache_tokens // self.page_tokens

    def store_pages(self) -> int:
        """Capacity of the store."""
        return self.store_tokens // self.page_tokens

    def pages(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens, a partial one included."""
        return -(-tokens // self.page_tokens)

    def full_pages(self, tokens: int) -> int:
        """Pages that `tokens` tokens fill."""
        return tokens // self.page_tokens

    def matchable_pages(self, tokens: int) -> int:
        """Pages of a prompt that a match may use: at least one token is computed."""
        return (tokens - 1) // self.page_tokens
