"""Scans on a device: frameworks' arrays, memory around the result, CUDA graphs, other streams, and sizes that the emulator cannot reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kinds import KINDS, Kind, Numba
from on_device import check_graph, check_only_the_result_is_written
from references import Truth
from samples import name_of
from scan_cases import EVERY, EVERY_INTEGER, OPS, check, check_integers, numbers, operands_of, run, truth, values
from scan_reference import REFERENCES, rounded_last
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.op import Op

pytestmark = pytest.mark.gpu
if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

EVERY_OP = pytest.mark.parametrize("op", OPS, ids=name_of)
#: rows of some lanes, of a warp, of a block, peeled, shared out to blocks; columns of several widths, many, short, of a
#: thread's own, or shared out to blocks
SHAPES = [
    ((5000, 4), 1), ((3000, 16), 1), ((2000, 37), 1), ((700, 300), 1), ((300, 5000), 1), ((700, 5001), 1), ((3, 300_000), 1), ((3, 300_001), 1),
    ((9, 4000, 7), 1), ((30_000, 12), 0), ((5000, 1024), 0), ((1, 1 << 21), 1), ((40, 50, 64), 1), ((300, 20_000), 0), ((40_000, 2), 0),
    ((20_000, 3), 0), ((1, 20_000, 24), 1), ((4, 500_001), 0), ((55, 7, 1723), 1), ((30, 1, 20_002), 1), ((20, 135_301), 0), ((37, 20_000), 0),
    ((200_003, 5), 0), ((51, 4794, 6), 1), ((700, 150, 3), 1), ((30_001, 77), 0), ((4001, 7001), 0),
]  # fmt: skip


@EVERY_OP
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_larger_shapes(op: Op, shape: tuple[int, ...], axis: int) -> None:
    operands = operands_of(op, shape, axis)
    got = cupy.asnumpy(run(op, {name: cupy.asarray(array) for name, array in operands.items()}, axis))
    right = rounded_last(truth(op, operands, axis))
    if REFERENCES[op.name.removesuffix("_backward")].factors:  # near 1 products are rounded to the same side again and again
        right = replace(right, terms=right.terms * shape[axis])
    assert_close(got, right, "f32", op.name)


@EVERY_OP
@pytest.mark.parametrize("kind", ["torch", "numba"])
def test_arrays_of_every_framework(op: Op, kind: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    made: Kind = KINDS[kind]
    operands = operands_of(op, (16, 24), 1)
    share = made.view if isinstance(made, Numba) else lambda array: array
    got = run(op, {name: share(made.array(array)) for name, array in operands.items()}, 1)
    assert made.owns(got)
    plain = cupy.asnumpy(run(op, {name: cupy.asarray(array) for name, array in operands.items()}, 1))
    np.testing.assert_array_equal(made.numpy(got), plain)


@EVERY_OP
def test_nothing_around_the_result_is_touched(op: Op) -> None:
    for shape, axis in (((33, 700), 1), ((33, 1701), 1), ((700, 33), 0), ((3, 80_001), 1), ((9000, 33), 0)):
        operands = operands_of(op, shape, axis)
        check_only_the_result_is_written(lambda inputs, out: run(op, inputs, axis, out=out), operands, shape)  # noqa: B023


@EVERY_OP
def test_the_same_bits_in_every_run(op: Op) -> None:
    for shape, axis in (((2, 3_000_000), 1), ((3, 1_000_001), 1), ((90_000, 7), 0), ((60_000, 100), 0)):
        operands = {name: cupy.asarray(array) for name, array in operands_of(op, shape, axis).items()}
        first = run(op, operands, axis)
        assert all(bool((run(op, operands, axis).view(np.int32) == first.view(np.int32)).all()) for _ in range(8))


@EVERY_OP
@pytest.mark.parametrize(("shape", "axis"), [((2, 300_000), 1), ((30_000, 24), 0)])
def test_graphs(op: Op, shape: tuple[int, ...], axis: int) -> None:
    made = nb.ScanDescriptor if op.backward else nb.ScanBackwardDescriptor
    check_graph(nb.select(made(op.kind, shape, axis)), operands_of(op, shape, axis), shape)


@EVERY
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((1, 4_000_000), 1), ((160_000, 24), 0)])
def test_beside_a_busy_stream(name: str, deterministic: bool, shape: tuple[int, ...], axis: int) -> None:
    """Blocks that wait for one another, where another stream's kernels take the multiprocessors away."""
    x = cupy.asarray(values(name, shape))
    alone = getattr(nb, name)(x, axis, deterministic=deterministic)
    busy, own = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    found = []
    for _ in range(10):
        with busy:
            a = cupy.ones((3000, 3000), np.float32)
            for _ in range(5):
                a = a @ a * np.float32(1e-4)
        with own:
            found.append(getattr(nb, name)(x, axis, deterministic=deterministic))
    cupy.cuda.Device().synchronize()
    for y in found:
        if deterministic:
            assert bool((y.view(np.int32) == alone.view(np.int32)).all())
        else:
            np.testing.assert_allclose(cupy.asnumpy(y), cupy.asnumpy(alone), rtol=1e-3, atol=1e-2)


