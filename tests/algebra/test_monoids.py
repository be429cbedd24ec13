"""Users' monoids: segment_reduce, reduce_axis and scan_axis against NumPy, in order, and their machine code."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sass
from kinds import Kind
from user_monoids import LAST, SIDE

import numba_baracuda as nb
from numba_baracuda import device
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Launch, Target, contiguous
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.core.vocabulary import MonoidKind
from numba_baracuda.plans import plan
from numba_baracuda.reduce import ReduceAxisDescriptor
from numba_baracuda.runtime import cache
from numba_baracuda.scan import ScanAxisDescriptor
from numba_baracuda.segment import SegmentReduceDescriptor
from numba_baracuda.segment.descriptor import contiguous as rows_of

ELEMENTS = ("f16", "bf16", "f32", "f64", "i32", "i64")
RNG = np.random.default_rng(0)
Array = Any


def pooled(a: Any, b: Any) -> Any:
    count, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / count if count > 0 else b[0]
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def product(a: Any, b: Any) -> Any:
    return a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]


#: the elements as bits of a number, the last one lowest: of affine maps, which do not commute
BITS = nb.Monoid("bits", (1, 0), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), lambda x: (0.5, x), lambda state: state[1])
VARIANCE = nb.Monoid("variance", (0, 0, 0), pooled, lambda x: (1, x, 0), lambda state: state[2] / state[0])
MEAN = nb.Monoid("mean", (0,), lambda a, b: a + b, None, lambda state, count: state / count, kind="f64")
#: products of 2×2 matrices whose determinant is 1
MATRICES = nb.Monoid("matrices", (1, 0, 0, 1), product, lambda x: (1 + x * x, x, x, 1), lambda state: state[0] * state[3] - state[1] * state[2])


def sparse(shape: tuple[int, ...], element: str) -> Array:
    """Whole numbers, most of them 0."""
    return (RNG.integers(-9, 10, shape) * (RNG.random(shape) < 0.1)).astype(numpy_dtype(element))


def last_of(x: Array) -> Array:
    """The last element that is not 0 up to each along the last axis."""
    at = np.maximum.accumulate(np.where(x != 0, np.arange(x.shape[-1]), -1), -1)
    return np.where(at >= 0, np.take_along_axis(x, np.maximum(at, 0), -1), 0)


def bits_of(x: Array) -> Array:
    found = np.zeros(x.shape)
    for k in range(x.shape[-1]):
        found[..., k] = x[..., k] + (0.5 * found[..., k - 1] if k else 0)
    return found


def by_segment(x: Array, ids: Array, segments: int, fold: Callable[[Array], Array], empty: float = 0) -> Array:
    """``fold`` of each segment's rows, the last axis along them."""
    found = np.full((segments, *x.shape[1:]), empty, np.float64)
    for s in range(segments):
        if (ids == s).any():
            found[s] = fold(np.moveaxis(x[ids == s].astype(np.float64), 0, -1))
    return found


@contextlib.contextmanager
def no_new_plan() -> Iterator[None]:
    """Whatever is called inside has its plan, and its launches, already."""
    made = dict(plan._plans)
    yield
    assert plan._plans == made


def views_of(kind: Kind, x: Array) -> Iterator[Array]:
    """An array as it is, and as views that are transposed, strided, or reversed."""
    yield kind.array(x)
    yield kind.transpose(kind.array(np.ascontiguousarray(x.transpose())), tuple(range(x.ndim))[::-1])
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    wide[..., 1::2] = x
    yield kind.array(wide)[..., 1::2]
    if kind.name in ("numpy", "cupy"):
        yield kind.array(np.ascontiguousarray(x[::-1]))[::-1]


# ---------------------------------------------------------------- reductions


@pytest.mark.parametrize("element", ELEMENTS)
def test_reductions_keep_the_order(kind: Kind, element: str) -> None:
    for shape, axis in (((3, 700), 1), ((40, 16), 1), ((600, 5), 0), ((4, 7, 9), (0, 2)), ((5, 0), 1)):
        x = sparse(shape, element)
        axes = axis if isinstance(axis, tuple) else (axis,)
        kept = [k for k in range(len(shape)) if k not in axes]
        flat = x.transpose(kept + list(axes)).reshape([shape[k] for k in kept] + [-1]).astype(np.float64)
        wanted = last_of(flat)[..., -1] if flat.shape[-1] else np.zeros(flat.shape[:-1])
        for view in [kind.array(x)] if element != "f32" else views_of(kind, x):
            got = nb.reduce_axis(view, LAST, axis, keepdims=False)
            assert kind.owns(got) and kind.numpy(got).dtype == x.dtype
            np.testing.assert_array_equal(kind.numpy(got).astype(np.float64), wanted)
    with no_new_plan():
        nb.reduce_axis(view, LAST, axis, keepdims=False)


