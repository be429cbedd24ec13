"""Numbers: maximum and minimum that do not depend on the order of their operands, and fast powers and logarithms of two.

None touches memory; any thread may call them alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import types

from ..emulator.halves import NAN, exact_sum
from ..emulator.meanings import means_by_type
from .build import F32, F64, I64, assemble, define, ptx, refuse


def greatest(a: float, b: float) -> float:
    """The greater of two floats in the emulator: NaN wins, −0 < +0."""
    if a != a or b != b:
        return NAN
    return (a if math.copysign(1.0, a) > 0 else b) if a == b else max(a, b)


def least(a: float, b: float) -> float:
    """The lesser of two floats in the emulator: NaN wins, −0 < +0."""
    if a != a or b != b:
        return NAN
    return (a if math.copysign(1.0, a) < 0 else b) if a == b else min(a, b)


def choose(builder: Any, more: bool, signed: bool, a: Any, b: Any) -> Any:
    """LLVM for the greater (``more``) or the lesser of two numbers; ``signed`` concerns integers."""
    order = ">" if more else "<"
    if a.type == F32:
        return assemble(builder, f"{'max' if more else 'min'}.NaN.f32 $0, $1, $2;", F32, [a, b])
    if a.type != F64:
        return builder.select((builder.icmp_signed if signed else builder.icmp_unsigned)(order, a, b), a, b)
    bits = [builder.bitcast(value, I64) for value in (a, b)]
    found = builder.select(builder.fcmp_ordered(order, a, b), *bits)
    equal = (builder.and_ if more else builder.or_)(*bits)  # zeros may differ in their sign
    found = builder.select(builder.fcmp_ordered("==", a, b), equal, found)
    return builder.bitcast(builder.select(builder.fcmp_unordered("uno", a, b), I64(0x7FFFFFFFFFFFFFFF), found), F64)


def _common(name: str, a: Any, b: Any) -> Any:
    """The one type of both operands; a literal integer takes the other's."""
    if isinstance(a, types.IntegerLiteral) and isinstance(b, types.Integer):
        a = types.unliteral(b)
    if isinstance(b, types.IntegerLiteral) and isinstance(a, types.Integer):
        b = types.unliteral(a)
    a, b = types.unliteral(a), types.unliteral(b)
    if isinstance(a, types.Integer) and isinstance(b, types.Integer) and a.signed == b.signed:
        return a if a.bitwidth >= b.bitwidth else b
    if a != b or a not in (types.float32, types.float64):
        refuse(f"{name}: got {a} and {b}, wants two float32, two float64, or integers of one signedness; cast one, e.g. float32(0)")
    return a


def _extreme(name: str, more: bool, doc: str) -> Any:
    def body(a: Any, b: Any) -> Any:
        kind = _common(name, a, b)
        signed = getattr(kind, "signed", False)
        return kind(kind, kind), lambda _context, builder, _signature, values: choose(builder, more, signed, *values)

    made = define(name, ["a", "b"], body, doc)

    @means_by_type(made)
    def meaning(signature: Any) -> Callable[..., Any]:
        if isinstance(signature.return_type, types.Integer):
            return max if more else min
        return greatest if more else least

    return made


_RULE = """

    NaN propagates (the result is the canonical NaN, all ones but the sign) and −0 < +0, so folds do not depend on the order of their elements.
    Both operands are float32, float64, or integers of one signedness; other mixtures, which would compute in float64, are refused. float32: one
    {0}.NaN.f32 (8.0 and above); float64: three comparisons and selects; integers: one instruction, two at 64 bits.
    """
maximum = _extreme("maximum", True, "max(a, b)." + _RULE.format("max"))
minimum = _extreme("minimum", False, "min(a, b)." + _RULE.format("min"))


def flushed(x: float) -> float:
    """A float32 subnormal becomes a zero of its sign."""
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def _exp2(x: float) -> float:
    x = flushed(x)
    return 2.0**x if x < 128 else math.inf if x == x else x


def _reciprocal(x: float) -> float:
    x = flushed(x)
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def _log2(x: float) -> float:
    x = flushed(x)
    return -math.inf if x == 0 else NAN if x < 0 else math.log2(x)


exp2_approx = ptx(
    "exp2_approx", "ex2.approx.ftz.f32 $0, $1;", types.float32, (types.float32,), lambda x: flushed(_exp2(x)),
    """2 to the power x in float32, with a relative error of at most about 2^-22 (2 ulp).

    One ex2.approx.ftz.f32 (MUFU.EX2): subnormal operands and results are zero; exp2_approx(±0) = 1, (−inf) = +0, (+inf) = +inf, NaN stays NaN. The
    emulator gives the nearest float32, so the two agree within that error, not in their bits.
    """,
)  # fmt: skip
reciprocal_approx = ptx(
    "reciprocal_approx", "rcp.approx.ftz.f32 $0, $1;", types.float32, (types.float32,), lambda x: flushed(_reciprocal(x)),
    """1 / x in float32, with an error of at most 1 ulp.

    One rcp.approx.ftz.f32 (MUFU.RCP): subnormal operands and results are zero; reciprocal_approx(±0) = ±inf, (±inf) = ±0, NaN stays NaN. The emulator
    gives the nearest float32, so the two agree within that error, not in their bits.
    """,
)  # fmt: skip
log2_approx = ptx(
    "log2_approx", "lg2.approx.ftz.f32 $0, $1;", types.float32, (types.float32,), _log2,
    """The logarithm of x to base 2 in float32, with an error of at most about 2^-22: absolute for x in (1/2, 2), relative elsewhere.

    One lg2.approx.ftz.f32 (MUFU.LG2): subnormal operands are zeros; log2_approx(±0) = −inf, (+inf) = +inf, of a negative x NaN. The emulator
    gives the nearest float32, so the two agree within that error, not in their bits.
    """,
)  # fmt: skip
multiply_add = ptx(
    "multiply_add", "fma.rn.f32 $0, $1, $2, $3;", types.float32, (types.float32,) * 3, lambda a, b, c: exact_sum(a * b, c),
    "a · b + c in float32 with one rounding, to nearest even; one fma.rn.f32 (FFMA).",
)  # fmt: skip
