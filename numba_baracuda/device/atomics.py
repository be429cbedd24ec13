"""Atomic updates of one element in global memory, or of shared memory where a name says so, on ``(array or pointer, index, value)``.

Relaxed, at device scope: an update is atomic by itself and orders no other access (see :mod:`.order`). Any thread may call them alone; elements
lie at multiples of their size. No neighbour is changed: atom.cas.b16 swaps a 16-bit element, for which the machine reads the 32-bit word around it.
Sums and products of floats depend on the order of arrival, everything else does not.

| function | elements | machine code |
|---|---|---|
| ``atomic_add`` | 32- and 64-bit integers, f32, f64 | ATOMG.ADD; f32 flushes subnormal operands and sums to zero (PTX ISA, "atom") |
| ``atomic_max``, ``atomic_min`` | 32- and 64-bit integers | ATOMG.MAX, ATOMG.MIN |
| the same three, of f16 and bf16; max and min of f32 and f64; ``atomic_mul`` of all | | a loop of ATOMG.CAS on the element's bits |
| ``red_add`` | as ``atomic_add`` | the same without a result: REDG.ADD, or the loop |
| ``red_add_shared`` | 32- and 64-bit integers, f32, f64, in shared memory | ATOMS.ADD of 32-bit integers, a loop of the others |
| ``red_max``, ``red_min`` | 32- and 64-bit integers, f32, f64 | REDG.MAX, REDG.MIN: no loop, for floats neither (below) |

``atomic_*`` return the old value. 16-bit floats (``recast(x, float16)``, ``recast(x, bfloat16)`` give uint16 memory that type) take and return
float32, and the exact sum or product is rounded once to the element. In max and min NaN wins and −0 < +0, so their result does not depend on
order; a NaN that is computed is the canonical one. The loops compare bits, never floats, so a NaN in memory ends them as any value does.

``red_max`` and ``red_min`` of floats work on the bits as integers: those of non-negative values by a signed, those of negative values by an
unsigned update in the other direction. IEEE 754 orders floats of one sign as their bits do, so −0 < +0 falls out of the integer order. Memory
must hold the fill pattern ``RED_MAX_FILL[name]`` or ``RED_MIN_FILL[name]`` (``name`` of the element, such as "float32"), which no value reaches,
or what these updates left: canonical values. ``red_max_value(bits, empty)`` and ``red_min_value`` turn the bits that are left into the value:
``empty`` where nothing arrived, the canonical NaN where one did.

``red_add_2``, ``red_add_4`` and ``red_add_8`` add to 2, 4 or 8 neighbours, which lie at a multiple of their bytes, in one access: f32 by 2 or 4,
f16 and bf16 by 2, 4 or 8. Values are float32; for 16-bit floats each is rounded to the element first, and the sum then once more, by the memory
system. Each element is updated atomically by itself. One REDG on compute capability 9.0 and above; below, f32 takes one REDG.ADD an element, f16 one
REDG.ADD.F16x2 and bf16 a compare-and-swap loop a pair.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.types import float16, float32, float64, uint32, uint64

from ..emulator.meanings import means_by_type
from .bits import SUM_OF_BF16X2
from .build import I32, I64, SHARED, VOID, address, assemble, bits_of, define, either_side_of, element_of, expect_numbers, number_of, refuse
from .numbers import greatest
from .updates import (
    FLOATS,
    HALVES,
    INTEGERS,
    change_of,
    compare_and_swap_loop,
    fold,
    is_native,
    meaning_of,
    native,
    short_half,
    sign_split,
    split_meaning,
    stored,
    widened,
)  # fmt: skip


def _atomic(name: str, accepts: tuple[Any, ...], make: Callable[[Any], Callable[..., Any]], doc: str) -> Any:
    family, operation = name.split("_")
    returns = family == "atomic"

    def body(pointer: Any, index: Any, value: Any) -> Any:
        element = element_of(name, pointer, index, accepts)
        taken = float32 if element in HALVES else element
        expect_numbers(name, taken, [value])

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            where, given = number_of(context, builder, signature, arguments), arguments[2]
            if is_native(operation, element):
                old = native(builder, operation, element, where, given, returns)
                return old if returns else context.get_dummy_value()
            if not returns and operation != "add":
                sign_split(builder, operation, element, where, given)
                return context.get_dummy_value()
            word = ir.IntType(bits_of(element))
            old = compare_and_swap_loop(builder, where, word, lambda held: fold(builder, operation, element, held, given))
            if not returns:
                return context.get_dummy_value()
            return widened(builder, element, old) if element in HALVES else builder.bitcast(old, given.type)

        return (taken if returns else types.void)(pointer, types.unliteral(index), taken), codegen

    made = define(name, ["pointer", "index", "value"], body, doc)
    means_by_type(made, lane=True)(make)
    return made


_ALL = (*INTEGERS, *FLOATS, *HALVES)
_RESULT = """, and gives the old value, in one atomic step.

    {0} For 16-bit floats ``value`` and the result are float32. Relaxed, device scope, global memory; any thread may call it alone.
    """


def _returning(operation: str, formula: str, rule: str) -> Any:
    doc = f"``pointer[index]`` becomes {formula}" + _RESULT.format(rule)
    return _atomic(f"atomic_{operation}", _ALL, meaning_of(operation, True), doc)


atomic_add = _returning("add", "itself + value", "One rounding to the element; one instruction, for 16-bit floats a loop.")
atomic_mul = _returning("mul", "itself · value", "One rounding to the element; a loop of compare and swap. Integers wrap.")
atomic_max = _returning("max", "max(itself, value)", "NaN wins, −0 < +0. One instruction for integers, a loop for floats: prefer ``red_max``.")
atomic_min = _returning("min", "min(itself, value)", "NaN wins, −0 < +0. One instruction for integers, a loop for floats: prefer ``red_min``.")
red_add = _atomic(
    "red_add", _ALL, meaning_of("add", False),
    """``pointer[index]`` becomes itself + value, without a result.

    One REDG.ADD, for 16-bit floats (whose ``value`` is float32) a loop; see ``red_add_2``. Relaxed, device scope, global memory; any thread may
    call it alone.
    """,
)  # fmt: skip


def _red_add_shared() -> Any:
    name, accepts = "red_add_shared", (*INTEGERS, *FLOATS)

    def body(pointer: Any, index: Any, value: Any) -> Any:
        element = element_of(name, pointer, index, accepts)
        expect_numbers(name, element, [value])
        text = f"red.shared.add.{'f' if element in FLOATS else 'u'}{element.bitwidth} [$0], $1;"

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            where = address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1])
            near = builder.addrspacecast(where, where.type.pointee.as_pointer(SHARED))
            assemble(builder, text, VOID, [builder.ptrtoint(near, I32), arguments[2]], memory=True)
            return context.get_dummy_value()

        return types.void(pointer, types.unliteral(index), element), codegen

    made = define(
        name, ["pointer", "index", "value"], body,
        """``pointer[index]`` of shared memory becomes itself + value, without a result.

    One ATOMS.ADD for 32-bit integers, otherwise a loop; subnormal floats stay as they are. Relaxed, block scope, shared memory; any thread may call
    it alone.
    """,
    )  # fmt: skip

    @means_by_type(made, lane=True)
    def meaning(signature: Any) -> Callable[..., None]:
        value_of, store_of = stored(signature.args[0].dtype)

        def add(lane: Any, site: str, pointer: Any, index: int, value: Any) -> None:
            pointer.expect_shared(site).update(lane, index, lambda held: store_of(value_of(held) + value), site)

        return add

    return made


red_add_shared = _red_add_shared()


def _extreme(operation: str) -> Any:
    return _atomic(
        f"red_{operation}", (*INTEGERS, *FLOATS), split_meaning(operation),
        f"""``pointer[index]`` becomes {operation}(itself, value), without a result and without a loop.

    Floats: memory starts as ``RED_{operation.upper()}_FILL`` and is read through ``red_{operation}_value``; NaN wins, −0 < +0; one of two
    REDG.MAX, REDG.MIN by the sign. Integers: one REDG.{operation.upper()}. Relaxed, device scope, global memory; any thread may call it alone.
    """,
    )  # fmt: skip


red_max, red_min = _extreme("max"), _extreme("min")

#: the bits that ``red_max`` starts from: no float has them, for integers the least value
RED_MAX_FILL: dict[str, int] = {str(ty): ty.minval if ty in INTEGERS else (1 << ty.bitwidth) - 1 for ty in (*INTEGERS, *FLOATS)}
#: the bits that ``red_min`` starts from: no float has them, for integers the greatest value
RED_MIN_FILL: dict[str, int] = {str(ty): ty.maxval if ty in INTEGERS else (1 << (ty.bitwidth - 1)) - 1 for ty in (*INTEGERS, *FLOATS)}


def _finish(operation: str) -> Any:
    name = f"red_{operation}_value"
    fills = RED_MAX_FILL if operation == "max" else RED_MIN_FILL

    def body(bits: Any, empty: Any) -> Any:
        kind = {uint32: float32, uint64: float64}.get(bits)
        if kind is None:
            refuse(f"{name}: bits are {bits}, wants uint32 or uint64")
        expect_numbers(name, kind, [empty])

        def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            image, word = values[0], values[0].type
            value = builder.bitcast(image, values[1].type)
            canonical = builder.bitcast(word((1 << (word.width - 1)) - 1), values[1].type)
            value = builder.select(builder.fcmp_unordered("uno", value, value), canonical, value)
            return builder.select(builder.icmp_unsigned("==", image, word(fills[str(kind)])), values[1], value)

        return kind(bits, kind), codegen

    made = define(
        name, ["bits", "empty"], body,
        f"""The float that ``red_{operation}`` left as ``bits`` (uint32 or uint64): ``empty`` if nothing arrived, the canonical NaN if one did.

    Four instructions, no memory access: ``red_{operation}_value(recast(y, uint32)[i], float32(0))``.
    """,
    )  # fmt: skip

    @means_by_type(made)
    def meaning(signature: Any) -> Callable[[int, float], float]:
        kind = signature.return_type
        code, real = ("I", "f") if kind == float32 else ("Q", "d")

        def value(bits: int, empty: float) -> float:
            found = struct.unpack(real, struct.pack(code, bits))[0]
            return empty if bits == fills[str(kind)] else greatest(found, found)

        return value

    return made


red_max_value, red_min_value = _finish("max"), _finish("min")


# ---------------------------------------------------------------- several neighbours at once


def _sum_of_pairs(builder: Any, a: Any, b: Any) -> Any:
    """Of two pairs of bfloat16."""
    return assemble(builder, SUM_OF_BF16X2, I32, [a, b])


def _add_pairs(builder: Any, element: Any, where: Any, values: list[Any]) -> None:
    """16-bit floats, two in a word."""
    kind = short_half(element)
    words = [assemble(builder, f"cvt.rn.{kind}x2.f32 $0, $2, $1;", I32, pair) for pair in zip(values[::2], values[1::2], strict=True)]
    if len(words) == 1:
        whole = f"red.global.add.noftz.{kind}x2 [$0], $1;"
    else:
        whole = f"red.global.v{len(words)}.{kind}x2.add.noftz [$0], {{{', '.join(f'${k + 1}' for k in range(len(words)))}}};"
    with either_side_of(builder, 90) as (newer, older):
        with newer:
            assemble(builder, whole, VOID, [where, *words], memory=True)
        with older:
            for k, word in enumerate(words):
                pair_address = builder.add(where, I64(4 * k))
                if element == float16:
                    assemble(builder, "red.global.add.noftz.f16x2 [$0], $1;", VOID, [pair_address, word], memory=True)
                    continue
                compare_and_swap_loop(builder, pair_address, I32, functools.partial(_sum_of_pairs, builder, word))


def _add_singles(builder: Any, where: Any, values: list[Any]) -> None:
    """float32."""
    names = ", ".join(f"${k + 1}" for k in range(len(values)))
    with either_side_of(builder, 90) as (newer, older):
        with newer:
            assemble(builder, f"red.global.v{len(values)}.f32.add [$0], {{{names}}};", VOID, [where, *values], memory=True)
        with older:
            for k, value in enumerate(values):
                assemble(builder, "red.global.add.f32 [$0], $1;", VOID, [builder.add(where, I64(4 * k)), value], memory=True)


def _red_add_vector(count: int) -> Any:
    name = f"red_add_{count}"
    accepts = HALVES if count == 8 else (float32, *HALVES)

    def body(pointer: Any, index: Any, *values: Any) -> Any:
        element = element_of(name, pointer, index, accepts)
        expect_numbers(name, float32, values)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            where = number_of(context, builder, signature, arguments)
            if element == float32:
                _add_singles(builder, where, list(arguments[2:]))
            else:
                _add_pairs(builder, element, where, list(arguments[2:]))
            return context.get_dummy_value()

        return types.void(pointer, types.unliteral(index), *[float32] * count), codegen

    made = define(
        name, ["pointer", "index", *[f"x{k}" for k in range(count)]], body,
        f"""Adds {count} values to ``pointer[index : index + {count}]``, each element atomically by itself, without a result.

    Elements are {"" if count == 8 else "float32, "}float16 or bfloat16 at a multiple of their {count} elements' bytes; values are float32,
    rounded to the element before they are added. One REDG from compute capability 9.0 on, several below. Relaxed, device scope, global memory;
    any thread may call it alone.
    """,
    )  # fmt: skip

    @means_by_type(made, lane=True)
    def meaning(signature: Any) -> Callable[..., None]:
        element = signature.args[0].dtype
        change, (value_of, store_of) = change_of("add", element), stored(element)

        def add(lane: Any, site: str, pointer: Any, index: int, *values: float) -> None:
            pointer.expect_global(site).expect_aligned(index, count, site)
            for k, value in enumerate(values):
                rounded = value_of(store_of(value))
                pointer.update(lane, index + k, lambda old, rounded=rounded: change(old, rounded), site)

        return add

    return made


red_add_2, red_add_4, red_add_8 = (_red_add_vector(count) for count in (2, 4, 8))
