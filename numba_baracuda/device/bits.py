"""Bits: casts that keep them, conversions between float32 and the 16-bit floats, and arithmetic on two 16-bit floats in one word.

``x_as_y`` keeps the bits, at no cost: ``f32_as_u32(x)``, ``i64_as_f64(b)``; ``f16`` and ``bf16`` name values of numba's types ``float16`` and
``bfloat16``. ``x_to_y`` converts, and there ``f16`` and ``bf16`` name bits in a uint16, as this package stores them: loads and stores of uint16
need no further thought. ``f16x2`` and ``bf16x2`` name two of them in a uint32, the first in the low half.

Rounding is to nearest even and subnormals are kept, whatever ``fastmath`` says. A NaN that is computed is the canonical one, 0x7fff (PTX ISA,
"Half Precision Floating Point Instructions"); bit casts keep NaNs as they are, except that the emulator makes signalling float32 NaNs quiet. Each
function is one or two instructions on compute capability 8.0 and above, touches no memory, and any thread may call it alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from numba.cuda import types
from numba.cuda.types import bfloat16, float16, float32, float64, int16, int32, int64, uint16, uint32, uint64

from ..emulator.conversions import code_of
from ..emulator.halves import bf16_bits, bf16_value, exact_sum, f16_bits, f16_value
from ..emulator.meanings import means, means_by_type
from .build import I16, I32, I64, address, assemble, bits_of, define, either_side_of, expect_numbers, expect_pointer, ptx, refuse, short
from .numbers import greatest, least
from .updates import widened


def _cast(name: str, source: Any, target: Any, code: str) -> Any:
    """A bit cast; ``code`` holds the struct codes of both sides."""

    def body(value: Any) -> Any:
        if value != source:
            refuse(f"{name}: value is {short(value)}, wants {short(source)}")
        return target(source), lambda context, builder, _signature, values: builder.bitcast(values[0], context.get_value_type(target))

    made = define(name, ["value"], body, f"The bits of {short(source)} as {short(target)}; no instruction.")
    known: dict[str, Callable[[Any], Any]] = {
        "He": f16_value,
        "eH": lambda x: struct.unpack("H", _f16(x))[0],
        "he": lambda b: f16_value(b & 0xFFFF),
        "eh": lambda x: struct.unpack("h", _f16(x))[0],
        "HH": lambda x: x,
        "Hh": lambda x: x - (x >> 15 << 16),
        "hH": lambda x: x & 0xFFFF,
    }
    means(made)(known.get(code) or (lambda x: struct.unpack(code[1], struct.pack(code[0], x))[0]))
    return made


def _f16(value: float) -> bytes:
    """The bytes of a float16 value, a NaN's included."""
    if value == value:
        return struct.pack("e", value)
    wide = struct.unpack("Q", struct.pack("d", value))[0]
    return struct.pack("H", wide >> 63 << 15 | 0x7C00 | (wide >> 42 & 0x3FF))


f16_as_u16, u16_as_f16 = _cast("f16_as_u16", float16, uint16, "eH"), _cast("u16_as_f16", uint16, float16, "He")
f16_as_i16, i16_as_f16 = _cast("f16_as_i16", float16, int16, "eh"), _cast("i16_as_f16", int16, float16, "he")
bf16_as_u16, u16_as_bf16 = _cast("bf16_as_u16", bfloat16, uint16, "HH"), _cast("u16_as_bf16", uint16, bfloat16, "HH")
bf16_as_i16, i16_as_bf16 = _cast("bf16_as_i16", bfloat16, int16, "Hh"), _cast("i16_as_bf16", int16, bfloat16, "hH")
f32_as_u32, u32_as_f32 = _cast("f32_as_u32", float32, uint32, "fI"), _cast("u32_as_f32", uint32, float32, "If")
f32_as_i32, i32_as_f32 = _cast("f32_as_i32", float32, int32, "fi"), _cast("i32_as_f32", int32, float32, "if")
f64_as_u64, u64_as_f64 = _cast("f64_as_u64", float64, uint64, "dQ"), _cast("u64_as_f64", uint64, float64, "Qd")
f64_as_i64, i64_as_f64 = _cast("f64_as_i64", float64, int64, "dq"), _cast("i64_as_f64", int64, float64, "qd")


