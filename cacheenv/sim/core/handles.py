"""How compiled code is handed many tables: as one pointer to where they are.

A tuple of arrays is handed to a compiled function array by array, each as seven numbers; for the forty tables of a
world that takes longer than most functions run, makes the code of every call long, and the compiler slow. So compiled
code gets the address of a row of numbers, a *handle*: the address of each table's first entry and its lengths.
`w.request` reads them there. Under `NUMBA_DISABLE_JIT=1`, and where Python looks at a world, it is the tuple itself.

Nothing writes a handle while compiled code runs, which is what lets the compiler read an address once and keep it
(LLVM's `invariant.load`). Whoever replaces a table makes new handles before the next call; the tables have to live as
long as their handles.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, ir_utils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numba.np.arrayobj import populate_array


class TablesType(types.Type):
    """The compiled type of a named tuple of C-contiguous tables that is reached through a handle.

    Args:
        module: Module that the type stands in, and
        attribute: its name there: both are how a function that was compiled earlier finds it again.
        example: Tables of the right types and numbers of axes, in the order of their names.
        first: The word of the handle at which they start.
    """

    def __init__(self, module: str, attribute: str, example: Any, first: int = 0) -> None:
        super().__init__(name=f"Tables({attribute})")
        self.place = module, attribute
        self.tables: dict[str, tuple[Any, int]] = {}
        for name, table in zip(example._fields, example, strict=True):
            self.tables[name] = numba.typeof(table), first
            first += 1 + table.ndim
        self.words = first

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
        return _find, self.place


def _find(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)


@register_model(TablesType)
class _Model(models.OpaqueModel):
    """A pointer."""


@infer_getattr
class _Attributes(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, tables: Any, name: str) -> Any:  # type: ignore[override]
        return tables.tables[name][0] if name in tables.tables else None


@lower_getattr_generic(TablesType)
def _table(context: Any, builder: Any, tables: TablesType, value: Any, name: str) -> Any:
    """The array of a table, from its address and its lengths."""
    kind, first = tables.tables[name]
    word = context.get_value_type(types.intp)
    words = builder.bitcast(value, word.as_pointer())

    def load(offset: int) -> Any:
        number = builder.load(builder.gep(words, [word(first + offset)]))
        number.set_metadata("invariant.load", builder.module.add_metadata([]))
        return number

    array = context.make_array(kind)(context, builder)
    itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    shape = [load(1 + axis) for axis in range(kind.ndim)]
    strides = [word(itemsize)]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(load(0), context.get_data_type(kind.dtype).as_pointer())
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=word(itemsize), meminfo=None)
    return array._getvalue()


def reader(tables: TablesType) -> Any:
    """A function for compiled code, `read(handles, index)`: the tables of row `index` of int64 (rows, words)."""

    @intrinsic
    def read(typing_context: Any, handles: Any, index: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            width = cgutils.unpack_tuple(builder, array.shape)[1]
            row = builder.gep(array.data, [builder.mul(arguments[1], width)])
            return builder.bitcast(row, context.get_value_type(tables))

        return tables(handles, types.intp), build

    return read


def leads_to_argument(function: Callable[..., Any]) -> None:
    """Tells Numba that what `function` returns belongs to its first argument.

    Else it takes tables behind a handle for the caller's own, and leaves out what is written to them and not read.
    """

    def note(result: str, arguments: Any, aliases: Any, of_arguments: Any) -> None:
        ir_utils._add_alias(result, arguments[0].name, aliases, of_arguments)

    ir_utils.alias_func_extensions[function.__name__, function.__module__] = note


def write_handle(handles: np.ndarray, tables: TablesType, name: str, table: np.ndarray, rows: np.ndarray) -> None:
    """Enters a stacked table in its words of the handles: row i of them gets entry `rows[i]` of the table."""
    if not table.flags.c_contiguous:
        raise ValueError(f"{name}: expected a C-contiguous table")
    first = tables.tables[name][1]
    handles[:, first] = table.ctypes.data + table.strides[0] * rows
    handles[:, first + 1 : first + table.ndim] = table.shape[1:]
