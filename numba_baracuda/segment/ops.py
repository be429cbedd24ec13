"""The table of the segment family: an op is a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..algebra import monoid_of
from ..algebra.gradients import NONFINITE_GRADIENTS
from ..core.dtypes import FLOATS, NUMBERS
from ..core.op import GridAxis, Layout, Op, Operand, Target, Variant
from ..core.registry import OPS
from ..core.vocabulary import OpCategory, numbered
from . import recipes, times
from .calls import function_of
from .descriptor import SegmentDescriptor, contiguous, needs_segments, out_of_order, unless_any_order
from .pairing import unpairable

_PREFIXES = ("", "unsorted_")
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
BINS = Variant("bins", True, recipes.bins, unless_any_order(recipes.many), times.bins)
EXACT = Variant("atomic_exact", True, recipes.scatter, unless_any_order(recipes.exact), times.scatter)
ATOMIC = Variant("atomic", False, recipes.scatter, unless_any_order(recipes.inexact), times.scatter)
ABOUT = Variant("atomic_about_max", False, recipes.scatter_about_greatest, unless_any_order(), times.about_greatest)
FIRST = Variant("atomic_first", True, recipes.first_by_atomics, recipes.unfit_for_atomics, times.first)
PAIRS = Variant("ragged_pairs", True, recipes.sorted_pairs, unless_any_order(unpairable), times.pairs)
RANGES = Variant("ragged_ranges", True, recipes.ranges, unless_any_order(recipes.unfit), times.ranges)
PERMUTED = Variant(
    "ragged_permuted",
    True,
    recipes.ragged,
    lambda op, descriptor: None if out_of_order(op, descriptor) else "is for ids in any order",
    times.permuted,
)
GATHER = Variant("gather", True, recipes.gather)
BROADCAST = Variant("broadcast", True, recipes.broadcast, recipes.too_many)
SUMS = Variant("atomic_broadcast", False, recipes.broadcast_sums, unless_any_order(recipes.unbounded), times.gradient_atomics)


@dataclass(frozen=True)
class Row:
    """One fold: its formula, its gradient's, and the operands of the gradient besides ids; "" and () without a gradient."""

    name: str
    kinds: tuple[int, ...]  #: numbers in ``SegmentKind``: of the sorted op, its gradient if it has one, and the same of the unsorted op
    formula: str
    gradient: str
    given: tuple[Operand, ...]
    rules: str  #: on NaN, empties and precision, for the docs
    empty: tuple[float | str, float | str]  #: of sorted and unsorted ops
    atomic: tuple[Variant, ...] = ()
    elements: tuple[str, ...] = FLOATS
    forward: tuple[Operand, ...] = (INPUT, IDS, OUTPUT)
    monoid: str = ""  #: where it is not the name
    narrow: tuple[tuple[str, str], ...] = ()  #: (element, monoid) where an element type has a monoid of its own
    results: tuple[str, ...] = ()  #: dtypes of a result that is no element, the first by default
    backward: Variant = BROADCAST  #: the variant of the gradient
    sums: bool = False  #: whether atomics may add up what the gradient needs
    keywords: tuple[str, ...] = ()
    backward_keywords: tuple[str, ...] = ()


_IEEE = "NaN and infinities follow IEEE arithmetic."
_ORDERED = "NaN wins and −0 < +0, whatever the order of the rows; infinities are values."
_CORRECTED = (
    "``correction`` (1 by default), any number of 0 or more, is subtracted from the count; where that leaves no positive count, the result and the "
    "gradient are 0."
)
_FIRST = (
    "Rows count from 0 in the input, whatever the order of the ids. Of equal elements it is the first; NaN is the {0}. Integers are compared "
    "exactly. ``dtype`` is int64 or int32."
)
_WINNER = (
    'The gradient goes to the first row that holds the {0}, to every such row with ``ties="all"``, in equal parts with ``"even"``; where that is '
    "NaN, to rows that are NaN."
)  # fmt: skip