def _recast(pointer: Any, dtype: Any) -> Any:
    expect_pointer("recast", pointer)
    if not isinstance(dtype, types.NumberClass) or not bits_of(dtype.instance_type):
        refuse(f"recast: dtype is {dtype}, wants a number type such as uint32")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = address(context, builder, signature.args[0], arguments[0], types.int64, I64(0))
        return builder.bitcast(where, context.get_value_type(signature.return_type))

    return types.CPointer(dtype.instance_type)(pointer, dtype), codegen


recast = define(
    "recast", ["pointer", "dtype"], _recast,
    """The same memory as a pointer to elements of ``dtype``: ``recast(x, uint32)`` for the bits of float32, ``recast(x, bfloat16)`` for uint16.

    Takes a pointer or a 1-D C-contiguous array and a number type of ``numba.cuda.types``; no instruction. The first element must lie at a multiple of
    the new element's size. ``recast(x, dtype)[i]`` does not wrap negative indices.
    """,
)  # fmt: skip


@means_by_type(recast)
def _recast_meaning(signature: Any) -> Callable[..., Any]:
    code = code_of(signature.return_type.dtype)
    return lambda pointer, _dtype: pointer.cast(code)


# ---------------------------------------------------------------- conversions

f32_to_f16 = ptx(
    "f32_to_f16", "cvt.rn.f16.f32 $0, $1;", uint16, (float32,), f16_bits, "float32 to the bits of float16, nearest even; cvt.rn.f16.f32."
)
f32_to_bf16 = ptx(
    "f32_to_bf16", "cvt.rn.bf16.f32 $0, $1;", uint16, (float32,), bf16_bits, "float32 to the bits of bfloat16, nearest even; cvt.rn.bf16.f32."
)
f16_to_f32 = ptx("f16_to_f32", "cvt.f32.f16 $0, $1;", float32, (uint16,), f16_value, "The bits of float16 to float32, exact; cvt.f32.f16.")


bf16_to_f32 = define(
    "bf16_to_f32", ["bits"], lambda _given: (float32(uint16), lambda _context, builder, _signature, values: widened(builder, bfloat16, values[0])),
    "The bits of bfloat16 to float32, exact; a shift, so a NaN keeps its bits.",
)  # fmt: skip
means(bf16_to_f32)(bf16_value)


def _both(of_bits: Callable[[int], float]) -> Callable[[int], tuple[float, float]]:
    return lambda word: (of_bits(word & 0xFFFF), of_bits(word >> 16))


def _joined(to_bits: Callable[[float], int]) -> Callable[[float, float], int]:
    return lambda low, high: to_bits(low) | to_bits(high) << 16


f32x2_to_f16x2 = ptx(
    "f32x2_to_f16x2", "cvt.rn.f16x2.f32 $0, $2, $1;", uint32, (float32, float32), _joined(f16_bits),
    "``f32x2_to_f16x2(low, high)``: both rounded to nearest even, in one word; cvt.rn.f16x2.f32.",
)  # fmt: skip
f32x2_to_bf16x2 = ptx(
    "f32x2_to_bf16x2", "cvt.rn.bf16x2.f32 $0, $2, $1;", uint32, (float32, float32), _joined(bf16_bits),
    "``f32x2_to_bf16x2(low, high)``: both rounded to nearest even, in one word; cvt.rn.bf16x2.f32.",
)  # fmt: skip


def _unpack(name: str, element: Any, of_bits: Callable[[int], float], how: str) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        halves = [builder.trunc(values[0], I16), builder.trunc(builder.lshr(values[0], I32(16)), I16)]
        return context.make_tuple(builder, signature.return_type, [widened(builder, element, half) for half in halves])

    signature = types.UniTuple(float32, 2)(uint32)
    made = define(name, ["word"], lambda _given: (signature, codegen), f"``(low, high)`` of a packed word as float32, exact; {how}.")
    means(made)(_both(of_bits))
    return made


f16x2_to_f32x2 = _unpack("f16x2_to_f32x2", float16, f16_value, "two cvt.f32.f16")
bf16x2_to_f32x2 = _unpack("bf16x2_to_f32x2", bfloat16, bf16_value, "a shift and a mask")

# ---------------------------------------------------------------- packed arithmetic


#: of doubles that hold 16-bit floats: products of two are exact, sums are rounded to odd, so one rounding is left
_FOLDS: dict[str, Callable[..., float]] = {
    "add": exact_sum, "mul": lambda a, b: a * b, "fma": lambda a, b, c: exact_sum(a * b, c), "max": greatest, "min": least,
}  # fmt: skip
_FORMULAS = {"add": "a + b", "mul": "a · b", "fma": "a · b + c", "max": "max(a, b)", "min": "min(a, b)"}


