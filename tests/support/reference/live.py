"""A request while it is being served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cluster import ReferenceCluster, ReferenceRequest
from .links import Flow
from .records import RequestRecord

if TYPE_CHECKING:
    from .migration import Migration


class LiveRequest:
    """A request, its record, and where it stands."""

    def __init__(self, index: int, request: ReferenceRequest, cluster: ReferenceCluster) -> None:
        """A request that has not arrived."""
        self.index = index
        self.prompt_tokens = request.prompt_tokens
        self.output_tokens = request.output_tokens
        self.blocks = request.blocks
        self.delivered_by = cluster.first_token
        assert len(request.blocks) == cluster.pages(request.prompt_tokens)
        self.full_path = request.blocks[: cluster.full_pages(request.prompt_tokens)]
        # The KV of the last token is never computed.
        computed = cluster.full_pages(request.prompt_tokens + request.output_tokens - 1)
        self.path_with_answer = (*self.full_path, *request.answer_blocks)[:computed]
        self.matchable = cluster.matchable_pages(request.prompt_tokens)
        self.record = RequestRecord(
            request=index,
            session=request.session,
            namespace=request.namespace,
            arrival_s=request.arrival_s,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            counted=int(index >= cluster.warmup_requests),
        )
        self.arrived = False
        self.think_s = request.think_s
        self.came_s = 0.0  # to a full system
        # prefill
        self.lined_up = 0  # place in the order in which requests joined the queues
        self.pulling = False
        self.rounds = 0  # times that it was put in order with the others of its queue
        self.predicted_s = 0.0  # prefill time that the router expected
        self.held: tuple[int, ...] = ()  # cached path that it holds while it waits
        self.held_on_host: tuple[int, ...] = ()
        self.pulled_path: tuple[int, ...] = ()  # pages that are there, or on their way, while it pulls
        self.hit_pages = 0
        self.present_tokens = 0  # hit and computed
        self.private_pages = 0
        self.handover: Flow | None = None
        # decode
        self.generated = 0
        self.last_token_s = 0.0
        self.migration: Migration | None = None

    def kv_tokens(self) -> int:
        """Tokens whose KV is resident while it decodes."""
        return self.prompt_tokens + self.generated

    def first_token(self, now: float) -> None:
        """The prefill makes the first token."""
        self.record.prefill_end_s = now
        if self.delivered_by == "prefill" or self.output_tokens == 1:
            self.record.first_token_s = now
        self.generated = 1
        self.last_token_s = now

    def next_token(self, now: float) -> None:
        """A decode step makes one more."""
        self.generated += 1
        if self.generated == 2 and self.delivered_by == "decode":
            self.record.first_token_s = self.last_token_s = now  # the first token comes together with the second
        self.record.gaps_s.append(now - self.last_token_s)
        self.last_token_s = now