TABLE = (
    Row(
        "sum", (0, 1, 7, 8), "output[s] = Σ input[n]", "d_input[n] = d_output[s]", (D_OUTPUT,), _IEEE, (0, 0), (EXACT, ATOMIC), NUMBERS,
        backward=GATHER,
    ),
    Row(
        "mean", (2, 3, 9, 10), "output[s] = Σ input[n] / count[s]", "d_input[n] = d_output[s] / count[s]", (D_OUTPUT,), _IEEE, (0, 0), (ATOMIC,),
        backward=GATHER,
    ),
    Row(
        "max", (4, 13, 11, 16), "output[s] = max input[n]", "d_input[n] = d_output[s] where input[n] is the maximum, else 0", (D_OUTPUT, INPUT),
        f"{_ORDERED} {_WINNER.format('maximum')}", (0, "least"), (EXACT,), NUMBERS, backward_keywords=("ties",),
    ),
    Row(
        "min", (5, 14, 12, 17), "output[s] = min input[n]", "d_input[n] = d_output[s] where input[n] is the minimum, else 0", (D_OUTPUT, INPUT),
        f"{_ORDERED} {_WINNER.format('minimum')}", (0, "greatest"), (EXACT,), NUMBERS, backward_keywords=("ties",),
    ),
    Row(
        "prod", (6, 15, 18, 19), "output[s] = Π input[n]", "d_input[n] = d_output[s] · Π input[m] over the other rows m of s",
        (D_OUTPUT, INPUT, SAVED),
        f"{_IEEE} The gradient is exact where rows are 0, one or many, and where the product leaves the range.", (1, 1),
        elements=NUMBERS,
    ),
    Row(
        "logsumexp", (20, 21, 30, 31), "output[s] = log Σ exp input[n]", "d_input[n] = d_output[s] · exp(input[n] − output[s])",
        (D_OUTPUT, INPUT, SAVED),
        "NaN propagates; of nothing but −∞ it is −∞, and the gradient 0; with any +∞ it is +∞.", ("-inf", "-inf"),
        (ABOUT,),
    ),
    Row(
        "norm2", (22, 23, 32, 33), "output[s] = √Σ input[n]²", "d_input[n] = d_output[s] · input[n] / output[s]", (D_OUTPUT, INPUT, SAVED),
        f"{_IEEE} No square overflows or vanishes where the result can be represented. The gradient is 0 where the norm is.", (0, 0),
        monoid="scaled_norm2", narrow=(("f16", "norm2"),),  # the square of a float16 is a normal float32, and no sum of 2³¹ overflows
    ),
    Row(
        "var", (24, 25, 34, 35), "output[s] = Σ (input[n] − mean[s])² / (count[s] − correction)",
        "d_input[n] = d_output[s] · 2 (input[n] − mean[s]) / (count[s] − correction)", (D_OUTPUT, INPUT), f"{_IEEE} {_CORRECTED}", (0, 0),
        keywords=("correction",),
    ),
    Row(
        "std", (26, 27, 36, 37), "output[s] = √(Σ (input[n] − mean[s])² / (count[s] − correction))",
        "d_input[n] = d_output[s] · (input[n] − mean[s]) / ((count[s] − correction) · output[s])", (D_OUTPUT, INPUT, SAVED),
        f"{_IEEE} {_CORRECTED} The gradient of rows that are all alike is 0.", (0, 0), keywords=("correction",),
    ),
    Row(
        "softmax", (28, 29, 38, 39), "output[n] = exp(input[n]) / Σ exp input[m]",
        "d_input[n] = output[n] · (d_output[n] − Σ d_output[m] · output[m])", (D_ROWS, ROWS),
        "Rows whose id is out of range get 0. NaN propagates; rows of nothing but −∞ give NaN.", (0, 0), forward=(INPUT, IDS, ROWS_OUTPUT),
        sums=True,
    ),
    Row(
        "log_softmax", (40, 41, 42, 43), "output[n] = input[n] − log Σ exp input[m]", "d_input[n] = d_output[n] − exp(output[n]) · Σ d_output[m]",
        (D_ROWS, ROWS),
        "Rows whose id is out of range get 0. NaN propagates; with any +∞, or of nothing but −∞, all rows of the segment are NaN; other rows of −∞ "
        "stay −∞, and their gradient is d_output. The greatest element is subtracted first, so that a large offset costs no digits.",
        (0, 0), forward=(INPUT, IDS, ROWS_OUTPUT), sums=True,
    ),
    Row(
        "argmax", (44, 45), "output[s] = the first row of max input[n]", "", (), _FIRST.format("greatest"), (-1, -1), elements=NUMBERS,
        monoid="first_max", results=("i64", "i32"), keywords=("dtype",), atomic=(FIRST,),
    ),
    Row(
        "argmin", (46, 47), "output[s] = the first row of min input[n]", "", (), _FIRST.format("least"), (-1, -1), elements=NUMBERS,
        monoid="first_min", results=("i64", "i32"), keywords=("dtype",), atomic=(FIRST,),
    ),
)  # fmt: skip


