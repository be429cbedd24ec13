"""Reductions on a device: frameworks' arrays, memory around the result, CUDA graphs, and sizes that the emulator cannot reach."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import KINDS, Kind, Numba
from on_device import check_graph, check_only_the_result_is_written
from reduce_cases import OPS, operands, run, truth
from samples import name_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.op import Op

pytestmark = pytest.mark.gpu
if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

EVERY = pytest.mark.parametrize("op", OPS, ids=name_of)
#: short rows, rows of a warp, of a block, in splits and peeled, columns in one split and in several, axes that do not merge, few short rows
SHAPES = [
    ((5000, 4), 1), ((3000, 16), 1), ((2000, 37), 1), ((700, 300), 1), ((300, 5000), 1), ((3, 300_000), 1), ((3, 300_001), 1), ((9, 4000, 7), 1),
    ((300_000, 12), 0), ((5000, 1024), 0), ((40, 50, 64), (0, 2)), ((30, 40, 50), None), ((70, 60, 5), (1, 2)),
    ((3001, 24), 1), ((200_003, 5), 1), ((40_001, 22), 1), ((777, 601), 1), ((9000, 701), 1), ((9000, 1024), 1), ((4, 1024), 1), ((1000,), None),
]  # fmt: skip


@EVERY
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_larger_shapes(op: Op, shape: tuple[int, ...], axis: int | tuple[int, ...] | None) -> None:
    axes = tuple(range(len(shape))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if "prod" in op.name and int(np.prod([shape[each] for each in axes])) > 5000:
        pytest.skip("so many factors overflow")
    given = operands(op, shape, axes)
    options = {"ties": "all"} if "ties" in op.traits["keywords"] else {}
    got = run(op, {name: cupy.asarray(array) for name, array in given.items()}, shape, axis)
    assert_close(cupy.asnumpy(got), truth(op, given, shape, axes, **options), "f32", op.name)


@EVERY
@pytest.mark.parametrize("kind", ["torch", "numba"])
def test_arrays_of_every_framework(op: Op, kind: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    made: Kind = KINDS[kind]
    given = operands(op, (16, 24), (1,))
    share = made.view if isinstance(made, Numba) else lambda array: array
    got = run(op, {name: share(made.array(array)) for name, array in given.items()}, (16, 24), 1)
    assert made.owns(got)
    options = {"ties": "all"} if "ties" in op.traits["keywords"] else {}
    assert_close(made.numpy(got), truth(op, given, (16, 24), (1,), **options), "f32", op.name)


@EVERY
def test_nothing_around_the_result_is_touched(op: Op) -> None:
    for shape, axis in (((33, 700), 1), ((700, 33), 0), ((3, 80_001), 1)):
        if "prod" in op.name and shape[axis] > 5000:
            continue
        given = operands(op, shape, (axis,))
        form = tuple(1 if op.backward and k == axis else extent for k, extent in enumerate(shape))
        check_only_the_result_is_written(lambda inputs, out: run(op, inputs, shape, axis, out=out), given, form)  # noqa: B023


@EVERY
def test_the_same_bits_in_every_run(op: Op) -> None:
    for shape, axis in (((7, 90_000), 1), ((90_000, 7), 0)):
        if "prod" in op.name:
            shape = (7, 900) if axis else (900, 7)
        given = {name: cupy.asarray(array) for name, array in operands(op, shape, (axis,)).items()}
        first = run(op, given, shape, axis)
        assert all(bool((run(op, given, shape, axis).view(np.int32) == first.view(np.int32)).all()) for _ in range(5))


@EVERY
def test_graphs(op: Op) -> None:
    shape = (50, 700) if "prod" in op.name else (3, 90_000)
    made: type[nb.ReduceDescriptor] = nb.ReduceDescriptor if op.backward else nb.ReduceBackwardDescriptor
    check_graph(nb.select(made(op.kind, shape, 1)), operands(op, shape, (1,)), (shape[0], 1) if op.backward else shape)


# ---------------------------------------------------------------- size

MANY = 1 << 28


@pytest.mark.memory(4 * MANY / 1e9 + 0.5)
def test_a_sum_of_many_ones() -> None:
    ones = cupy.ones(MANY, np.float32)
    for view, axis in ((ones, None), (ones.reshape(1, -1), 1), (ones.reshape(-1, 1), 0), (ones.reshape(-1, 4), 0)):
        got = cupy.asnumpy(nb.reduce_sum(view, axis)).astype(np.float64)
        np.testing.assert_allclose(got, MANY / got.size, rtol=1e-6)


@pytest.mark.memory(8 * 4 * (1 << 24) * 2 / 1e9)  # float64 copies, and what NumPy's formula makes of them
def test_a_variance_far_from_zero() -> None:
    x = cupy.asarray(np.random.default_rng(0).standard_normal(1 << 24, np.float32) + np.float32(1e6))
    for view, axis in ((x, None), (x.reshape(-1, 8), 0), (x.reshape(64, -1), 1)):
        got = cupy.asnumpy(nb.reduce_var(view, axis, False)).astype(np.float64)
        np.testing.assert_allclose(got, cupy.asnumpy(view.astype(np.float64).var(axis, ddof=1)), rtol=1e-3)


@pytest.mark.memory((2 * 2 * 3 + 3 * 2) * (1 << 30) / 1e9)  # x and its gradient, and sums of columns
def test_more_than_2_to_the_31_elements() -> None:
    rows, columns = 3, (1 << 30) - 7
    x = cupy.zeros((rows, columns), np.float16)
    x[:, -1], x[2, 5], x[1, 1 << 29] = 3, 4, 5
    np.testing.assert_array_equal(cupy.asnumpy(nb.reduce_max(x, 1, False)), [3, 5, 4])
    np.testing.assert_array_equal(cupy.asnumpy(nb.reduce_argmax(x, 1, False)), [columns - 1, 1 << 29, 5])
    np.testing.assert_array_equal(cupy.asnumpy(nb.reduce_sum(x, 1, False)), [3, 8, 7])
    assert int(nb.reduce_count_nonzero(x, None, False)) == 5
    np.testing.assert_array_equal(cupy.asnumpy(nb.reduce_sum(x, 0, False)[[5, 1 << 29, columns - 1]]), [4, 5, 9])
    y = nb.reduce_max(x, 1)
    dx = nb.reduce_max_backward(cupy.ones((rows, 1), np.float16), x, y, axis=1)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.stack([dx[0, -1], dx[1, 1 << 29], dx[2, 5], dx[2, -1]])), [1, 1, 1, 0])
    assert int(nb.reduce_count_nonzero(dx, None, False)) == 3
