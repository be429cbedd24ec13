"""THE TABLE of the scan family: an op is a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..dtypes import FLOATS
from ..op import Layout, Op, Operand, Variant
from ..reduce.descriptor import contiguous, transposed
from ..registry import OPS
from ..vocabulary import OpCategory, ScanKind
from . import recipes
from .calls import forward_function
from .descriptor import ScanDescriptor, op_name

X, Y = Operand("x", ("input_shape",)), Operand("y", ("input_shape",), output=True)
SCAN = Variant("scan", True, recipes.scan)


@dataclass(frozen=True)
class Row:
    """What tells one scan from another."""

    kind: str
    formula: str
    monoid: str
    notes: str


_ORDERED = "NaN wins and −0 < +0."
TABLE = (
    Row("cumsum", "y[i] = Σ x[j]", "sum", "NaN and infinities follow IEEE arithmetic."),
    Row("cumprod", "y[i] = Π x[j]", "prod", "NaN and infinities follow IEEE arithmetic."),
    Row("cummax", "y[i] = max x[j]", "max", _ORDERED),
    Row("cummin", "y[i] = min x[j]", "min", _ORDERED),
    Row("log_cumsum_exp", "y[i] = log Σ exp x[j]", "logsumexp", "NaN propagates; of nothing but −∞ it is −∞, and from any +∞ on +∞."),
)

#: shapes, each with the axis to scan, that together meet every kernel
_SHAPES = (((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0), ((1 << 20, 256), 1), ((1 << 22, 16), 1), ((64, 8192, 512), 1), ((999, 1000, 37), 2))


def _samples(op: Op) -> Iterator[tuple[Any, dict[str, Layout]]]:
    """The shapes in float32, two of them in the other types, and the other directions."""

    def problem(shape: tuple[int, ...], axis: int, lay: Callable[..., Layout] = contiguous, **options: Any) -> tuple[Any, dict[str, Layout]]:
        return ScanDescriptor(op.kind, shape, axis, **options), {operand.name: lay(shape) for operand in op.operands}

    for shape, axis in _SHAPES:
        yield problem(shape, axis)
    for element in op.elements:
        for axis in (0, 1):
            yield problem((1 << 14, 1 << 14), axis, element=element)
    for options in ({"reverse": True}, {"exclusive": True}):
        for axis in (0, 1):
            yield problem((1 << 14, 1 << 14), axis, **options)
    yield problem((100, 70, 50), 1, transposed)


def _add(row: Row) -> dict[str, Callable[..., Any]]:
    name, traits = op_name(row.kind), {"monoid": row.monoid, "notes": row.notes, "keywords": (), "backward": False}
    added = OPS.add(
        Op(name, ScanKind.parse(row.kind), OpCategory.SCAN, "scan", row.formula, (X, Y), (SCAN,), FLOATS, (), traits=traits, samples=_samples)
    )
    return {name: forward_function(added)}


FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _row in TABLE:
    FUNCTIONS |= _add(_row)