def _packed(operation: str, kind: str, text: str) -> Any:
    to_bits, of_bits = (f16_bits, f16_value) if kind == "f16x2" else (bf16_bits, bf16_value)
    fold, count = _FOLDS[operation], 3 if operation == "fma" else 2
    rule = "NaN propagates and −0 < +0" if operation in ("max", "min") else "one rounding to nearest even"

    def meaning(*words: int) -> int:
        low, high = (to_bits(fold(*[of_bits(word >> shift & 0xFFFF) for word in words])) for shift in (0, 16))
        return low | high << 16

    instruction = re.search(r"(\w+\.)+b?f16x2", text)
    doc = f"{_FORMULAS[operation]} of each half of words of {kind}; {rule}; one {instruction[0] if instruction else text}."
    return ptx(f"{operation}_{kind}", text, uint32, (uint32,) * count, meaning, doc)


add_f16x2 = _packed("add", "f16x2", "add.rn.f16x2 $0, $1, $2;")
mul_f16x2 = _packed("mul", "f16x2", "mul.rn.f16x2 $0, $1, $2;")
fma_f16x2 = _packed("fma", "f16x2", "fma.rn.f16x2 $0, $1, $2, $3;")
max_f16x2 = _packed("max", "f16x2", "max.NaN.f16x2 $0, $1, $2;")
min_f16x2 = _packed("min", "f16x2", "min.NaN.f16x2 $0, $1, $2;")
# add and mul of bf16x2 are instructions from 9.0 on; a · 1 + b and a · b + (−0) give the same bits at the same rate everywhere
SUM_OF_BF16X2 = "{ .reg .b32 ones; mov.b32 ones, 0x3f803f80; fma.rn.bf16x2 $0, $1, ones, $2; }"
add_bf16x2 = _packed("add", "bf16x2", SUM_OF_BF16X2)
mul_bf16x2 = _packed("mul", "bf16x2", "{ .reg .b32 zeros; mov.b32 zeros, 0x80008000; fma.rn.bf16x2 $0, $1, $2, zeros; }")
fma_bf16x2 = _packed("fma", "bf16x2", "fma.rn.bf16x2 $0, $1, $2, $3;")
max_bf16x2 = _packed("max", "bf16x2", "max.NaN.bf16x2 $0, $1, $2;")
min_bf16x2 = _packed("min", "bf16x2", "min.NaN.bf16x2 $0, $1, $2;")


def _equal(kind: str, element: Any, of_bits: Callable[[int], float], newest: int) -> Any:
    """``equal_{kind}``; capabilities below ``newest`` compare the halves as float32."""
    name, instruction = f"equal_{kind}", f"set.eq.u32.{kind}"

    def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        with either_side_of(builder, newest) as (newer, older):
            with newer:
                compared, newer_block = assemble(builder, f"{instruction} $0, $1, $2;", I32, values), builder.block
            with older:
                halves = [[builder.trunc(builder.lshr(value, I32(shift)), I16) for value in values] for shift in (0, 16)]
                found = [builder.fcmp_ordered("==", *[widened(builder, element, half) for half in pair]) for pair in halves]
                masks = [builder.select(same, I32(mask), I32(0)) for same, mask in zip(found, (0xFFFF, 0xFFFF0000), strict=True)]
                joined, older_block = builder.or_(*masks), builder.block
        result = builder.phi(I32)
        result.add_incoming(compared, newer_block)
        result.add_incoming(joined, older_block)
        return result

    def body(*given: Any) -> Any:
        expect_numbers(name, uint32, given)
        return uint32(uint32, uint32), codegen

    doc = f"For each half of words of {kind} 0xffff if a == b, else 0: −0 equals +0, and NaN nothing; one {instruction} where there is one."
    made = define(name, ["a", "b"], body, doc)

    @means(made)
    def meaning(a: int, b: int) -> int:
        low, high = (of_bits(a >> shift & 0xFFFF) == of_bits(b >> shift & 0xFFFF) for shift in (0, 16))
        return (0xFFFF if low else 0) | (0xFFFF0000 if high else 0)

    return made


equal_f16x2 = _equal("f16x2", float16, f16_value, 80)
equal_bf16x2 = _equal("bf16x2", bfloat16, bf16_value, 90)
