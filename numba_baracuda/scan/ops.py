"""The table of the scan family: an op is a row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..algebra.gradients import NONFINITE_GRADIENTS
from ..core.dtypes import FLOATS, NUMBERS
from ..core.op import GridAxis, Layout, Op, Operand, Variant, contiguous, transposed
from ..core.registry import OPS
from ..core.vocabulary import OpCategory, ScanKind
from . import recipes
from .calls import backward_function, forward_function
from .descriptor import INDEX_ELEMENTS, INDEXED_KINDS, RESULTS, WIDENED, ScanBackwardDescriptor, ScanDescriptor, op_name


def _operand(name: str, output: bool = False) -> Operand:
    return Operand(name, ("input_shape",), output=output)


X, DY, SAVED = _operand("x"), _operand("dy"), _operand("y")
Y, DX = _operand("y", output=True), _operand("dx", output=True)


def _variants(name: str) -> tuple[Variant, Variant]:
    lookback = Variant(f"{name}_lookback", False, recipes.scan_lookback, named=recipes.named(recipes.scan_lookback, f"{name}_lookback"))
    return lookback, Variant(name, True, recipes.scan, named=recipes.named(recipes.scan, name))


FORWARD, BACKWARD = _variants("scan"), _variants("scan_back")


@dataclass(frozen=True)
class Row:
    """One scan: its formula, dtypes and gradient."""

    kind: str
    formula: str
    gradient: str
    given: tuple[Operand, ...]
    notes: str
    elements: tuple[str, ...] = FLOATS


_IEEE = "NaN and infinities follow IEEE arithmetic."
_WINNERS = (
    "NaN wins and −0 < +0; infinities are values. Integers keep their dtype. The gradient goes to the first winner in the order of the scan, which "
    "is the first NaN if there is one; ``initial`` gets none."
)
_INDICES = (
    " ``return_indices=True`` returns a pair; its second array holds the winners' indices along the axis as ``index_dtype``, −1 where ``initial`` "
    "wins or no element precedes."
)
_WHOLE = (
    ' Integers and truth values give int64; int32 and bool give int32 with ``dtype="int32"``. {0} out of range wrap around, modulo 2⁶⁴ or 2³². '
    "``initial`` is then a whole number in the range of that dtype. Integers have no gradient."
)
_ENDS = (
    "The gradient is exact where one element is 0, or several are. It is p · s: p is the product of the elements before x[j] in the order of the "
    "scan, s is the sum over i of dy[i] times the elements of y[i] after x[j]. A term of s with a factor of 0 is 0, even if another factor is ±∞ or "
    "NaN; where terms of both signs are infinite, s is NaN or ±∞. The product p · s follows IEEE arithmetic: an infinite p gives ±∞, or NaN where s "
    "is 0."
)
TABLE = (
    Row("cumsum", "y[i] = Σ x[j]", "dx[j] = Σ dy[i]", (DY,), _IEEE + _WHOLE.format("Sums"), (*NUMBERS, "bool")),
    Row(
        "cumprod", "y[i] = Π x[j]", "dx[j] = Σ dy[i] · Π of the elements of y[i] other than x[j]", (DY, X, SAVED),
        f"{_IEEE} {_ENDS}" + _WHOLE.format("Products"), (*NUMBERS, "bool"),
    ),
    Row("cummax", "y[i] = max x[j]", "dx[j] = Σ dy[i] where x[j] is y[i]", (DY, X), _WINNERS, NUMBERS),
    Row("cummin", "y[i] = min x[j]", "dx[j] = Σ dy[i] where x[j] is y[i]", (DY, X), _WINNERS, NUMBERS),
    Row(
        "log_cumsum_exp", "y[i] = log Σ exp x[j]", "dx[j] = Σ dy[i] · exp(x[j] − y[i])", (DY, X, SAVED),
        "NaN propagates. Where all elements so far are −∞, the result is −∞ and the gradient 0; from a +∞ on, the result is +∞. The error is at most "
        "4 ulp · (1 + abs(max x) + log n).",
    ),
)  # fmt: skip

#: shapes, each with the scanned axis, that together need every kernel
_SHAPES = (
    ((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0), ((1 << 20, 256), 1), ((1 << 22, 16), 1), ((64, 8192, 512), 1), ((999, 1000, 37), 2),
    ((7, (1 << 25) + 3), 1), ((1, 1 << 28), 1), ((1 << 20, 24), 0), ((4, 1 << 26), 0), ((30, 23, 53_327), 1),
    ((50_000_000, 5), 0), ((7251, 4794, 6), 1), ((20_000, 300, 3), 1), ((20_000, 21, 972), 1), ((300, 1 << 20), 0),
)  # fmt: skip


def _samples(op: Op) -> Iterator[tuple[Any, dict[str, Layout]]]:
    """The shapes in float32; two of them in the other types, in the other directions, and with indices."""
    made = ScanBackwardDescriptor if op.traits["backward"] else ScanDescriptor

    def problem(shape: tuple[int, ...], axis: int, lay: Callable[..., Layout] = contiguous, **options: Any) -> tuple[Any, dict[str, Layout]]:
        descriptor = made(op.kind, shape, axis, **options)
        return descriptor, {operand.name: lay(shape) for operand in descriptor.specialise(op).operands}

    for shape, axis in _SHAPES:
        yield problem(shape, axis)
    for element in op.elements:
        for axis in (0, 1):
            yield problem((1 << 14, 1 << 14), axis, element=element)
    for element, results in RESULTS.items() if op.traits["widened"] else ():
        yield problem((1, (1 << 27) + 3), 1, element=element)
        for result in results[1:]:
            for axis in (0, 1):
                yield problem((1 << 14, 1 << 14), axis, element=element, result=result)
    others: list[dict[str, Any]] = [{"reverse": True}, {"exclusive": True}, *[{"index": name} for name in op.indices if op.traits["has_indices"]]]
    for options in others:
        for axis in (0, 1):
            yield problem((1 << 14, 1 << 14), axis, **options)
    yield problem((100, 70, 50), 1, transposed)


#: the last for blocks of 5 and 7 warps
_COARSE = tuple(
    max((part << k) - less, 1)
    for k, part in (*itertools.product(range(0, 27, 3), (1, 3)), *itertools.product((10, 11), (5, 7)))
    for less in (0, 1, 2)
)  # fmt: skip
#: extents behind the scanned axis that vectors of 4, 1 and 2 elements fit
_BEHIND = (1, 2, 3, 4, 5, 8, 38, 64, *((1 << k) - less for k in (13, 24) for less in (0, 1, 2)))
#: extents before, along and behind the scanned axis
_GRID = (
    GridAxis((1, 2, 3, 5, 8, 64, 700, 1 << 13, 1 << 17, 1 << 24), anchors=(1, 700, 1 << 20)),
    GridAxis(_COARSE, tuple(range(1, 4097)), anchors=(1, 100, 1 << 16)),
    GridAxis(_BEHIND, tuple(range(1, 1025)), anchors=(1, 1 << 20, (1 << 20) - 1)),
)


def _pose(op: Op, element: str, index: str, outer: int, extent: int, inner: int) -> Any:
    made: Any = ScanBackwardDescriptor if op.traits["backward"] else ScanDescriptor
    return made(op.kind, (outer, extent, inner), 1, element=element)


def _add(row: Row) -> dict[str, Callable[..., Any]]:
    """Adds a scan and its gradient to the registry; returns their functions."""
    name, kind = op_name(row.kind), ScanKind.parse(row.kind)
    has_indices, widened = kind in INDEXED_KINDS, kind in WIDENED

    def add(name: str, formula: str, operands: tuple[Operand, ...], indices: tuple[str, ...], back: str | None) -> Op:
        notes = row.notes + (_INDICES if has_indices and back else "") + ("" if back else f" {NONFINITE_GRADIENTS}")
        traits = {"notes": notes, "backward": back is None, "has_indices": has_indices, "widened": widened and back is not None}
        return OPS.add(
            Op(
                name, kind, OpCategory.SCAN, "scan", formula, operands, FORWARD if back else BACKWARD, row.elements if back else FLOATS, indices,
                backward=back, traits=traits, samples=_samples, poses=_pose, grid=_GRID, checked_first=("dy", "dx"),
            )
        )  # fmt: skip

    forward = add(name, row.formula, (X, Y), INDEX_ELEMENTS if has_indices or widened else (), f"{name}_backward")
    backward = add(f"{name}_backward", row.gradient, (*row.given, DX), (), None)
    return {name: forward_function(forward), backward.name: backward_function(backward)}


FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _row in TABLE:
    FUNCTIONS |= _add(_row)
