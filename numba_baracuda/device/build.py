"""Builders of device intrinsics: inline PTX and typed memory access, each with its meaning in the emulator.

An intrinsic takes a pointer (a ``CPointer`` or a 1-D C-contiguous array) and the index of an element in it; indices never wrap around.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core import errors
from numba.cuda.extending import intrinsic

from ..emulator.meanings import means

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
SHARED = 3  #: LLVM's number for shared memory
F32, F64, VOID = ir.FloatType(), ir.DoubleType(), ir.VoidType()


def refuse(message: str) -> NoReturn:
    """Ends the typing of a call with this message."""
    raise errors.TypingError(message)


def expect_pointer(name: str, pointer: Any) -> None:
    """Refuses what is neither a pointer nor a 1-D C-contiguous array."""
    contiguous = isinstance(pointer, types.Array) and (pointer.ndim, pointer.layout) == (1, "C")
    if not contiguous and not isinstance(pointer, types.CPointer):
        refuse(f"{name}: pointer is {pointer}, wants a 1-D C-contiguous array or a pointer")


def element_of(name: str, pointer: Any, index: Any, accepts: Sequence[Any] | None = None) -> Any:
    """The element type of the memory that a call names, which must be one of ``accepts``; anything else is refused."""
    expect_pointer(name, pointer)
    if not isinstance(index, types.Integer):
        refuse(f"{name}: index is {index}, wants an integer")
    if bits_of(pointer.dtype) == 0 or (accepts is not None and pointer.dtype not in accepts):
        refuse(f"{name}: elements are {short(pointer.dtype)}, wants {', '.join(map(short, accepts)) if accepts else 'numbers'}")
    return pointer.dtype


def expect_numbers(name: str, element: Any, values: Sequence[Any]) -> None:
    """Refuses values that are no numbers, and floats for an integer element."""
    for value in values:
        if not isinstance(value, types.Integer | types.Float) or (isinstance(element, types.Integer) and isinstance(value, types.Float)):
            refuse(f"{name}: value is {value}, wants {'an integer' if isinstance(element, types.Integer) else 'a float'}")


def short(ty: Any) -> str:
    """A type as messages name it."""
    return "bfloat16" if ty == types.bfloat16 else str(ty)


def bits_of(element: Any) -> int:
    """The width of an element in memory; 0 for what is no number."""
    if isinstance(element, types.Boolean):
        return 8
    return element.bitwidth if isinstance(element, types.Integer | types.Float) or element == types.bfloat16 else 0


def address(context: Any, builder: Any, pointer_type: Any, pointer: Any, index_type: Any, index: Any) -> Any:
    """The LLVM pointer to ``pointer[index]``."""
    if index_type.bitwidth < 64:
        index = (builder.sext if index_type.signed else builder.zext)(index, I64)
    base = pointer if isinstance(pointer_type, types.CPointer) else context.make_array(pointer_type)(context, builder, value=pointer).data
    return builder.gep(base, [index])


def number_of(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of the element that a call's first two arguments name, as an integer."""
    return builder.ptrtoint(address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1]), I64)


def assemble(builder: Any, text: str, result: Any, operands: Sequence[Any], *, memory: bool = False) -> Any:
    """One PTX statement on LLVM values; ``result`` is an LLVM type, a list of them, or VOID. ``memory`` says that it reads or writes memory."""

    def register(ty: Any) -> str:
        return {F32: "f", F64: "d"}.get(ty) or {16: "h", 32: "r", 64: "l"}[ty.width]

    results = result if isinstance(result, list) else [] if result == VOID else [result]
    classes = ["=" + register(ty) for ty in results] + [register(value.type) for value in operands] + (["~{memory}"] if memory else [])
    shape = ir.FunctionType(ir.LiteralStructType(result) if isinstance(result, list) else result, [value.type for value in operands])
    return builder.call(ir.InlineAsm(shape, text, ",".join(classes), side_effect=memory), list(operands))


@contextlib.contextmanager
def either_side_of(builder: Any, capability: int) -> Iterator[Any]:
    """``if_else`` on the compute capability (90 for 9.0) that the code is compiled for.

    NVVM settles it, so only one side reaches the PTX, and the same IR serves every architecture: numba keeps the IR of a device function.
    """
    module, name = builder.module, "__numba_baracuda_arch"
    reflect = cgutils.get_or_insert_function(module, ir.FunctionType(I32, [I8.as_pointer()]), "__nvvm_reflect")
    text = bytearray(b"__CUDA_ARCH\0")
    known = module.globals.get(name) or cgutils.add_global_variable(module, ir.ArrayType(I8, len(text)), name)
    known.global_constant, known.linkage, known.initializer = True, "internal", ir.Constant(known.value_type, text)
    arch = builder.call(reflect, [builder.gep(known, [I32(0), I32(0)])])
    with builder.if_else(builder.icmp_signed(">=", arch, I32(10 * capability))) as sides:
        yield sides