@pytest.mark.parametrize(("shape", "axis"), [((2, 3000), 1), ((1500, 3), 0)])
def test_reductions_in_parts(kind: Kind, shape: tuple[int, ...], axis: int) -> None:
    """Under the race detector, rows and columns that are cut into parts."""
    x = RNG.random(shape, np.float32)
    with kind.schedule(1):
        got = nb.reduce_axis(kind.array(x), BITS, axis)
    np.testing.assert_allclose(kind.numpy(got), bits_of(np.moveaxis(x, axis, -1))[..., -1].reshape(got.shape), rtol=1e-5)
    np.testing.assert_array_equal(kind.numpy(nb.reduce_axis(kind.array(x), SIDE, axis)), np.ptp(x, axis, keepdims=True))


def test_states_of_up_to_four_scalars(kind: Kind) -> None:
    x = RNG.random((30, 50))
    np.testing.assert_allclose(kind.numpy(nb.reduce_axis(kind.array(x), VARIANCE, None)), x.var(keepdims=True))
    np.testing.assert_allclose(kind.numpy(nb.reduce_axis(kind.array(x / 50), MATRICES, 0)), np.ones((1, 50)), rtol=1e-9)
    ids = np.sort(RNG.integers(0, 4, 30))
    np.testing.assert_allclose(kind.numpy(nb.segment_reduce(kind.array(x / 50), kind.array(ids), 4, MATRICES)), np.ones((4, 50)), rtol=1e-9)
    for monoid in (VARIANCE, MATRICES):
        got = kind.numpy(nb.scan_axis(kind.array(x / 50), monoid, 1))
        wanted = np.ones(x.shape) if monoid is MATRICES else np.stack([x[:, : k + 1].var(axis=1) / 2500 for k in range(50)], 1)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
    long = RNG.random((1, 3000)) / 3000
    np.testing.assert_allclose(kind.numpy(nb.scan_axis(kind.array(long), MATRICES, 1)), np.ones(long.shape), rtol=1e-9)
    counts = np.arange(1, 3001)
    variances = (long**2).cumsum(1) / counts - (long.cumsum(1) / counts) ** 2
    np.testing.assert_allclose(kind.numpy(nb.scan_axis(kind.array(long), VARIANCE, 1)), variances, rtol=1e-6, atol=1e-16)


def test_kind_dtype_and_count(kind: Kind) -> None:
    """States in float64 whatever the elements are, results of another dtype, and a finish that is given the count."""
    for element in ("bf16", "i32"):
        x = RNG.integers(0, 100, (20, 40)).astype(numpy_dtype(element))
        wide = x.astype(np.float64)
        got = kind.numpy(nb.reduce_axis(kind.array(x), MEAN, 1, dtype=np.float32))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wide.mean(1, keepdims=True), rtol=1e-6)
        got = kind.numpy(nb.scan_axis(kind.array(x), MEAN, 0, dtype="f64"))
        np.testing.assert_allclose(got, wide.cumsum(0) / np.arange(1, 21)[:, None], rtol=1e-12)
        got = kind.numpy(nb.scan_axis(kind.array(x), MEAN, 0, dtype="f64", exclusive=True, reverse=True))
        np.testing.assert_allclose(got[:-1], wide[:0:-1].cumsum(0)[::-1] / np.arange(19, 0, -1)[:, None], rtol=1e-12)
        assert np.isnan(got[-1]).all()
    x, ids = RNG.random((60, 3), np.float32), np.sort(RNG.integers(0, 7, 60))
    got = kind.numpy(nb.segment_reduce(kind.array(x), kind.array(ids), 9, MEAN))
    np.testing.assert_allclose(got[:7], by_segment(x, ids, 7, lambda rows: rows.mean(-1)), rtol=1e-6)
    assert np.isnan(got[7:]).all()


# ---------------------------------------------------------------- scans


@pytest.mark.parametrize("element", ELEMENTS)
def test_scans_keep_the_order(kind: Kind, element: str) -> None:
    for shape, axis in (((3, 700), 1), ((60, 5), 0), ((4, 0), 1)):
        x = sparse(shape, element)
        rows = np.moveaxis(x.astype(np.float64), axis, -1)
        for view in [kind.array(x)] if element != "f32" else views_of(kind, x):
            got = nb.scan_axis(view, LAST, axis)
            assert kind.owns(got) and kind.numpy(got).dtype == x.dtype
            np.testing.assert_array_equal(np.moveaxis(kind.numpy(got).astype(np.float64), axis, -1), last_of(rows))
    with no_new_plan():
        nb.scan_axis(view, LAST, axis)


