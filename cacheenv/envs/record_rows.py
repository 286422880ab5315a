"""Records over a flat array of numbers: what `values.view(dtype)` gives, at an eighth of its time to compile."""

from __future__ import annotations

from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from cacheenv.sim.core.jit import disabled


@intrinsic
def _compiled_rows_over(typing_context, values, dtype):
    rows = types.Array(dtype.dtype, 1, "C")

    def build(context, builder, signature, arguments):
        flat = make_array(values)(context, builder, arguments[0])
        itemsize = context.get_constant(types.intp, rows.dtype.size)
        count = builder.sdiv(builder.mul(flat.nitems, flat.itemsize), itemsize)
        result = make_array(rows)(context, builder)
        data = builder.bitcast(flat.data, result.data.type)
        populate_array(result, data=data, shape=[count], strides=[itemsize], itemsize=itemsize, meminfo=None)
        return result._getvalue()

    return rows(values, dtype), build


def _plain_rows_over(values, dtype):
    return values.view(dtype)


#: `rows_over(values, dtype)`: the records that a contiguous array of numbers holds. They share its memory and do not
#: keep it alive: for compiled code without reference counting (`HOT_OPTIONS`).
rows_over = _plain_rows_over if disabled() else _compiled_rows_over
