"""Scans of short rows that follow one another without a gap: a warp scans several as segments of its tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scan_reference
from kinds import Kind
from references import Array
from scan_cases import EVERY, EVERY_FLOAT, PLACED, check, check_backward, check_integers, numbers, values

import numba_baracuda as nb
from numba_baracuda import OPS, ScanDescriptor
from numba_baracuda.core.dtypes import element
from numba_baracuda.core.op import Launch, Layout, Target, contiguous
from numba_baracuda.scan.tiling import MIN_WHOLE_VECTORS, WARP, segments_of

#: many rows a lane, a few, one in several lanes; the last warp has one row of less than a vector, or many
SHAPES = ((701, 2), (103, 5), (17, 147))
OPTIONS = ({"reverse": True}, {"exclusive": True}, {"exclusive": True, "reverse": True, "initial": 2.0})


def late(kind: Kind, x: Array, elements: int) -> Any:
    """x in an array that begins so many elements after an aligned address."""
    held = kind.array(np.zeros(x.size + elements, x.dtype))[elements:].reshape(x.shape)
    held[...] = kind.array(x)
    return held


def constants(shape: tuple[int, ...], name: str = "cumsum", dtype: str = "f32", pad: int = 0, address: int = 0) -> dict[str, Any]:
    op, strides = OPS[name], contiguous((*shape[:-1], shape[-1] + pad)).strides
    descriptor = ScanDescriptor(op.kind, shape, len(shape) - 1, element=dtype)
    layouts = {operand.name: Layout(shape, strides, address) for operand in op.operands}
    launch = op.variants[1].recipe(op, descriptor, layouts, Target((9, 0), 132)).steps[-1]
    assert isinstance(launch, Launch)
    return dict(launch.spec.constants)


@pytest.mark.parametrize("shape", [(1 << 20, 37), (1 << 20, 3), (7, 1 << 17, 147), (1 << 18, 450), (2, 5)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_short_odd_rows_are_segments_in_whole_vectors(shape: tuple[int, ...], dtype: str) -> None:
    made = constants(shape, dtype=dtype)
    whole = (shape == (2, 5) and dtype == "bf16") or (shape[-1] == 450 and dtype == "f64")
    assert made["segmented"] is not whole
    assert made["vector"] * element(dtype).itemsize == 16 or whole
    assert not constants(shape, dtype=dtype, pad=1)["segmented"]


def test_rows_of_a_warp() -> None:
    """They fit its tile behind part of a vector; of many, so many that the next warp begins with a vector; of long ones there is one."""
    for extent, vector, steps in ((2, 4, 8), (3, 8, 8), (37, 4, 8), (147, 8, 4), (511, 4, 8), (513, 4, 8), (5000, 4, 8)):
        rows, tile = segments_of(extent, vector, steps), WARP * steps * vector
        assert rows == 1 or rows * extent + vector - 1 <= tile
        assert rows < MIN_WHOLE_VECTORS * vector or rows * extent % vector == 0
        assert (rows + max(vector, 1)) * extent + vector > tile
    assert segments_of(513, 4, 8) == 1


@EVERY_FLOAT
def test_elements(kind: Kind, name: str, dtype: str) -> None:
    for shape in SHAPES if dtype == "f32" else SHAPES[1:2]:
        check(kind, name, values(name, shape, dtype), 1)


@EVERY
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(kind: Kind, name: str, options: dict[str, Any]) -> None:
    for shape in ((103, 3), (9, 147)):
        check(kind, name, values(name, shape), 1, **options)
        check_backward(kind, name, values(name, shape), 1, **options)


@EVERY
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_gradients(kind: Kind, name: str, dtype: str) -> None:
    for shape in SHAPES if dtype == "f32" else SHAPES[1:2]:
        check_backward(kind, name, values(name, shape, dtype), 1)


@pytest.mark.parametrize("elements", [1, 6])
def test_rows_that_begin_inside_a_vector(kind: Kind, elements: int) -> None:
    """Nothing is written next to the results."""
    for dtype, shape in (("f32", (53, 5)), ("bf16", (17, 33))):
        x = values("cumsum", shape, dtype)
        for reverse in (False, True):
            held = kind.array(np.full(x.size + elements + 3, 7, x.dtype))
            out = held[elements : elements + x.size].reshape(shape)
            nb.cumsum(late(kind, x, elements), 1, reverse=reverse, out=out)
            plain = kind.numpy(nb.cumsum(kind.array(x), 1, reverse=reverse))
            np.testing.assert_array_equal(kind.numpy(out).astype(np.float64), plain.astype(np.float64))
            outside = kind.numpy(held).astype(np.float64)
            assert (outside[:elements] == 7).all() and (outside[elements + x.size :] == 7).all()
        check_backward(kind, "cummax", values("cummax", shape, dtype), 1, views=lambda array: late(kind, array, elements))


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("index_dtype", ["int64", "int32"])
def test_places(kind: Kind, name: str, index_dtype: str) -> None:
    """Of winners in each row, of numbers many of which are equal."""
    for shape, dtype in (((171, 3), "f32"), ((9, 33), "f64"), ((4, 147), "f32")):
        x = np.random.default_rng(3).integers(0, 9, shape).astype(np.dtype(dtype.replace("f", "float")))
        for reverse in (False, True):
            y, places = map(kind.numpy, getattr(nb, name)(kind.array(x), 1, reverse=reverse, return_indices=True, index_dtype=index_dtype))
            np.testing.assert_array_equal(y, scan_reference.scanned(name, x, 1, reverse=reverse))
            np.testing.assert_array_equal(np.take_along_axis(x, places.astype(np.int64), 1), y)
            own = np.arange(shape[1])
            assert (places >= own if reverse else places <= own).all()


def test_integers(kind: Kind) -> None:
    for dtype in ("i32", "i64", "bool"):
        for shape in ((341, 3), (9, 147)):
            check_integers(kind, "cumsum", numbers("cumsum", shape, dtype), 1)
