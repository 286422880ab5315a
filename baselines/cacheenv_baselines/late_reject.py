"""`late_reject`: refuse at arrival for the prefill load, and after the prefill for the decode load.

Source: Mooncake (arXiv 2407.00079 sections 3 and 7.2), the baseline of its Table 3: the prefill pool is checked at
arrival; when the KV is about to join its decode instance, that instance checks the SLO between tokens once more, and a
refusal wastes the prefill.
Rule: each pool has its own question:
  * At arrival: refuse where predicted TTFT / TTFT SLO exceeds `threshold`.
  * After the prefill: refuse where the step time of the request's decode instance, with this request added, over the
    SLO between tokens exceeds `threshold`.
Parameters:
  threshold (ratio): largest load that is accepted; OURS, the paper gives none
Requires: `admission.after_prefill`, the second question.
Ours: the second check comes at the end of the prefill, before the rest of the hand-over, where the paper has it at the
arrival of the KV. It counts all whose KV is at the instance: in the batch, waiting for it, or preempted; not those in
hand-over. The SLO between tokens is the tail SLO, else TPOT; one that is not set never refuses.
"""

from __future__ import annotations

from cacheenv.policy import DECISION_ADMIT, policy, proposed_route
from cacheenv_baselines.rules import present_step_s, tbt_slo_s, ttft_forecast_s


@policy(kind="admission", params={"threshold": 1.0}, requires={"admission.after_prefill": True})
def late_reject(view, rng, params):
    """Mooncake's two checks: the prefill load at arrival, the decode load after the prefill."""
    threshold = params[0]
    prefill, decode, pull = proposed_route(view)
    if prefill < 0:
        return 0
    if view.cluster[0].decision == DECISION_ADMIT:
        load = present_step_s(view, decode, True) / tbt_slo_s(view)
    else:
        load = ttft_forecast_s(view, prefill, pull) / view.cluster[0].slo_ttft_s
    return 1 if load <= threshold else 0
