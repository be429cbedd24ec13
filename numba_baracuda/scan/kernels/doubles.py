"""Powers and logarithms of e in float64 without a branch, which overlap from element to element; the bits are those of ``math.exp`` and ``math.log``.

The library's functions (libdevice) set numbers apart that are subnormal, infinite or NaN. Here, all numbers take the arithmetic of the others, and
these are replaced at the end. The coefficients and the order of operations are the library's.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from llvmlite import ir
from numba.cuda.types import float64

from ...device.build import F64, I32, assemble, define
from ...emulator import builtins  # noqa: F401 - which says what math.exp means
from ...emulator.meanings import CALLS, means

_VECTOR = ir.VectorType(I32, 2)
#: 1 / ln 2, and ln 2 as a sum
_INVERSE, _LN_2, _LN_2_REST = 0x3FF71547652B82FE, 0x3FE62E42FEFA39EF, 0x3C7ABC9E3B39803F
#: of e to a power within ± ln 2 / 2, from the greatest degree to 0
_POWER = (
    0x3E5ADE1569CE2BDF, 0x3E928AF3FCA213EA, 0x3EC71DEE62401315, 0x3EFA01997C89EB71, 0x3F2A01A014761F65, 0x3F56C16C1852B7AF, 0x3F81111111122322,
    0x3FA55555555502A1, 0x3FC5555555555511, 0x3FE000000000000B, 0x3FF0000000000000, 0x3FF0000000000000,
)  # fmt: skip
#: of (log((1 + u/2) / (1 − u/2)) − u) / u³ in u², from the greatest degree on
_LOGARITHM = (
    0x3EB1380B3AE80F1E, 0x3ED0EE258B7A8B04, 0x3EF3B2669F02676F, 0x3F1745CBA9AB0956, 0x3F3C71C72D1B5154, 0x3F624924923BE72D, 0x3F8999999999A3C4,
    0x3FB5555555555554,
)  # fmt: skip
#: what is added to round to an integer, in the low word; its greater word holds no digits of that
_ROUND = 0x4338000000000000
#: the high word of the least number whose power is not finite, and of its negative, whose power is 0; of 1; and of the least above √2 of 1 … 2
_BEYOND, _ONE, _ROOT = 0x40874800, 0x3FF00000, 1073127582
_EXPONENT_BITS, _DIGITS = 20, (1 << 20) - 1
_LEAST = 1 << _EXPONENT_BITS  #: that of the least number that is not subnormal
#: 1 / x to about 2^-20
_RECIPROCAL = "rcp.approx.ftz.f64 $0, $1;"


def _number(bits: int) -> Any:
    return F64(struct.unpack("<d", struct.pack("<Q", bits))[0])


class _Code:
    """LLVM of one function's body."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def words(self, x: Any) -> tuple[Any, Any]:
        """(low, high) of a number."""
        both = self.builder.bitcast(x, _VECTOR)
        return self.builder.extract_element(both, I32(0)), self.builder.extract_element(both, I32(1))

    def of_words(self, low: Any, high: Any) -> Any:
        both = self.builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), low, I32(0))
        return self.builder.bitcast(self.builder.insert_element(both, high, I32(1)), F64)

    def polynomial(self, coefficients: tuple[int, ...], x: Any) -> Any:
        found = _number(coefficients[0])
        for each in coefficients[1:]:
            found = self.builder.fma(found, x, _number(each))
        return found

    def power(self, x: Any) -> Any:
        inside, found = self.ordinary_power(x)
        beyond = self.builder.select(self.builder.fcmp_ordered("<", x, F64(0.0)), F64(0.0), self.builder.fadd(x, F64(math.inf)))
        return self.builder.select(inside, found, beyond)

    def small_power(self, x: Any) -> Any:
        return self.builder.select(*self.ordinary_power(x), F64(0.0))

    def ordinary_power(self, x: Any) -> tuple[Any, Any]:
        """(whether x is a number whose power is finite and not 0, its power then)."""
        made, negative = self.builder, lambda bits: _number(bits | 1 << 63)
        rounded = made.fma(x, _number(_INVERSE), _number(_ROUND))
        exponent, _ = self.words(rounded)
        whole = made.fadd(rounded, negative(_ROUND))
        rest = made.fma(whole, negative(_LN_2_REST), made.fma(whole, negative(_LN_2), x))
        low, high = self.words(self.polynomial(_POWER, rest))
        # in two steps, the first of which leaves no subnormal number
        half = made.ashr(exponent, I32(1))
        scaled = self.of_words(low, made.add(high, made.shl(half, I32(_EXPONENT_BITS))))
        scale = self.of_words(I32(0), made.add(I32(_ONE), made.shl(made.sub(exponent, half), I32(_EXPONENT_BITS))))
        _, x_high = self.words(x)
        return made.icmp_unsigned("<", made.and_(x_high, I32(0x7FFFFFFF)), I32(_BEYOND)), made.fmul(scaled, scale)

    def logarithm(self, x: Any) -> Any:
        made = self.builder
        low, high = self.words(x)
        digits = made.or_(made.and_(high, I32(_DIGITS)), I32(_ONE))
        above = made.icmp_signed(">", digits, I32(_ROOT))
        m = self.of_words(low, made.select(above, made.sub(digits, I32(_LEAST)), digits))
        exponent = made.add(made.lshr(high, I32(_EXPONENT_BITS)), made.select(above, I32(-1022), I32(-1023)))
        less, more = made.fsub(m, F64(1.0)), made.fadd(m, F64(1.0))
        near = assemble(made, _RECIPROCAL, F64, [more])
        error = made.fma(made.fsub(F64(-0.0), more), near, F64(1.0))
        inverse = made.fma(made.fma(error, error, error), near, near)
        half = made.fmul(less, inverse)
        u = made.fadd(half, half)
        square = made.fmul(u, u)
        series = self.polynomial(_LOGARITHM, square)
        missing = made.fma(made.fsub(F64(-0.0), u), less, made.fmul(F64(2.0), made.fsub(less, u)))
        small = made.fma(made.fmul(series, square), u, made.fmul(inverse, missing))
        sign = 1 << 31
        number = made.fsub(self.of_words(made.xor(exponent, I32(sign)), I32(0x43300000)), _number(0x4330000080000000))
        great = made.fma(number, _number(_LN_2), u)
        rounding = made.fsub(made.fma(made.fsub(F64(-0.0), number), _number(_LN_2), great), u)
        found = made.fadd(great, made.fma(number, _number(_LN_2_REST), made.fsub(small, rounding)))
        return made.select(made.icmp_unsigned("<", high, I32(_LEAST)), F64(-math.inf), found)


def _of_float64(name: str, code: Any, meaning: Any, doc: str) -> Any:
    made = define(name, ["x"], lambda _x: (float64(float64), lambda _context, builder, _signature, values: code(_Code(builder), *values)), doc)
    means(made)(meaning)
    return made


_exp, _log = CALLS[math.exp][0], CALLS[math.log][0]
exp = _of_float64("exp", _Code.power, _exp, "e to the power x.")
small_exp = _of_float64("small_exp", _Code.small_power, lambda x: _exp(x) if x <= 0 else 0.0, "The same of x up to 0; 0 for NaN.")
log = _of_float64("log", _Code.logarithm, _log, "The logarithm of a finite x to base e; from 0 up, where subnormal numbers count as 0.")
