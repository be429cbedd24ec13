"""Options by type and bits: what is found again, what works in which form, what is refused, and what is looked at first."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import references
import samples
from kinds import Kind
from samples import Sample, name_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core import errors, options
from numba_baracuda.segment.tiling import lanes_for

F, NAN, INF = np.float32, float("nan"), float("inf")
X = np.array([[3, 1, 2], [6, 5, 4]], F)
UNBOUNDED = [op for op in samples.BACKWARD if all("num_segments" not in operand.axes for operand in op.operands)]


# ---------------------------------------------------------------- keys


def test_keys_tell_types_and_bits() -> None:
    different = [
        True,
        1,
        1.0,
        np.int64(1),
        np.float32(1),
        "1",
        0.0,
        -0.0,
        False,
        0,
        None,
        (1,),
        [1],
        (1.0,),
        (True,),
        np.array(1),
        np.array([1]),
        np.True_,
    ]
    for a, b in itertools.combinations(different, 2):
        assert options.key_of(a) != options.key_of(b), (a, b)
    for same in (*different, NAN, (NAN, -0.0), np.float32(NAN)):
        assert options.key_of(same) == options.key_of(same) and hash(options.key_of(same)) == hash(options.key_of(same))
    assert options.key_of(float("nan")) == options.key_of(float("nan"))
    assert options.key_of({1}) != options.key_of({1})


@pytest.mark.parametrize(
    "make",
    [
        lambda value: nb.SegmentDescriptor("segment_sum", 4, 3, 2, empty=value),
        lambda value: nb.ScanDescriptor("cumsum", (4, 3), 1, initial=value),
        lambda value: nb.FusedLinearCrossEntropyDescriptor(4, 3, 2, lse_square_scale=value),
    ],
)
def test_descriptors_are_equal_by_bits(make: Any) -> None:
    assert make(0.0) != make(-0.0) and nb.select(make(0.0)) is not nb.select(make(-0.0))
    assert make(0.5) == make(0.5) and hash(make(0.5)) == hash(make(0.5)) and nb.select(make(0.5)) is nb.select(make(0.5))
    assert make(0.5) != "a descriptor"
    assert pickle.loads(pickle.dumps(make(-0.0))) == make(-0.0)


def test_nan_finds_its_plan_again() -> None:
    first, second = (nb.SegmentDescriptor("segment_max", 4, 3, 2, empty=float("nan")) for _ in range(2))
    assert first == second and nb.select(first) is nb.select(second)


def test_zeros_have_signs(kind: Kind) -> None:
    """Of a first call with 0.0 nothing is left for the next with −0.0, and the other way round."""
    x, ids = kind.array(np.ones((2, 3), F)), kind.array(np.array([0, 0], np.int32))
    for empty in (0.0, -0.0, 0, 0.0):
        assert np.signbit(kind.numpy(nb.segment_sum(x, ids, 2, empty=empty))[1]).tolist() == [str(empty) == "-0.0"] * 3
    zeros = kind.array(np.zeros((1, 2), F))
    for initial in (1.0, -0.0, 0.0, -0.0):
        got = kind.numpy(nb.cumsum(zeros, 1, initial=initial, exclusive=True))
        assert got[0, 0] == initial and np.signbit(got[0, 0]) == (str(initial) == "-0.0")


@pytest.mark.parametrize(
    ("good", "wrong"),
    [
        (lambda x: nb.reduce_sum(x, 1), lambda x: nb.reduce_sum(x, True)),
        (lambda x: nb.reduce_sum(x, 1), lambda x: nb.reduce_sum(x, 1.0)),
        (lambda x: nb.reduce_sum(x, (1,)), lambda x: nb.reduce_sum(x, (True,))),
        (lambda x: nb.reduce_sum(x, 1, keepdims=True), lambda x: nb.reduce_sum(x, 1, keepdims=1)),
        (lambda x: nb.reduce_var(x, 1, correction=1), lambda x: nb.reduce_var(x, 1, correction=True)),
        (
            lambda x: nb.reduce_sum_backward(x[:, :1], axis=1, input_shape=(2, 3)),
            lambda x: nb.reduce_sum_backward(x[:, :1], axis=True, input_shape=(2, 3)),
        ),
        (lambda x: nb.cumsum(x, 1), lambda x: nb.cumsum(x, True)),
        (lambda x: nb.cumsum(x, 1, reverse=True), lambda x: nb.cumsum(x, 1, reverse=1)),
        (lambda x: nb.cummax(x, 1), lambda x: nb.cummax(x, 1, index_dtype="int16")),
        (lambda x: nb.cumsum(x, 1, deterministic=True), lambda x: nb.cumsum(x, 1, deterministic=1)),
        (lambda x: nb.segment_var(x, np.zeros(2, np.int32), 1), lambda x: nb.segment_var(x, np.zeros(2, np.int32), 1, correction=True)),
        (lambda x: nb.segment_sum(x, np.zeros(2, np.int32), 1), lambda x: nb.segment_sum(x, np.zeros(2, np.int32), 1, check_ids=0)),
        (
            lambda x: nb.fused_linear_cross_entropy(x, x, np.zeros(2, np.int64), chunk=1),
            lambda x: nb.fused_linear_cross_entropy(x, x, np.zeros(2, np.int64), chunk=True),
        ),
    ],
)
def test_a_call_does_not_depend_on_those_before(emulator: Kind, good: Any, wrong: Any) -> None:
    for _ in range(2):
        good(X)
        with pytest.raises(nb.InvalidProblem):
            wrong(X)


# ---------------------------------------------------------------- what works


@pytest.mark.parametrize("axis", [1, -1, np.int64(1), np.int8(-1), np.array(1), np.array(-1, np.int16)], ids=repr)
def test_an_axis_is_any_whole_number(kind: Kind, axis: Any) -> None:
    x = kind.array(X)
    assert kind.numpy(nb.reduce_sum(x, axis)).tolist() == [[6], [15]]
    assert kind.numpy(nb.cumsum(x, axis)).tolist() == [[3, 4, 6], [6, 11, 15]]
    assert nb.ScanDescriptor("cumsum", (2, 3), axis) == nb.ScanDescriptor("cumsum", (2, 3), 1)
    assert nb.ReduceDescriptor("sum", (2, 3), axis) == nb.ReduceDescriptor("sum", (2, 3), 1)


@pytest.mark.parametrize("axes", [(0, 1), [0, 1], [-1, 0], np.array([0, 1]), range(2), (np.int64(1), 0), None, [np.array(0), 1]], ids=repr)
def test_axes_are_any_sequence(kind: Kind, axes: Any) -> None:
    for _ in range(2):
        assert kind.numpy(nb.reduce_sum(kind.array(X), axes)).tolist() == [[21]]
    assert kind.numpy(nb.reduce_sum_backward(kind.array(X[:1, :1]), axis=axes, input_shape=np.array([2, 3]))).tolist() == [[3] * 3] * 2


@pytest.mark.parametrize("yes", [True, np.True_])
def test_flags_of_numpy(kind: Kind, yes: Any) -> None:
    x, ids = kind.array(X), kind.array(np.zeros(2, np.int32))
    assert kind.numpy(nb.reduce_sum(x, 1, keepdims=yes)).shape == (2, 1)
    assert kind.numpy(nb.cumsum(x, 1, reverse=yes, exclusive=yes)).tolist() == [[3, 2, 0], [9, 4, 0]]
    assert kind.numpy(nb.segment_sum(x, ids, 1, check_ids=yes, deterministic=yes)).tolist() == [[9, 6, 6]]
    target = kind.array(np.zeros(2, np.int64))
    got = nb.fused_linear_cross_entropy(x, x, target, grad_input=yes, return_lse=yes, skip_ignored=yes)
    assert kind.numpy(got.grad_input).shape == (2, 3) and kind.numpy(got.lse).shape == (2,)


# ---------------------------------------------------------------- refusals


def test_masked_arrays_are_refused(emulator: Kind) -> None:
    masked = np.ma.masked_array(X, X > 4)
    with pytest.raises(nb.Unsupported, match=r"^reduce_sum: x is a NumPy masked array, .*wants .*np\.ma\.filled\(x, value\)"):
        nb.reduce_sum(masked, 1)
    assert nb.reduce_sum(np.ma.filled(masked, 0), 1).tolist() == [[6], [4]]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: nb.select(None), nb.InvalidProblem, "^select: descriptor is None, wants a descriptor of the problem, such as nb.SegmentDescriptor"),
        (lambda: nb.select("segment_sum"), nb.InvalidProblem, "^select: descriptor is 'segment_sum', wants"),
        (lambda: nb.select({}), nb.InvalidProblem, "^select: descriptor is {}, wants"),
        (lambda: nb.select(nb.SegmentDescriptor), nb.InvalidProblem, "^select: descriptor is <class"),
        (lambda: nb.select(nb.SegmentDescriptor("segment_sum", 4, 3, 2), {}), nb.InvalidProblem, "^select: preference is {}, wants a PlanPreference"),
        (lambda: nb.select(nb.SegmentDescriptor("segment_sum", 4, 3, 2), device="x"), nb.InvalidProblem, "^select: device is 'x', wants"),
        (lambda: nb.select(nb.SegmentDescriptor("reduce_sum", 4, 3, 2)), nb.Unsupported, "got 'reduce_sum', which is of the family reduce, wants"),
        (lambda: nb.select(nb.SegmentDescriptor([], 4, 3, 2)), nb.Unsupported, r"^op: got \[\], wants one of"),  # type: ignore[arg-type]
        (lambda: nb.PlanPreference(deterministic=None), nb.InvalidProblem, "^PlanPreference: deterministic is None, wants True or False"),  # type: ignore[arg-type]
        (lambda: nb.PlanPreference(allow_sm90a=1), nb.InvalidProblem, "^PlanPreference: allow_sm90a is 1, wants True or False"),  # type: ignore[arg-type]
        (lambda: nb.PlanPreference(max_workspace_bytes=-1), nb.InvalidProblem, "max_workspace_bytes is -1, wants a whole number, 0 or more"),
        (lambda: nb.SegmentDescriptor("segment_sum", 1 << 63, 3, 2), nb.InvalidProblem, "num_inputs is 9223372036854775808, .*which int64 holds"),
        (lambda: nb.SegmentDescriptor("segment_sum", 4, 3, 2, check_ids="x"), nb.InvalidProblem, "check_ids is 'x', wants True or False"),  # type: ignore[arg-type]
        (lambda: nb.SegmentDescriptor("segment_sum", 4, 3, 2, bounded=0), nb.InvalidProblem, "bounded is 0, wants True or False"),  # type: ignore[arg-type]
        (lambda: nb.select(nb.SegmentDescriptor("segment_sum", 4, 3, 4, bounded=False)), nb.InvalidProblem, "bounded is False, wants True"),
        (lambda: nb.ReduceDescriptor("sum", 5, 0), nb.InvalidProblem, "^reduce_sum: input_shape is 5, wants a tuple of whole numbers"),  # type: ignore[arg-type]
        (lambda: nb.ReduceDescriptor("sum", (2, 3), {0}), nb.InvalidProblem, r"^reduce_sum: axis is \{0\}, wants a whole number, several, or None"),
        (lambda: nb.ReduceDescriptor(True, (2, 3), 0), nb.InvalidProblem, "ReduceKind: got True, wants one of SUM"),
        (lambda: nb.ReduceDescriptor({}, (2, 3), 0), nb.InvalidProblem, "ReduceKind: got {}, wants one of SUM"),  # type: ignore[arg-type]
        (lambda: nb.ReduceDescriptor("sum", (2, 3), 0, element="f31"), nb.InvalidProblem, "^reduce_sum: element: got 'f31', wants one of"),
        (lambda: nb.reduce_argmax(X, 1, dtype="f31"), nb.InvalidProblem, "^reduce_argmax: dtype: got 'f31', wants one of"),
        (lambda: nb.ScanDescriptor("cumsum", "ab", 0), nb.InvalidProblem, "^cumsum: input_shape is 'ab', wants a tuple of whole numbers"),  # type: ignore[arg-type]
        (lambda: nb.FusedLinearCrossEntropyDescriptor(4, 3, 1 << 70), nb.InvalidProblem, "v is 1180591620717411303424, .*which int64 holds"),
        (lambda: nb.FusedLinearCrossEntropyDescriptor(4, 3, 2, softcap={}), nb.InvalidProblem, "softcap is {}, wants a finite number or None"),  # type: ignore[arg-type]
        (
            lambda: nb.fused_linear_cross_entropy(X, X, np.zeros(2, np.int64), accumulate_grad_weight=True), nb.InvalidProblem,
            "accumulate_grad_weight adds to grad_weight, which is None, wants an array",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(emulator: Kind, call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize(
    ("descriptor", "says"),
    [
        (
            nb.SegmentDescriptor("unsorted_segment_sum", 1 << 38, 1 << 38, 5),
            r"input has shape \[274877906944, 274877906944\], wants fewer than 2\^60",
        ),
        (nb.SegmentDescriptor("segment_sum", 4, 3, 1 << 40), r"num_segments is 1099511627776, wants extents below 2\^39"),
        (nb.SegmentDescriptor("segment_softmax", 4, 3, 1 << 40), r"num_segments is 1099511627776, wants extents below 2\^39"),
        (nb.SegmentDescriptor("segment_sum", 1 << 62, 3, 4), r"num_inputs is 4611686018427387904, wants extents below 2\^39"),
        (nb.ReduceDescriptor("sum", (1 << 38, 1 << 38), 1), r"x has shape \[274877906944, 274877906944\], wants fewer than 2\^60"),
        (nb.ScanDescriptor("cumsum", (1 << 62,), 0), r"input_shape is \[4611686018427387904\], wants extents below 2\^39"),
    ],
    ids=repr,
)
def test_problems_beyond_64_bits(descriptor: Any, says: str) -> None:
    with pytest.raises(nb.Unsupported, match=says):
        nb.select(descriptor)


def test_rows_of_many_columns_are_dealt_out_at_once() -> None:
    """By a closed form: with a list of every way to cut a row this would not end."""
    for columns in (100_000_000, 10**12, 10**17):
        assert 96 <= lanes_for(columns, 256, 128) <= 128
    for op in ("segment_sum", "unsorted_segment_sum", "segment_max_backward"):
        assert nb.select(nb.SegmentDescriptor(op, 8, 100_000_000, 4)).op.name == op


@pytest.mark.parametrize(("threads", "widest"), [(128, 128), (256, 128), (1024, 32)])
def test_lanes_are_the_widest_that_idle_little(threads: int, widest: int) -> None:
    """What the closed form finds among all ways to cut a row."""
    for needed in (*range(1, 400), 777, 1000, 1001, 4099):
        every = [-(-needed // chunks) for chunks in range(-(-needed // widest), -(-needed // 16) + 1)]
        busy = {lanes: needed * (threads // lanes) / (-(-needed // lanes) * threads) for lanes in every}
        assert lanes_for(needed, threads, widest) == next(lanes for lanes in every if busy[lanes] >= 0.9 * max(busy.values()))


def test_no_variant_says_what_would_do() -> None:
    problem = nb.SegmentDescriptor("unsorted_segment_sum", 1_000_000, 4, 1000)
    with pytest.raises(nb.Unsupported) as caught:
        nb.select(problem, nb.PlanPreference(max_workspace_bytes=0))
    said = str(caught.value)
    assert said.startswith("unsorted_segment_sum: no variant serves this problem: ")
    assert "wants deterministic=False, which admits atomic or max_workspace_bytes=" in said and "SegmentDescriptor" not in said
    size = int(said.rpartition("max_workspace_bytes=")[2].partition(",")[0])
    assert nb.select(problem, nb.PlanPreference(max_workspace_bytes=size)).workspace_size <= size
    with pytest.raises(nb.Unsupported, match=f"no variant serves .*max_workspace_bytes={size}, which"):
        nb.select(problem, nb.PlanPreference(max_workspace_bytes=size - 1))


# ---------------------------------------------------------------- what is looked at first


def plan_of_max_backward() -> nb.Plan:
    return nb.select(nb.ReduceBackwardDescriptor("max", (4, 3), 1))


def test_gradients_of_reductions_look_at_dx_before_dy(emulator: Kind) -> None:
    plan, wrong = plan_of_max_backward(), np.ones((9, 9), F)
    right = {"dy": np.ones((4, 1), F), "x": np.ones((4, 3), F), "y": np.ones((4, 1), F), "dx": np.ones((4, 3), F)}
    given = dict.fromkeys(right, wrong)
    for name in ("dx", "dy", "x", "y"):
        with pytest.raises(nb.InvalidProblem, match=f"^reduce_max_backward: {name} has shape"):
            plan.can_implement(**given)
        given[name] = right[name]
    plan.can_implement(**given)
    with pytest.raises(nb.InvalidProblem, match="dx has shape"):
        plan.can_implement(dy=wrong, dx=wrong)
    with pytest.raises(nb.InvalidProblem, match="operand 'x' is missing, wants dy, x, y, dx"):
        plan.can_implement(dy=right["dy"], dx=right["dx"], y=wrong)
    with pytest.raises(nb.InvalidProblem, match="dx has shape"):
        nb.reduce_max_backward(wrong, axis=1, input_shape=(4, 3), out=wrong)
    with pytest.raises(nb.InvalidProblem, match="dy has shape"):
        nb.reduce_max_backward(wrong, axis=1, input_shape=(4, 3))
    with pytest.raises(nb.InvalidProblem, match="x is missing"):
        nb.reduce_max_backward(right["dy"], axis=1, input_shape=(4, 3), out=right["dx"])


def test_gradients_of_scans_look_at_dy_dx_x_y(emulator: Kind) -> None:
    plan, wrong, right = nb.select(nb.ScanBackwardDescriptor("cumprod", (4, 3), 1)), np.ones((9, 9), F), np.ones((4, 3), F)
    given = dict.fromkeys(("dy", "x", "y", "dx"), wrong)
    for name in ("dy", "dx", "x", "y"):
        with pytest.raises(nb.InvalidProblem, match=f"^cumprod_backward: {name} has shape"):
            plan.can_implement(**given)
        given[name] = right.copy()
    plan.can_implement(**given)


@pytest.mark.parametrize(
    ("shape", "axis", "element", "error", "says"),
    [
        ((2, -3), 2, "f31", nb.InvalidProblem, "axis is 2"),
        ((2, -3), 1, "f31", nb.InvalidProblem, "extents of 0 or more"),
        ((2, 3), 1, "f31", nb.InvalidProblem, "element: got 'f31'"),
        ((2, -3), 1, "FP8_E4M3", nb.InvalidProblem, "extents of 0 or more"),
        ((1,) * 9, 1, "u8", nb.Unsupported, "9 axes"),
        ((2, 3), 1, "u8", nb.Unsupported, "element is u8, wants one of"),
    ],
)
def test_select_looks_at_axis_and_shape_before_the_element(shape: Any, axis: int, element: str, error: type[Exception], says: str) -> None:
    for made, kind in itertools.product((nb.ReduceDescriptor, nb.ReduceBackwardDescriptor), ("sum", "var")):
        with pytest.raises(error, match=says):
            nb.select(made(kind, shape, axis, element))
    for made in (nb.ScanDescriptor, nb.ScanBackwardDescriptor):
        with pytest.raises(error, match=says):
            nb.select(made("cumsum", shape, axis, element=element))


# ---------------------------------------------------------------- gradients that need no number of segments


@pytest.mark.parametrize("op", UNBOUNDED, ids=name_of)
@pytest.mark.parametrize("rows", [0, 1, 90, 700])
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_the_number_of_segments_is_not_needed(kind: Kind, op: Any, rows: int, index: str) -> None:
    """Ids far beyond the rows are in range, ids below 0 are not; with the number, the same comes out."""
    sample = Sample("unbounded", rows, (3,), 4000, samples.runs if rows > 1 else samples.anywhere, index=index)
    given = samples.operands(op, sample)
    arrays = {name: kind.array(array) for name, array in given.items()}
    got = kind.numpy(samples.function(op)(**arrays))
    segments = int(max(given["segment_ids"], default=0)) + 1
    assert_close(got, references.truth(op.name, given, segments), "f32", op.name)
    assert_close(kind.numpy(samples.function(op)(**arrays, num_segments=segments)), references.truth(op.name, given, segments), "f32", op.name)


@pytest.mark.parametrize("op", UNBOUNDED, ids=name_of)
def test_ids_without_a_bound(kind: Kind, op: Any) -> None:
    ids = np.array([-(1 << 40), -1, 5, 5, 1 << 33, 1 << 33, (1 << 33) + 5, 1 << 62])
    if not op.traits["ordered"]:
        ids = ids[[4, 0, 2, 7, 1, 5, 3, 6]]
    given = {name: np.arange(8, dtype=F).reshape(8, 1) / 8 for name in ("d_output", "output")} | {"segment_ids": ids}
    small = {**given, "segment_ids": np.where(ids < 0, -1, np.unique(ids, return_inverse=True)[1])}
    wanted = references.truth(op.name, small, 8)
    got = samples.function(op)(**{name: kind.array(array) for name, array in given.items()})
    assert_close(kind.numpy(got), wanted, "f32", op.name)
    with pytest.raises(nb.InvalidProblem, match=r"segment_ids\[\d\] is outside \[0, "):
        samples.function(op)(**{name: kind.array(array) for name, array in given.items()}, check_ids=True)


# ---------------------------------------------------------------- offsets


@pytest.mark.parametrize(
    ("offsets", "rows", "says"),
    [
        ([0, 3, 2, 5], None, r"offsets\[2\] is less than offsets\[1\], wants offsets in ascending order"),
        ([5, 4, 3, 2], 5, r"offsets\[1\] is less than offsets\[0\]"),
        ([0, 3, 9], 5, r"offsets\[2\] is outside \[0, 5\], wants every offset inside"),
        ([-1, 3, 5], 5, r"offsets\[0\] is outside \[0, 5\]"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_that_are_none(kind: Kind, offsets: list[int], rows: int | None, says: str, dtype: Any) -> None:
    """Found with ``check=True``; without, every row belongs to one segment or none, and sums are those of these segments."""
    given = kind.array(np.array(offsets, dtype))
    with pytest.raises(nb.InvalidProblem, match=rf"^SegmentIndex\.from_offsets: {says}"):
        nb.SegmentIndex.from_offsets(given, rows, check=True)
    index = nb.SegmentIndex.from_offsets(given, rows)
    ids, ends, counts = (kind.numpy(each).astype(np.int64) for each in (index.sorted_ids, index.offsets, index.counts))
    assert (np.diff(ids) >= 0).all() and ids.min() >= -1 and ids.max() <= index.num_segments
    assert ends.min() >= 0 and ends.max() <= 5 and (np.diff(ends) == counts).all()
    x = np.arange(15, dtype=F).reshape(5, 3)
    wanted = references.truth("segment_sum", {"input": x, "segment_ids": ids}, index.num_segments)
    assert_close(kind.numpy(nb.segment_sum(kind.array(x), index)), wanted, "f32", "segment_sum")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_that_are_right_pass_the_check(kind: Kind, dtype: Any) -> None:
    for offsets, rows in (([0, 2, 2, 5], None), ([1, 4], 6), ([0], 0), ([0, 0, 0], None)):
        assert nb.SegmentIndex.from_offsets(kind.array(np.array(offsets, dtype)), rows, check=True).num_segments == len(offsets) - 1
    with pytest.raises(nb.InvalidProblem, match="check is 1, wants True or False"):
        nb.SegmentIndex.from_offsets(kind.array(np.array([0, 2])), check=1)  # type: ignore[arg-type]


def test_a_keyword_that_is_almost_right() -> None:
    with pytest.raises(
        errors.WrongArguments, match=r"segment_sum: got an unexpected keyword argument 'num_segment', .*; did you mean num_segments\?$"
    ):
        nb.segment_sum(np.ones(3, np.float32), np.zeros(3, np.int32), num_segment=2)
    with pytest.raises(errors.WrongArguments) as error:
        nb.segment_sum(np.ones(3, np.float32), np.zeros(3, np.int32), 2, colour=3)
    assert "did you mean" not in str(error.value)
