"""THE TABLE of the segment family: an op is a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..algebra.gradients import NONFINITE_GRADIENTS
from ..core.dtypes import FLOATS, NUMBERS
from ..core.op import Layout, Op, Operand, Variant
from ..core.registry import OPS
from ..core.vocabulary import OpCategory, SegmentKind
from . import recipes
from .calls import function_of
from .descriptor import SegmentDescriptor, contiguous, needs_segments, out_of_order, unless_any_order

INPUT = Operand("input", ("num_inputs", "embedding_dim"))
IDS = Operand("segment_ids", ("num_inputs",), index=True)
SAVED = Operand("output", ("num_segments", "embedding_dim"))
OUTPUT = Operand("output", ("num_segments", "embedding_dim"), output=True)
ROWS = Operand("output", ("num_inputs", "embedding_dim"))
ROWS_OUTPUT = Operand("output", ("num_inputs", "embedding_dim"), output=True)
D_OUTPUT = Operand("d_output", ("num_segments", "embedding_dim"))
D_ROWS = Operand("d_output", ("num_inputs", "embedding_dim"))
D_INPUT = Operand("d_input", ("num_inputs", "embedding_dim"), output=True)

SORTED = Variant("ragged_sorted", True, recipes.ragged, out_of_order)
BINS = Variant("bins", True, recipes.bins, unless_any_order(recipes.many))
EXACT = Variant("atomic_exact", True, recipes.scatter, unless_any_order(recipes.exact), recipes.sorting_pays)
ATOMIC = Variant("atomic", False, recipes.scatter, unless_any_order(recipes.inexact), recipes.sorting_pays)
MOVED = Variant("ragged_moved", True, recipes.moved, unless_any_order(recipes.movable))
RANGES = Variant("ragged_ranges", True, recipes.ranges, unless_any_order(recipes.unfit), recipes.too_few)
PERMUTED = Variant(
    "ragged_permuted", True, recipes.ragged, lambda op, descriptor: None if out_of_order(op, descriptor) else "is for ids in any order"
)
GATHER = Variant("gather", True, recipes.gather)
SPREAD = Variant("spread", True, recipes.spread, recipes.too_many)


@dataclass(frozen=True)
class Row:
    """What tells one fold from another: its formula and its gradient's, and what the gradient is given besides ids."""

    name: str
    formula: str
    gradient: str
    given: tuple[Operand, ...]
    rules: str  #: on NaN, empties and precision, for the docs
    empty: tuple[float | str, float | str]  #: of sorted and unsorted ops
    atomic: tuple[Variant, ...] = ()
    elements: tuple[str, ...] = FLOATS
    forward: tuple[Operand, ...] = (INPUT, IDS, OUTPUT)
    monoid: str = ""  #: where it is not the name
    narrow: tuple[tuple[str, str], ...] = ()  #: elements whose monoid is another, and its name


_IEEE = "NaN and infinities follow IEEE arithmetic."
_ORDERED = "NaN wins and −0 < +0, whatever the order of the rows; infinities are values."
_CORRECTED = (
    "``correction`` (1 by default), any number of 0 or more, is taken from the count; where nothing is left, the result is 0, and so is the gradient."
)
_WINNER = (
    'The gradient goes to the first row that holds the {0}, to every such row with ``ties="all"``, in equal parts with ``"even"``; where that is '
    "NaN, to rows that are NaN."
)  # fmt: skip

