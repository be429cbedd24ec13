"""THE TABLE of the reduce family: an op is a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..op import Layout, Op, Operand, Variant
from ..registry import OPS
from ..vocabulary import OpCategory, ReduceKind
from . import recipes
from .calls import backward_function, forward_function
from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor, contiguous, op_name, transposed

X, DX = Operand("x", ("input_shape",)), Operand("dx", ("input_shape",), output=True)
Y, SAVED, DY = Operand("y", ("output_shape",), output=True), Operand("y", ("output_shape",)), Operand("dy", ("output_shape",))

FOLD, SPREAD = Variant("fold", True, recipes.fold), Variant("spread", True, recipes.spread)
FLOATS, NUMBERS = ("f16", "bf16", "f32", "f64"), ("f16", "bf16", "f32", "f64", "i32", "i64")


@dataclass(frozen=True)
class Row:
    """What tells one reduction from another."""

    kind: str
    formula: str
    gradient: str
    given: tuple[Operand, ...]
    notes: str
    monoid: str = ""
    elements: tuple[str, ...] = FLOATS
    keywords: tuple[str, ...] = ()
    backward_keywords: tuple[str, ...] = ()


_IEEE = "NaN and infinities follow IEEE arithmetic."
_TIES = (
    'The gradient goes to every element that is the {0}, with ``ties="first"`` to the first of them, with ``"even"`` in equal parts; where that is '
    "NaN, to elements that are NaN."
)
_ORDERED = "NaN wins and −0 < +0, whatever the order; infinities are values; of nothing it is {0}. " + _TIES
_CORRECTED = "``correction`` (1 by default) is taken from the count; where nothing is left, the result is 0, and so is the gradient."
_SAVED = (DY, X, SAVED)

TABLE = (
    Row("sum", "y = Σ x", "dx = dy", (DY,), f"{_IEEE} Of nothing it is 0.", elements=NUMBERS),
    Row("mean", "y = Σ x / n", "dx = dy / n", (DY,), f"{_IEEE} Of nothing it is NaN."),
    Row("max", "y = max x", "dx = dy where x is y, else 0", _SAVED, _ORDERED.format("−∞", "maximum"), elements=NUMBERS, backward_keywords=("ties",)),
    Row("min", "y = min x", "dx = dy where x is y, else 0", _SAVED, _ORDERED.format("+∞", "minimum"), elements=NUMBERS, backward_keywords=("ties",)),
    Row(
        "prod", "y = Π x", "dx = dy · Π of the other elements", _SAVED,
        f"{_IEEE} Of nothing it is 1. The gradient is exact where elements are 0, one or many.", elements=NUMBERS,
    ),
    Row(
        "norm2", "y = √Σ x²", "dx = dy · x / y", _SAVED,
        f"{_IEEE} No square overflows or vanishes where the result can be represented. The gradient is 0 where the norm is.", "hypot",
    ),
    Row(
        "log_sum_exp", "y = log Σ exp x", "dx = dy · exp(x − y)", _SAVED,
        "NaN propagates; of nothing, or nothing but −∞, it is −∞, and the gradient 0; with any +∞ it is +∞.", "logsumexp",
    ),
    Row(
        "var", "y = Σ (x − mean)² / (n − correction)", "dx = dy · 2 (x − mean) / (n − correction)", _SAVED, f"{_IEEE} {_CORRECTED}",
        keywords=("correction",),
    ),
    Row(
        "std", "y = √(Σ (x − mean)² / (n − correction))", "dx = dy · (x − mean) / ((n − correction) · y)", _SAVED,
        f"{_IEEE} {_CORRECTED} The gradient of elements that are all alike is 0.", keywords=("correction",),
    ),
)  # fmt: skip

#: shapes, each with the axes to reduce, that together meet every kernel
_SHAPES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0), ((4, 1 << 26), 1), ((1 << 20, 256), 1), ((1 << 24, 16), 1), ((1 << 26, 4), 1),
    ((64, 8192, 512), 1), ((999, 1000, 37), 2), ((16383, 16383), 1), ((1 << 20, 16, 2), 1), ((64, 512, 64), (0, 2)), ((1024,), None),
)  # fmt: skip


def _samples(op: Op) -> Iterator[tuple[Any, dict[str, Layout]]]:
    """The shapes in float32, two of them in the other types, transposed ones, and the other rules of ties."""
    made: Any = ReduceDescriptor if op.backward else ReduceBackwardDescriptor

    def problem(shape: tuple[int, ...], axis: Any, lay: Callable[..., Layout] = contiguous, **options: Any) -> tuple[Any, dict[str, Layout]]:
        descriptor = made(op.kind, shape, axis, **options)
        return descriptor, {operand.name: lay(getattr(descriptor, operand.axes[0])) for operand in op.operands}

    for shape, axis in _SHAPES:
        yield problem(shape, axis)
    for element in op.elements:
        yield problem((1 << 14, 1 << 14), 1, element=element)
        yield problem((1 << 14, 1 << 14), 0, element=element)
    yield problem((100, 70, 50), 1, transposed)
    for ties in ("first", "even") if "ties" in op.traits["keywords"] else ():
        yield problem((1 << 14, 1 << 14), 1, ties=ties)
        yield problem((1 << 14, 1 << 14), 0, ties=ties)


def _add(row: Row) -> dict[str, Callable[..., Any]]:
    """A reduction and its gradient."""
    name, kind = op_name(row.kind), ReduceKind.parse(row.kind)
    traits = {"monoid": row.monoid or row.kind, "gradient": name.removeprefix("reduce_"), "result": "", "notes": row.notes}

    def add(
        name: str, formula: str, operands: tuple[Operand, ...], variant: Variant, elements: tuple[str, ...], back: str | None, keywords: Any
    ) -> Op:
        return OPS.add(
            Op(
                name, kind, OpCategory.REDUCTION, "reduce", formula, operands, (variant,), elements, backward=back,
                traits=traits | {"keywords": keywords}, samples=_samples,
            )
        )  # fmt: skip

    forward = add(name, row.formula, (X, Y), FOLD, row.elements, f"{name}_backward", row.keywords)
    back = add(f"{name}_backward", row.gradient, (*row.given, DX), SPREAD, FLOATS, None, row.keywords + row.backward_keywords)
    return {forward.name: forward_function(forward), back.name: backward_function(back)}


FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _row in TABLE:
    FUNCTIONS |= _add(_row)
