"""Ops of segments whose rows are divided among ranks, against the truth, and against the same op on one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from references import POSITIONS, stem, truth
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.distributed import InProcessCommunicator, Pending
from numba_baracuda.distributed.rows import FUNCTIONS

ROWS, SEGMENTS = 31, 7
#: ends of the parts of 1, 3 and 8 ranks: uneven, with empty ones at the ends and between others
WAYS = ([0, 31], [0, 9, 10, 31], [0, 0, 9, 9, 10, 11, 30, 31, 31])
FORWARD = [name for name in FUNCTIONS if not name.endswith("_backward")]
BY_SEGMENT = [name for name in FORWARD if nb.OPS[name].operands[-1].axes[0] == "num_segments"]


def ids_of(name: str, seed: int = 4) -> Any:
    """Ids of which some are out of range; a segment is empty, another long, one has a single row. They ascend where the op wants it."""
    ids = np.random.default_rng(seed).integers(-1, SEGMENTS + 1, ROWS)
    ids[(ids == 2) | (ids == 5)] = 3
    ids[20] = 5
    return ids if name.startswith("unsorted") else np.sort(ids)


def operands(name: str, value: str, ids: Any, columns: tuple[int, ...] = (3,)) -> dict[str, Any]:
    """The inputs of an op, the ids last. Ties are many; factors of 0 are some."""
    op, rng = nb.OPS[name], np.random.default_rng(4)
    x = rng.integers(-3, 4, (ROWS, *columns)).astype(numpy_dtype(value)) if value[0] == "i" else rng.uniform(0.5, 1.5, (ROWS, *columns)).round(1)
    x[(x == 1.2) | (x == 0.7)] = 0
    found = {"input": x.astype(numpy_dtype(value)), "segment_ids": ids}
    if any(operand.name == "output" for operand in op.operands[:-1]):
        found["output"] = getattr(nb, name.removesuffix("_backward"))(found["input"], ids, SEGMENTS)
    for operand in op.operands[:-1]:
        if operand.name == "d_output":
            extent = ROWS if operand.axes[0] == "num_inputs" else SEGMENTS
            found["d_output"] = rng.uniform(0.5, 1.5, (extent, *columns)).astype(numpy_dtype(value))
    return {operand.name: found[operand.name] for operand in op.operands[:-1]}


def on_ranks(name: str, given: dict[str, Any], ends: list[int], group: Callable[[Any], Any] = lambda comm: comm, **options: Any) -> list[Any]:
    """What each rank gets that has a part of the rows."""
    op = nb.OPS[name]
    by_row = {operand.name for operand in op.operands[:-1] if operand.axes[0] == "num_inputs"}
    segments = [SEGMENTS] if len(by_row) == len(given) else []

    def work(comm: InProcessCommunicator) -> Any:
        own = slice(ends[comm.rank], ends[comm.rank + 1])
        mine = [each[own].copy() if key in by_row else each for key, each in given.items()]
        return getattr(distributed, name)(*mine, *segments, group=group(comm), **options)

    made = InProcessCommunicator.run(len(ends) - 1, work, timeout=60)
    for each in made:
        if isinstance(each, BaseException):
            raise each
    return made


def check(name: str, value: str, given: dict[str, Any], ends: list[int], **options: Any) -> None:
    """The results of ranks are the truth: one after another where they are of rows; else the same bits on all, or those of parts of the segments."""
    result = {"result": {"int32": "i32"}[options["dtype"]]} if "dtype" in options else {}
    right = truth(name, given, SEGMENTS, **{key: each for key, each in options.items() if key != "dtype"}, **result)
    made = on_ranks(name, given, ends, **options)
    if name not in BY_SEGMENT:
        return assert_close(np.concatenate(made), right, value, name)
    assert all(each.tobytes() == made[0].tobytes() for each in made)
    assert_close(made[0], right, value, name)
    most = -(-SEGMENTS // (len(ends) - 1))
    for rank, each in enumerate(on_ranks(name, given, ends, result="sharded", **options)):
        assert each.tobytes() == made[0][rank * most : (rank + 1) * most].tobytes()
    return None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ranks_have_what_one_process_has(name: str) -> None:
    """Ops and gradients, of 1, 3 and 8 ranks."""
    for ends in WAYS:
        check(name, "f32", operands(name, "f32", ids_of(name)), ends)


@pytest.mark.parametrize("name", FORWARD)
def test_halves_are_rounded_once(name: str) -> None:
    check(name, "bf16", operands(name, "bf16", ids_of(name)), WAYS[2])


@pytest.mark.parametrize("name", [name for name in BY_SEGMENT if not name.startswith("unsorted")])
def test_a_segment_on_many_ranks(name: str) -> None:
    """All rows of one segment, of which several ranks have nothing else; of none, of ids below and above all segments; and no rows at all."""
    for ids in (np.full(ROWS, 3), np.array([0] * 9 + [6] * 22), np.array([-1] * 10 + [7] * 21), np.array([1] * 10 + [6] * 20 + [9])):
        given = operands(name, "f32", ids)
        given["input"] -= 2  # below 0, which a rank sends where it has no rows
        check(name, "f32", given, WAYS[2])
    nothing = {key: each[:0] for key, each in given.items()}
    for each in on_ranks(name, nothing, [0, 0, 0, 0]):
        assert each.tobytes() == getattr(nb, name)(*nothing.values(), SEGMENTS).tobytes()


#: ops with an element and options that the tables above do not cross them with
OPTIONS: list[tuple[str, str, dict[str, Any]]] = [
    *((name, "i32", {}) for name in ("unsorted_segment_sum", "unsorted_segment_max", "unsorted_segment_prod", "segment_sum", "segment_min")),
    *((name, "f32", {"empty": -3}) for name in ("unsorted_segment_min", "segment_min", "segment_sum")),
    *((name, "f32", {"correction": 0}) for name in ("unsorted_segment_var", "segment_var", "segment_std_backward")),
    *((name, "f32", {"ties": ties}) for name in ("unsorted_segment_max_backward", "segment_min_backward") for ties in ("all", "even")),
    *(("segment_argmax", "i32", {}), ("segment_argmin", "f32", {"dtype": "int32", "empty": -7})),
]


@pytest.mark.parametrize("name, element, options", OPTIONS)
def test_integers_and_options(name: str, element: str, options: dict[str, Any]) -> None:
    columns = () if element == "i32" else (3,)
    check(name, element, operands(name, element, ids_of(name), columns), WAYS[2 if "ties" in options else 1], **options)


@pytest.mark.parametrize("name", [f"{prefix}segment_{each}" for prefix in ("", "unsorted_") for each in ("max", "min", "logsumexp", *POSITIONS)])
def test_zeros_with_signs_infinities_and_nan(name: str) -> None:
    """The bits of one process: −0 < +0, NaN wins, and of equal elements the first, whichever rank has it."""
    given = operands(name, "f32", ids_of(name), (2,))
    x = given["input"]
    x[:] = 0.0
    x[::2, 0], x[5, 1], x[17, 1], x[21, 1], x[24, 1] = -0.0, np.inf, np.nan, -np.inf, np.nan
    right = getattr(nb, name)(*given.values(), SEGMENTS)
    for ends in WAYS:
        got = on_ranks(name, given, ends)[-1]
        if stem(name) == "logsumexp":
            np.testing.assert_allclose(got, right, rtol=1e-6)
        else:
            assert np.array_equal(got != got, right != right)
            assert np.where(right == right, got, 0).tobytes() == np.where(right == right, right, 0).tobytes()


class Watched:
    """A communicator that writes down how many bytes a rank gives to each collective."""

    def __init__(self, comm: InProcessCommunicator, given: dict[str, int]) -> None:
        self.rank, self.size, self.exchange, self._comm, self._given = comm.rank, comm.size, comm.exchange, comm, given

    def _called(self, name: str, x: Any) -> Pending:
        if self.rank == 0:
            self._given[name] = self._given.get(name, 0) + x.nbytes
        return getattr(self._comm, name)(x)

    def all_gather(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        return self._called("all_gather", x)

    def all_reduce(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        return self._called("all_reduce", x)

    def reduce_scatter(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        return self._called("reduce_scatter", x)


def test_states_of_two_segments_are_all_that_sorted_ranks_gather() -> None:
    for name, more in (("segment_softmax", {}), ("segment_var", {"all_reduce": SEGMENTS * 12})):
        bytes_of: dict[str, int] = {}
        scalars = {"segment_softmax": 2, "segment_var": 3}[name]
        on_ranks(name, operands(name, "f32", ids_of(name)), WAYS[1], lambda comm, found=bytes_of: Watched(comm, found))
        assert bytes_of == {"all_gather": 2 * (8 + 8 + 3 * 4 * scalars)} | more


@pytest.mark.parametrize("ranks", [3, 8, 64])
def test_many_ranks(ranks: int) -> None:
    """Most of 64 ranks have nothing, and a segment lies on many of the others."""
    ends = [min(-(-ROWS // ranks) * rank, ROWS) for rank in range(ranks)] + [ROWS]
    for name in ("segment_var", "unsorted_segment_sum", "unsorted_segment_max_backward"):
        check(name, "f32", operands(name, "f32", ids_of(name)), ends)


def test_ranks_that_disagree() -> None:
    def work(comm: InProcessCommunicator) -> Any:
        return distributed.unsorted_segment_max(np.zeros((2, 3), np.float32), np.zeros(2 + comm.rank, np.int64), 4, group=comm)  # type: ignore[attr-defined]

    for rank, failure in enumerate(InProcessCommunicator.run(2, work, timeout=20)):
        message = "unsorted_segment_max: segment_ids has shape [3], wants [2], an id for each row of input"
        assert isinstance(failure, nb.InvalidProblem) and str(failure) == ("" if rank else "rank 1: ") + message


@pytest.mark.parametrize(
    "options, message",
    [
        (lambda rank: {"num_segments": 4 + rank}, "num_segments is 5 on rank 1, wants 4, as on rank 0"),
        (lambda rank: {"result": ("replicated", "sharded")[rank]}, "result is sharded on rank 1, wants replicated, as on rank 0"),
        (lambda rank: {"empty": float(rank)}, "empty is 1.0 on rank 1, wants 0.0, as on rank 0"),
        (lambda rank: {"result": "all"}, "result is 'all', wants"),
    ],
)
def test_options_that_disagree(options: Callable[[int], dict[str, Any]], message: str) -> None:
    def work(comm: InProcessCommunicator) -> Any:
        named = {"num_segments": 4} | options(comm.rank)
        return distributed.segment_sum(np.zeros((2, 3), np.float32), np.zeros(2, np.int64), group=comm, **named)  # type: ignore[attr-defined]

    for failure in InProcessCommunicator.run(2, work, timeout=20):
        assert isinstance(failure, nb.InvalidProblem) and message in str(failure)
