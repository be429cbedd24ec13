"""Kernels that find out whether ids are in order, those that put them in order, and those that fill a :class:`..index.SegmentIndex`."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...core.axes import ceil_div
from ...device.atomics import red_min
from ...device.build import opaque
from ...device.vector import LOAD, LOAD_ONCE, STORE
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..tiling import THREADS, fault_launch
from .common import first_at_least, ids_launch


@jit.device
def _least_of_warp(number: Any) -> Any:
    """The least number that a lane of the warp has."""
    for k in range(5):
        number = min(number, cuda.shfl_xor_sync(-1, number, 1 << k))
    return number


@jit.kernel
def first_fault(*, index: str, ranged: bool, ordered: bool, vector: int) -> Any:
    """If ``ranged``, ``fault[0]`` = the first row whose id is outside [0, segments); if ``ordered``, ``fault[1]`` = the first whose id is less than
    the one before.

    The grid walks the ids in order. A thread has ``vector`` neighbouring ones at a time, contiguous where these are several, and stops when it has
    found what it looks for. Then each warp makes one atomic minimum. Bytes: rows · index read; hardly any where only the order is looked for and
    descents are many.

    Constants and parameters as :mod:`.` lists them, and ``ranged``: whether ids should lie in [0, segments); ``ordered``: whether they should ascend;
    ``fault`` [2]: a large number in both before the launch, which stays where there is no fault.
    """
    load, index_type = LOAD[vector], jit.SCALARS[index]

    def first_fault(
        ids: Ptr[index], fault: Ptr[int64],
        rows: int64, segments: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, index_type)
        outside = descent = int64(rows)
        first = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * vector
        while first < rows and ((ranged and outside == rows) or (ordered and descent == rows)):
            before = ids[max(first - 1, int64(0)) * ids_step]
            if vector > 1 and first + vector <= rows:
                load(ids, first, batch, 0)
            else:
                for k in range(vector):  # behind the end lies the last id again, which is no fault of its own
                    batch[k] = ids[min(first + k, rows - 1) * ids_step]
            for k in range(vector):
                if ranged and not 0 <= batch[k] < segments:
                    outside = min(outside, first + k)
                if ordered and batch[k] < before:
                    descent = min(descent, first + k)
                before = batch[k]
            first = opaque(first + int64(cuda.gridDim.x) * (THREADS * vector))
        if ranged:
            outside = _least_of_warp(outside)
            if outside < rows and cuda.laneid == 0:
                red_min(fault, 0, outside)
        if ordered:
            descent = _least_of_warp(descent)
            if descent < rows and cuda.laneid == 0:
                red_min(fault, 1, descent)

    return first_fault, lambda rows: fault_launch(rows, vector)


@jit.kernel
def sort_keys(*, index: str, key: str, row_index: str, ordered: bool, vector: int) -> Any:
    """``keys[r]`` = the id of row r, or ``segments`` where it is out of range; ``row_indices[r] = r`` unless ``row_index`` is "".

    So keys need only as many bits as ``segments`` has. A thread has ``vector`` neighbouring ids, contiguous where these are several. Bytes: rows ·
    (index + key + row_index).

    Constants and parameters as :mod:`.` lists them, and ``ordered``: whether ids ascend; then those below 0 become −1, so that they still do.
    ``keys`` [rows]; ``row_indices`` [rows]: any address where ``row_index`` is "".
    """
    key_type, numbers_rows, index_type = jit.SCALARS[key], row_index != "", jit.SCALARS[index]
    row_index_type = jit.SCALARS[row_index or "i32"]
    load, store = LOAD_ONCE[vector], STORE[vector]

    @jit.device
    def key_of(identifier: Any, segments: Any) -> Any:
        if ordered and identifier < 0:
            return key_type(-1)
        return key_type(identifier if 0 <= identifier < segments else segments)

    def sort_keys(
        ids: Ptr[index], keys: Ptr[key], row_indices: Ptr[row_index or int32],
        rows: int64, segments: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, index_type)
        batch_keys = cuda.local.array(vector, key_type)
        row = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * vector
        if vector > 1 and row + vector <= rows:
            load(ids, row, batch, 0)
            for k in range(vector):
                batch_keys[k] = key_of(int64(batch[k]), segments)
            store(keys, row, batch_keys, 0)
            if numbers_rows:
                batch_rows = cuda.local.array(vector, row_index_type)
                for k in range(vector):
                    batch_rows[k] = row_index_type(row + k)
                store(row_indices, row, batch_rows, 0)
        else:
            for k in range(vector):
                if row + k < rows:
                    keys[row + k] = key_of(int64(ids[(row + k) * ids_step]), segments)
                    if numbers_rows:
                        row_indices[row + k] = row_index_type(row + k)

    return sort_keys, lambda rows: ids_launch(ceil_div(rows, vector))


@jit.kernel
def number_rows(*, row_index: str, vector: int) -> Any:
    """``row_indices[r] = r``. A thread stores ``vector`` neighbouring ones. Bytes: rows · row_index written.

    Constants and parameters as :mod:`.` lists them, and ``row_indices`` [rows].
    """
    row_index_type, store = jit.SCALARS[row_index], STORE[vector]

    def number_rows(
        row_indices: Ptr[row_index],
        rows: int64,
    ) -> None:  # fmt: skip
        batch_rows = cuda.local.array(vector, row_index_type)
        row = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * vector
        for k in range(vector):
            batch_rows[k] = row_index_type(row + k)
        if row + vector <= rows:
            store(row_indices, row, batch_rows, 0)
        else:
            for k in range(vector):
                if row + k < rows:
                    row_indices[row + k] = batch_rows[k]

    return number_rows, lambda rows: ids_launch(ceil_div(rows, vector))


@jit.kernel
def expand_offsets(*, offset: str, index: str) -> Any:
    """``ids[r]`` = the segment s with ``offsets[s] ≤ r < offsets[s + 1]``; −1 before the first offset, ``segments`` from the last one on.

    A thread makes a binary search for each row. Bytes: rows · index written.

    Constants and parameters as :mod:`.` lists them, and ``offset``: the type of offsets; ``offsets_step``: elements from one offset to the next.
    """
    index_type = jit.SCALARS[index]

    def expand_offsets(
        offsets: Ptr[offset], ids: Ptr[index],
        rows: int64, segments: int64, offsets_step: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            ids[row] = index_type(first_at_least(offsets, offsets_step, 0, segments + 1, row + 1) - 1)

    return expand_offsets, ids_launch


@jit.kernel
def first_rows(*, index: str, row_index: str) -> Any:
    """``firsts[r]`` = the first row that has the id of row r, for ids in order; −1 where the id is below 0, ``rows`` where it is at least ``limit``.

    A thread makes a binary search for each row. Bytes: rows · (index + row_index).

    Constants and parameters as :mod:`.` lists them, and ``firsts`` [rows]: of type ``row_index``; ``limit``: an id.
    """
    row_index_type = jit.SCALARS[row_index]

    def first_rows(
        ids: Ptr[index], firsts: Ptr[row_index],
        rows: int64, limit: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            identifier = int64(ids[row * ids_step])
            first = first_at_least(ids, ids_step, 0, row, identifier)
            if identifier < 0:
                first = int64(-1)
            elif identifier >= limit:
                first = int64(rows)
            firsts[row] = row_index_type(first)

    return first_rows, ids_launch
