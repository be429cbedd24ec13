"""Reductions and scans of axes that are divided among ranks, against the same op on one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.core.dtypes import element, numpy_dtype
from numba_baracuda.distributed import InProcessCommunicator
from numba_baracuda.distributed.axis import REDUCTIONS, SCANS

#: ends of the parts of 23 positions: uneven, the first is empty
PARTS = [0, 0, 9, 10, 23]


def data(shape: tuple[int, ...], value: str, seed: int = 5) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(numpy_dtype(value))


def on_ranks(name: str, x: Any, axis: int, reduced: Any = None, ends: list[int] = PARTS, **options: Any) -> list[Any]:
    """What each rank gets that has a part of x along ``axis``."""

    def work(comm: InProcessCommunicator) -> Any:
        own = x[(slice(None),) * axis + (slice(ends[comm.rank], ends[comm.rank + 1]),)].copy()
        return getattr(distributed, name)(own, axis if reduced is None else reduced, group=comm, **options)

    made = InProcessCommunicator.run(len(ends) - 1, work, timeout=20)
    for each in made:
        if isinstance(each, BaseException):
            raise each
    return made


def close(got: Any, right: Any, value: str, terms: int) -> None:
    """Both are within the tolerance of sums of positive ``terms`` of about 1."""
    got, right = (np.asarray(each, np.float64) for each in (got, right))
    assert got.shape == right.shape
    with np.errstate(invalid="ignore"):
        off = np.where(got == right, 0, abs(got - right) - 2 * element(value).tolerance(terms) * (1 + abs(right)))
    assert np.max(off) <= 0


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("value", ["f32", "bf16", "f64"])
def test_reductions(name: str, value: str) -> None:
    """Along rows and along columns; every rank has the same bits."""
    for shape, axis in (((3, 23), 1), ((23, 5), 0)):
        x = data(shape, value)
        made = on_ranks(name, x, axis)
        right = getattr(nb, name)(x, axis)
        for each in made:
            assert each.dtype == right.dtype and each.shape == right.shape and each.tobytes() == made[0].tobytes()
        close(made[0], right, value, 23)


def test_several_axes_and_no_kept_ones() -> None:
    x = data((4, 23, 3), "f32")
    close(on_ranks("reduce_std", x, 1, (0, 1), keepdims=False, correction=0)[2], nb.reduce_std(x, (0, 1), False, correction=0), "f32", 92)
    close(on_ranks("reduce_mean", x, 1, None, keepdims=True)[0], nb.reduce_mean(x, 1), "f32", 92)


def test_variances_far_from_zero_keep_their_digits() -> None:
    """States are less an origin of each rank, which the merge takes into account."""
    rng = np.random.default_rng(3)
    x = (1e6 + np.rint(rng.standard_normal((2, 23)) * 8)).astype(np.float32)
    made = on_ranks("reduce_var", x, 1)[3]
    np.testing.assert_allclose(made, np.var(x.astype(np.float64), axis=1, ddof=1, keepdims=True), rtol=1e-5)


def test_numbers_that_are_none_reach_every_rank() -> None:
    x = data((2, 23), "f32")
    x[0, 20], x[1, 3] = np.nan, np.inf
    made = on_ranks("reduce_max", x, 1)[0]
    assert np.isnan(made[0]) and made[1] == np.inf


@pytest.mark.parametrize("name", ["reduce_argmax", "reduce_argmin"])
@pytest.mark.parametrize("value", ["f16", "f64", "i32", "i64", "u8"])
def test_indices_count_along_all_ranks(name: str, value: str) -> None:
    """The first of equal elements, or the first NaN, whichever rank has it; of several axes in C order."""
    x = np.random.default_rng(3).integers(1, 4, (2, 23, 4)).astype(numpy_dtype(value))
    if value[0] == "f":
        x[1, 12, 2] = x[1, 20, 2] = np.nan
    for ends in ([0, 23], PARTS, [0, 0, 2, 2, 5, 11, 12, 22, 23]):
        for axis, dtype in ((1, None), ((1, 2), "int32")):
            right = getattr(nb, name)(x, axis, dtype=dtype)
            for each in on_ranks(name, x, 1, axis, ends, dtype=dtype):
                assert each.dtype == right.dtype and np.array_equal(each, right)


def test_an_index_of_no_elements_is_an_error() -> None:
    for failure in InProcessCommunicator.run(2, lambda comm: distributed.reduce_argmax(np.zeros((2, 0)), 1, group=comm)):  # type: ignore[attr-defined]
        assert isinstance(failure, nb.InvalidProblem) and "wants at least one element along the reduced axes" in str(failure)


def test_unknown_options() -> None:
    for failure in InProcessCommunicator.run(2, lambda comm: distributed.reduce_sum(np.zeros((2, 1)), 1, group=comm, correction=0)):  # type: ignore[attr-defined]
        assert isinstance(failure, nb.InvalidProblem) and "correction" in str(failure)


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("value", ["f32", "bf16"])
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"exclusive": True}], ids=str)
def test_scans(name: str, value: str, options: dict[str, bool]) -> None:
    for shape, axis in (((3, 23), 1), ((23, 5), 0), ((2, 23, 4), 1)):
        x = data(shape, value)
        got = np.concatenate(on_ranks(name, x, axis, **options), axis)
        close(got, getattr(nb, name)(x, axis, **options), value, 23)


@pytest.mark.parametrize("shape", [(1, 9000), (9000, 1), (3, 8192)])
def test_scans_of_many_tiles(shape: tuple[int, int]) -> None:
    """Several blocks share a row or a column."""
    x, axis = data(shape, "f32"), int(shape[1] > 8000)
    got = np.concatenate(on_ranks("cumsum", x, axis, ends=[0, 4000, shape[axis]]), axis)
    close(got, np.cumsum(x.astype(np.float64), axis), "f32", shape[axis])


def test_ranks_that_disagree() -> None:
    def work(comm: InProcessCommunicator) -> Any:
        return distributed.reduce_sum(np.zeros((2 + comm.rank, 3), np.float32), 1, group=comm)  # type: ignore[attr-defined]

    for failure in InProcessCommunicator.run(2, work):
        assert isinstance(failure, nb.InvalidProblem)
        assert str(failure) == "reduce_sum: other extents of x is [3] on rank 1, wants [2], as on rank 0"


@pytest.mark.parametrize(
    "options, message",
    [
        (lambda rank: {"keepdims": bool(rank)}, "keepdims is true on rank 1, wants false, as on rank 0"),
        (lambda rank: {"correction": 2 + rank}, "correction is 3.0 on rank 1, wants 2.0, as on rank 0"),
        (lambda rank: {"axis": rank}, "axis is [1] on rank 1, wants [0], as on rank 0"),
        (lambda rank: {"x": np.zeros((2, 2), np.float64 if rank else np.float32)}, "dtype of x is float64 on rank 1, wants float32, as on rank 0"),
        (lambda rank: {"keepdims": 1}, "keepdims is 1, wants True or False"),
        (lambda rank: {"axis": ()}, "axis is (), wants an axis, of which ranks have parts, or several"),
    ],
)
def test_options_that_disagree(options: Any, message: str) -> None:
    def work(comm: InProcessCommunicator) -> Any:
        given = {"x": np.zeros((2, 2), np.float32), "axis": 1} | options(comm.rank)
        return distributed.reduce_var(**given, group=comm)  # type: ignore[attr-defined]

    for failure in InProcessCommunicator.run(2, work, timeout=20):
        assert isinstance(failure, nb.InvalidProblem) and message in str(failure), failure


def test_a_scan_of_strided_memory_is_refused_after_others() -> None:
    def work(comm: InProcessCommunicator) -> Any:
        distributed.cumsum(np.zeros((3, 3), np.float32), group=comm)  # type: ignore[attr-defined]
        return distributed.cumsum(np.zeros((3, 3), np.float32).T, group=comm)  # type: ignore[attr-defined]

    for failure in InProcessCommunicator.run(2, work, timeout=20):
        assert isinstance(failure, nb.Unsupported) and "x has strides [1, 3], wants contiguous memory" in str(failure)


@pytest.mark.parametrize("ranks", [3, 8, 64])
def test_many_ranks(ranks: int) -> None:
    """Some of 64 ranks have nothing."""
    x, ends = data((2, 40), "f32"), [min(-(-40 // ranks) * rank, 40) for rank in range(ranks)] + [40]
    close(on_ranks("reduce_var", x, 1, ends=ends)[ranks // 2], nb.reduce_var(x, 1), "f32", 40)
    close(np.concatenate(on_ranks("cumsum", x, 1, ends=ends), 1), nb.cumsum(x, 1), "f32", 40)
