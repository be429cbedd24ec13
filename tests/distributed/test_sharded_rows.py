"""Segments whose rows are divided among ranks, against the same op on one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.core.dtypes import element, numpy_dtype
from numba_baracuda.distributed import InProcessCommunicator
from numba_baracuda.distributed.rows import FUNCTIONS

#: ends of the parts of 31 rows: uneven, the second is empty
PARTS, SEGMENTS = [0, 9, 9, 10, 31], 7


def problem(value: str, columns: tuple[int, ...] = (3,)) -> tuple[Any, Any]:
    """Rows, and ids of which some are out of range; a segment is empty, another has rows on one rank alone."""
    rng = np.random.default_rng(4)
    x, ids = rng.uniform(0.5, 1.5, (31, *columns)), rng.integers(-1, SEGMENTS + 1, 31)
    ids[(ids == 2) | (ids == 5)] = 3
    ids[20] = 5
    whole = np.dtype(numpy_dtype(value)).kind == "i"
    return (x * (10 if whole else 1)).astype(numpy_dtype(value)), ids


def on_ranks(name: str, x: Any, ids: Any, **options: Any) -> list[Any]:
    def work(comm: InProcessCommunicator) -> Any:
        own = slice(PARTS[comm.rank], PARTS[comm.rank + 1])
        return getattr(distributed, name)(x[own].copy(), ids[own].copy(), SEGMENTS, group=comm, **options)

    made = InProcessCommunicator.run(len(PARTS) - 1, work, timeout=20)
    for each in made:
        if isinstance(each, BaseException):
            raise each
    return made


def close(got: Any, right: Any, value: str) -> None:
    got, right = (np.asarray(each, np.float64) for each in (got, right))
    assert got.shape == right.shape
    with np.errstate(invalid="ignore"):
        off = np.where(got == right, 0, abs(got - right) - 2 * element(value).tolerance(31) * (1 + abs(right)))
    assert np.max(off) <= 0


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("value", ["f32", "bf16"])
def test_segments(name: str, value: str) -> None:
    """Replicated, with the same bits on every rank, or sharded by segment."""
    x, ids = problem(value)
    right = getattr(nb, name)(x, ids, SEGMENTS)
    whole = on_ranks(name, x, ids)
    for each in whole:
        assert each.dtype == x.dtype and each.tobytes() == whole[0].tobytes()
    close(whole[0], right, value)
    close(np.concatenate(on_ranks(name, x, ids, result="sharded")), right, value)


def test_integers_and_options() -> None:
    x, ids = problem("i32", ())
    for name in ("unsorted_segment_sum", "unsorted_segment_max", "unsorted_segment_prod"):
        assert np.array_equal(on_ranks(name, x, ids)[1], getattr(nb, name)(x, ids, SEGMENTS))
    x, ids = problem("f32")
    close(on_ranks("unsorted_segment_min", x, ids, empty=-3)[2], nb.unsorted_segment_min(x, ids, SEGMENTS, empty=-3), "f32")
    close(on_ranks("unsorted_segment_var", x, ids, correction=0)[2], nb.unsorted_segment_var(x, ids, SEGMENTS, correction=0), "f32")


def test_ranks_that_disagree() -> None:
    def work(comm: InProcessCommunicator) -> Any:
        return distributed.unsorted_segment_max(np.zeros((2, 3), np.float32), np.zeros(2 + comm.rank, np.int64), 4, group=comm)  # type: ignore[attr-defined]

    for rank, failure in enumerate(InProcessCommunicator.run(2, work, timeout=20)):
        message = "unsorted_segment_max: segment_ids has shape [3], wants [2], an id for each row of input"
        assert isinstance(failure, nb.InvalidProblem) and str(failure) == ("" if rank else "rank 1: ") + message
