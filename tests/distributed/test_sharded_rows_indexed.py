"""Ops of segments whose rows are divided among ranks, each of which gives a ``SegmentIndex`` of its own rows in place of ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_sharded_rows as rows

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.distributed import InProcessCommunicator
from numba_baracuda.distributed.rows import FUNCTIONS

X, IDS = np.ones((4, 2), np.float32), np.array([0, 0, 1, 3])


def on_ranks(name: str, ends: list[int], indexed: bool, ids: Any, **options: Any) -> list[Any]:
    """The results of three calls of each rank, with ids or with one index of them, for which no number of segments is given."""
    given, op = rows.operands(name, "f32", ids), nb.OPS[name]
    by_row = {operand.name for operand in op.operands[:-1] if operand.axes[0] == "num_inputs"}
    needed = len(by_row) == len(given) and not indexed

    def work(comm: InProcessCommunicator) -> Any:
        own = slice(ends[comm.rank], ends[comm.rank + 1])
        mine = {key: each[own].copy() if key in by_row else each for key, each in given.items()}
        if indexed:
            mine["segment_ids"] = nb.SegmentIndex(mine["segment_ids"], rows.SEGMENTS)
        made = [getattr(distributed, name)(*mine.values(), *[rows.SEGMENTS] * needed, group=comm, **options) for _ in range(3)]
        assert all(np.array_equal(each, made[0], equal_nan=True) for each in made)
        return made[0]

    made = InProcessCommunicator.run(len(ends) - 1, work, timeout=60)
    for each in made:
        if isinstance(each, BaseException):
            raise each
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_index_gives_what_ids_give(name: str) -> None:
    """Of all segments and of parts of them, and gradients; of ranks of whose ids some ascend, and some have no rows."""
    results: list[dict[str, Any]] = [{"result": result} for result in ("replicated", "sharded")] if name in rows.BY_SEGMENT else [{}]
    ids = rows.ids_of(name)
    ids[:9].sort()
    for ends in rows.WAYS:
        for options in results:
            right, made = (on_ranks(name, ends, indexed, ids, **options) for indexed in (False, True))
            for a, b in zip(right, made, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ranks", [3, 8, 64])
def test_many_ranks(ranks: int) -> None:
    ends = [min(-(-rows.ROWS // ranks) * rank, rows.ROWS) for rank in range(ranks)] + [rows.ROWS]
    for name in ("segment_mean", "unsorted_segment_logsumexp"):
        right, made = (on_ranks(name, ends, indexed, rows.ids_of(name)) for indexed in (False, True))
        np.testing.assert_allclose(made[0], right[0], rtol=1e-5)
        assert all(each.tobytes() == made[0].tobytes() for each in made)


def test_an_index_of_offsets_and_of_nothing() -> None:
    """Offsets are of a rank's own rows; there may be no segments at all."""

    def work(comm: InProcessCommunicator) -> Any:
        offsets = np.array([[0, 2, 2, 4, 4], [0, 0, 0, 1, 4]][comm.rank])
        index = nb.SegmentIndex.from_offsets(offsets, 4)
        nothing = nb.SegmentIndex(np.full(4, 7), 0)
        return [getattr(distributed, f"{prefix}segment_sum")(X, each, group=comm) for each in (index, nothing) for prefix in ("", "unsorted_")]

    for sorted_sums, sums, *nothing in InProcessCommunicator.run(2, work, timeout=20):
        assert sorted_sums[:, 0].tolist() == sums[:, 0].tolist() == [2, 0, 3, 3]
        assert [each.shape for each in nothing] == [(0, 2), (0, 2)]


def test_counts_of_an_index_are_those_that_ranks_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is counted, and nothing sorted: of a count alone no op of rows runs."""
    ran: list[str] = []

    def work(comm: InProcessCommunicator) -> Any:
        index = nb.SegmentIndex(IDS, 4, True)
        return distributed.unsorted_segment_mean_backward(np.ones((4, 2), np.float32), index, group=comm)  # type: ignore[attr-defined]

    real = distributed.segments.function
    monkeypatch.setattr(distributed.segments, "function", lambda name: ran.append(name) or real(name))
    made = InProcessCommunicator.run(2, work, timeout=20)
    assert not ran and all(each[:, 0].tolist() == [0.25, 0.25, 0.5, 0.5] for each in made)


@pytest.mark.parametrize(
    "name, index, segments, message",
    [
        ("segment_sum", lambda rank: nb.SegmentIndex(IDS[::-1].copy(), 4, False), None,
         "segment_sum: segment_ids is a permuted SegmentIndex, wants a sorted one, as ids ascend along all ranks"),
        ("unsorted_segment_sum", lambda rank: nb.SegmentIndex(IDS[: 4 - rank], 4), None,
         "unsorted_segment_sum: segment_ids has shape [3], wants [4], an id for each row of input"),
        ("unsorted_segment_sum", lambda rank: nb.SegmentIndex(IDS, 4), 5,
         "unsorted_segment_sum: num_segments is 5, wants 4 as segment_ids, a SegmentIndex, says"),
        ("unsorted_segment_sum", lambda rank: nb.SegmentIndex(IDS, 4 + rank), None, "unsorted_segment_sum: num_segments is 5 on rank 1, wants 4"),
        ("unsorted_segment_sum", lambda rank: nb.SegmentIndex(IDS, 4) if rank else IDS, 4,
         "unsorted_segment_sum: segment_ids is a SegmentIndex on rank 1, wants an array, as on rank 0"),
        ("unsorted_segment_sum", lambda rank: IDS, None, "num_segments is None, wants the number of segments, or for segment_ids a SegmentIndex"),
        ("unsorted_segment_sum", lambda rank: IDS.astype(np.float32), 4, "index is f32, wants one of i32, i64"),
        ("unsorted_segment_sum_backward", lambda rank: nb.SegmentIndex(IDS, 3), None, "d_output is f32[4, 2], wants f32[3, 2]"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_on_all_ranks(name: str, index: Any, segments: Any, message: str) -> None:
    def work(comm: InProcessCommunicator) -> Any:
        return getattr(distributed, name)(X, index(comm.rank), *([] if segments is None else [segments]), group=comm)

    for failure in InProcessCommunicator.run(2, work, timeout=20):
        assert isinstance(failure, (nb.InvalidProblem, nb.Unsupported)) and message in str(failure), failure


def test_one_rank_whose_ids_ascend_now_and_then() -> None:
    """That is no other class of calls, of which ranks would have to agree again."""

    def work(comm: InProcessCommunicator) -> Any:
        orders = [IDS, IDS[::-1].copy()] if comm.rank else [IDS, IDS]
        return [distributed.unsorted_segment_sum(X, nb.SegmentIndex(ids, 4), group=comm)[:, 0].tolist() for ids in orders]  # type: ignore[attr-defined]

    assert InProcessCommunicator.run(2, work, timeout=20) == [[[4, 2, 0, 2]] * 2] * 2
