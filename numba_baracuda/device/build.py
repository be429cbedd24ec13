"""Builders of device intrinsics: inline PTX and typed memory access, each with its meaning in the emulator.

An intrinsic takes a pointer (a ``CPointer`` or a 1-D C-contiguous array) and the index of an element in it; indices never wrap around.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from ..runtime.meanings import means

I16, I32, I64 = (ir.IntType(bits) for bits in (16, 32, 64))


def is_place(pointer: Any, index: Any) -> bool:
    """Whether these types name an element of memory."""
    return isinstance(pointer, types.Array | types.CPointer) and isinstance(index, types.Integer)


def address(context: Any, builder: Any, pointer_type: Any, pointer: Any, index_type: Any, index: Any) -> Any:
    """The LLVM pointer to ``pointer[index]``."""
    if index_type.bitwidth < 64:
        index = (builder.sext if index_type.signed else builder.zext)(index, I64)
    base = pointer if isinstance(pointer_type, types.CPointer) else context.make_array(pointer_type)(context, builder, value=pointer).data
    return builder.gep(base, [index])


def constraint(ty: Any) -> str:
    """The inline-assembly register class of a scalar type."""
    if isinstance(ty, types.Float):
        return {32: "f", 64: "d"}[ty.bitwidth]
    return {16: "h", 32: "r", 64: "l"}[ty.bitwidth]


def _with_parameters(names: Sequence[str], body: Callable[..., Any]) -> Callable[..., Any]:
    """``body`` as a typing function whose signature has these names, which is what numba inspects."""

    def typing(_context: Any, *arguments: Any) -> Any:
        return body(*arguments)

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("typingctx", *names)]
    typing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return typing


def ptx(name: str, text: str, result: Any, arguments: Sequence[Any], meaning: Callable[..., Any]) -> Any:
    """A function of plain values as one PTX statement, e.g. ``ptx("f", "cvt.rn.bf16.f32 $0, $1;", uint16, (float32,), ...)``."""
    constraints = ",".join(["=" + constraint(result), *map(constraint, arguments)])

    def codegen(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(context.get_value_type(result), [context.get_value_type(ty) for ty in arguments])
        return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=False), values)

    typing = _with_parameters([f"x{k}" for k in range(len(arguments))], lambda *_: (result(*arguments), codegen))
    typing.__name__ = name
    made = intrinsic(typing)
    means(made)(meaning)
    return made


def ptx_memory(
    name: str, text: str | Callable[[Any], str], values: int, meaning: Callable[..., Any], *, returns: bool = False, element: Any = None
) -> Any:
    """An access of memory as one PTX statement: operands are the result (if any), the address, then ``values`` scalars of the element type.

    ``text`` may be a function of the element type. ``meaning(lane, site, pointer, index, *values)``.
    """

    def typing_body(pointer: Any, index: Any, *given: Any) -> Any:
        if not is_place(pointer, index):
            return None
        kind = element or pointer.dtype
        result = kind if returns else types.void
        signature = result(pointer, types.unliteral(index), *[kind] * values)
        constraints = ",".join((["=" + constraint(kind)] if returns else []) + ["l"] + [constraint(kind)] * values + ["~{memory}"])

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            scalar = context.get_value_type(kind)
            where = builder.ptrtoint(address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1]), I64)
            shape = ir.FunctionType(scalar if returns else ir.VoidType(), [I64] + [scalar] * values)
            statement = text if isinstance(text, str) else text(kind)
            out = builder.call(ir.InlineAsm(shape, statement, constraints, side_effect=True), [where, *arguments[2:]])
            return out if returns else context.get_dummy_value()

        return signature, codegen

    typing = _with_parameters(["pointer", "index", *[f"x{k}" for k in range(values)]], typing_body)
    typing.__name__ = name
    made = intrinsic(typing)
    means(made, lane=True)(meaning)
    return made


opaque = ptx("opaque", "mov.b64 $0, $1;", types.int64, (types.int64,), lambda x: x)
"""``opaque(x)`` is x, but LLVM cannot see that: a loop that counts by it is neither unrolled nor given a division for its trip count."""
