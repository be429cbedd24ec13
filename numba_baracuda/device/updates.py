"""How one element of global memory is updated: in machine code, and in the emulator. The functions themselves are in :mod:`.atomics`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda.types import bfloat16, float16, float32, float64, int32, int64, uint32, uint64

from ..emulator.conversions import ROUND
from ..emulator.halves import bf16_bits, bf16_value, exact_sum, f16_bits, f16_value
from ..emulator.scalars import f32, wrap
from .build import F32, F64, I16, I32, VOID, assemble
from .numbers import choose, flushed, greatest, least

INTEGERS, FLOATS, HALVES = (int32, uint32, int64, uint64), (float32, float64), (float16, bfloat16)

# ---------------------------------------------------------------- machine code


def compare_and_swap_loop(builder: Any, where: Any, word: Any, change: Callable[[Any], Any]) -> Any:
    """Replaces the bits at an address by ``change(bits)``, however often others come in between, and gives the old bits."""
    name = f"b{word.width}"
    first = assemble(builder, f"ld.relaxed.gpu.global.{name} $0, [$1];", word, [where], memory=True)
    before, loop, after = builder.block, builder.append_basic_block("swap"), builder.append_basic_block("swapped")
    builder.branch(loop)
    builder.position_at_end(loop)
    old = builder.phi(word)
    old.add_incoming(first, before)
    new = change(old)
    found = assemble(builder, f"atom.relaxed.gpu.global.cas.{name} $0, [$1], $2, $3;", word, [where, old, new], memory=True)
    old.add_incoming(found, builder.block)
    builder.cbranch(builder.icmp_unsigned("==", found, old), after, loop)
    builder.position_at_end(after)
    return old


def short_half(element: Any) -> str:
    """A 16-bit float as PTX names it."""
    return "f16" if element == float16 else "bf16"


def widened(builder: Any, element: Any, bits: Any) -> Any:
    """The bits of a 16-bit float as a float32."""
    if element == float16:
        return assemble(builder, "cvt.f32.f16 $0, $1;", F32, [bits])
    return builder.bitcast(builder.shl(builder.zext(bits, I32), I32(16)), F32)


def _to_odd(builder: Any, operation: str, a: Any, b: Any) -> Any:
    """a + b or a · b in float32 rounded to odd: a rounding to 16 bits that follows cannot tell it from the exact result."""
    down, up, cut = (assemble(builder, f"{operation}.{way}.f32 $0, $1, $2;", F32, [a, b]) for way in ("rm", "rp", "rz"))
    inexact = builder.zext(builder.fcmp_unordered("!=", down, up), I32)
    return builder.bitcast(builder.or_(builder.bitcast(cut, I32), inexact), F32)


def fold(builder: Any, operation: str, element: Any, old: Any, value: Any) -> Any:
    """The new bits of an element from its old bits and a value."""
    if element in HALVES:
        held = widened(builder, element, old)
        more = operation == "max"
        new = _to_odd(builder, operation, held, value) if operation in ("add", "mul") else choose(builder, more, False, held, value)
        return assemble(builder, f"cvt.rn.{short_half(element)}.f32 $0, $1;", I16, [new])
    if element in FLOATS:
        kind = F32 if element == float32 else F64
        held = builder.bitcast(old, kind)
        if operation == "mul":
            new = assemble(builder, f"mul.rn.f{element.bitwidth} $0, $1, $2;", kind, [held, value])
        else:
            new = choose(builder, operation == "max", False, held, value)
        return builder.bitcast(new, old.type)
    return builder.mul(old, value)


def is_native(operation: str, element: Any) -> bool:
    """Whether one instruction does it."""
    return (operation == "add" and element in FLOATS) or (operation != "mul" and element in INTEGERS)


def native(builder: Any, operation: str, element: Any, where: Any, value: Any, returns: bool) -> Any:
    """One atom, or red where no result is wanted; integer addition has no sign."""
    kind = "f" if element in FLOATS else "s" if element.signed and operation != "add" else "u"
    if not returns:
        return assemble(builder, f"red.global.{operation}.{kind}{element.bitwidth} [$0], $1;", VOID, [where, value], memory=True)
    return assemble(builder, f"atom.global.{operation}.{kind}{element.bitwidth} $0, [$1], $2;", value.type, [where, value], memory=True)


def sign_split(builder: Any, operation: str, element: Any, where: Any, value: Any) -> None:
    """The maximum or minimum of floats by integer updates of their bits."""
    bits, more = ir.IntType(element.bitwidth), operation == "max"
    nan = bits((1 << (element.bitwidth - 1)) - 1 if more else -1)
    image = builder.select(builder.fcmp_unordered("uno", value, value), nan, builder.bitcast(value, bits))
    with builder.if_else(builder.icmp_signed(">=", image, bits(0))) as (positive, negative):
        with positive:
            assemble(builder, f"red.global.{operation}.s{element.bitwidth} [$0], $1;", VOID, [where, image], memory=True)
        with negative:
            opposite = "min" if more else "max"
            assemble(builder, f"red.global.{opposite}.u{element.bitwidth} [$0], $1;", VOID, [where, image], memory=True)


# ---------------------------------------------------------------- the emulator


def stored(element: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """From what the emulator holds of an element to its value, and back with one rounding."""
    if element == bfloat16:
        return bf16_value, bf16_bits
    if element == float16:
        return float, lambda x: f16_value(f16_bits(x))
    if element in FLOATS:
        return float, ROUND[element.bitwidth]
    return int, lambda x: wrap(x, element.bitwidth, element.signed)


_CHANGES: dict[str, Callable[[Any, Any], Any]] = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": greatest, "min": least}


def change_of(operation: str, element: Any) -> Callable[[Any, Any], Any]:
    """What the emulator stores from what it holds and a value."""
    value_of, store_of = stored(element)
    combine = _CHANGES[operation]
    if element in INTEGERS and operation in ("max", "min"):
        combine = max if operation == "max" else min
    elif operation == "add" and element in HALVES:
        combine = exact_sum
    elif operation == "add" and element == float32:
        return lambda old, value: flushed(f32(flushed(old) + flushed(value)))
    return lambda old, value: store_of(combine(value_of(old), value))


def meaning_of(operation: str, returns: bool) -> Callable[[Any], Callable[..., Any]]:
    """An update in the emulator, by the signature of its call."""

    def make(signature: Any) -> Callable[..., Any]:
        element = signature.args[0].dtype
        change, value_of = change_of(operation, element), stored(element)[0]

        def meaning(lane: Any, site: str, pointer: Any, index: int, value: Any) -> Any:
            old = pointer.expect_global(site).update(lane, index, lambda held: change(held, value), site)
            return value_of(old) if returns else None

        return meaning

    return make


def split_meaning(operation: str) -> Callable[[Any], Callable[..., Any]]:
    """The same integer updates as on the device, so memory that is not canonical goes wrong here too."""

    def make(signature: Any) -> Callable[..., Any]:
        element, plain = signature.args[0].dtype, meaning_of(operation, False)(signature)
        if element in INTEGERS:
            return plain
        bits = element.bitwidth
        code, real, nan = ("I", "f", 0x7FFFFFFF) if bits == 32 else ("Q", "d", (1 << 63) - 1)
        towards, away, code_of_nan = (max, min, nan) if operation == "max" else (min, max, (1 << bits) - 1)

        def meaning(lane: Any, site: str, pointer: Any, index: int, value: float) -> None:
            image = struct.unpack(code, struct.pack(real, value))[0] if value == value else code_of_nan

            def change(old: int) -> int:
                if image >> (bits - 1):
                    return away(old, image)
                return wrap(towards(wrap(old, bits), image), bits, False)

            pointer.expect_global(site).cast(code).update(lane, index, change, site)

        return meaning

    return make
