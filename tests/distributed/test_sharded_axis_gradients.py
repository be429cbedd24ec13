"""Gradients of reductions of axes that are divided among ranks, against the same op on one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.core.dtypes import element, numpy_dtype
from numba_baracuda.distributed import InProcessCommunicator
from numba_baracuda.distributed.axis_gradients import FUNCTIONS

#: ends of the parts of 23 positions: uneven, the first and another are empty
PARTS = [0, 0, 9, 10, 10, 23]
PROD = "reduce_prod_backward"


def options_of(name: str) -> list[dict[str, Any]]:
    keywords = nb.OPS[name].traits["keywords"]
    return [{"ties": ties} for ties in ("all", "even", "first")] if "ties" in keywords else [{}, {"correction": 0}] if keywords else [{}]


def operands(name: str, shape: tuple[int, ...], axis: Any, value: str) -> dict[str, Any]:
    """Elements of which many are equal and some are 0, the result and its gradient."""
    rng = np.random.default_rng(5)
    x = rng.integers(1, 6, shape).astype(numpy_dtype(value)) / 2
    x = x.astype(numpy_dtype(value))
    if name == PROD:
        x[rng.uniform(size=shape) < 1 / 20] = 0
    y = getattr(nb, name.removesuffix("_backward"))(x, axis)
    return {"dy": rng.uniform(0.5, 1.5, y.shape).astype(numpy_dtype(value)), "x": x, "y": y}


def on_ranks(name: str, given: dict[str, Any], axis: Any, ends: list[int] = PARTS, **options: Any) -> Any:
    """The gradient of all parts, one after another along the first of the reduced axes."""
    along = axis if isinstance(axis, int) else axis[0]

    def work(comm: InProcessCommunicator) -> Any:
        own = given["x"][(slice(None),) * along + (slice(ends[comm.rank], ends[comm.rank + 1]),)].copy()
        return getattr(distributed, name)(given["dy"], own, given["y"], axis=axis, group=comm, **options)

    made = InProcessCommunicator.run(len(ends) - 1, work, timeout=60)
    for each in made:
        if isinstance(each, BaseException):
            raise each
    return np.concatenate(made, along)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("value", ["f32", "bf16", "f16", "f64"])
@pytest.mark.parametrize("shape, axis", [((3, 23), 1), ((23, 5), 0), ((2, 23, 3), (1, 2))])
def test_gradients(name: str, value: str, shape: tuple[int, ...], axis: Any) -> None:
    """Along rows, columns and two axes, by every rule of ties and correction."""
    given = operands(name, shape, axis, value)
    for options in options_of(name):
        right = getattr(nb, name)(**given, axis=axis, **options)
        made = on_ranks(name, given, axis, **options)
        assert made.dtype == right.dtype
        allowed = 4 * element(value).tolerance(made.size)
        np.testing.assert_allclose(*(each.astype(np.float64) for each in (made, right)), rtol=allowed, atol=allowed)


@pytest.mark.parametrize("value", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("ranks", [3, 8, 64])
def test_zeros_of_products(value: str, ranks: int) -> None:
    """Rows without a zero, with one on the first, a middle and the last rank, with two on one rank and on two, and with NaN and ∞ beside them."""
    x = np.full((9, 23), 1, numpy_dtype(value))
    x[:, ::3], x[:, 1::3] = 2, -0.5
    for row, zeros in enumerate(((), (0,), (11,), (22,), (9, 10), (0, 22), range(23), (4,), (4,))):
        x[row, list(zeros)] = 0
    x[7, 20], x[8, 2] = np.inf, np.nan
    y = nb.reduce_prod(x, 1)
    dy = np.linspace(0.5, 2, 9).reshape(9, 1).astype(x.dtype)
    ends = [round(23 * rank / ranks) for rank in range(ranks + 1)]
    made = on_ranks(PROD, {"dy": dy, "x": x, "y": y}, 1, ends)
    assert made.tobytes() == nb.reduce_prod_backward(dy, x, y, axis=1).tobytes()
    others = made[:7].astype(np.float64)
    assert (others[0] != 0).all() and [np.flatnonzero(row).tolist() for row in others[1:]] == [[0], [11], [22], [], [], []]
    wide = x[:4].astype(np.float64)
    products = [[np.prod(np.delete(row, k)) for k in range(23)] for row in wide]
    np.testing.assert_allclose(others[:4], dy[:4].astype(np.float64) * products, rtol=4 * np.finfo(np.float16).eps)
    assert on_ranks(PROD, {"dy": dy, "x": x, "y": y}, 1, ends).tobytes() == made.tobytes()


def test_products_that_leave_the_range() -> None:
    """The product of all overflows or vanishes on one rank and in the whole; that of the others can be represented."""
    x = np.array([[1e30, 1e30, 1e-30, 1e-30, 2, 1e38, 0.5, 3e-38], [1e-30, 1e-30, 1e-25, 1, 1e30, 1e30, 1e20, 1e-10]], np.float32)
    y = nb.reduce_prod(x, 1)
    made = on_ranks(PROD, {"dy": np.ones_like(y), "x": x, "y": y}, 1, [0, 2, 2, 5, 8])
    products = [[np.prod(np.delete(row.astype(np.float64), k)) for k in range(8)] for row in x]
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(made, np.float32(products), rtol=1e-5, atol=1e-44)


def test_a_mean_far_from_zero_keeps_its_digits() -> None:
    x = (1e6 + np.random.default_rng(3).integers(-8, 8, (2, 23))).astype(np.float32)
    given = {"dy": np.ones((2, 1), np.float32), "x": x, "y": nb.reduce_var(x, 1)}
    right = 2 * (x - x.astype(np.float64).mean(1, keepdims=True)) / 22
    np.testing.assert_allclose(on_ranks("reduce_var_backward", given, 1), right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_results_without_reduced_axes(name: str) -> None:
    """``dy`` and ``y`` as ``keepdims=False`` gives them; where x is not used, its shape alone."""
    given = operands(name, (3, 23), 1, "f32")
    flat = given | {"dy": given["dy"][:, 0].copy(), "y": given["y"][:, 0].copy()}
    assert on_ranks(name, flat, 1).tobytes() == on_ranks(name, given, 1).tobytes()
    if len(nb.OPS[name].operands) == 2:
        shaped = InProcessCommunicator.run(3, lambda comm: getattr(distributed, name)(given["dy"], axis=1, input_shape=(3, comm.rank), group=comm))
        assert [each.shape for each in shaped] == [(3, 0), (3, 1), (3, 2)]
        assert np.array_equal(shaped[1], getattr(nb, name)(given["dy"], axis=1, input_shape=(3, 3))[:, :1])


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda rank: {"y": np.zeros((2, 2), np.float32)}, "y has shape [2, 2], wants [2, 1]"),
        (lambda rank: {"dy": np.zeros((2, 1), np.float64)} if rank else {}, "x is float32, wants float64"),
        (lambda rank: {"y": None} if rank else {}, "y is missing, wants dy, x, y"),
        (lambda rank: {"axis": ()}, "axis is (), wants an axis, of which ranks have parts, or several"),
        (lambda rank: {"axis": rank}, "axis is [1] on rank 1, wants [0], as on rank 0"),
        (lambda rank: {"x": np.zeros((2 + rank, 3), np.float32), **dict.fromkeys(("dy", "y"), np.zeros((2 + rank, 1), np.float32))},
         "other extents of x is [3] on rank 1, wants [2], as on rank 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_on_all_ranks(wrong: Any, message: str) -> None:
    def work(comm: InProcessCommunicator) -> Any:
        row = np.zeros((2, 1), np.float32)
        given = {"dy": row, "x": np.zeros((2, 3), np.float32), "y": row, "axis": 1} | wrong(comm.rank)
        if given["axis"] != 1:
            given |= dict.fromkeys(("dy", "y"), np.zeros((1, 3) if given["axis"] == 0 else (2, 3), np.float32))
        return distributed.reduce_prod_backward(**given, group=comm)  # type: ignore[attr-defined]

    for failure in InProcessCommunicator.run(2, work, timeout=20):
        assert isinstance(failure, nb.InvalidProblem) and message in str(failure), failure