@pytest.mark.parametrize(("shape", "axis"), [((1, 3000), 1), ((900, 4), 0)])
def test_long_scans_from_either_end(kind: Kind, shape: tuple[int, ...], axis: int) -> None:
    """Rows and columns that are shared out to blocks, under the race detector."""
    x = RNG.random(shape, np.float32)
    rows = np.moveaxis(x, axis, -1)
    with kind.schedule(2):
        got = np.moveaxis(kind.numpy(nb.scan_axis(kind.array(x), BITS, axis)), axis, -1)
    np.testing.assert_allclose(got, bits_of(rows), rtol=1e-5)
    got = np.moveaxis(kind.numpy(nb.scan_axis(kind.array(x), BITS, axis, reverse=True, exclusive=True)), axis, -1)
    wanted = bits_of(rows[..., ::-1])[..., ::-1]
    np.testing.assert_allclose(got[..., :-1], wanted[..., 1:], rtol=1e-5)
    assert (got[..., -1] == 0).all()


# ---------------------------------------------------------------- segments


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("order", ["sorted", "any", "index"])
def test_segments_keep_the_order(kind: Kind, order: str, element: str) -> None:
    """Rows of one column and of several, ids outside the range among them, and empty segments."""
    for rows, trailing, segments in ((700, (), 40), (300, (2, 8), 90)):
        ids = RNG.integers(-1, segments + 1, rows).astype(np.int32)
        ids = np.sort(ids) if order == "sorted" else ids
        x = sparse((rows, *trailing), element)
        wanted = by_segment(x, ids, segments, lambda each: last_of(each)[..., -1])
        for view in [kind.array(x)] if element != "f32" else views_of(kind, x):
            given = nb.SegmentIndex(kind.array(ids), segments) if order == "index" else kind.array(ids)
            got = nb.segment_reduce(view, given, segments, LAST, is_sorted=order != "any")
            assert kind.owns(got) and kind.numpy(got).dtype == x.dtype
            np.testing.assert_array_equal(kind.numpy(got).astype(np.float64), wanted)
    with no_new_plan():
        nb.segment_reduce(view, given, segments, LAST, is_sorted=order != "any")


@pytest.mark.parametrize("segments", [6, 200])
def test_segments_under_the_race_detector(kind: Kind, segments: int) -> None:
    x, ids = RNG.random((500, 3), np.float32), RNG.integers(0, segments, 500)
    with kind.schedule(3):
        got = nb.segment_reduce(kind.array(x), kind.array(np.sort(ids)), segments, BITS)
        sides = nb.segment_reduce(kind.array(x), kind.array(ids), segments, SIDE, is_sorted=False, empty=-1)
    np.testing.assert_allclose(kind.numpy(got), by_segment(x, np.sort(ids), segments, lambda rows: bits_of(rows)[..., -1]), rtol=1e-5)
    np.testing.assert_allclose(kind.numpy(sides), by_segment(x, ids, segments, lambda rows: np.ptp(rows, axis=-1), -1), rtol=1e-6)


def test_empty_segments(kind: Kind) -> None:
    x, ids = kind.array(np.ones((3, 2), np.int32)), kind.array(np.array([1, 1, 3]))
    assert kind.numpy(nb.segment_reduce(x, ids, 5, LAST))[:, 0].tolist() == [0, 1, 0, 1, 0]
    assert kind.numpy(nb.segment_reduce(x, ids, 5, LAST, empty=-7))[:, 0].tolist() == [-7, 1, -7, 1, -7]
    count = nb.Monoid("count", (0,), lambda a, b: a + b, lambda x: 1, lambda state, count: 10 * state + count)
    assert kind.numpy(nb.segment_reduce(x, ids, 5, count))[:, 0].tolist() == [0, 22, 0, 11, 0]
    share = nb.Monoid("share", (0,), lambda a, b: a + b, None, lambda state, count: state / count)
    with pytest.raises(nb.InvalidProblem, match=r"segment_reduce: finish\(identity\) is nan, wants a number that i32 holds, or empty="):
        nb.segment_reduce(x, ids, 5, share)
    assert kind.numpy(nb.segment_reduce(x, ids, 5, share, empty=3))[:, 0].tolist() == [3, 1, 3, 1, 3]


# ---------------------------------------------------------------- calls


def test_outputs_and_workspaces(kind: Kind) -> None:
    x, ids = kind.array(RNG.random((200, 6), np.float32)), kind.array(RNG.integers(0, 30, 200))
    calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
        (nb.reduce_axis, (x, BITS, 0), {}), (nb.scan_axis, (x, BITS, 0), {}), (nb.segment_reduce, (x, ids, 30, BITS), {"is_sorted": False}),
    ]  # fmt: skip
    for function, given, options in calls:
        wanted = kind.numpy(function(*given, **options))
        out = kind.poisoned(wanted.shape, wanted.dtype)
        assert function(*given, **options, out=out, workspace=kind.workspace(1 << 16)) is out
        np.testing.assert_array_equal(kind.numpy(out), wanted)


