"""The table of the reduce family: each row is an op and its gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..algebra.gradients import NONFINITE_GRADIENTS
from ..core.dtypes import FLOATS, NUMBERS
from ..core.op import GridAxis, Layout, Op, Operand, Variant, contiguous, transposed
from ..core.registry import OPS
from ..core.vocabulary import OpCategory, ReduceKind
from . import recipes
from .calls import backward_function, forward_function
from .descriptor import RESULTS, ReduceBackwardDescriptor, ReduceDescriptor, op_name

X, DX = Operand("x", ("input_shape",)), Operand("dx", ("input_shape",), output=True)
Y, SAVED, DY = Operand("y", ("output_shape",), output=True), Operand("y", ("output_shape",)), Operand("dy", ("output_shape",))

INDEX = Operand("y", ("output_shape",), index=True, output=True)

FOLD, BACKWARD = (
    Variant("fold", True, recipes.fold, recipes.too_many_positions),
    Variant("broadcast", True, recipes.backward, recipes.too_many_positions),
)
ANYTHING, COMPARABLE = (*NUMBERS, "bool"), (*NUMBERS, "u8")


@dataclass(frozen=True)
class Row:
    """One reduction: ``given`` are the operands of its gradient, none if it has no gradient; ``monoid`` is named as the kind by default."""

    kind: str
    formula: str
    gradient: str
    given: tuple[Operand, ...]
    notes: str
    monoid: str = ""
    narrow: tuple[tuple[str, str], ...] = ()  #: (element, monoid) where an element type has a monoid of its own
    elements: tuple[str, ...] = FLOATS
    keywords: tuple[str, ...] = ()
    backward_keywords: tuple[str, ...] = ()


_IEEE = "NaN and infinities follow IEEE arithmetic."
_TIES = (
    'The gradient goes to every element that equals the {0}; with ``ties="first"`` to the first of them; with ``"even"`` it is divided equally among '
    "them. Where the {0} is NaN, it goes to the elements that are NaN."
)
_ORDERED = "NaN wins and −0 < +0, whatever the order; infinities are values. Of no elements it is {0}. " + _TIES
_CORRECTED = (
    "``correction`` (1 by default), any number of 0 or more, is subtracted from the count; where that leaves no positive count, the result and the "
    "gradient are 0."
)
_INDICES = (
    "Indices count from 0 in C order over the reduced axes. Of equal elements it is the first; NaN is the {0}. Integers are compared exactly. "
    "``dtype`` is int64 or int32. Having no elements is an error. Truth values may be viewed as uint8."
)
_TRUTH = "NaN counts as not zero, −0 as zero."
_SAVED = (DY, X, SAVED)

TABLE = (
    Row("sum", "y = Σ x", "dx = dy", (DY,), f"{_IEEE} Of no elements it is 0.", elements=NUMBERS),
    Row("mean", "y = Σ x / n", "dx = dy / n", (DY,), f"{_IEEE} Of no elements it is NaN."),
    Row("max", "y = max x", "dx = dy where x is y, else 0", _SAVED, _ORDERED.format("−∞", "maximum"), elements=NUMBERS, backward_keywords=("ties",)),
    Row("min", "y = min x", "dx = dy where x is y, else 0", _SAVED, _ORDERED.format("+∞", "minimum"), elements=NUMBERS, backward_keywords=("ties",)),
    Row(
        "prod", "y = Π x", "dx = dy · Π of the other elements", _SAVED,
        f"{_IEEE} Of no elements it is 1. The gradient is exact where elements are 0, one or many, and where the product leaves the range.",
        elements=NUMBERS,
    ),
    Row(
        "norm2", "y = √Σ x²", "dx = dy · x / y", _SAVED,
        f"{_IEEE} No square overflows or vanishes where the result can be represented. The gradient is 0 where the norm is.", "hypot",
        (("f16", "norm2"), ("bf16", "unit_pivot_hypot")),  # the square of a float16 is a normal float32, and no sum of 2³¹ overflows
    ),
    Row(
        "log_sum_exp", "y = log Σ exp x", "dx = dy · exp(x − y)", _SAVED,
        "NaN propagates; of no elements, or of −∞ alone, it is −∞, and the gradient is 0; with any +∞ it is +∞.", "logsumexp",
        (("f16", "rounded_logsumexp"), ("bf16", "rounded_logsumexp")),
    ),
    Row(
        "var", "y = Σ (x − mean)² / (n − correction)", "dx = dy · 2 (x − mean) / (n − correction)", _SAVED, f"{_IEEE} {_CORRECTED}",
        keywords=("correction",),
    ),
    Row(
        "std", "y = √(Σ (x − mean)² / (n − correction))", "dx = dy · (x − mean) / ((n − correction) · y)", _SAVED,
        f"{_IEEE} {_CORRECTED} The gradient of elements that are all alike is 0.", keywords=("correction",),
    ),
    Row("argmax", "y = the index of max x", "", (), _INDICES.format("greatest"), "first_max", elements=COMPARABLE, keywords=("dtype",)),
    Row("argmin", "y = the index of min x", "", (), _INDICES.format("least"), "first_min", elements=COMPARABLE, keywords=("dtype",)),
    Row("any", "y = whether any x ≠ 0", "", (), f"{_TRUTH} Of no elements it is false.", elements=ANYTHING),
    Row("all", "y = whether all x ≠ 0", "", (), f"{_TRUTH} Of no elements it is true.", elements=ANYTHING),
    Row("count_nonzero", "y = how many x ≠ 0", "", (), f"{_TRUTH} The result is int64.", elements=ANYTHING),
)  # fmt: skip

#: (shape, axes to reduce): together they need every kernel
_SHAPES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0), ((4, 1 << 26), 1), ((1 << 20, 256), 1), ((1 << 24, 16), 1), ((1 << 26, 4), 1),
    ((64, 8192, 512), 1), ((64, 24, 1 << 16), 1), ((640, 100, 1 << 12), 1), ((999, 1000, 37), 2), ((16383, 16383), 1), ((1 << 20, 16, 2), 1),
    ((1 << 20, 24), 1), ((1 << 16, 1024), 1), ((1 << 14, 701), 1), ((64, 512, 64), (0, 2)), ((12415, 6, 4, 185), (0, 1, 3)), ((1024,), None),
    ((24, 13752, 70, 5), (0, 2)), ((2069, 3, 71, 415), (1, 3)),
)  # fmt: skip
#: the same, of folds that one launch does
_SINGLE_PASS: tuple[tuple[tuple[int, ...], Any], ...] = (((1 << 20,), 0), ((20_000, 64), 0))


def _samples(op: Op) -> Iterator[tuple[Any, dict[str, Layout]]]:
    """All shapes in float32; a few in the other types; transposed and misaligned operands; the other rules of ties."""
    made: Any = ReduceBackwardDescriptor if op.traits["backward"] else ReduceDescriptor

    def problem(shape: tuple[int, ...], axis: Any, lay: Callable[..., Layout] = contiguous, **options: Any) -> tuple[Any, dict[str, Layout]]:
        descriptor = made(op.kind, shape, axis, **options)
        return descriptor, {operand.name: lay(getattr(descriptor, operand.axes[0])) for operand in op.operands}

    for shape, axis in _SHAPES:
        yield problem(shape, axis)
    for element in op.elements:
        yield problem((1 << 14, 1 << 14), 1, element=element)
        yield problem((1 << 14, 1 << 14), 0, element=element)
    for result in op.indices[1:]:
        yield problem((1 << 14, 1 << 14), 1, result=result)
        yield problem((1 << 14, 1 << 14), 0, result=result)
    yield problem((100, 70, 50), 1, transposed)
    if not op.traits["backward"]:
        for element, (shape, axis) in itertools.product(op.elements, _SINGLE_PASS):
            yield problem(shape, axis, element=element)
        yield problem((1 << 14, 1 << 14), 0, lambda shape: replace(contiguous(shape), address=4))
    for ties in ("first", "even") if "ties" in op.traits["keywords"] else ():
        yield problem((1 << 14, 1 << 14), 1, ties=ties)
        yield problem((1 << 14, 1 << 14), 0, ties=ties)


_COARSE = (*range(1, 17), *(max((part << k) - less, 1) for k in range(0, 27, 3) for part in (1, 3) for less in (0, 1, 2)))
#: extents before, along and behind the reduced axis
_GRID = (
    GridAxis((1, 2, 3, 5, 8, 24, 64, 128, 300, 700, 1 << 13, 1 << 17, 1 << 24), anchors=(1, 700, 1 << 20)),
    GridAxis(_COARSE, tuple(range(1, 4097)), anchors=(1, 100, 1 << 16)),
    GridAxis((1, 2, 3, 4, 5, 8, 64, 777, 2998, 3399, 1 << 13, 14398, (1 << 15) + 1, 1 << 24), tuple(range(1, 1025)), anchors=(1,)),
)


def _pose(op: Op, element: str, index: str, outer: int, extent: int, inner: int) -> Any:
    made: Any = ReduceBackwardDescriptor if op.traits["backward"] else ReduceDescriptor
    return made(op.kind, (outer, extent, inner), 1, element=element, result=index)


def _add(row: Row) -> dict[str, Callable[..., Any]]:
    """The functions of a reduction and of its gradient, by name; their ops go to the registry."""
    name, kind = op_name(row.kind), ReduceKind.parse(row.kind)
    traits = {"monoid": row.monoid or row.kind, "narrow": dict(row.narrow), "gradient": name.removeprefix("reduce_"), "notes": row.notes}
    results = RESULTS.get(kind, ())

    def add(name: str, formula: str, operands: tuple[Operand, ...], variant: Variant, elements: Any, back: str | None, more: dict[str, Any]) -> Op:
        return OPS.add(
            Op(
                name, kind, OpCategory.REDUCTION, "reduce", formula, operands, (variant,), elements, results, backward=back, traits=traits | more,
                samples=_samples, poses=_pose, grid=_GRID, checked_first=("dx",),
            )
        )  # fmt: skip

    back = f"{name}_backward" if row.given else None
    more = {"keywords": row.keywords, "backward": False}
    forward = add(name, row.formula, (X, INDEX if results else Y), FOLD, row.elements, back, more)
    made = {name: forward_function(forward)}
    if back:
        more = {"keywords": row.keywords + row.backward_keywords, "backward": True, "notes": f"{row.notes} {NONFINITE_GRADIENTS}"}
        made[back] = backward_function(add(back, row.gradient, (*row.given, DX), BACKWARD, FLOATS, None, more))
    return made


FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _row in TABLE:
    FUNCTIONS |= _add(_row)