TABLE = (
    Row("sum", "output[s] = Σ input[n]", "d_input[n] = d_output[s]", (D_OUTPUT,), _IEEE, (0, 0), (EXACT, ATOMIC), NUMBERS),
    Row("mean", "output[s] = Σ input[n] / count[s]", "d_input[n] = d_output[s] / count[s]", (D_OUTPUT,), _IEEE, (0, 0), (ATOMIC,)),
    Row(
        "max", "output[s] = max input[n]", "d_input[n] = d_output[s] where input[n] is the maximum, else 0", (D_OUTPUT, INPUT),
        f"{_ORDERED} {_WINNER.format('maximum')}", (0, "least"), (EXACT,), NUMBERS,
    ),
    Row(
        "min", "output[s] = min input[n]", "d_input[n] = d_output[s] where input[n] is the minimum, else 0", (D_OUTPUT, INPUT),
        f"{_ORDERED} {_WINNER.format('minimum')}", (0, "greatest"), (EXACT,), NUMBERS,
    ),
    Row(
        "prod", "output[s] = Π input[n]", "d_input[n] = d_output[s] · Π input[m] over the other rows m of s", (D_OUTPUT, INPUT, SAVED),
        f"{_IEEE} The gradient is exact where rows are 0, one or many, and where the product leaves the range.", (1, 1), (EXACT, ATOMIC), NUMBERS,
    ),
    Row(
        "logsumexp", "output[s] = log Σ exp input[n]", "d_input[n] = d_output[s] · exp(input[n] − output[s])", (D_OUTPUT, INPUT, SAVED),
        "NaN propagates; of nothing but −∞ it is −∞, and the gradient 0; with any +∞ it is +∞.", ("-inf", "-inf"),
    ),
    Row(
        "norm2", "output[s] = √Σ input[n]²", "d_input[n] = d_output[s] · input[n] / output[s]", (D_OUTPUT, INPUT, SAVED),
        f"{_IEEE} No square overflows or vanishes where the result can be represented. The gradient is 0 where the norm is.", (0, 0),
        monoid="scaled_norm2", narrow=(("f16", "norm2"),),  # the square of a float16 is a normal float32, and no sum of 2³¹ overflows
    ),
    Row(
        "var", "output[s] = Σ (input[n] − mean[s])² / (count[s] − correction)",
        "d_input[n] = d_output[s] · 2 (input[n] − mean[s]) / (count[s] − correction)", (D_OUTPUT, INPUT), f"{_IEEE} {_CORRECTED}", (0, 0),
    ),
    Row(
        "std", "output[s] = √(Σ (input[n] − mean[s])² / (count[s] − correction))",
        "d_input[n] = d_output[s] · (input[n] − mean[s]) / ((count[s] − correction) · output[s])", (D_OUTPUT, INPUT, SAVED),
        f"{_IEEE} {_CORRECTED} The gradient of rows that are all alike is 0.", (0, 0),
    ),
    Row(
        "softmax", "output[n] = exp(input[n]) / Σ exp input[m]", "d_input[n] = output[n] · (d_output[n] − Σ d_output[m] · output[m])", (D_ROWS, ROWS),
        "Rows whose id is out of range get 0. NaN propagates; rows of nothing but −∞ give NaN.", (0, 0), forward=(INPUT, IDS, ROWS_OUTPUT),
    ),
    Row(
        "log_softmax", "output[n] = input[n] − log Σ exp input[m]", "d_input[n] = d_output[n] − exp(output[n]) · Σ d_output[m]", (D_ROWS, ROWS),
        "Rows whose id is out of range get 0. NaN propagates; with any +∞, or of nothing but −∞, all rows of the segment are NaN; other rows of −∞ "
        "stay −∞, and their gradient is d_output. The greatest element is taken off first, so that a large offset costs no digits.",
        (0, 0), forward=(INPUT, IDS, ROWS_OUTPUT),
    ),
)  # fmt: skip