def _samples(op: Op) -> Iterator[tuple[SegmentDescriptor, dict[str, Layout]]]:
    """Problems that use every kernel: one column in long and short segments, narrow, odd and wide rows, two trailing axes that do not merge; other
    types at two widths; so many rows that folds leave carries.
    """

    def problem(
        columns: int, segments: int = 1 << 14, element: str = "f32", index: str = "i32", result: str = "", rows: int = 1 << 20
    ) -> tuple[SegmentDescriptor, dict[str, Layout]]:
        descriptor = SegmentDescriptor(op.name, rows, columns, segments, element, index, check_ids=columns == 1, result=result)
        return descriptor, {operand.name: contiguous(operand, descriptor) for operand in op.operands}

    for columns in (1, 3, 16, 37, 128):
        yield problem(columns)
    yield problem(1, 1 << 18)
    yield problem(37, rows=1 << 27)
    if op.traits["backward"] and op.traits["monoid"] == "mean":
        yield problem(16, 1 << 18)
    yield problem(16, index="i64")
    yield problem(1, index="i64")
    yield problem(16, 40, index="i64")
    for element in op.elements:
        yield problem(1, element=element)
        yield problem(16, element=element)
        yield problem(16, 40, element)
        yield problem(128, element=element, rows=1 << 24)
    for result in op.traits["results"][1:]:
        yield problem(1, result=result)
        yield problem(16, result=result)
    form = "permuted" if op.traits["ordered"] else "sorted"
    descriptor = SegmentDescriptor(op.name, 1 << 20, 16, 1 << 14, indexed=form)
    yield descriptor, {operand.name: contiguous(operand, descriptor) for operand in descriptor.specialise(op).operands}
    descriptor = SegmentDescriptor(op.name, 1 << 20, 40, 1 << 14)
    yield descriptor, {operand.name: _transposed(operand, descriptor) for operand in op.operands}
    for index in op.indices if not needs_segments(op) else ():
        descriptor = SegmentDescriptor(op.name, 1 << 20, 16, 1 << 20, index=index, bounded=False)
        yield descriptor, {operand.name: contiguous(operand, descriptor) for operand in op.operands}


#: rows, columns and segments
_GRID = (
    GridAxis((1, 100, 2000, 1 << 16, 250_000, 1 << 20, 8_000_000, 1 << 27, 1 << 28), anchors=(100, 1 << 22)),
    GridAxis((1, 2, 3, 4, 5, 6, 8, 16, 32, 64), tuple(range(1, 4097))),
    GridAxis((1, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 512, 1 << 12, 1 << 13, 1 << 15, 1 << 18, 1 << 21, 1 << 26), anchors=(8, 1 << 15)),
)


def _pose(op: Op, element: str, index: str, rows: int, columns: int, segments: int) -> SegmentDescriptor:
    if needs_segments(op):
        return SegmentDescriptor(op.name, rows, columns, segments, element, index)
    return SegmentDescriptor(op.name, rows, columns, rows, element, index, bounded=False)


def _transposed(operand: Operand, descriptor: SegmentDescriptor) -> Layout:
    if len(operand.axes) == 1:
        return contiguous(operand, descriptor)
    return Layout((getattr(descriptor, operand.axes[0]), 5, 8), (40, 1, 5))