@EVERY_INTEGER
def test_integers_of_larger_shapes(name: str, dtype: str) -> None:
    for shape, axis in (*SHAPES, ((1, (1 << 24) + 3), 1), ((5, 1_000_003), 1)):
        x = numbers(name, shape, dtype)
        for options in ({}, {"reverse": True}, {"exclusive": True, "initial": 3}):
            check_integers(KINDS["cupy"], name, x, axis, **options)
        if name == "cumsum" and dtype != "i64":
            check_integers(KINDS["cupy"], name, x, axis, dtype="int32")


@EVERY
def test_halves_and_doubles(name: str) -> None:
    kind = KINDS["cupy"]
    for dtype in ("f16", "bf16", "f64"):
        for shape, axis in (((3, 4000), 1), ((300, 72), 0), ((1, 40_000), 1), ((9000, 6), 0)):
            check(kind, name, values(name, shape, dtype, spread=0 if dtype != "f64" else 0.01), axis)


@pytest.mark.memory((1 << 28) * (4 * 5 + 8 * 3) / 1e9)  # x and four sums in float32; the exact one and two differences in float64
def test_a_long_sum_is_no_worse_than_others() -> None:
    x = cupy.asarray(np.random.default_rng(0).random(1 << 28, np.float32) - np.float32(0.5))
    exact = cupy.cumsum(x, dtype=cupy.float64)
    ours, theirs = (float(abs(y - exact).max()) for y in (nb.cumsum(x, 0), cupy.cumsum(x)))
    torch = pytest.importorskip("torch")
    peer = cupy.from_dlpack(torch.cumsum(torch.from_dlpack(x), 0))
    assert ours <= max(theirs, float(abs(peer - exact).max()))


def test_a_long_gradient_of_exponentials_drifts_nowhere() -> None:
    """Millions of shares near 1 are multiplied: an error to one side of a tenth of an ulp in each would be one of percents."""
    count = 1 << 22
    dy, x = np.random.default_rng(0).random(count, np.float32), np.zeros(count, np.float32)
    y = np.log(np.arange(1, count + 1)).astype(np.float32)
    terms = dy * np.exp(-y.astype(np.float64))
    right, many = np.cumsum(terms[::-1])[::-1], np.arange(count, 0, -1)
    wanted = Truth(right, right * (1 + y / np.sqrt(many)), many)  # the error of an exponential in ulp is the size of its exponent
    for columns in (1, 3):
        each = [cupy.asarray(np.repeat(array[:, None], columns, axis=1)) for array in (dy, x, y)]
        got = cupy.asnumpy(nb.logcumsumexp_backward(*each, 0))
        for k in range(columns):
            assert_close(got[:, k], wanted, "f32", "logcumsumexp_backward")


@pytest.mark.memory(3 * (1 << 30) * (2 + 2 + 4 + 1) / 1e9)  # x, values, places, and a comparison
def test_more_than_2_to_the_31_elements() -> None:
    rows, columns = 3, (1 << 30) - 7
    x = cupy.zeros((rows, columns), np.float16)
    x[:, 0], x[2, 5], x[1, 1 << 29] = 1, 4, 5
    y, places = nb.cummax(x, 1, return_indices=True, index_dtype="int32")
    np.testing.assert_array_equal(cupy.asnumpy(y[:, [0, 5, 1 << 29, -1]]), [[1, 1, 1, 1], [1, 1, 5, 5], [1, 4, 4, 4]])
    np.testing.assert_array_equal(cupy.asnumpy(places[:, -1]), [0, 1 << 29, 5])
    del places
    dx = nb.cummax_backward(x, x, 1, out=y)
    np.testing.assert_array_equal(cupy.asnumpy(dx[[1, 1, 2, 2], [0, 1 << 29, 0, 5]]), [1, 5, 1, 4])
    assert int(cupy.count_nonzero(dx)) == 5
    flat = nb.cumsum(x.reshape(-1), 0, out=y.reshape(-1))
    np.testing.assert_array_equal(cupy.asnumpy(flat[[0, columns, 2 * columns, -1]]), [1, 2, 8, 12])
    across = nb.cumsum(x, 0, out=y)
    np.testing.assert_array_equal(cupy.asnumpy(across[:, [0, 5, 1 << 29]]), [[1, 0, 0], [2, 0, 5], [3, 4, 5]])
