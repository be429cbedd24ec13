"""SegmentIndex: ids that are used more than once."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import references
import samples
from kinds import ROW_LAYOUTS, Kind, lay
from references import stem
from samples import OPS, Sample, name_of, takes_empty
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda import SegmentIndex
from numba_baracuda.arrays import arrays as views
from numba_baracuda.core.op import Op
from numba_baracuda.plans.tuning import using
from numba_baracuda.segment.policy import FirstFault

EVERY_OP = pytest.mark.parametrize("op", list(OPS.values()), ids=name_of)
S = 30

#: name → ids of N rows for S segments, and whether they ascend
IDS: dict[str, tuple[np.ndarray, bool]] = {
    "ascending": (np.sort(np.random.default_rng(1).integers(0, S, 140)), True),
    "any order": (np.random.default_rng(2).integers(0, S, 140), False),
    "ascending, outside": (np.sort(np.random.default_rng(3).integers(-9, S + 9, 140)), True),
    "any order, outside": (np.random.default_rng(4).integers(-9, S + 9, 140), False),
    "all outside": (np.array([-5, -1, S, S + 1]), True),
    "all outside, any order": (np.array([S, -1, S + 1, -1]), False),
    "outside in between": (np.array([3, S, 5, -1, 5, 3]), False),
    "one row": (np.array([7]), True),
    "one segment": (np.full(140, 4), True),
    "one descent at the end": (np.array([*range(S), 0]), False),
    "no rows": (np.empty(0, np.int64), True),
}
EVERY_IDS = pytest.mark.parametrize("ids", IDS)


def holds(kind: Kind, index: SegmentIndex, ids: np.ndarray, segments: int, is_sorted: bool) -> None:
    """Everything that an index says, against the ids."""
    rows = len(ids)
    assert (index.num_segments, index.num_inputs, index.is_sorted) == (segments, rows, is_sorted)
    assert type(index.is_sorted) is bool
    assert index.descriptor_form == ("sorted" if is_sorted else "permuted")
    assert (index.permutation is None) == is_sorted
    inside = (ids >= 0) & (ids < segments)
    order = np.arange(rows) if is_sorted else kind.numpy(index.permutation)
    ordered, offsets, counts = kind.numpy(index.sorted_ids), kind.numpy(index.offsets), kind.numpy(index.counts)
    assert sorted(order) == list(range(rows))
    assert offsets.shape == (segments + 1,) and counts.shape == (segments,) and ordered.shape == (rows,)
    np.testing.assert_array_equal(counts, np.bincount(ids[inside].astype(np.int64), minlength=segments))
    np.testing.assert_array_equal(np.diff(offsets), counts)
    for segment in range(segments):
        low, high = offsets[segment], offsets[segment + 1]
        np.testing.assert_array_equal(order[low:high], np.flatnonzero(ids == segment))
        assert (ordered[low:high] == segment).all()
    elsewhere = np.ones(rows, bool)
    elsewhere[offsets[0] : offsets[-1]] = False
    assert not ((ordered[elsewhere] >= 0) & (ordered[elsewhere] < segments)).any()
    if not is_sorted:
        assert offsets[0] == 0
        np.testing.assert_array_equal(ordered, np.sort(np.where(inside, ids, segments)))
    if len(ids) == 140:
        assert f"{rows}" in repr(index) and f"{segments}" in repr(index)


# ---------------------------------------------------------------- construction


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("told", [False, True], ids=["found out", "told"])
@EVERY_IDS
def test_an_index_of_ids(any_kind: Kind, ids: str, told: bool, dtype: Any) -> None:
    given, ascending = IDS[ids]
    given = given.astype(dtype)
    index = SegmentIndex(lay(any_kind, "contiguous", given), S, ascending if told else None)
    holds(any_kind, index, given, S, ascending)
    np.testing.assert_array_equal(any_kind.numpy(index.segment_ids), given)
    for name in ("segment_ids", "sorted_ids", "offsets", "counts", *(() if ascending else ("permutation",))):
        assert any_kind.owns(getattr(index, name)), name


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
@pytest.mark.parametrize("ids", ["ascending, outside", "any order, outside"])
def test_an_index_of_strided_ids(kind: Kind, ids: str, layout: str) -> None:
    for dtype in (np.int32, np.int64):
        given, ascending = IDS[ids][0].astype(dtype), IDS[ids][1]
        holds(kind, SegmentIndex(lay(kind, layout, given), S), given, S, ascending)


def test_ids_in_order_may_be_taken_for_others(kind: Kind) -> None:
    given = IDS["ascending, outside"][0].astype(np.int32)
    index = SegmentIndex(kind.array(given), S, False)
    holds(kind, index, given, S, False)
    np.testing.assert_array_equal(np.sort(kind.numpy(index.permutation)), np.arange(len(given)))


def test_ids_far_outside(kind: Kind) -> None:
    """int64 ids that would be inside if they were cut to 32 bits."""
    given = np.array([3, 3 + (1 << 32), -(1 << 32), 2, (1 << 62) + 1, -(1 << 63), (1 << 63) - 1])
    holds(kind, SegmentIndex(kind.array(given), 5), given, 5, False)
    holds(kind, SegmentIndex(kind.array(np.sort(given)), 5), np.sort(given), 5, True)


#: name → ids of segments that lie far apart, for so many segments
GAPS: dict[str, tuple[list[int], int]] = {
    "before": ([1400, 1400], 1401),
    "behind": ([0, 0], 1400),
    "between": ([0, 1399], 1400),
    "several": ([3, 3, 301, 700, 701, 1390], 1400),
    "none inside": ([-7, -1, 1400, 1400], 1400),
    "both sides": ([-7, -1, 650, 1400, 1405], 1400),
    "one segment": ([-1, 0, 0, 0, 1], 1),
    "no segment": ([-1, 0, 0, 1], 0),
}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
@pytest.mark.parametrize("gaps", GAPS)
def test_segments_far_apart(kind: Kind, gaps: str, ascending: bool, dtype: Any) -> None:
    given, segments = np.array(GAPS[gaps][0], dtype), GAPS[gaps][1]
    if ascending or given[0] != given[-1]:
        given = given if ascending else given[::-1].copy()
        holds(kind, SegmentIndex(kind.array(given), segments), given, segments, ascending)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_that_do_not_ascend_as_was_said(kind: Kind, dtype: Any) -> None:
    """Nothing outside the arrays is touched, and offsets are rows."""
    rng = np.random.default_rng(6)
    for given in (np.arange(300)[::-1], rng.integers(-5, 305, 300), np.tile([299, 0], 150)):
        index = SegmentIndex(kind.array(given.astype(dtype)), 300, True)
        offsets = kind.numpy(index.offsets)
        assert index.is_sorted and (offsets >= 0).all() and (offsets <= 300).all()
        for name in ("segment_sum", "segment_mean"):
            assert kind.numpy(getattr(nb, name)(kind.array(np.ones((300, 3), np.float32)), index)).shape == (300, 3)
        gradient = nb.segment_mean_backward(kind.array(np.ones((300, 3), np.float32)), index)
        assert kind.numpy(gradient).shape == (300, 3)


@pytest.mark.parametrize("layout", ["packed", "late", "every second"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_first_fault_is_found(kind: Kind, dtype: Any, layout: str) -> None:
    """Among several, wherever it lies in the tiles that threads walk, whole or not."""
    rows = 2503
    segments, x = 3 * rows, kind.array(np.ones(rows, np.float32))

    def ids(changes: dict[int, int]) -> Any:
        made = 3 * np.arange(rows, dtype=dtype) + 2
        made[list(changes)] = list(changes.values())
        step, late = 2 if layout == "every second" else 1, 1 if layout == "late" else 0
        return kind.array(np.repeat(np.append(made[:late], made), step))[late::step]

    with using(FirstFault, max_blocks=1):
        for row in (1, 512, 1024, rows - 1):
            descents = {row: 3 * row - 2, **dict.fromkeys(range(row + 3, rows, 5), 0)}
            assert not SegmentIndex(ids(descents), segments).is_sorted
            with pytest.raises(nb.InvalidProblem, match=rf"segment_ids\[{row}\] is less than segment_ids\[{row - 1}\]"):
                nb.segment_sum(x, ids(descents), segments, check_ids=True)
            outside = {row: segments, **dict.fromkeys(range(row + 3, rows, 5), -1)}
            with pytest.raises(nb.InvalidProblem, match=rf"segment_ids\[{row}\] is outside"):
                nb.segment_sum(x, ids(outside), segments, check_ids=True)
        assert SegmentIndex(ids({}), segments).is_sorted and SegmentIndex(ids({0: -4, rows - 1: segments}), segments).is_sorted


@pytest.mark.parametrize("segments", [0, 1, 2, 255, 256, 257, 70_000])
def test_numbers_of_segments(kind: Kind, segments: int) -> None:
    """As many bits are sorted by as a number of segments has, and that number is a key, too."""
    rng = np.random.default_rng(segments)
    given = rng.integers(-1, segments + 1, 60).astype(np.int32)
    given[:2] = segments - 1, segments
    given[2] = 0
    index = SegmentIndex(kind.array(given), segments)
    assert (index.num_segments, index.num_inputs, index.is_sorted) == (segments, 60, False)
    inside = (given >= 0) & (given < segments)
    ordered = np.sort(np.where(inside, given, segments))
    np.testing.assert_array_equal(kind.numpy(index.sorted_ids), ordered)
    np.testing.assert_array_equal(kind.numpy(index.permutation), np.argsort(np.where(inside, given, segments), kind="stable"))
    np.testing.assert_array_equal(kind.numpy(index.offsets), np.searchsorted(ordered, np.arange(segments + 1)))
    np.testing.assert_array_equal(kind.numpy(index.counts), np.bincount(given[inside], minlength=segments))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("offsets", "rows", "ids"),
    [
        ([0, 2, 2, 5], None, [0, 0, 2, 2, 2]),
        ([0, 2, 2, 5], 5, [0, 0, 2, 2, 2]),
        ([0, 2, 2, 5], 7, [0, 0, 2, 2, 2, 3, 3]),
        ([1, 3, 4], 6, [-1, 0, 0, 1, 2, 2]),
        ([0, 0, 0], None, []),
        ([0, 0, 0], 3, [2, 2, 2]),
        ([0], None, []),
        ([0], 2, [0, 0]),
        ([0, 0, 0, 4], None, [2, 2, 2, 2]),
        ([0, 4, 4, 4], None, [0, 0, 0, 0]),
    ],
)
def test_an_index_of_offsets(any_kind: Kind, offsets: list[int], rows: int | None, ids: list[int], dtype: Any) -> None:
    index = SegmentIndex.from_offsets(lay(any_kind, "contiguous", np.array(offsets, dtype)), rows)
    holds(any_kind, index, np.array(ids, np.int64), len(offsets) - 1, True)
    np.testing.assert_array_equal(any_kind.numpy(index.offsets), offsets)
    made = any_kind.numpy(index.segment_ids)
    segments = len(offsets) - 1
    inside = (np.array(ids) >= 0) & (np.array(ids) < segments)
    np.testing.assert_array_equal(made[inside], np.array(ids)[inside])
    assert not ((made[~inside] >= 0) & (made[~inside] < segments)).any()


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_an_index_of_strided_offsets(kind: Kind, layout: str) -> None:
    holds(kind, SegmentIndex.from_offsets(lay(kind, layout, np.array([0, 2, 2, 5], np.int64))), np.array([0, 0, 2, 2, 2]), 3, True)


def test_an_index_of_many_offsets(kind: Kind) -> None:
    ids = np.sort(np.random.default_rng(0).integers(0, 90, 900))
    offsets = np.searchsorted(ids, np.arange(91)).astype(np.int32)
    holds(kind, SegmentIndex.from_offsets(kind.array(offsets)), ids, 90, True)


# ---------------------------------------------------------------- results


def order_of(kind: Kind, op: Op, given: dict[str, np.ndarray], sample: Sample) -> SegmentIndex:
    return SegmentIndex(kind.array(given["segment_ids"]), sample.segments)


def ready(kind: Kind, given: dict[str, np.ndarray], index: Any) -> list[Any]:
    return [index if name == "segment_ids" else kind.array(array) for name, array in given.items()]


def problem(op: Op, sample: Sample, ascending: bool) -> dict[str, np.ndarray]:
    """Inputs whose ids ascend or not, whatever the op is made for."""
    given = samples.operands(op, sample)
    ids = np.sort(given["segment_ids"])
    given["segment_ids"] = ids if ascending else np.random.default_rng(sample.rows).permutation(ids)
    if "input" in given and "output" in given:
        given["output"] = samples.saved(op, given["input"], given["segment_ids"], sample)
    return given


SHAPES = [
    Sample("core, 3 columns", 120, (3,), 40, samples.outside),
    Sample("core, 1 column", 200, (), 50, samples.runs),
    Sample("core, 36 columns", 40, (36,), 12, samples.runs),
]
EXACT = Sample("exact", 90, (3,), 30, samples.outside, whole=True)


def truth_of(op: Op, given: dict[str, np.ndarray], sample: Sample, **options: Any) -> references.Truth:
    return references.truth(op.name, given, sample.segments, **options)


@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
@EVERY_OP
def test_every_op_takes_an_index(kind: Kind, op: Op, ascending: bool) -> None:
    """With the number of segments and without it, and the same bits in every run."""
    for sample in SHAPES if stem(op.name) in ("sum", "max", "logsumexp") else SHAPES[:1]:
        given = problem(op, sample, ascending)
        index = order_of(kind, op, given, sample)
        assert index.is_sorted == ascending
        got = kind.numpy(samples.call(op, ready(kind, given, index), sample.segments))
        assert_close(got, truth_of(op, given, sample), sample.element, op.name)
        again = kind.numpy(samples.function(op)(*ready(kind, given, index)))
        assert got.tobytes() == again.tobytes()
        anyhow = kind.numpy(samples.call(op, ready(kind, given, index), sample.segments, deterministic=False))
        assert got.tobytes() == anyhow.tobytes()


@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
@pytest.mark.parametrize("op", [op for op in OPS.values() if stem(op.name) in ("sum", "mean", "max", "min", "prod")], ids=name_of)
def test_results_are_those_of_the_ids(kind: Kind, op: Op, ascending: bool) -> None:
    """Whole numbers, on which no order of additions rounds."""
    given = problem(op, EXACT, ascending)
    got = kind.numpy(samples.call(op, ready(kind, given, order_of(kind, op, given, EXACT)), EXACT.segments))
    plain = samples.call(OPS[f"unsorted_{op.name.removeprefix('unsorted_')}"], [kind.array(array) for array in given.values()], EXACT.segments)
    filled = np.ones(len(got), bool)
    if op.name in ("segment_max", "segment_min"):  # their empty segments differ from those of the ops for any order
        filled = np.bincount(given["segment_ids"][(given["segment_ids"] >= 0) & (given["segment_ids"] < 30)], minlength=30) > 0
        assert not filled.all() and (got[~filled] == 0).all()
    np.testing.assert_array_equal(got[filled], kind.numpy(plain)[filled])


@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
@pytest.mark.parametrize("op", [op for op in OPS.values() if op.traits["ordered"]], ids=name_of)
def test_names_make_no_difference_with_an_index(kind: Kind, op: Op, ascending: bool) -> None:
    sample = SHAPES[0]
    given = problem(op, sample, ascending)
    index = order_of(kind, op, given, sample)
    one = kind.numpy(samples.call(op, ready(kind, given, index), sample.segments))
    two = kind.numpy(samples.call(OPS[f"unsorted_{op.name}"], ready(kind, given, index), sample.segments))
    if op.name in ("segment_max", "segment_min"):
        filled = kind.numpy(index.counts) > 0
        np.testing.assert_array_equal(one[~filled], 0)
        np.testing.assert_array_equal(two[~filled], references.empty_of(f"unsorted_{op.name}", np.float32))
        one, two = one[filled], two[filled]
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("columns", [1, 3, 8, 36])
@pytest.mark.parametrize("op", [OPS["segment_prod_backward"]], ids=name_of)
def test_gradients_of_products_some_of_which_are_zero(kind: Kind, op: Op, columns: int) -> None:
    """Narrow rows and wide ones, with values and ids that an index does not put in order."""
    sample = Sample("products", 90, (columns,) if columns > 1 else (), 40, samples.outside, whole=True)
    given = problem(op, sample, False)
    assert (given["output"] == 0).any() and (given["output"] != 0).any()
    for layout in ("contiguous", "every second row"):
        index = SegmentIndex(lay(kind, layout, given["segment_ids"]), sample.segments)
        placed = [index if key == "segment_ids" else lay(kind, layout, array) for key, array in given.items()]
        assert_close(kind.numpy(samples.function(op)(*placed)), truth_of(op, given, sample), "f32", op.name)


@EVERY_OP
def test_an_index_of_offsets_in_every_op(kind: Kind, op: Op) -> None:
    """Rows in front of the first offset and behind the last one belong to no segment."""
    sample = Sample("offsets", 50, (3,), 20)
    given = problem(op, sample, True)
    offsets = np.sort(np.random.default_rng(5).integers(0, 50, 21)).astype(np.int64)
    given["segment_ids"] = np.searchsorted(offsets, np.arange(50), side="right") - 1
    if "input" in given and "output" in given:
        given["output"] = samples.saved(op, given["input"], given["segment_ids"], sample)
    index = SegmentIndex.from_offsets(kind.array(offsets), 50)
    got = kind.numpy(samples.function(op)(*ready(kind, given, index)))
    assert_close(got, truth_of(op, given, sample), sample.element, op.name)


@pytest.mark.parametrize("segments", [0, 200])
@pytest.mark.parametrize("rows", [0, 5])
@EVERY_OP
def test_nothing_at_all(kind: Kind, op: Op, rows: int, segments: int) -> None:
    sample = Sample("nothing", rows, (3,), segments, samples.outside)
    for ascending in (True, False):
        given = problem(op, sample, ascending)
        index = order_of(kind, op, given, sample)
        got = kind.numpy(samples.function(op)(*ready(kind, given, index)))
        assert_close(got, truth_of(op, given, sample), sample.element, op.name)


@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
@pytest.mark.parametrize("op", [OPS["segment_sum"]], ids=name_of)
def test_one_index_serves_many_calls(kind: Kind, op: Op, ascending: bool) -> None:
    """Forward and backward, other widths and elements, and options."""
    sample = EXACT
    given = problem(op, sample, ascending)
    index, ids = order_of(kind, op, given, sample), given["segment_ids"]
    rng = np.random.default_rng(0)
    for dtype, trailing in ((np.float32, (3,)), (np.float32, ()), (np.float16, (3,)), (np.int32, (3,))):
        x = rng.integers(-8, 9, (sample.rows, *trailing)).astype(dtype)
        for name, empty in ((op.name, None), (op.name, 5), (f"unsorted_{op.name}", "identity")):
            got = kind.numpy(getattr(nb, name)(kind.array(x), index, empty=empty))
            truth = references.truth(name, {"input": x, "segment_ids": ids}, sample.segments, empty)
            assert_close(got, truth, {"float32": "f32", "float16": "f16", "int32": "i32"}[x.dtype.name], name)
    x, upstream = rng.integers(-2, 3, (sample.rows, 3)).astype(np.float32), np.ones((sample.segments, 3), np.float32)
    for ties in ("first", "even"):
        got = kind.numpy(nb.segment_max_backward(kind.array(upstream), kind.array(x), index, ties=ties))
        truth = references.truth("segment_max_backward", {"d_output": upstream, "input": x, "segment_ids": ids}, sample.segments, ties=ties)
        assert_close(got, truth, "f32", "segment_max_backward")
    got = kind.numpy(nb.segment_var(kind.array(x), index, correction=0))
    assert_close(got, references.truth("segment_var", {"input": x, "segment_ids": ids}, sample.segments, correction=0), "f32", "segment_var")


def test_an_index_with_strided_values(kind: Kind) -> None:
    sample = Sample("strided", 60, (2, 3), 20, samples.outside)
    for name in ("segment_sum", "segment_max_backward", "segment_softmax"):
        op = OPS[name]
        given = problem(op, sample, False)
        index = order_of(kind, op, given, sample)
        placed = [index if key == "segment_ids" else lay(kind, "trailing axes swapped", array) for key, array in given.items()]
        assert_close(kind.numpy(samples.function(op)(*placed)), truth_of(op, given, sample), "f32", name)


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
@EVERY_OP
def test_plans(kind: Kind, op: Op, ascending: bool) -> None:
    sample = SHAPES[0]
    given = problem(op, sample, ascending)
    index = order_of(kind, op, given, sample)
    plan = nb.select(samples.descriptor(op, sample, indexed=index.descriptor_form))
    assert plan.precision_guarantee.deterministic and plan.descriptor.indexed == index.descriptor_form
    operands = {name: index if name == "segment_ids" else kind.array(array) for name, array in given.items()}
    output = op.operands[-1]
    out = kind.poisoned((getattr(plan.descriptor, output.axes[0]), 3), samples.output_type(op, sample))
    assert plan.can_implement(**operands, **{output.name: out}) is None
    for workspace in (None, kind.workspace(plan.workspace_size)):
        out[...] = 77
        plan.run(**operands, **{output.name: out}, workspace=workspace)
        assert_close(kind.numpy(out), truth_of(op, given, sample), sample.element, op.name)


@EVERY_OP
def test_nothing_is_sorted_again(op: Op) -> None:
    """What an index has done is not in the plan: neither its steps nor their room."""
    from numba_baracuda.core.op import Sort

    for form in ("sorted", "permuted"):
        described = samples.descriptor(op, Sample("large", 1 << 20, (37,), 1 << 14), indexed=form)
        plan = nb.select(described)
        layouts = next(iter(described.typical_layouts(plan.op)))
        recipe = plan.variant.recipe(plan.op, described, layouts, plan.target)
        assert not any(isinstance(step, Sort) for step in recipe.steps)
        assert recipe.workspace < 1 << 20 or not {"permutation", "sorted_ids", "keys", "places"} & {slot.name for slot in recipe.slots}


def test_plans_refuse_another_index(kind: Kind) -> None:
    x, out = kind.array(np.ones((6, 3), np.float32)), kind.array(np.ones((4, 3), np.float32))
    ids = kind.array(np.array([0, 2, 1, 3, 3, 0], np.int32))
    in_order = SegmentIndex(kind.array(np.array([0, 0, 1, 2, 3, 3], np.int32)), 4)
    permuted, more, longer = SegmentIndex(ids, 4), SegmentIndex(ids, 5), SegmentIndex(kind.array(np.array([1, 0] * 4, np.int32)), 4)
    plan = nb.select(nb.SegmentDescriptor("segment_sum", 6, 3, 4, indexed="permuted"))
    plan.run(input=x, segment_ids=permuted, output=out)
    refusals = [
        (in_order, "segment_ids is a sorted SegmentIndex of 4 segments, wants a permuted one of 4"),
        (more, "segment_ids is a permuted SegmentIndex of 5 segments, wants a permuted one of 4"),
        (longer, r"segment_ids has shape \[8\], wants \[6\]"),
        (ids, "segment_ids is of type .*, wants a SegmentIndex"),
        (None, "segment_ids is None, wants an? "),
    ]
    for given, message in refusals:
        for check in (plan.can_implement, plan.run):
            with pytest.raises(nb.InvalidProblem, match=f"^segment_sum: {message}"):
                check(input=x, segment_ids=given, output=out)
    with pytest.raises(nb.InvalidProblem, match=r"^segment_sum: operand 'segment_ids' is missing, wants input, segment_ids, output"):
        plan.run(input=x, output=out)
    with pytest.raises(nb.InvalidProblem, match=r"^segment_sum: input is .*SegmentIndex.*, wants an array"):
        plan.run(input=permuted, segment_ids=permuted, output=out)


@pytest.mark.parametrize("op", [op for op in nb.OPS.values() if op.family != "segment" and any(each.index for each in op.operands)], ids=name_of)
def test_plans_of_other_families_refuse_an_index(kind: Kind, op: Op) -> None:
    """Their operands of indices are arrays and nothing else."""
    index = SegmentIndex(kind.array(np.array([1, 0, 1, 0], np.int32)), 2)
    descriptor, layouts = min(op.samples(op), key=lambda sample: sum(math.prod(layout.shape) for layout in sample[1].values()))
    plan = nb.select(descriptor)
    for operand in plan.op.operands:
        if operand.index:
            given = {name: kind.array(np.ones(layout.shape, np.float32)) for name, layout in layouts.items()}
            for check in (plan.can_implement, plan.run):
                with pytest.raises(nb.InvalidProblem, match=f"^{op.name}: {operand.name} is of type SegmentIndex, wants an array"):
                    check(**given | {operand.name: index})


def test_outputs_over_what_an_index_keeps_are_refused(kind: Kind) -> None:
    index = SegmentIndex(kind.array(np.array([1, 0, 1, 0], np.int32)), 2)
    plan = nb.select(nb.SegmentDescriptor("segment_sum", 4, 1, 2, indexed="permuted"))
    over = index.sorted_ids[:2].view(np.float32)
    with pytest.raises(nb.InvalidProblem, match=r"^segment_sum: output overlaps"):
        plan.run(input=kind.array(np.ones(4, np.float32)), segment_ids=index, output=over)


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("made", ["ascending", "any order", "offsets"])
def test_a_copy_finds_its_own_arrays(kind: Kind, how: Any, made: str) -> None:
    if made == "offsets":
        ids, index = np.repeat(np.arange(S), 4), SegmentIndex.from_offsets(kind.array(np.arange(0, 4 * S + 1, 4)))
    else:
        ids = IDS[made][0]
        index = SegmentIndex(kind.array(ids), S)
    x = kind.array(np.random.default_rng(8).standard_normal((len(ids), 5)).astype(np.float32))
    expected = kind.numpy(nb.unsorted_segment_sum(x, index)).copy()
    other = how(index)
    names = ["segment_ids", "sorted_ids", "offsets", "counts", *([] if index.is_sorted else ["permutation"])]
    for name in names:
        array = getattr(other, name)
        assert other.view_of(name).ptr == views.read(array, ("", name, "")).ptr and other.view_of(name).name == name
        assert (array is getattr(index, name)) is (how is copy.copy)
        if how is not copy.copy:
            getattr(index, name)[...] = -1  # as would who is given its memory
    if how is not copy.copy and made != "offsets":
        holds(kind, other, ids, S, IDS[made][1])
    np.testing.assert_array_equal(kind.numpy(nb.unsorted_segment_sum(x, other)), expected)


def test_ids_of_offsets_can_be_checked(kind: Kind) -> None:
    x = kind.array(np.ones((6, 3), np.float32))
    index = SegmentIndex.from_offsets(kind.array(np.array([0, 2, 6])))
    np.testing.assert_array_equal(kind.numpy(nb.segment_sum(x, index, check_ids=True))[:, 0], [2, 4])


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
@EVERY_OP
def test_what_contradicts_an_index_is_refused(kind: Kind, op: Op, ascending: bool) -> None:
    sample = Sample("contradicted", 6, (3,), 4)
    given = problem(op, sample, ascending)
    index = SegmentIndex(kind.array(given["segment_ids"]), 4, ascending)
    arrays = ready(kind, given, index)
    function = samples.function(op)
    if samples.takes_segments(op):
        for wrong in (3, np.int64(5)):
            with pytest.raises(nb.InvalidProblem, match=f"^{op.name}: num_segments is {wrong}, wants 4"):
                function(*arrays, wrong)
        with pytest.raises(nb.InvalidProblem, match=f"^{op.name}: num_segments is 4.0, wants a whole number"):
            function(*arrays, 4.0)
    for place, operand in enumerate(op.operands[:-1]):
        if not operand.index:
            extent = {"num_inputs": 6, "num_segments": 4}[operand.axes[0]]
            wrong_rows = [*arrays[:place], kind.array(np.ones((9, 3), np.float32)), *arrays[place + 1 :]]
            with pytest.raises(nb.InvalidProblem, match=rf"^{op.name}: {operand.name} has shape \[9, 3\], wants \[{extent}, 3\]"):
                function(*wrong_rows)
    with pytest.raises(nb.InvalidProblem, match=f"^{op.name}: {op.operands[-1].name} has shape"):
        function(*arrays, out=kind.array(np.ones((9, 3), np.float32)))
    assert function(*arrays).shape[1:] == (3,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, None], 2), "segment_ids is of type list, not of numbers in rows of one length, wants an array"),
        ((None, 2), "segment_ids is None, wants an array"),
        ((np.zeros(3, np.float32), 2), "segment_ids is float32.*, wants .*int32 or int64"),
        ((np.zeros(3, np.int16), 2), r"segment_ids is int16\[3\], wants .*int32 or int64"),
        ((np.zeros((3, 1), np.int32), 2), r"segment_ids has shape \[3, 1\], wants"),
        ((np.zeros((), np.int32), 2), r"segment_ids has shape \[\], wants"),
        ((np.zeros(3, np.int32), -1), "num_segments is -1, wants a whole number, 0 or more"),
        ((np.zeros(3, np.int32), 2.0), "num_segments is 2.0, wants a whole number, 0 or more"),
        ((np.zeros(3, np.int32), True), "num_segments is True, wants a whole number, 0 or more"),
        ((np.zeros(3, np.int32), None), "num_segments is None, wants a whole number, 0 or more"),
        ((np.zeros(3, np.int32), 2, "yes"), "is_sorted is 'yes', wants True, False or None"),
        ((np.zeros(3, np.int32), 2, 1), "is_sorted is 1, wants True, False or None"),
    ],
)
def test_what_is_no_index_of_ids(emulator: Kind, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(nb.InvalidProblem, match=f"^SegmentIndex: {message}"):
        SegmentIndex(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({0: 1},), "offsets is of type dict, wants an array"),
        ((np.zeros(0, np.int32),), r"offsets has shape \[0\], wants"),
        ((np.zeros((2, 2), np.int32),), r"offsets has shape \[2, 2\], wants"),
        ((np.zeros(3, np.float64),), "offsets is float64.*, wants .*int32 or int64"),
        ((np.zeros(3, np.int64), -1), "num_inputs is -1, wants a whole number, 0 or more"),
        ((np.zeros(3, np.int64), 1.5), "num_inputs is 1.5, wants a whole number, 0 or more"),
    ],
)
def test_what_is_no_index_of_offsets(emulator: Kind, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(nb.InvalidProblem, match=f"^SegmentIndex.from_offsets: {message}"):
        SegmentIndex.from_offsets(*arguments)


def test_an_index_is_told_from_an_array(kind: Kind) -> None:
    """Where an array is wanted, an index is named as what it is."""
    index = SegmentIndex(kind.array(np.zeros(3, np.int32)), 2)
    with pytest.raises(nb.InvalidProblem, match=r"^segment_sum: input is of type SegmentIndex, wants an array"):
        nb.segment_sum(index, index)


@pytest.mark.parametrize("ascending", [True, False], ids=["sorted", "permuted"])
def test_ids_of_an_index_can_be_checked(kind: Kind, ascending: bool) -> None:
    """Positions are those of the ids as they were given, and an index may have any order."""
    x = kind.array(np.ones((5, 3), np.float32))
    for name in ("segment_sum", "unsorted_segment_sum"):
        good = SegmentIndex(kind.array(np.array([0, 1, 1, 3, 3] if ascending else [3, 1, 0, 1, 3], np.int32)), 4)
        assert kind.numpy(getattr(nb, name)(x, good, check_ids=True))[:, 0].tolist() == [1, 2, 0, 2]
        bad = SegmentIndex(kind.array(np.array([0, 1, 1, 3, 4] if ascending else [3, 4, 0, 1, -1], np.int32)), 4)
        with pytest.raises(nb.InvalidProblem, match=rf"^{name}: segment_ids\[{4 if ascending else 1}\] is outside \[0, 4\)"):
            getattr(nb, name)(x, bad, check_ids=True)


@pytest.mark.parametrize("op", [op for op in OPS.values() if takes_empty(op) and stem(op.name) in ("sum", "max", "logsumexp")], ids=name_of)
def test_empty_segments_by_an_index(kind: Kind, op: Op) -> None:
    for ids in ([2, 2, 5], [5, 2, 2]):
        given = {"input": np.ones((3, 3), np.float32), "segment_ids": np.array(ids, np.int32)}
        index = SegmentIndex(kind.array(given["segment_ids"]), 9)
        for empty in (None, 2.5, "identity"):
            got = kind.numpy(samples.function(op)(kind.array(given["input"]), index, empty=empty))
            assert_close(got, references.truth(op.name, given, 9, empty), "f32", op.name)
