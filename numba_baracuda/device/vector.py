"""Vector access: several neighbouring elements in one instruction, between memory and a local array.

``load_2(pointer, index, local, at)`` reads ``pointer[index : index + 2]`` into ``local[at : at + 2]``; ``store_2`` writes them back. ``index`` and
``at`` count elements. The address must be a multiple of the bytes moved. The ``_once`` forms promise that no thread writes the data during the
kernel, which lets them use the read-only path. Any thread may call them alone. A local array indexed by constants lives in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from ..runtime.meanings import means
from .build import I16, I32, address, is_place


def _local_pointer(context: Any, builder: Any, signature: Any, arguments: Any, offset: int) -> Any:
    at = builder.add(context.cast(builder, arguments[3], signature.args[3], types.int64), ir.Constant(ir.IntType(64), offset))
    return address(context, builder, signature.args[2], arguments[2], types.int64, at)


def _words(context: Any, element: Any, count: int) -> tuple[Any, int]:
    """The LLVM vector to move and how many elements each of its lanes holds: 16-bit elements travel in pairs, or the access would be split."""
    if element.bitwidth == 16 and count > 1:
        return ir.VectorType(I32, count // 2), 2
    return ir.VectorType(context.get_data_type(element), count), 1


def _load(count: int, once: bool) -> Any:
    @intrinsic
    def load(typingctx: Any, pointer: Any, index: Any, local: Any, at: Any) -> Any:
        if not (is_place(pointer, index) and is_place(local, at) and local.dtype == pointer.dtype):
            return None
        element = pointer.dtype
        signature = types.void(pointer, types.unliteral(index), local, types.unliteral(at))

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector, packed = _words(context, element, count)
            where = address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1])
            loaded = builder.load(builder.bitcast(where, vector.as_pointer()), align=count * element.bitwidth // 8)
            if once:
                loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            for k in range(count):
                value = builder.extract_element(loaded, ir.Constant(I32, k // packed))
                if packed == 2:
                    value = builder.trunc(builder.lshr(value, ir.Constant(I32, 16 * (k % 2))), I16)
                    value = builder.bitcast(value, context.get_data_type(element))
                builder.store(value, _local_pointer(context, builder, signature, arguments, k))
            return context.get_dummy_value()

        return signature, codegen

    @means(load, lane=True)
    def meaning(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int) -> None:
        for k, value in enumerate(pointer.load_vector(lane, index, count, site)):
            local.store(lane, at + k, value, site)

    return load


def _store(count: int) -> Any:
    @intrinsic
    def store(typingctx: Any, pointer: Any, index: Any, local: Any, at: Any) -> Any:
        if not (is_place(pointer, index) and is_place(local, at) and local.dtype == pointer.dtype):
            return None
        element = pointer.dtype
        signature = types.void(pointer, types.unliteral(index), local, types.unliteral(at))

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector, packed = _words(context, element, count)
            values = [builder.load(_local_pointer(context, builder, signature, arguments, k)) for k in range(count)]
            if packed == 2:
                halves = [builder.zext(builder.bitcast(value, I16), I32) for value in values]
                values = [builder.or_(low, builder.shl(high, ir.Constant(I32, 16))) for low, high in zip(halves[::2], halves[1::2], strict=True)]
            whole = ir.Constant(vector, ir.Undefined)
            for k, value in enumerate(values):
                whole = builder.insert_element(whole, value, ir.Constant(I32, k))
            where = address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1])
            builder.store(whole, builder.bitcast(where, vector.as_pointer()), align=count * element.bitwidth // 8)
            return context.get_dummy_value()

        return signature, codegen

    @means(store, lane=True)
    def meaning(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int) -> None:
        pointer.store_vector(lane, index, tuple(local.load(lane, at + k, site) for k in range(count)), site)

    return store


load_1, load_2, load_4, load_8 = (_load(count, once=False) for count in (1, 2, 4, 8))
load_1_once, load_2_once, load_4_once, load_8_once = (_load(count, once=True) for count in (1, 2, 4, 8))
store_1, store_2, store_4, store_8 = (_store(count) for count in (1, 2, 4, 8))

LOAD = {1: load_1, 2: load_2, 4: load_4, 8: load_8}
LOAD_ONCE = {1: load_1_once, 2: load_2_once, 4: load_4_once, 8: load_8_once}
STORE = {1: store_1, 2: store_2, 4: store_4, 8: store_8}
