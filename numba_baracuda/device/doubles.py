"""Powers and logarithms of e in float64 without a branch, which overlap from element to element.

``math.exp`` and ``math.log`` set numbers apart that are subnormal, infinite or NaN. Here, all numbers take the arithmetic of the others, and these
are replaced at the end. Results are off by less than 1 ulp. The argument of a power loses the nearest multiple of ln 2, which is the sum of two
numbers, after Cody and Waite, "Software Manual for the Elementary Functions" (1980); a logarithm is a series in 2 (m − 1) / (m + 1). Polynomials
agree with their functions at the zeros of a Chebyshev polynomial of as many coefficients: off by 2e-17 and 1e-18 of the result.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.cuda.types import float64

from ..emulator import builtins  # noqa: F401 - which says what math.exp means
from ..emulator.meanings import CALLS, means
from .build import F64, I32, assemble, define

_VECTOR = ir.VectorType(I32, 2)
#: 1 / ln 2, and ln 2 as a sum
_INVERSE, _LN_2, _LN_2_REST = math.log2(math.e), math.log(2), 2.3190468138462996e-17
#: of e to a power within ± ln 2 / 2, from the greatest degree to 0
_POWER = (
    2.5100395159429243e-08, 2.7620101012098e-07, 2.7557268439678e-06, 2.4801521269532122e-05, 0.00019841269863066696, 0.0013888888917230724,
    0.00833333333333006, 0.041666666666624094, 0.16666666666666669, 0.5000000000000001, 1.0, 1.0,
)  # fmt: skip
#: of (log((1 + u/2) / (1 − u/2)) − u) / u³ in u², from the greatest degree on
_LOGARITHM = (
    9.984518336394151e-07, 4.0492999868603e-06, 1.8782032115380065e-05, 8.877829893375833e-05, 0.00043402778109154406, 0.0022321428570939725,
    0.012500000000000275, 0.08333333333333333,
)  # fmt: skip
#: what is added to round to an integer, which is then the low word
_ROUND = 1.5 * 2**52
#: the high word of 2^52, and that number and 2^31: what makes a float of the low word's bits, with the sign's turned
_WHOLE, _WHOLE_OFFSET = 0x43300000, float(2**52 + 2**31)
#: the high word of the least number whose power is not finite, and of its negative, whose power is 0; of 1; and of the least above √2 of 1 … 2
_BEYOND, _ONE, _ROOT = 0x40874800, 0x3FF00000, 0x3FF6A09E
_EXPONENT_BITS, _DIGITS = 20, (1 << 20) - 1
_LEAST = 1 << _EXPONENT_BITS  #: that of the least number that is not subnormal
#: 1 / x to about 2^-20
_RECIPROCAL = "rcp.approx.ftz.f64 $0, $1;"


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

    def polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        found = F64(coefficients[0])
        for each in coefficients[1:]:
            found = self.builder.fma(found, x, F64(each))
        return found

    def power(self, x: Any) -> Any:
        inside, found = self.ordinary_power(x)
        beyond = self.builder.select(self.builder.fcmp_ordered("<", x, F64(0.0)), F64(0.0), self.builder.fadd(x, F64(math.inf)))
        return self.builder.select(inside, found, beyond)

    def small_power(self, x: Any) -> Any:
        return self.builder.select(*self.ordinary_power(x), F64(0.0))

    def ordinary_power(self, x: Any) -> tuple[Any, Any]:
        """(whether x is a number whose power is finite and not 0, its power then)."""
        made = self.builder
        rounded = made.fma(x, F64(_INVERSE), F64(_ROUND))
        exponent, _ = self.words(rounded)
        whole = made.fadd(rounded, F64(-_ROUND))
        rest = made.fma(whole, F64(-_LN_2_REST), made.fma(whole, F64(-_LN_2), x))
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
        number = made.fsub(self.of_words(made.xor(exponent, I32(1 << 31)), I32(_WHOLE)), F64(_WHOLE_OFFSET))
        great = made.fma(number, F64(_LN_2), u)
        rounding = made.fsub(made.fma(made.fsub(F64(-0.0), number), F64(_LN_2), great), u)
        found = made.fadd(great, made.fma(number, F64(_LN_2_REST), made.fsub(small, rounding)))
        return made.select(made.icmp_unsigned("<", high, I32(_LEAST)), F64(-math.inf), found)


def _of_float64(name: str, code: Any, meaning: Any, doc: str) -> Any:
    made = define(name, ["x"], lambda _x: (float64(float64), lambda _context, builder, _signature, values: code(_Code(builder), *values)), doc)
    means(made)(meaning)
    return made


_exp, _log = CALLS[math.exp][0], CALLS[math.log][0]
exp = _of_float64("exp", _Code.power, _exp, "e to the power x.")
small_exp = _of_float64("small_exp", _Code.small_power, lambda x: _exp(x) if x <= 0 else 0.0, "The same of x up to 0; 0 for NaN.")
log = _of_float64("log", _Code.logarithm, _log, "The logarithm of a finite x to base e; from 0 up, where subnormal numbers count as 0.")
