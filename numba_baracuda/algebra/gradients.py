"""Gradients as plain functions of scalars: what a row gets of its segment's gradient, without an index or a dtype.

``pull(x, w, g, y, p, q, zero)`` is given, in the accumulator's type, the row's elements x and w, the segment's elements g and y, and p and q, the
results of a fold made for the gradient. What a gradient does not use is 0. ``prepare(g, y, p, q, one, large)`` does first what is the same for all
rows of a segment: pull is given the g, y, p, q that it returns. ``large`` is ``LARGE``. As in :mod:`.monoid`, there are no other literals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .algebra import monoid_of
from .monoid import ByType

#: on NaN and infinities, for the docs of every gradient
NONFINITE_GRADIENTS = "The gradient is its formula in IEEE arithmetic: NaN and ±∞ reach the elements whose formula they enter, and no others."
#: a power of two; the reciprocal of any number times it or one over it is in the range of either type
LARGE = 2.0**100


def _unprepared(g: Any, y: Any, p: Any, q: Any, one: Any, large: Any) -> Any:
    return g, y, p, q


@dataclass(frozen=True)
class Gradient:
    """How a fold's gradient goes back to its rows.

    ``rows`` and ``segments`` name the operands that give x, w and g, y. ``fold`` names the monoid whose results are p and q; the fold walks the
    operands ``over``. With ``places`` w is the row's position, as the monoid knows it, with ``shares`` one over the number of rows. ``guarded``
    gradients want p and q only where y is a zero, a subnormal, an infinity or NaN, so that the fold is left out where no y is.
    """

    name: str
    vjp: Callable[..., Any] | ByType
    rows: tuple[str, ...] = ()
    segments: tuple[str, ...] = ("d_output",)
    fold: str = ""
    over: tuple[str, ...] = ("input",)
    uses_positions: bool = False
    guarded: bool = False
    shares: bool = False
    prepare: Callable[..., Any] = _unprepared

    @property
    def results(self) -> int:
        """How many of p and q there are."""
        return monoid_of(self.fold).results if self.fold else 0

    @property
    def operands(self) -> int:
        """What is read for each element of a row, p and q included."""
        return len(self.rows) + len(self.segments) + (0 if self.guarded else self.results)

    @property
    def divides(self) -> bool:
        """Whether each element waits for a division."""
        return self.guarded or self.prepare is not _unprepared


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
    """exp(x − y) is the element's share in the sum; where the logarithm is −∞ there is nothing to share."""
    return g * math.exp(x - y) if y > -math.inf or y != y else zero


def _reciprocal(g: Any, y: Any, p: Any, q: Any, one: Any, large: Any) -> Any:
    """y becomes a scale s, and q = 1 / (s · y), or 0 where y is, and g, too: x / y = (x · s) · q never leaves the range on the way."""
    scale = large if y * large < one else one
    return g if y != 0 else y, scale, p, one / (scale * y) if y != 0 else y


def _direction(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g * (x * y * q)


def _deviation(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """Where nothing is left of the count, q is 0, and so is the gradient."""
    deviation = g * ((x - p) * q)
    return deviation + deviation if q != 0 else zero


def _reciprocal_share(g: Any, y: Any, p: Any, q: Any, one: Any, large: Any) -> Any:
    """As ``_reciprocal``, of the share q in y."""
    scale = large if y * large < one else one
    return g, scale, p, q / (scale * y) if y != 0 else y


def _scaled_deviation(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return g * ((x - p) * y * q) if q != 0 else zero


def _softmax(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    return math.exp(x - p) * q


def _softmax_gradient(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """x is the softmax, w its gradient, p their product summed over the segment."""
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
#: where the result is at hand
EQUAL = Gradient("equal", _where_equal, ("input",), _BOTH)
FIRST_MAX = Gradient("first_max", _where_position, fold="first_max", uses_positions=True)
FIRST_MIN = Gradient("first_min", _where_position, fold="first_min", uses_positions=True)
ALL_MAX = Gradient("all_max", _where_tied, ("input",), fold="max")
ALL_MIN = Gradient("all_min", _where_tied, ("input",), fold="min")
EVEN_MAX = Gradient("even_max", _shared_by_ties, ("input",), fold="tied_max")
EVEN_MIN = Gradient("even_min", _shared_by_ties, ("input",), fold="tied_min")
PROD = Gradient("prod", ByType("numba_baracuda.kernels.products:product_of_others"), ("input",), _BOTH, fold="scaled_prod", guarded=True)
LOGSUMEXP = Gradient("logsumexp", _exponential, ("input",), _BOTH)
NORM2 = Gradient("norm2", _direction, ("input",), _BOTH, prepare=_reciprocal)
VAR = Gradient("var", _deviation, ("input",), fold="moments")
STD = Gradient("std", _scaled_deviation, ("input",), _BOTH, fold="moments", prepare=_reciprocal_share)
#: not a gradient, but made of the same parts: the fold's results go back to its rows
SOFTMAX = Gradient("softmax", _softmax, ("input",), (), fold="softmax")
SOFTMAX_BACKWARD = Gradient("softmax_backward", _softmax_gradient, ("output", "d_output"), (), fold="dot", over=("output", "d_output"))
LOG_SOFTMAX = Gradient("log_softmax", _log_softmax, ("input",), (), fold="log_softmax")
LOG_SOFTMAX_BACKWARD = Gradient("log_softmax_backward", _log_softmax_gradient, ("output", "d_output"), (), fold="sum", over=("d_output",))

GRADIENTS = {
    gradient.name: gradient
    for gradient in (
        SUM, MEAN, EQUAL, FIRST_MAX, FIRST_MIN, ALL_MAX, ALL_MIN, EVEN_MAX, EVEN_MIN, PROD, LOGSUMEXP, NORM2, VAR, STD, SOFTMAX, SOFTMAX_BACKWARD,
        LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD,
    )
}  # fmt: skip
