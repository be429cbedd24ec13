"""Strided, negative, broadcast and misaligned operands: what the address of an element is must not matter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import references
import samples
from kinds import LAYOUTS, ROW_LAYOUTS, Kind, lay, see
from samples import OPS, Sample, name_of, represents, tells, variants_of
from tolerance import assert_close

from numba_baracuda.core.axes import merge_axes
from numba_baracuda.core.op import Layout, Op, Variant
from numba_baracuda.segment.recipes.common import Rows

ALL = list(OPS.values())
#: one op for each algorithm, and among them those on which every operand is laid out by itself
EACH = [pair for pair in variants_of(ALL) if represents(*pair)]
APART = [(op, variant) for op, variant in EACH if variant.name in ("ragged_sorted", "broadcast")]
TOGETHER = [pair for pair in EACH if pair not in APART]
OTHERS = [pair for pair in variants_of(ALL) if pair not in EACH]


def laid(pairs: list[tuple[Op, Variant]], layouts: Iterable[Any]) -> Any:
    """Parameters: op, variant and layout."""
    return pytest.mark.parametrize(("op", "variant", "layout"), [(*pair, layout) for pair in pairs for layout in layouts], ids=name_of)


SAMPLE = Sample("strided", 30, (3, 4), 9, whole=True)
#: where elements are short, as many as a 16-byte access takes and more
SHORT = Sample("strided f16", 30, (2, 8), 9, whole=True, element="f16")

#: rows that end inside what the lanes of a row load together
ODD = Sample("strided odd", 70, (65,), 3, whole=True)


def check(kind: Kind, op: Op, variant: Variant, sample: Sample = SAMPLE, **layouts: str) -> None:
    """Operands in layouts by name, ``values`` for every value among the inputs; the others are contiguous."""
    given = samples.operands(op, sample)
    output = op.operands[-1]
    placed = {}
    for operand in op.operands[:-1]:
        layout = layouts.get(operand.name, "contiguous" if operand.index else layouts.get("values", "contiguous"))
        placed[operand.name] = lay(kind, layout, given[operand.name])
    described = samples.descriptor(op, sample)
    shape = (getattr(described, output.axes[0]), *sample.trailing)
    out = lay(kind, layouts.get("output", "contiguous"), np.full(shape, 77, samples.output_type(op, sample)))
    with kind.schedule(sample.seed):
        samples.plan_of(op, variant, described).run(**placed, **{output.name: out})
    assert_close(kind.numpy(out), references.truth(op.name, given, sample.segments), sample.element, op.name)


@laid(APART, LAYOUTS)
def test_inputs(any_kind: Kind, op: Op, variant: Variant, layout: str) -> None:
    check(any_kind, op, variant, values=layout)


@laid(APART, LAYOUTS)
def test_outputs(any_kind: Kind, op: Op, variant: Variant, layout: str) -> None:
    check(any_kind, op, variant, output=layout)


@laid(TOGETHER, LAYOUTS)
def test_inputs_and_outputs(any_kind: Kind, op: Op, variant: Variant, layout: str) -> None:
    check(any_kind, op, variant, values=layout, output=layout)


@laid(EACH, [(layout, index) for layout in ROW_LAYOUTS for index in ("i32", "i64")])
def test_ids(any_kind: Kind, op: Op, variant: Variant, layout: tuple[str, str]) -> None:
    check(any_kind, op, variant, Sample("strided ids", 70, (4,), 150, samples.outside, index=layout[1]), segment_ids=layout[0])


@laid(APART, ("contiguous", "one element late", "first columns of a wider array", "every second column"))
def test_short_elements(any_kind: Kind, op: Op, variant: Variant, layout: str) -> None:
    check(any_kind, op, variant, SHORT, values=layout, output=layout)


@laid(APART, ("contiguous", "columns of a wider array"))
def test_rows_of_an_odd_width(any_kind: Kind, op: Op, variant: Variant, layout: str) -> None:
    check(any_kind, op, variant, ODD, values=layout)


@laid(OTHERS, ["one element late"])
def test_ops_whose_algorithm_another_op_shows(any_kind: Kind, op: Op, variant: Variant, layout: str) -> None:
    check(any_kind, op, variant, Sample("core, laid out", 30, (3,), 40), values=layout, output=layout, segment_ids="every second row")


@pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(ALL) if tells(*pair)], ids=name_of)
def test_everything_at_once(any_kind: Kind, op: Op, variant: Variant) -> None:
    """A rank of 8 of which no two axes merge."""
    sample = Sample("rank 8", 7, (2, 1, 3, 1, 2, 1, 2), 4)
    check(any_kind, op, variant, sample, values="trailing axes swapped", output="rows innermost", segment_ids="every second row")


@pytest.mark.parametrize(("op", "variant"), EACH, ids=name_of)
def test_broadcast_inputs(any_kind: Kind, op: Op, variant: Variant) -> None:
    """One value for all rows, one for all columns, one id for all rows."""
    sample = Sample("broadcast", 40, (3, 4), 9)
    given = samples.operands(op, sample)
    for axes in ((0,), (2,), (0, 1, 2)):
        placed: dict[str, Any] = {}
        for operand in op.operands[:-1]:
            whole = given[operand.name]
            if operand.index:
                given[operand.name] = np.full_like(whole, 5) if axes == (0, 1, 2) else whole
                array = any_kind.array(given[operand.name])
                if axes == (0, 1, 2):
                    array = any_kind.broadcast(array[:1], whole.shape)
            else:
                part = whole[tuple(slice(1) if axis in axes else slice(None) for axis in range(3))]
                given[operand.name] = np.broadcast_to(part, whole.shape)
                array = any_kind.broadcast(any_kind.array(part), whole.shape)
            placed[operand.name] = see(any_kind, array)
        out = samples.call(op, list(placed.values()), sample.segments, deterministic=variant.deterministic)
        assert_close(any_kind.numpy(out), references.truth(op.name, given, sample.segments), sample.element, op.name)


@pytest.mark.parametrize(
    ("shape", "strides", "merged"),
    [
        ((3, 4), [(4, 1)], ((12,), [(1,)])),
        ((3, 1, 4), [(4, 99, 1)], ((12,), [(1,)])),
        ((3, 4), [(4, 1), (8, 2)], ((12,), [(1,), (2,)])),
        ((3, 4), [(4, 1), (5, 1)], ((3, 4), [(4, 1), (5, 1)])),
        ((3, 4), [(-4, -1)], ((12,), [(-1,)])),
        ((3, 4), [(0, 0)], ((12,), [(0,)])),
        ((3, 4), [(0, 1)], ((3, 4), [(0, 1)])),
        ((2, 3, 4), [(12, 1, 3)], ((2, 3, 4), [(12, 1, 3)])),
        ((2, 3, 4), [(3, 1, 6)], ((6, 4), [(1, 6)])),
        ((), [()], ((1,), [(1,)])),
        ((1, 1), [(7, 7)], ((1,), [(1,)])),
    ],
)
def test_axes_that_every_operand_walks_as_one_are_merged(shape: Any, strides: Any, merged: Any) -> None:
    assert merge_axes(shape, *strides) == merged


@pytest.mark.parametrize(
    ("address", "columns", "row", "column", "vector"),
    [
        (0, 8, 8, 1, 4), (8, 8, 8, 1, 2), (4, 8, 8, 1, 1), (0, 6, 6, 1, 2), (0, 7, 7, 1, 1), (0, 8, 10, 1, 2), (0, 8, 9, 1, 1), (0, 8, 16, 2, 1),
        (0, 8, 0, 1, 4), (0, 8, -8, 1, 4), (0, 8, 8, -1, 1), (0, 8, 8, 0, 1),
    ],
)  # fmt: skip
def test_accesses_are_as_wide_as_alignment_allows(address: int, columns: int, row: int, column: int, vector: int) -> None:
    described = samples.descriptor(OPS["segment_sum"], Sample("wide", 9, (columns,), 3))
    rows = Rows(described, Layout((9, columns), (row, column), address), Layout((3, columns), (columns, 1)))
    assert rows.vector == vector