def _notes(row: Row, ordered: bool, backward: bool) -> str:
    order = "Ids ascend; if they do not, values are unspecified but nothing outside the arrays is touched." if ordered else "Ids are in any order."
    empty = row.empty[0 if ordered else 1]
    name = {"least": "the least finite value", "greatest": "the greatest finite value", "-inf": "−∞"}.get(str(empty), empty)
    blank = "" if backward or ROWS_OUTPUT in row.forward else f"Empty segments get {name}, or ``empty=``. "
    halves = "" if row.results else "Halves are accumulated in float32 and rounded once. "
    return f"{row.rules} {blank}{halves}{f'{NONFINITE_GRADIENTS} Rows whose id is out of range get 0. ' if backward else ''}{order}"


def _names(row: Row) -> list[str]:
    """The ops of a row in the order of its ``kinds``."""
    return [f"{prefix}segment_{row.name}{way}" for prefix in _PREFIXES for way in ("", *(("_backward",) if row.gradient else ()))]


def _named(variant: Variant) -> Variant:
    """The same variant. Its name in SKUs says which result it has, unless that is the default."""

    def named(op: Op, descriptor: SegmentDescriptor, target: Target) -> str:
        result = descriptor.result_of(op)
        return variant.name if result == op.traits["results"][0] else f"{variant.name}:{result}"

    return replace(variant, named=named)


def _add(row: Row, prefix: str) -> dict[str, Callable[..., Any]]:
    """A fold and its gradient, if it has one."""
    ordered, name = not prefix, f"{prefix}segment_{row.name}"
    where = " over segment_ids[n] = s"
    monoid = row.monoid or row.name
    traits = {"ordered": ordered, "monoid": monoid, "narrow": dict(row.narrow), "gradient": row.name, "empty": row.empty[0 if ordered else 1]}
    to_rows = ROWS_OUTPUT in row.forward
    if to_rows:
        variants: tuple[Variant, ...] = (BROADCAST,)
    elif ordered:
        variants = (SORTED, PERMUTED)
    else:
        pairs = () if monoid_of(monoid).uses_positions else (PAIRS,)  # a sort of rows loses their positions
        variants = (SORTED, BINS, *row.atomic, RANGES, *pairs, PERMUTED)
    forward = row.forward
    if row.results:
        variants, forward = tuple(map(_named, variants)), (*forward[:-1], replace(forward[-1], element=" ".join(row.results)))

    def add(name: str, formula: str, operands: tuple[Operand, ...], variants: tuple[Variant, ...], backward: bool) -> Op:
        keywords = row.keywords + (row.backward_keywords if backward else ())
        more = {"keywords": keywords, "results": row.results, "notes": _notes(row, ordered, backward), "backward": backward}
        elements = FLOATS if backward else row.elements
        gradient = {"gradient": f"{row.name}_backward"} if to_rows and backward else {}
        return OPS.add(
            Op(
                name, KINDS.parse(name), OpCategory.SEGMENT_OPS, "segment", formula, operands, variants, elements, ("i32", "i64"),
                backward=f"{name}_backward" if row.gradient and not backward else None, traits=traits | more | gradient,
                samples=_samples, poses=_pose, grid=_GRID,
            )
        )  # fmt: skip

    made = [add(name, row.formula + where, forward, variants, backward=False)]
    if row.gradient:
        formula = f"{row.gradient} with s = segment_ids[n]"
        ways = (replace(row.backward, time=times.gradient_fold), SUMS) if row.sums and not ordered else (row.backward,)
        made.append(add(f"{name}_backward", formula, (*row.given, IDS, D_INPUT), ways, backward=True))
    return {op.name: function_of(op) for op in made}


KINDS = numbered(
    "SegmentKind", "Segment ops; the numbers go into ``KernelSku.op``.",
    {name.upper(): number for row in TABLE for name, number in zip(_names(row), row.kinds, strict=True)},
)  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {}
for _prefix in _PREFIXES:
    for _row in TABLE:
        FUNCTIONS |= _add(_row, _prefix)