def test_plans() -> None:
    """They can be selected by a descriptor, pickled where the functions are a module's, and tell what they are."""
    made = nb.select(ReduceAxisDescriptor(MonoidKind.REDUCE_AXIS, (3, 40), 1, monoid=nb.Monoid("product", (1, 0, 0, 1), product, _lifted, _first)))
    assert made.sku.variant.startswith("fold:user:product:") and made.precision_guarantee.deterministic
    copy = pickle.loads(pickle.dumps(made))
    assert copy.op.name == "reduce_axis" and copy.sku == made.sku
    scan = nb.select(ScanAxisDescriptor(MonoidKind.SCAN_AXIS, (3, 40), 1, monoid=MEAN), device=-1)
    assert scan.precision_guarantee.accumulator == nb.ElementKind.F64 and ":user:mean:" in scan.sku.variant
    segments = nb.select(SegmentReduceDescriptor(num_inputs=9, num_segments=4, fold_by=MEAN, is_sorted=False), device=-1)
    assert segments.sku.variant.startswith("ragged_pairs:user:mean:") and segments.precision_guarantee.accumulator == nb.ElementKind.F64
    assert segments.sku.op not in {int(op.kind) for op in nb.OPS.values()}


def _lifted(x: Any) -> Any:
    return x, x, x, x


def _first(state: Any) -> Any:
    return state[0]


def test_the_device_library_takes_the_same_class() -> None:
    fold = device.warp_reduce(nb.Monoid("sum", (0,), lambda a, b: a + b), "i32")
    assert callable(fold)


# ---------------------------------------------------------------- machine code


def _specs(monoid: nb.Monoid, element: str) -> list[KernelSpec]:
    """The kernels of each family for sm_90: rows and columns, long and short, one column and several."""
    found: dict[KernelSpec, None] = {}
    problems: list[tuple[Any, Any]] = []
    for columns in (1, 16):
        for is_sorted in (True, False):
            problems.append((
                SegmentReduceDescriptor("segment_reduce", 1 << 20, columns, 1 << 14, element, fold_by=monoid, is_sorted=is_sorted),
                lambda operand, descriptor: rows_of(operand, descriptor),
            ))  # fmt: skip
    # few segments, and so many rows that blocks leave carries
    for rows, columns, segments, is_sorted in ((1 << 20, 16, 4, False), (1 << 26, 128, 1 << 14, True)):
        problems.append((
            SegmentReduceDescriptor("segment_reduce", rows, columns, segments, element, fold_by=monoid, is_sorted=is_sorted),
            lambda operand, descriptor: rows_of(operand, descriptor),
        ))  # fmt: skip
    along: list[tuple[tuple[int, ...], int]] = [((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0), ((4, 1 << 26), 1), ((1 << 22, 16), 1)]
    for shape, axis in along:
        for descriptor in (
            ReduceAxisDescriptor(MonoidKind.REDUCE_AXIS, shape, axis, element, monoid=monoid),
            ScanAxisDescriptor(MonoidKind.SCAN_AXIS, shape, axis, element=element, monoid=monoid),
        ):
            problems.append((descriptor, lambda operand, described: contiguous(getattr(described, operand.axes[0]))))
    for descriptor, lay in problems:
        op = descriptor.find_op()
        descriptor.check(op)
        op = descriptor.specialise(op)
        layouts = {operand.name: lay(operand, descriptor) for operand in op.operands}
        for variant in op.variants:
            if variant.refuses(op, descriptor) is None:
                steps = variant.recipe(op, descriptor, layouts, Target((9, 0), 132)).steps
                found.update({step.spec: None for step in steps if isinstance(step, Launch)})
    return [spec for spec in found if not spec.kernel.startswith("sort_")]


@pytest.mark.compile
@pytest.mark.parametrize(
    ("name", "element"),
    [("VARIANCE", "f32"), *[pytest.param(*each, marks=pytest.mark.full) for each in (("LAST", "f32"), ("SIDE", "bf16"), ("MATRICES", "f64"))]],
)
def test_kernels_compile_clean(name: str, element: str) -> None:
    """Machine code for sm_90 of every family, without spills."""
    specs = _specs(globals()[name], element)
    wanted = {"fold_tiles", "fold_narrow", "fold_carries", "fold_rows", "fold_columns", "combine_partials", "scan_rows"}
    assert {spec.kernel for spec in specs} >= wanted
    faults = {spec.name: sass.resource_faults(cache.cubin(spec, "sm_90")) for spec in specs}
    assert {spec: each for spec, each in faults.items() if each} == {}
