"""One world's view out of the stacked views."""

from __future__ import annotations

from cacheenv.sim.core.jit import inner
from cacheenv.sim.view.columns import View


@inner
def view_at(views, index):
    """View `index` of the stacked tables, without copying."""
    return View(
        views.cluster[index],
        views.request[index],
        views.prefill[index],
        views.decode[index],
        views.candidate[index],
        views.running[index],
    )