def _samples(op: Op) -> Iterator[tuple[SegmentDescriptor, dict[str, Layout]]]:
    """Problems that meet every kernel: one column in long and short segments, narrow, odd and wide rows, two trailing axes that do not merge; other
    types at two widths.
    """

    def problem(columns: int, segments: int = 1 << 14, element: str = "f32", index: str = "i32") -> tuple[SegmentDescriptor, dict[str, Layout]]:
        descriptor = SegmentDescriptor(op.name, 1 << 20, columns, segments, element, index, check_ids=columns == 1)
        return descriptor, {operand.name: contiguous(operand, descriptor) for operand in op.operands}

    for columns in (1, 3, 16, 37, 128):
        yield problem(columns)
    yield problem(1, 1 << 18)
    yield problem(16, index="i64")
    yield problem(1, index="i64")
    for element in op.elements:
        yield problem(1, element=element)
        yield problem(16, element=element)
        yield problem(16, 40, element)
    form = "permuted" if op.traits["ordered"] else "sorted"
    descriptor = SegmentDescriptor(op.name, 1 << 20, 16, 1 << 14, indexed=form)
    yield descriptor, {operand.name: contiguous(operand, descriptor) for operand in descriptor.specialise(op).operands}
    descriptor = SegmentDescriptor(op.name, 1 << 20, 40, 1 << 14)
    yield descriptor, {operand.name: _transposed(operand, descriptor) for operand in op.operands}
    for index in op.indices if not needs_segments(op) else ():
        descriptor = SegmentDescriptor(op.name, 1 << 20, 16, 1 << 20, index=index, bounded=False)
        yield descriptor, {operand.name: contiguous(operand, descriptor) for operand in op.operands}


def _transposed(operand: Operand, descriptor: SegmentDescriptor) -> Layout:
    if len(operand.axes) == 1:
        return contiguous(operand, descriptor)
    return Layout((getattr(descriptor, operand.axes[0]), 5, 8), (40, 1, 5))


def _notes(row: Row, ordered: bool, backward: bool) -> str:
    order = "Ids ascend; if they do not, values are unspecified but nothing outside the arrays is touched." if ordered else "Ids are in any order."
    empty = row.empty[0 if ordered else 1]
    name = {"least": "the least finite value", "greatest": "the greatest finite value", "-inf": "−∞"}.get(str(empty), empty)
    kept = (
        "Halves are kept in float32 and rounded once."
        if backward or ROWS_OUTPUT in row.forward
        else f"Empty segments get {name}, or ``empty=``. Halves are kept in float32 and rounded once."
    )
    return f"{row.rules} {kept} {f'{NONFINITE_GRADIENTS} Rows whose id is out of range get 0. ' if backward else ''}{order}"


def _add(row: Row, prefix: str) -> dict[str, Callable[..., Any]]:
    """A fold and its gradient."""
    ordered, name = not prefix, f"{prefix}segment_{row.name}"
    where = " over segment_ids[n] = s"
    monoids = {"monoid": row.monoid or row.name, "narrow": dict(row.narrow)}
    traits = {"ordered": ordered, **monoids, "gradient": row.name, "empty": row.empty[0 if ordered else 1]}
    moments, extreme = row.name in ("var", "std"), row.name in ("max", "min")
    spreads = ROWS_OUTPUT in row.forward
    if spreads:
        variants: tuple[Variant, ...] = (SPREAD,)
    elif ordered:
        variants = (SORTED, PERMUTED)
    else:
        variants = (SORTED, BINS, *row.atomic, RANGES, MOVED, PERMUTED)
    keywords = ("correction",) if moments else ()

    def add(name: str, formula: str, operands: tuple[Operand, ...], variants: tuple[Variant, ...], backward: bool) -> Op:
        kind = SegmentKind.parse(name)
        more = {"keywords": keywords + (("ties",) if extreme and backward else ()), "notes": _notes(row, ordered, backward), "backward": backward}
        elements = FLOATS if backward else row.elements
        gradient = {"gradient": f"{row.name}_backward"} if spreads and backward else {}
        return OPS.add(
            Op(
                name, kind, OpCategory.SEGMENT_OPS, "segment", formula, operands, variants, elements, ("i32", "i64"),
                backward=None if backward else f"{name}_backward", traits=traits | more | gradient, samples=_samples,
            )
        )  # fmt: skip

    forward = add(name, row.formula + where, row.forward, variants, backward=False)
    pulls = (GATHER,) if row.name in ("sum", "mean") else (SPREAD,)
    back = add(f"{name}_backward", f"{row.gradient} with s = segment_ids[n]", (*row.given, IDS, D_INPUT), pulls, backward=True)
    return {op.name: function_of(op) for op in (forward, back)}


FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _prefix in ("", "unsorted_"):
    for _row in TABLE:
        FUNCTIONS |= _add(_row, _prefix)
