"""Ids that crowd: which of them a block finds, and that it adds to global memory once for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kinds import Kind
from numba import cuda
from numba.cuda import types

from numba_baracuda.core.op import Target
from numba_baracuda.emulator import emulator as emulation
from numba_baracuda.emulator.memory import Pointer
from numba_baracuda.plans.tuning import using
from numba_baracuda.segment.kernels import count_ids, scatter_rows
from numba_baracuda.segment.kernels.crowds import SLOTS, sector_shift, slot_of, table_of
from numba_baracuda.segment.policy import Crowds, ScatterRows
from numba_baracuda.segment.policy_of import sampled_rows, scatter_blocks

THREADS, GONE = 64, -1
CARD = Target((9, 0), 132, 50 << 20)


def found_in(ids: Any, capacity: int = SLOTS, shift: int = 0, least: int = 0, last: int = 1 << 30, other: int = GONE) -> list[int] | None:
    """The ids of a table that a block makes of four rows of each thread, each at its place; None where it makes none."""
    slots_and_one, (find, place_of) = SLOTS + 1, table_of("i32", THREADS, 4, capacity, shift)

    def kernel(ids: Any, rows: Any, least: Any, last: Any, other: Any, asked: Any, number: Any, found: Any, places: Any) -> None:
        keys = cuda.shared.array(SLOTS, types.int32)
        numbers = cuda.shared.array(slots_and_one, types.int32)
        if find(ids, types.int64(cuda.threadIdx.x), THREADS, rows, 1, least, last, other, keys, numbers):
            k = cuda.threadIdx.x
            if k == 0:
                found[0] = 1
            while k < number:
                places[k] = place_of(keys, numbers, asked[k])
                k += THREADS

    pointer, asked = types.CPointer(types.int32), np.arange(int(ids.max()) + 20, dtype=np.int32)
    found, places = np.zeros(1, np.int32), np.full(len(asked), -7, np.int32)
    arguments = [ids, len(ids), least, last, other, asked, len(asked), found, places]
    numbers = (types.int64, types.int32, types.int32, types.int32, pointer, types.int64, pointer, pointer)
    emulation.run(kernel, (pointer, *numbers), 1, THREADS, arguments, mode=emulation.Mode(3))
    if not found[0]:
        assert (places == -7).all()
        return None
    there = places >= 0
    assert len(set(places[there])) == there.sum() and places.max(initial=-1) < capacity << shift
    return [int(each) for each in asked[there]]


def rows_of(counts: dict[int, int], others: int = 10_000) -> Any:
    """As many rows of each id, and 256 in all, of which the others have an id of their own, in an order drawn at random."""
    ids = np.repeat(list(counts), list(counts.values())).astype(int)
    ids = np.concatenate([ids, others + 3 * np.arange(4 * THREADS - len(ids))])
    return np.random.default_rng(1).permutation(ids).astype(np.int32)


def test_a_block_finds_ids_of_many_rows_only() -> None:
    found = found_in(rows_of({7: 40, 9000: 20, 12: 12, 3: 4, 5: 3, 6: 2}))
    assert found is not None and set(found) == {7, 9000, 12, 3}


def test_ids_of_few_rows_make_no_table() -> None:
    assert found_in(rows_of({}, 0)) is None
    assert found_in(rows_of({7: 3, 8: 3, 9: 3})) is None
    assert found_in(rows_of({7: 4})) is None  # fewer than one of eight threads has such a row


@pytest.mark.parametrize(("bounds", "wanted"), [({"least": 9}, {12, 60}), ({"last": 12}, {7, 12}), ({"last": 59}, {7, 12}), ({"other": 12}, {7, 60})])
def test_ids_that_are_not_for_the_table(bounds: dict[str, int], wanted: set[int]) -> None:
    found = found_in(rows_of({7: 40, 12: 40, 60: 40}), **bounds)
    assert found is not None and set(found) == wanted


def test_a_full_table_has_no_more_ids_than_it_may() -> None:
    found = found_in(rows_of(dict.fromkeys(range(8), 32)), capacity=4)
    assert found is not None and len(found) == 4


def test_neighbours_crowd_together() -> None:
    found = found_in(rows_of({16: 3, 17: 3, 19: 20, 23: 2, 40: 2, 41: 2, 80: 2}), shift=3)
    assert found == [*range(16, 24), *range(40, 48)]


@pytest.mark.parametrize(("size", "shift"), [(4, 3), (8, 2), (16, 1), (32, 0), (64, 0), (12, 0), (24, 0), (1, 5)])
def test_ids_of_a_sector(size: int, shift: int) -> None:
    assert sector_shift(size) == shift


def test_slots_differ_between_blocks() -> None:
    def kernel(slots: Any) -> None:
        for k in range(64):
            slots[cuda.blockIdx.x * 64 + k] = slot_of(types.int32(k))

    slots = np.zeros(16 * 64, np.int32)
    emulation.run(kernel, (types.CPointer(types.int32),), 16, 1, [slots])
    slots = slots.reshape(16, 64)
    assert slots.min() >= 0 and slots.max() < SLOTS
    assert len(set(map(bytes, slots))) == 16
    meet = [{(i, j) for i in range(64) for j in range(i) if block[i] == block[j]} for block in slots]
    assert not set.intersection(*meet)


@pytest.mark.parametrize(
    ("rows", "row_bytes", "update", "sampled"),
    [
        (67_000_000, 4, "add", 8), (67_000_000, 4, "factor", 8), (67_000_000, 4, "max", 0), (67_000_000, 4, "min", 0), (2_000_000, 4, "add", 2),
        (1_000_000, 4, "add", 0), (1_048_576, 4, "add", 2), (9_000_000, 16, "add", 4), (100_000, 64, "add", 2), (100_000, 1024, "add", 2),
        (100_000, 1028, "add", 0), (0, 4, "add", 0),
    ],
)  # fmt: skip
def test_where_blocks_look(rows: int, row_bytes: int, update: str, sampled: int) -> None:
    """Not for extremes, few bytes, or wide rows; at more rows where a block has many."""
    assert sampled_rows(rows, row_bytes, update, CARD.multiprocessors) == sampled
    with using(Crowds, most_sampled=2):
        assert sampled_rows(rows, row_bytes, update, CARD.multiprocessors) == min(sampled, 2)


def test_resident_blocks_of_the_measured_architecture() -> None:
    assert [scatter_blocks(CARD, "add", *of) for of in ((4, 1, 1), (8, 1, 1), (4, 2, 1), (4, 8, 1), (4, 1, 2))] == [6, 0, 5, 0, 0]
    assert [scatter_blocks(CARD, "max", *of) for of in ((4, 1, 1), (8, 1, 1), (4, 4, 1), (8, 4, 1), (4, 1, 2))] == [5, 4, 4, 0, 0]
    assert [scatter_blocks(CARD, "first_min", 8, vector, 1) for vector in (1, 2, 4)] == [5, 4, 0]
    assert scatter_blocks(CARD, "factor", 4, 1, 1) == scatter_blocks(Target((8, 0), 108, 40 << 20), "add", 4, 1, 1) == 0
    assert ScatterRows().min_blocks_per_multiprocessor == 0


def power_law(rows: int, segments: int) -> Any:
    return np.minimum(np.random.default_rng(5).zipf(1.4, rows) - 1, segments - 1).astype(np.int32)


@pytest.fixture
def updates(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many atomic updates there were of each memory."""
    made, true = dict[str, int](), Pointer.update

    def counted(self: Pointer, lane: Any, index: int, *given: Any) -> Any:
        made[self.memory.name] = made.get(self.memory.name, 0) + 1
        return true(self, lane, index, *given)

    monkeypatch.setattr(Pointer, "update", counted)
    return made


