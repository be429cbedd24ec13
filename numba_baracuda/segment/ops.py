"""THE TABLE of the segment family: an op is a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..algebra import MEAN, SUM, Monoid
from ..op import Layout, Op, Operand, Variant
from ..registry import OPS
from ..vocabulary import OpCategory, SegmentKind
from . import recipes
from .family import SegmentDescriptor, backward_call, contiguous, forward_call

INPUT = Operand("input", ("num_inputs", "embedding_dim"))
IDS = Operand("segment_ids", ("num_inputs",), index=True)
OUTPUT = Operand("output", ("num_segments", "embedding_dim"), output=True)
D_OUTPUT = Operand("d_output", ("num_segments", "embedding_dim"))
D_INPUT = Operand("d_input", ("num_inputs", "embedding_dim"), output=True)

SORTED = Variant("ragged_sorted", True, recipes.fold_sorted)
ATOMIC = Variant("atomic", False, recipes.scatter, recipes.sorting_pays)
PERMUTED = Variant("ragged_permuted", True, recipes.fold_permuted)
GATHER = Variant("gather", True, recipes.gather)


def _samples(op: Op) -> Iterator[tuple[SegmentDescriptor, dict[str, Layout]]]:
    """Problems that meet every kernel: one column, narrow, odd and wide rows, and two trailing axes that do not merge."""
    for element in op.elements:
        for index in op.indices:
            for columns in (1, 3, 16, 37, 128):
                descriptor = SegmentDescriptor(op.name, 1 << 20, columns, 1 << 14, element, index, check_ids=columns == 1)
                yield descriptor, {operand.name: contiguous(operand, descriptor) for operand in op.operands}
            descriptor = SegmentDescriptor(op.name, 1 << 20, 40, 1 << 14, element, index)
            yield descriptor, {operand.name: _transposed(operand, descriptor) for operand in op.operands}


def _transposed(operand: Operand, descriptor: SegmentDescriptor) -> Layout:
    if len(operand.axes) == 1:
        return contiguous(operand, descriptor)
    return Layout((getattr(descriptor, operand.axes[0]), 5, 8), (40, 1, 5))


def _row(
    name: str, kind: SegmentKind, formula: str, operands: tuple[Operand, ...], variants: tuple[Variant, ...], backward: str | None, **traits: Any
) -> Op:
    traits["ordered"] = not name.startswith("unsorted")
    return OPS.add(
        Op(
            name, kind, OpCategory.SEGMENT_OPS, "segment", formula, operands, variants, elements=("f32", "f64"), indices=("i32", "i64"),
            backward=backward, traits=traits, samples=_samples,
        )
    )  # fmt: skip


def _pair(
    name: str, kinds: tuple[SegmentKind, SegmentKind], formula: str, gradient: str, monoid: Monoid, variants: tuple[Variant, ...]
) -> tuple[Callable[..., Any], ...]:
    """A forward op whose gradient is a gather, and that gradient."""
    counts = monoid is MEAN
    empty = 0.0
    order = (
        "Ids are in any order."
        if name.startswith("unsorted")
        else "Ids ascend; if they do not, values are unspecified but nothing outside the arrays is touched."
    )
    notes = (
        f"Sums are kept in the accumulator's type. Empty segments get {empty:g}, or ``empty=``. NaN and infinities follow IEEE arithmetic. {order}"
    )
    forward = _row(
        name, kinds[0], formula, (INPUT, IDS, OUTPUT), variants, f"{name}_backward", monoid=monoid, counts=counts, empty=empty, notes=notes
    )
    notes = f"Rows whose id is out of range get 0. {'Counts are taken anew from the ids. ' if counts else ''}{order}"
    backward = _row(f"{name}_backward", kinds[1], gradient, (D_OUTPUT, IDS, D_INPUT), (GATHER,), None, counts=counts, notes=notes)
    return forward_call(forward), backward_call(backward)


_K = SegmentKind
_SUM, _SUM_GRADIENT = "output[s] = Σ input[n] over segment_ids[n] = s", "d_input[n] = d_output[segment_ids[n]]"
_MEAN, _MEAN_GRADIENT = "output[s] = Σ input[n] / count[s] over segment_ids[n] = s", "d_input[n] = d_output[segment_ids[n]] / count[segment_ids[n]]"

segment_sum, segment_sum_backward = _pair("segment_sum", (_K.SEGMENT_SUM, _K.SEGMENT_SUM_BACKWARD), _SUM, _SUM_GRADIENT, SUM, (SORTED,))
segment_mean, segment_mean_backward = _pair("segment_mean", (_K.SEGMENT_MEAN, _K.SEGMENT_MEAN_BACKWARD), _MEAN, _MEAN_GRADIENT, MEAN, (SORTED,))
unsorted_segment_sum, unsorted_segment_sum_backward = _pair(
    "unsorted_segment_sum", (_K.UNSORTED_SEGMENT_SUM, _K.UNSORTED_SEGMENT_SUM_BACKWARD), _SUM, _SUM_GRADIENT, SUM, (ATOMIC, PERMUTED)
)
unsorted_segment_mean, unsorted_segment_mean_backward = _pair(
    "unsorted_segment_mean", (_K.UNSORTED_SEGMENT_MEAN, _K.UNSORTED_SEGMENT_MEAN_BACKWARD), _MEAN, _MEAN_GRADIENT, MEAN, (ATOMIC, PERMUTED)
)
