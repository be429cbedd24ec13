"""Gradients of folds as plain functions of scalars, without an index or a dtype.

``vjp(x, w, g, y, p, q, zero)``, a vector-Jacobian product, is the gradient of one element. Its arguments have the accumulator's type: ``x`` and ``w``
of the element; ``g`` and ``y`` of its segment (in reductions, of its row), the gradient and the value of the result; and ``p`` and ``q``, the results
of a fold of the segment that is made for the gradient. What a gradient does not use is 0. ``prepare(g, y, p, q, scale, inverse)`` computes once for
a segment what all its elements need: ``vjp`` gets the g, y, p and q that it returns. ``scale`` is LARGE where y is less than SMALL, else SMALL, and
``inverse`` is 1 / (scale · y), or 0 where y is 0. As in :mod:`.monoid`, functions use no literals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .algebra import monoid_of
from .monoid import ByType

#: what the docstring of every gradient says about NaN and infinities
NONFINITE_GRADIENTS = "The gradient is its formula in IEEE arithmetic: NaN and ±∞ reach the elements whose formula they enter, and no others."
#: powers of two: in float32 and float64, numbers below SMALL times LARGE, and others times SMALL, are normal and have normal reciprocals
LARGE, SMALL = 2.0**100, 2.0**-40


def _unprepared(g: Any, y: Any, p: Any, q: Any, scale: Any, inverse: Any) -> Any:
    return g, y, p, q


@dataclass(frozen=True)
class Gradient:
    """The gradient of a fold.

    * ``vjp``, ``prepare``: see :mod:`.gradients`
    * ``rows``: the operands with one row for each input row, x and w; ``segments``: those with one row for each segment, g and y
    * ``fold``: the name of the monoid whose results are p and q, or ""; ``over``: the operands that it folds
    * ``uses_positions``: w is the position of the element, as states hold it; ``shares``: w is 1 / the number of elements of the segment
    * ``settled``: the name of the gradient that does the same where the pivot of the fold is known before it adds up, or ""
    * ``from_terms``: x is the term of the element in the fold about its pivot, which has left it in the element's place
    * ``guarded``: p and q are used only where y is no normal number, so the fold can be left out where all y are
    """

    name: str
    vjp: Callable[..., Any] | str
    rows: tuple[str, ...] = ()
    segments: tuple[str, ...] = ("d_output",)
    fold: str = ""
    over: tuple[str, ...] = ("input",)
    uses_positions: bool = False
    guarded: bool = False
    shares: bool = False
    prepare: Callable[..., Any] | str = _unprepared
    settled: str = ""
    from_terms: bool = False

    @property
    def results(self) -> int:
        """How many results the fold has: 2 are p and q, 1 is p."""
        return monoid_of(self.fold).results if self.fold else 0

    @property
    def given(self) -> tuple[int, ...]:
        """Which of g, y, p and q, by number, the elements of a segment's column are given."""
        there = (len(self.segments) > 0, len(self.segments) > 1, self.results > 0, self.results > 1)
        return tuple(k for k, given in enumerate(there) if given)

    @property
    def gathered(self) -> int:
        """How many of the fold's results are read for each element."""
        return 0 if self.guarded else self.results

    @property
    def operands(self) -> int:
        """The number of values read for each element, p and q included."""
        return len(self.rows) + len(self.segments) + self.gathered

    @property
    def inverts(self) -> bool:
        """Whether it needs 1 / y."""
        return len(self.segments) > 1 and self.prepare is not _unprepared

    @property
    def divides(self) -> bool:
        """Whether each element needs a division."""
        return self.guarded or self.inverts


