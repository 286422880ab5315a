"""The compiled type of a policy: `int64(View, int64[::1], float64[::1])` as a first-class function."""

from __future__ import annotations

import numba

from cacheenv.sim.view_types import View, allocate_view

_EXAMPLE = allocate_view(1, 1, 1, 1, 1)
STACKED_VIEW_TYPE = numba.typeof(_EXAMPLE)
VIEW_TYPE = numba.typeof(View(*(table[0] for table in _EXAMPLE)))
POLICY_SIGNATURE = numba.types.int64(VIEW_TYPE, numba.types.int64[::1], numba.types.float64[::1])
POLICY_TYPE = numba.types.FunctionType(POLICY_SIGNATURE)
