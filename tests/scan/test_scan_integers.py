"""Scans of integers and truth values: exact, in int64 or in a dtype that is asked for, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scan_reference
from kinds import Kind
from scan_cases import EVERY_INTEGER, FORWARD, PLACED, check_integers, numbers
from scan_reference import REFERENCES

import numba_baracuda as nb
from numba_baracuda import ElementKind, ScanBackwardDescriptor, ScanDescriptor
from numba_baracuda.core.dtypes import numpy_dtype

OPTIONS: tuple[dict[str, Any], ...] = ({}, {"reverse": True}, {"exclusive": True, "initial": -7}, {"exclusive": True, "reverse": True})
#: rows of some lanes, of a warp, of a block, odd ones, rows and columns that blocks share out, columns in the middle
SHAPES = [
    ((5, 300), 1), ((33, 4), 1), ((3, 37), 1), ((2, 2051), 1), ((1, 20_003), 1), ((40, 12), 0), ((900, 3), 0), ((5, 70, 9), 1), ((0, 5), 1),
    ((5, 0), 1),
]  # fmt: skip


@EVERY_INTEGER
def test_values(kind: Kind, name: str, dtype: str) -> None:
    for shape, axis in ((5, 300), 1), ((40, 12), 0):
        for options in OPTIONS:
            check_integers(kind, name, numbers(name, shape, dtype), axis, **options)


@pytest.mark.parametrize(("name", "dtype"), [(op.name, each) for op in FORWARD for each in ("i32", "i64", "bool") if each not in op.elements])
def test_dtypes_that_a_scan_has_not(kind: Kind, name: str, dtype: str) -> None:
    with pytest.raises(nb.Unsupported, match=f"{name}: element is {dtype}, wants one of f16"):
        getattr(nb, name)(kind.array(np.ones((3, 4), numpy_dtype(dtype))))


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", ["i32", "bool"])
def test_shapes_and_axes(kind: Kind, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x = numbers("cumsum", shape, dtype)
    check_integers(kind, "cumsum", x, axis)
    if dtype == "i32":
        check_integers(kind, "cumsum", x, axis, dtype="int32", reverse=True)
        got = kind.numpy(nb.cumsum(kind.array(x), axis, deterministic=False))  # sums of integers are the same in any order
        np.testing.assert_array_equal(got, scan_reference.scanned("cumsum", x, axis, np.int64))


def test_layouts_and_places_in_memory(kind: Kind) -> None:
    """Rows that begin anywhere, whose results do not begin alike, and views."""
    x = numbers("cumsum", (4, 1203), "i32")
    made = kind.array(x)
    for view, array in ((made[:, 1:], x[:, 1:]), (made[:, 3:], x[:, 3:]), (made[::2], x[::2]), (made[:, ::-1], x[:, ::-1]), (made.T, x.T)):
        for axis in (0, 1):
            check_integers(kind, "cumsum", array, axis, view, reverse=axis == 0)
    for skip in range(4):
        out = kind.poisoned((1204,), np.int64)
        nb.cumsum(made[0, skip : skip + 1200], 0, out=out[1:1201])
        np.testing.assert_array_equal(kind.numpy(out)[1:1201], np.cumsum(x[0, skip : skip + 1200], dtype=np.int64))
        assert (kind.numpy(out)[[0, 1201, 1202, 1203]].view(np.uint64) == 0xA5A5A5A5A5A5A5A5).all()


def test_offsets_of_csr(kind: Kind) -> None:
    counts = np.random.default_rng(0).integers(0, 9, 1001).astype(np.int32)
    offsets = kind.poisoned((1002,), np.int64)
    nb.cumsum(kind.array(counts), 0, out=offsets[1:])
    np.testing.assert_array_equal(kind.numpy(offsets)[1:], np.cumsum(counts))
    begins = kind.numpy(nb.cumsum(kind.array(counts), 0, exclusive=True))
    assert begins.dtype == np.int64 and begins[0] == 0 and (np.diff(begins) == counts[:-1]).all()
    assert kind.numpy(nb.cumsum(kind.array(counts), 0, exclusive=True, dtype=np.int32)).dtype == np.int32


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_indices(kind: Kind, name: str, dtype: str) -> None:
    """Of the first winner; neighbours of 2⁵³ and the limits of the type are told apart."""
    rng = np.random.default_rng(3)
    limits = np.iinfo(numpy_dtype(dtype))
    some = [limits.min, limits.min + 1, 0, limits.max - 1, limits.max, *([(1 << 53) + 1, 1 << 53] if dtype == "i64" else [])]
    for shape, axis in ((3, 300), 1), ((90, 8), 0), ((2, 1201), 1):
        x = rng.choice(np.array(some, numpy_dtype(dtype)), shape)
        x.swapaxes(axis, -1)[..., :4] = 0
        for reverse in (False, True):
            y, places = map(kind.numpy, getattr(nb, name)(kind.array(x), axis, reverse=reverse, return_indices=True))
            np.testing.assert_array_equal(y, scan_reference.scanned(name, x, axis, x.dtype, reverse))
            along = np.moveaxis(x, axis, -1)[..., :: -1 if reverse else 1]
            best = REFERENCES[name].fold.accumulate(along, axis=-1)
            changes = np.concatenate([np.ones_like(best[..., :1], bool), best[..., 1:] != best[..., :-1]], -1)
            first = np.maximum.accumulate(np.where(changes, np.arange(along.shape[-1]), 0), -1)
            wanted = along.shape[-1] - 1 - first if reverse else first
            np.testing.assert_array_equal(places, np.moveaxis(wanted[..., :: -1 if reverse else 1], -1, axis))


def test_the_range_of_the_result(kind: Kind) -> None:
    """Sums wrap around in the dtype of the result alone, and nothing passes through a float."""
    x = kind.array(np.array([[1 << 30, 1 << 30, 1 << 30]], np.int32))
    assert kind.numpy(nb.cumsum(x, 1)).tolist() == [[1 << 30, 1 << 31, 3 << 30]]
    assert kind.numpy(nb.cumsum(x, 1, dtype="int32")).tolist() == [[1 << 30, -(1 << 31), -(1 << 30)]]
    assert kind.numpy(nb.cumsum(x, 1, initial=(1 << 53) + 1))[0, 0] == (1 << 53) + 1 + (1 << 30)
    wide = kind.array(np.array([[(1 << 62) + 1, 1 << 62, 1]], np.int64))
    assert kind.numpy(nb.cumsum(wide, 1)).tolist() == [[(1 << 62) + 1, -(1 << 63) + 1, -(1 << 63) + 2]]
    assert kind.numpy(nb.cumprod(x, 1)).tolist() == [[1 << 30, 1 << 60, 0]]
    assert kind.numpy(nb.cummax(wide, 1, exclusive=True)).tolist() == [[-(1 << 63), (1 << 62) + 1, (1 << 62) + 1]]
    bits = kind.array(np.array([[2, 0, 255]], np.uint8).view(bool))
    assert kind.numpy(nb.cumsum(bits, 1)).tolist() == [[1, 1, 2]]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: nb.cumsum(x, 1, dtype="float32"), nb.Unsupported, "cumsum: dtype is float32, wants int64 or int32 for a scan of int32"),
        (lambda x: nb.cumsum(x.astype("i8"), 1, dtype="int32"), nb.Unsupported, "cumsum: dtype is int32, wants int64 for a scan of int64"),
        (lambda x: nb.cumprod(x.astype("f4"), 1, dtype="float64"), nb.Unsupported, "cumprod: dtype is float64, wants float32 for a scan of float32"),
        (lambda x: nb.cumsum(x, 1, dtype="int16"), nb.InvalidProblem, "int16"),
        (lambda x: nb.cummax(x, 1, dtype="int64"), TypeError, "dtype"),
        (lambda x: nb.cumsum(x, 1, initial=0.5), nb.InvalidProblem, "cumsum: initial is 0.5, wants a number that i64 holds"),
        (lambda x: nb.cumsum(x, 1, initial=1 << 63), nb.InvalidProblem, "cumsum: initial is 9223372036854775808, wants a number that i64 holds"),
        (lambda x: nb.cummax(x, 1, initial=1 << 31), nb.InvalidProblem, "cummax: initial is 2147483648, wants a number that i32 holds"),
        (lambda x: nb.cummin(x, 1, initial=np.inf), nb.InvalidProblem, "cummin: initial is inf, wants a number that i32 holds"),
        (lambda x: nb.cumsum(x, 1, initial=np.nan), nb.InvalidProblem, "cumsum: initial is nan, wants a number that i64 holds"),
        (lambda x: nb.cumsum(x, 1, out=x.copy()), nb.InvalidProblem, "cumsum: y is int32, wants int64"),
        (lambda x: nb.cumsum_backward(x, 1), nb.Unsupported, "cumsum_backward: element is i32, wants one of f16, bf16, f32, f64"),
        (lambda x: nb.cumsum(x.astype("u1"), 1), nb.Unsupported, "cumsum: element is u8, wants one of"),
    ],
)  # fmt: skip
def test_wrong_calls(kind: Kind, call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(kind.array(np.ones((3, 4), np.int32)))


def test_plans() -> None:
    """The accumulator and the dtype of the result are part of what a plan tells of itself."""
    plans = {result: nb.select(ScanDescriptor("cumsum", (3, 4), 1, element="i32", result=result)) for result in ("", "i32")}
    assert {plan.precision_guarantee.accumulator for plan in plans.values()} == {ElementKind.I32, ElementKind.I64}
    assert plans[""].sku != plans["i32"].sku and plans[""].sku.aux_element == ElementKind.I64
    assert nb.select(ScanDescriptor("cumsum", (3, 4), 1, element="i32", result="int64")).descriptor == plans[""].descriptor
    assert nb.select(ScanDescriptor("cummax", (3, 4), 1, element="i64")).precision_guarantee.accumulator == ElementKind.I64
    with pytest.raises(nb.Unsupported, match="cumprod_backward: element is i64"):
        nb.select(ScanBackwardDescriptor("cumprod", (3, 4), 1, element="i64"))
