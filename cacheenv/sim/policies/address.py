"""The compiled type of a policy: `int64(View, int64[::1], float64[::1])`, called through its address.

Policies reach the compiled loops as a small array of addresses (:func:`policy_addresses`), which :func:`policy_at`
turns back into functions. Passing the functions themselves would do the same, but Numba then unpickles their type on
every call, which takes longer than a step of the environment. Under `NUMBA_DISABLE_JIT=1` the "addresses" are the
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from cacheenv.sim.core.jit import disabled
from cacheenv.sim.view.columns import allocate_view, view_rows

VIEW_TYPE = numba.typeof(view_rows(allocate_view(1, 1, 1, 1, 1), 0))
POLICY_SIGNATURE = types.int64(VIEW_TYPE, types.int64[::1], types.float64[::1])
POLICY_TYPE = types.FunctionType(POLICY_SIGNATURE)
ADDRESSES_TYPE = types.int64[:, ::1]


def policy_addresses(functions: Sequence[Any]) -> Any:
    """What the compiled loops take for policies: int64 array (policies, 2) of C and Numba addresses.

    The functions must stay alive as long as the array is used.
    """
    if disabled():
        return tuple(functions)
    rows = []
    for function in functions:
        compiled = function.get_compile_result(POLICY_SIGNATURE)
        names = (compiled.fndesc.llvm_cfunc_wrapper_name, compiled.fndesc.llvm_func_name)
        rows.append([compiled.library.get_pointer_to_function(name) for name in names])
    return np.array(rows, np.int64)


@intrinsic
def _function_at(typing_context, c_address, jit_address):
    """A first-class function from the addresses of its two entries."""
    signature = POLICY_TYPE(types.int64, types.int64)

    def build(context, builder, _, arguments):
        pointer = context.get_value_type(types.voidptr)
        value = cgutils.create_struct_proxy(POLICY_TYPE)(context, builder)
        value.c_addr = builder.inttoptr(arguments[0], pointer)
        value.py_addr = cgutils.get_null_value(pointer)
        value.jit_addr = builder.inttoptr(arguments[1], pointer)
        return value._getvalue()

    return signature, build


def _plain_policy_at(functions, index):
    return functions[index]


def _compiled_policy_at(addresses, index):
    return _function_at(addresses[index, 0], addresses[index, 1])


#: The policy in a row of :func:`policy_addresses`.
policy_at = _plain_policy_at if disabled() else numba.njit(inline="always")(_compiled_policy_at)
