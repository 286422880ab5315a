"""`early_reject`: refuse at arrival what the present load would make late.

Source: Mooncake (arXiv 2407.00079 sections 7.2-7.3), Early Rejection.
Rule: load of the prefill pool = predicted TTFT / TTFT SLO, of the decode pool = predicted time between tokens / its
SLO, from the decode load *of now*; accept while the larger is at most `threshold`.
Parameters:
  threshold (ratio): largest load that is accepted; OURS, the paper gives none
Ours: the prefill load is that of the proposed route. The decode load is the mean over the decode instances of the step
time of all whose KV is there (in the batch, waiting for it, or preempted), with this request added once, on the
instance that is proposed for it. The SLO between tokens is the tail SLO, else TPOT; one that is not set never refuses.
Where admission is asked again after a prefill, it accepts.
Quirk kept: requests still in prefill or hand-over are not in the decode load. It is read one prefill time too early,
which makes the two pools' loads swing against each other; `predictive_reject` is the paper's remedy.
"""

from __future__ import annotations

from cacheenv.policy import DECISION_ADMIT, policy, proposed_route
from cacheenv_baselines.rules import present_step_s, tbt_slo_s, ttft_forecast_s


@policy(kind="admission", params={"threshold": 1.0})
def early_reject(view, rng, params):
    """Mooncake's early rejection on the present load of the two pools."""
    threshold = params[0]
    prefill, decode, pull = proposed_route(view)
    if prefill < 0:
        return 0
    if view.cluster[0].decision == DECISION_ADMIT:
        return 1
    prefill_load = ttft_forecast_s(view, prefill, pull) / view.cluster[0].slo_ttft_s
    step_s = 0.0
    for d in range(view.cluster[0].num_decode):
        step_s += present_step_s(view, d, d == decode)
    decode_load = step_s / view.cluster[0].num_decode / tbt_slo_s(view)
    return 1 if max(prefill_load, decode_load) <= threshold else 0