@pytest.mark.parametrize("sampled", [0, 4])
def test_updates_of_global_memory(updates: dict[str, int], sampled: int) -> None:
    """The most frequent id is folded in registers, all others that crowd in shared memory: a block updates each of them once."""
    rows, segments = 4000, 40
    common: dict[str, Any] = {"update": "add", "value": "f32", "index": "i32", "about": "", "pairs": "", "guarded": False}
    kernel = scatter_rows(**common, sampled=sampled, vector=1, lanes=1, cut=False, dims=1)
    ids, x, y = power_law(rows, segments), np.ones(rows, np.float32), np.zeros(segments, np.float32)
    unused, axes = np.zeros(1, np.float32), [(1,)] * 4
    given = [x, x, ids, unused, np.zeros(1, np.int32), y, rows, 1, 1, 0, segments, 3, 1, 1, 1, 1, *axes]
    emulation.run(kernel.py_func, kernel.types, 1, 256, given)
    np.testing.assert_array_equal(y, np.bincount(ids, minlength=segments))
    made = updates["argument 5"]
    frequent = np.bincount(ids).max()
    if sampled:
        assert made < rows // 20
    else:
        assert made == rows - frequent + 1


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("sampled", [0, 4])
def test_updates_of_counts(updates: dict[str, int], sampled: int, shares: bool) -> None:
    rows, segments = 6000, 40
    kernel = count_ids(index="i32", count="i64", guarded=False, sampled=sampled, shares=shares)
    ids, counts = power_law(rows, segments), np.full(segments, 1 << 40)
    emulation.run(kernel.py_func, kernel.types, 1, 256, [ids, np.zeros(1, np.int32), counts, rows, 1, segments - 1, 1])
    wanted = np.bincount(ids, minlength=segments)
    wanted[[0, segments - 1]] = 0
    np.testing.assert_array_equal(counts - (1 << 40), wanted)
    made = updates["argument 2"]
    assert made < rows // 20 if sampled else made > rows // 20
