"""`sglang`: after a preemption admission reserves a share of what the batch has still to generate (SGLang).

Source: `new_token_ratio` of SGLang's scheduler (`schedule_batch.py: retract_decode`, `schedule_policy.py:
PrefillAdder`, `environ.py`). A retraction sets the share to min(1, (sum of generated tokens + 20 n) / (sum of output
limits + 1)) over the n requests that stay; each step takes (0.7 - 0.098) / 600 off. A request is let in if beside the
resident tokens there is room for that share of what each running one may still generate (at most 4,096 tokens each are
counted), and for all of what it and those let in at the same boundary may; for none less than `reserve_tokens`. Ours:
it ends when the share has fallen to SGLang's floor of 0.098, and before the first preemption the plain rule holds, as
in SGLang's disaggregated decode, where SGLang starts a mixed engine at 0.7. Requests of a workload have no limits of
their own; the true length stands for it, as where a client asks for what it gets.
"""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.decode.batch import generated_after, joined_now, request_at
from cacheenv.sim.decode.migration import capacity_tokens

START = 0.7
FLOOR = 0.14 * START
DECAY = (START - FLOOR) / 600  # a step
STEPS_AHEAD = 20  # that a retraction makes room for
CLIP_TOKENS = 4096  # of what a request may still generate


@inner
def preempted(w, d):
    """The share is what the batch has turned out to need so far."""
    row = w.decode[d]
    generated, limits = 0, 0
    for at in range(row.batch):
        index = request_at(w, d, at)
        generated += generated_after(w, index, 0)
        limits += w.request[index].output_tokens
    row.damping_share = min(1.0, (generated + STEPS_AHEAD * row.batch) / (limits + 1))
    row.damping_step = row.step


@inner
def admits(w, d, index):
    """Whether there is room for the growth that the share stands for."""
    row = w.decode[d]
    share = row.damping_share - DECAY * max(0, row.step - row.damping_step - 1)  # it falls after the next admission
    if share <= FLOOR:
        return True
    request = w.request[index]
    needed = request.prompt_tokens + request.generated + _growth(row, request.output_tokens - request.generated, 1.0)
    for at in range(row.batch):
        other = request_at(w, d, at)
        left = w.request[other].output_tokens - generated_after(w, other, 0)
        needed += _growth(row, left, 1.0 if joined_now(w, other) else share)
    return row.kv_tokens + needed <= capacity_tokens(w, d)


@inner
def _growth(row, left_tokens, share):
    """Whole tokens that are kept free for what a request may still generate."""
    return max(row.reserve_tokens, int(share * min(left_tokens, CLIP_TOKENS)))