def define(name: str, parameters: Sequence[str], body: Callable[..., Any], doc: str | None = None) -> Any:
    """The intrinsic ``name(*parameters)``; ``body(*types)`` gives its signature and code generator, or refuses."""

    def typing(_context: Any, *arguments: Any) -> Any:
        return body(*arguments)

    # numba inspects the signature of the typing function
    made = [inspect.Parameter(parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD) for parameter in ("typingctx", *parameters)]
    typing.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    typing.__name__ = typing.__qualname__ = name
    typing.__doc__ = doc
    return intrinsic(typing)


def ptx(name: str, text: str, result: Any, arguments: Sequence[Any], meaning: Callable[..., Any], doc: str | None = None) -> Any:
    """A function of plain values as one PTX statement, e.g. ``ptx("f", "cvt.rn.bf16.f32 $0, $1;", uint16, (float32,), ...)``."""

    def codegen(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return assemble(builder, text, context.get_value_type(result), values)

    def body(*given: Any) -> Any:
        for wanted, value in zip(arguments, given, strict=True):
            expect_numbers(name, wanted, [value])
        return result(*arguments), codegen

    made = define(name, [f"x{k}" for k in range(len(arguments))], body, doc)
    means(made)(meaning)
    return made


def ptx_statement(name: str, text: str, meaning: Callable[..., None], doc: str | None = None) -> Any:
    """A PTX statement without operands, in the order of all accesses to memory; ``meaning(lane, site)``."""

    def codegen(context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
        assemble(builder, text, VOID, [], memory=True)
        return context.get_dummy_value()

    made = define(name, [], lambda: (types.void(), codegen), doc)
    means(made, lane=True)(meaning)
    return made


def ptx_memory(
    name: str, text: str | Callable[[Any], str], values: int, meaning: Callable[..., Any], *, returns: bool = False, element: Any = None,
    accepts: Sequence[Any] | None = None, doc: str | None = None,
) -> Any:  # fmt: skip
    """An access of memory as one PTX statement: operands are the result (if any), the address, then ``values`` scalars of the element type.

    ``text`` may be a function of the element type; ``accepts`` lists the element types there are. ``meaning(lane, site, pointer, index, *values)``.
    """

    def body(pointer: Any, index: Any, *given: Any) -> Any:
        kind = element_of(name, pointer, index, accepts)
        kind = element or kind
        expect_numbers(name, kind, given)
        signature = (kind if returns else types.void)(pointer, types.unliteral(index), *[kind] * values)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            operands = [number_of(context, builder, signature, arguments), *arguments[2:]]
            statement = text if isinstance(text, str) else text(kind)
            out = assemble(builder, statement, context.get_value_type(kind) if returns else VOID, operands, memory=True)
            return out if returns else context.get_dummy_value()

        return signature, codegen

    made = define(name, ["pointer", "index", *[f"x{k}" for k in range(values)]], body, doc)
    means(made, lane=True)(meaning)
    return made


opaque = ptx(
    "opaque", "mov.b64 $0, $1;", types.int64, (types.int64,), lambda x: x,
    "x, but LLVM cannot see that: a loop that counts by ``opaque(i + step)`` is neither unrolled nor given a division for its trip count.",
)  # fmt: skip


def _opaque_pointer(pointer: Any) -> Any:
    expect_pointer("opaque_pointer", pointer)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base = address(context, builder, signature.args[0], arguments[0], types.int64, I64(0))
        hidden = assemble(builder, "mov.b64 $0, $1;", I64, [builder.ptrtoint(base, I64)])
        return builder.inttoptr(hidden, base.type)

    return types.CPointer(pointer.dtype)(pointer), codegen


opaque_pointer = define(
    "opaque_pointer", ["pointer"], _opaque_pointer,
    """The pointer, but LLVM cannot see where it comes from: what is added to it is computed once, and not anew at every access of a shared array.

    It reaches shared memory by accesses that are for it alone, as ``load_N_shared`` and ``store_N_shared``.
    """,
)  # fmt: skip
means(opaque_pointer)(lambda pointer: pointer)


def _pointer_at(pointer: Any, index: Any) -> Any:
    expect_pointer("pointer_at", pointer)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base = address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1])
        hidden = assemble(builder, "mov.b64 $0, $1;", I64, [builder.ptrtoint(base, I64)])
        return builder.inttoptr(hidden, base.type)

    return types.CPointer(pointer.dtype)(pointer, types.unliteral(index)), codegen


pointer_at = define(
    "pointer_at", ["pointer", "index"], _pointer_at,
    """The pointer to ``pointer[index]``, but LLVM cannot see where it comes from: offsets of 32 bits from it take one instruction each.""",
)  # fmt: skip
means(pointer_at)(lambda pointer, index: pointer.offset(index))