def _broadcast(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g


def _weighted(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g * w


def _where_equal(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g if x == y or (x != x and y != y) else zero


def _where_position(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g if w == p else zero


def _where_tied(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g if x == p or (x != x and p != p) else zero


def _shared_by_ties(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g / q if x == p or (x != x and p != p) else zero


def _exponential(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """exp(x − y) is the element's share of the sum. Where the logarithm is −∞, the sum is 0 and so is the gradient."""
    gradient = g * math.exp(x - y)
    return gradient if y != -math.inf else zero


def _reciprocal(g: Any, y: Any, p: Any, q: Any, scale: Any, inverse: Any) -> Any:
    """y becomes the scale s, and q = 1 / (s · y); where y is 0, so are q and g. In x / y = (x · s) · q no factor leaves the range."""
    return g if y != 0 else y, scale, p, inverse


def _direction(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g * (x * y * q)


def _deviation(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """q is 1 / count, or 0 where the count is not positive; then the gradient is 0."""
    deviation = g * ((x - p) * q)
    return deviation + deviation if q != 0 else zero


def _reciprocal_share(g: Any, y: Any, p: Any, q: Any, scale: Any, inverse: Any) -> Any:
    """As ``_reciprocal``, with q / y instead of 1 / y."""
    return g, scale, p, q * inverse


def _scaled_deviation(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g * ((x - p) * y * q) if q != 0 else zero


def _softmax(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return math.exp(x - p) * q


def _share(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return x * q


def _softmax_gradient(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """x is the softmax, w its gradient, p = Σ x · w over the segment."""
    return x * (w - p)


def _log_softmax(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """p is the greatest element, q the logarithm of Σ exp(x − p): x − (p + q) would round q away where p is large."""
    return (x - p) - q


def _log_softmax_gradient(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """x is the logarithm of the softmax, w its gradient, p the sum of the gradients of the segment."""
    return w - math.exp(x) * p


_BOTH = ("d_output", "output")

SUM = Gradient("sum", _broadcast)
MEAN = Gradient("mean", _weighted, shares=True)
#: of max and min, where the result is an operand
EQUAL = Gradient("equal", _where_equal, ("input",), _BOTH)
FIRST_MAX = Gradient("first_max", _where_position, fold="first_max", uses_positions=True)
FIRST_MIN = Gradient("first_min", _where_position, fold="first_min", uses_positions=True)
ALL_MAX = Gradient("all_max", _where_tied, ("input",), fold="max")
ALL_MIN = Gradient("all_min", _where_tied, ("input",), fold="min")
EVEN_MAX = Gradient("even_max", _shared_by_ties, ("input",), fold="tied_max")
EVEN_MIN = Gradient("even_min", _shared_by_ties, ("input",), fold="tied_min")
PROD = Gradient("prod", ByType("numba_baracuda.kernels.products:product_of_others"), ("input",), _BOTH, fold="scaled_prod", guarded=True)
#: the same for results that are rounded to a half type
ROUNDED_PROD = replace(PROD, name="rounded_prod", vjp=ByType("numba_baracuda.kernels.products:rounded_product_of_others"))
LOGSUMEXP = Gradient("logsumexp", _exponential, ("input",), _BOTH)
NORM2 = Gradient("norm2", _direction, ("input",), _BOTH, prepare=_reciprocal)
VAR = Gradient("var", _deviation, ("input",), fold="moments")
STD = Gradient("std", _scaled_deviation, ("input",), _BOTH, fold="moments", prepare=_reciprocal_share)
#: these are no gradients of a fold, but are computed alike: from an element and the results of a fold
SOFTMAX = Gradient("softmax", _softmax, ("input",), (), fold="softmax", settled="softmax_of_terms")
#: the same where a fold knows the greatest element before it adds up, and leaves the terms in place of elements
SOFTMAX_OF_TERMS = replace(SOFTMAX, name="softmax_of_terms", vjp=_share, fold="softmax_of_terms", settled="", from_terms=True)
#: the same for results that are rounded to a half type
ROUNDED_SOFTMAX = replace(
    SOFTMAX, name="rounded_softmax", vjp=ByType("numba_baracuda.kernels.pivots:rounded_share"), settled="settled_softmax",
    prepare=ByType("numba_baracuda.kernels.pivots:prepared_share"),
)  # fmt: skip
#: the same where a fold knows the greatest element before it adds up
SETTLED_SOFTMAX = replace(
    SOFTMAX, name="settled_softmax", vjp="numba_baracuda.kernels.pivots:settled_share", fold="settled_softmax", settled="",
    prepare=ByType("numba_baracuda.kernels.pivots:prepared_line"),
)  # fmt: skip
SOFTMAX_BACKWARD = Gradient("softmax_backward", _softmax_gradient, ("output", "d_output"), (), fold="dot", over=("output", "d_output"))
LOG_SOFTMAX = Gradient("log_softmax", _log_softmax, ("input",), (), fold="log_softmax")
LOG_SOFTMAX_BACKWARD = Gradient("log_softmax_backward", _log_softmax_gradient, ("output", "d_output"), (), fold="sum", over=("d_output",))

GRADIENTS = {
    gradient.name: gradient
    for gradient in (
        SUM, MEAN, EQUAL, FIRST_MAX, FIRST_MIN, ALL_MAX, ALL_MIN, EVEN_MAX, EVEN_MIN, PROD, ROUNDED_PROD, LOGSUMEXP, NORM2, VAR, STD, SOFTMAX,
        ROUNDED_SOFTMAX, SETTLED_SOFTMAX, SOFTMAX_OF_TERMS, SOFTMAX_BACKWARD, LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD,
    )
}  # fmt: skip


def gradient_named(name: str, halves: bool) -> Gradient:
    """The gradient of this name; of ``halves`` the one whose results are rounded to them, if there is one."""
    rounded = GRADIENTS.get(f"rounded_{name}") if halves else None
    return rounded or GRADIENTS[name]
