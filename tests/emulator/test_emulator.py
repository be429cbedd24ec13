"""The emulator as a machine: registers, collectives, atomics, memory, and the order in which lanes run."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda
from numba.cuda import types
from numba.cuda.types import CPointer, float32, int8, int32, int64, uint8

from numba_baracuda.device.vector import LOAD, STORE
from numba_baracuda.emulator import emulator, program
from numba_baracuda.emulator.emulator import Deadlock, Mode
from numba_baracuda.emulator.memory import Memory, MemoryFault
from numba_baracuda.emulator.races import Race
from numba_baracuda.runtime import jit

MODES = [pytest.param(Mode(), id="fast"), *(pytest.param(Mode(seed), id=f"seed-{seed}") for seed in range(3))]
INTS, LONGS, FLOATS = int32[::1], int64[::1], float32[::1]


def test_needs_no_other_import() -> None:
    """A fresh interpreter that imports ``emulator`` alone knows what ``cuda.grid`` means."""
    code = (
        "import numpy as np; from numba import cuda, types\n"
        "from numba_baracuda.emulator import emulator\n"
        "def kernel(y): y[cuda.grid(1)] = cuda.laneid\n"
        "y = np.zeros(64, np.int32); emulator.run(kernel, (types.CPointer(types.int32),), 2, 32, [y]); print(y.sum())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == [str(2 * 31 * 16)]


@pytest.mark.parametrize("mode", MODES)
def test_registers(mode: Mode) -> None:
    def kernel(y):
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        y[i] = cuda.grid(1) - i + cuda.gridsize(1) + 1000 * cuda.laneid + 100000 * cuda.gridDim.x + cuda.threadIdx.y + cuda.blockDim.z

    y = np.zeros(3 * 40, np.int64)
    emulator.run(kernel, (LONGS,), 3, 40, [y], mode=mode)
    assert list(y) == [120 + 1000 * (k % 40 % 32) + 300000 + 1 for k in range(120)]


def _shuffles(x, y, k):
    i = cuda.threadIdx.x
    value = x[i]
    y[i] = cuda.shfl_sync(-1, value, k)
    y[i + 64] = cuda.shfl_up_sync(-1, value, k)
    y[i + 128] = cuda.shfl_down_sync(0xFFFFFFFF, value, k)
    y[i + 192] = cuda.shfl_xor_sync(-1, value, k)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [0, 1, 5, 31])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_shuffles(mode: Mode, k: int, dtype: str) -> None:
    x = np.random.default_rng(k).integers(-1000, 1000, 64).astype(dtype)
    y = np.zeros(256, dtype)
    pointer = CPointer(getattr(types, dtype))
    emulator.run(_shuffles, (pointer, pointer, int32), 1, 64, [x, y, k], mode=mode)
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32
    wanted = [np.full(64, k), np.where(lane - k < 0, lane, lane - k), np.where(lane + k > 31, lane, lane + k), lane ^ k]
    np.testing.assert_array_equal(y.reshape(4, 64), [x[warp + source] for source in wanted])


@pytest.mark.parametrize("mode", MODES)
def test_votes(mode: Mode) -> None:
    def kernel(x, y):
        i = cuda.threadIdx.x
        mask = 0xFFFF if i < 16 else -65536
        y[i] = cuda.ballot_sync(-1, x[i] > 2)
        y[i + 32] = cuda.all_sync(mask, x[i] < 5)
        y[i + 64] = cuda.any_sync(mask, x[i] == 7)
        y[i + 96] = cuda.match_any_sync(mask, x[i])
        y[i + 128] = cuda.popc(cuda.ballot_sync(-1, x[i] > 2)) * 100 + cuda.ffs(cuda.ballot_sync(-1, x[i] > 2))

    x = np.array([0, 1, 2, 3] * 4 + [4, 7, 4, 7] * 4, np.int32)
    y = np.zeros(160, np.int32)
    emulator.run(kernel, (INTS, INTS), 1, 32, [x, y], mode=mode)
    ballot = sum(1 << k for k in range(32) if x[k] > 2)
    assert set(y[:32]) == {ballot - (1 << 32)}
    assert list(y[32:64]) == [1] * 16 + [0] * 16
    assert list(y[64:96]) == [0] * 16 + [1] * 16
    match = [sum(1 << j for j in range(k // 16 * 16, k // 16 * 16 + 16) if x[j] == x[k]) for k in range(32)]
    assert list(y[96:128].view(np.uint32)) == match
    assert set(y[128:]) == {ballot.bit_count() * 100 + (ballot & -ballot).bit_length()}


@pytest.mark.parametrize("mode", MODES)
def test_partial_last_warp(mode: Mode) -> None:
    """A full mask means the lanes that there are."""

    def kernel(y):
        y[cuda.threadIdx.x] = cuda.ballot_sync(-1, True)

    y = np.zeros(40, np.int32)
    emulator.run(kernel, (INTS,), 1, 40, [y], mode=mode)
    assert list(y) == [-1] * 32 + [255] * 8


@pytest.mark.parametrize("mode", MODES)
def test_counting_barriers(mode: Mode) -> None:
    def kernel(y):
        i = int32(cuda.threadIdx.x)
        y[i] = cuda.syncthreads_count(int32(i % 3 == 0))
        y[i + 48] = cuda.syncthreads_and(int32(i < 47))
        y[i + 96] = cuda.syncthreads_or(int32(i == 47))

    y = np.zeros(144, np.int32)
    emulator.run(kernel, (INTS,), 1, 48, [y], mode=mode)
    assert list(y) == [16] * 48 + [0] * 48 + [1] * 48


ATOMICS = {
    "add": lambda old, x: old + x, "sub": lambda old, x: old - x, "max": max, "min": min, "exch": lambda _old, x: x,
    "and_": lambda old, x: old & x, "or_": lambda old, x: old | x, "xor": lambda old, x: old ^ x,
}  # fmt: skip


INTEGERS = ("int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("name, dtype", [*itertools.product(ATOMICS, INTEGERS), *itertools.product(("add", "max", "min"), ("float32", "float64"))])
def test_atomics(name: str, dtype: str) -> None:
    """One lane: the value left, and the value returned; integers wrap, float32 rounds."""
    scope: dict[str, Any] = {"cuda": cuda}
    exec(f"def kernel(y, x, old):\n    old[0] = cuda.atomic.{name}(y, 0, x[0])", scope)
    kind = np.dtype(dtype).type
    values = [1.1, -3.7, 1e30] if dtype[0] == "f" else [int(np.iinfo(kind).max), int(np.iinfo(kind).min), 5, 12]
    pointer = getattr(types, dtype)[::1]
    for a, b in itertools.product(values, values):
        y, x, old = (np.array([value], kind) for value in (a, b, 0))
        emulator.run(scope["kernel"], (pointer,) * 3, 1, 1, [y, x, old], mode=Mode(0))
        with np.errstate(all="ignore"):
            wanted = np.array([ATOMICS[name](np.array([a], kind)[0], np.array([b], kind)[0])], kind)
        assert (y[0], old[0]) == (wanted[0], kind(a))


@pytest.mark.parametrize("mode", MODES)
def test_atomics_by_many(mode: Mode) -> None:
    def kernel(bins, order, most):
        i = cuda.grid(1)
        cuda.atomic.add(bins, i % 3, 1)
        order[cuda.atomic.add(most, 0, 1)] = i
        cuda.atomic.max(most, 1, i)

    bins, order, most = np.zeros(3, np.int32), np.zeros(96, np.int32), np.zeros(2, np.int32)
    emulator.run(kernel, (INTS,) * 3, 3, 32, [bins, order, most], mode=mode)
    assert (list(bins), sorted(order), list(most)) == ([32] * 3, list(range(96)), [96, 95])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_copy_of_every_type(dtype: str, count: int) -> None:
    size = np.dtype(dtype).itemsize
    if count * size > 16 or dtype == "bool":
        count = 1
    load, store, element = LOAD[count], STORE[count], types.boolean if dtype == "bool" else getattr(types, dtype)

    def vectors(x, y):
        batch = cuda.local.array(count, element)
        load(x, cuda.threadIdx.x * count, batch, 0)
        store(y, cuda.threadIdx.x * count, batch, 0)

    def scalars(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, 8 * count).astype(dtype)
    for mode in (Mode(), Mode(0)):
        y = np.zeros_like(x)
        emulator.run(vectors if count > 1 else scalars, (CPointer(element),) * 2, 1, 8, [x, y], mode=mode)
        np.testing.assert_array_equal(x, y)


def test_strided_operands_have_gaps() -> None:
    """Bytes between the elements of an operand do not belong to it."""

    def kernel(x, step):
        x[cuda.threadIdx.x * step] = cuda.threadIdx.x

    base = np.full((4, 3), -1, np.int32)
    emulator.run(kernel, (CPointer(int32), int64), 1, 4, [base[:, 1], 3])
    assert base.tolist() == [[-1, k, -1] for k in range(4)]
    for mode in (Mode(), Mode(0)):
        with pytest.raises(MemoryFault, match=r"argument 0\[1\] is out of bounds"):
            emulator.run(kernel, (CPointer(int32), int64), 1, 2, [base[:, 1], 1], mode=mode)
    reversed_rows = np.zeros(8, np.int32)
    emulator.run(kernel, (CPointer(int32), int64), 1, 8, [reversed_rows[::-1], -1])
    assert reversed_rows.tolist() == list(range(7, -1, -1))


def test_outputs_that_nobody_wrote_are_found() -> None:
    def kernel(y):
        if cuda.threadIdx.x != 2:
            y[cuda.threadIdx.x] = 1

    memory, offset = Memory.of("output", np.empty(4, np.float32), written=False)
    emulator.run(kernel, (CPointer(float32),), 1, 4, [emulator.pointer_into(memory, offset, CPointer(float32))])
    with pytest.raises(MemoryFault, match="some op: 4 bytes of output were never written"):
        memory.expect_written("some op")


@jit.device
def _staged(value, k):
    """Hands a value to the next lane through a shared array of its own."""
    shared = cuda.shared.array(32, int32)
    shared[cuda.threadIdx.x] = value
    cuda.syncthreads()
    return shared[(cuda.threadIdx.x + k) % 32]


@pytest.mark.parametrize("seed", range(3))
def test_shared_arrays_are_one_for_each_place_in_the_code(seed: int) -> None:
    """Two calls of one device function share its array, as in PTX, so the second call needs a barrier."""

    def broken(y, k):
        y[cuda.threadIdx.x] = _staged(int32(cuda.threadIdx.x), k) + _staged(int32(1), k)

    def right(y, k):
        first = _staged(int32(cuda.threadIdx.x), k)
        cuda.syncthreads()
        y[cuda.threadIdx.x] = first + _staged(int32(1), k)

    y = np.zeros(32, np.int32)
    with pytest.raises(Race):
        emulator.run(broken, (INTS, int64), 1, 32, [y, 1], mode=Mode(seed))
    emulator.run(right, (INTS, int64), 1, 32, [y, 1], mode=Mode(seed))
    assert list(y) == [(k + 1) % 32 + 1 for k in range(32)]


def test_shared_arrays_belong_to_their_block() -> None:
    def kernel(y):
        shared = cuda.shared.array(1, int32)
        if cuda.threadIdx.x == 0:
            shared[0] = cuda.blockIdx.x
        cuda.syncthreads()
        y[cuda.grid(1)] = shared[0]

    y = np.zeros(60, np.int32)
    for seed in range(3):
        emulator.run(kernel, (INTS,), 6, 10, [y], mode=Mode(seed))
        assert list(y) == [k // 10 for k in range(60)]


@pytest.mark.parametrize("mode", MODES)
def test_dynamic_shared_memory(mode: Mode) -> None:
    """All arrays of size 0 start at the same byte."""

    def kernel(y):
        floats = cuda.shared.array(0, float32)
        bytes_ = cuda.shared.array(0, uint8)
        floats[cuda.threadIdx.x] = float32(1)
        cuda.syncthreads()
        y[cuda.threadIdx.x] = bytes_[4 * cuda.threadIdx.x + 3]

    y = np.zeros(8, np.int32)
    emulator.run(kernel, (INTS,), 1, 8, [y], dynamic_shared=32, mode=mode)
    assert list(y) == [0x3F] * 8
    with pytest.raises(MemoryFault, match=r"dynamic shared memory\[\d\] is out of bounds"):
        emulator.run(kernel, (INTS,), 1, 8, [y], dynamic_shared=16, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_blocks_may_end_early_as_a_whole(mode: Mode) -> None:
    def kernel(y):
        if cuda.blockIdx.x % 2:
            return
        cuda.syncthreads()
        y[cuda.grid(1)] = 1

    y = np.zeros(5 * 8, np.int32)
    emulator.run(kernel, (INTS,), 5, 8, [y], mode=mode)
    assert list(y) == ([1] * 8 + [0] * 8) * 2 + [1] * 8


def _float_sum(x, y):
    cuda.atomic.add(y, 0, x[cuda.grid(1)])


def _summed(seed: int | None) -> float:
    x = (10.0 ** np.random.default_rng(0).uniform(-4, 4, 96)).astype(np.float32)
    y = np.zeros(1, np.float32)
    emulator.run(_float_sum, (FLOATS, FLOATS), 3, 32, [x, y], mode=Mode(seed))
    return float(y[0])


def test_a_seed_is_an_interleaving() -> None:
    sums = [_summed(seed) for seed in range(12)]
    assert sums == [_summed(seed) for seed in range(12)]
    assert len(set(sums)) > 3
    assert _summed(None) == _summed(None)


def test_lanes_are_preempted_between_accesses() -> None:
    """Some lane sees memory in between another lane's two atomic steps."""

    def kernel(y, seen):
        cuda.atomic.add(y, 0, 1)
        seen[cuda.grid(1)] = cuda.atomic.add(y, 0, 0)
        cuda.atomic.sub(y, 0, 1)

    results = set()
    for seed in range(6):
        y, seen = np.zeros(1, np.int32), np.zeros(16, np.int32)
        emulator.run(kernel, (INTS, INTS), 1, 16, [y, seen], mode=Mode(seed))
        results.add(tuple(seen))
    assert len(results) == 6
    assert max(max(seen) for seen in results) > 3


def _grid_barrier(counter, x, y):
    """Every block writes, waits for all blocks, and reads what the next one wrote."""
    x[cuda.grid(1)] = cuda.grid(1)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence()
        cuda.atomic.add(counter, 0, 1)
        while cuda.atomic.add(counter, 0, 0) < cuda.gridDim.x:
            cuda.nanosleep(20)
        cuda.threadfence()
    cuda.syncthreads()
    y[cuda.grid(1)] = x[(cuda.grid(1) + cuda.blockDim.x) % cuda.gridsize(1)]


@pytest.mark.parametrize("seed", [None, *range(4)])
def test_blocks_run_at_the_same_time(seed: int | None) -> None:
    counter, x, y = np.zeros(1, np.int32), np.zeros(32, np.int32), np.zeros(32, np.int32)
    emulator.run(_grid_barrier, (INTS,) * 3, 4, 8, [counter, x, y], mode=Mode(seed, resident=4))
    assert list(y) == [(k + 8) % 32 for k in range(32)]
    counter[0] = 0
    with pytest.raises(Deadlock, match="only spin"):
        emulator.run(_grid_barrier, (INTS,) * 3, 4, 8, [counter, x, y], mode=Mode(seed, resident=3))


def _scaled(by: Any) -> Any:
    return jit.device(lambda x: x * by)


def _shifted() -> Any:
    """Values handed on through a shared array of its own."""

    def shift(value):
        shared = cuda.shared.array(32, int32)
        shared[cuda.threadIdx.x] = value
        cuda.syncwarp()
        return shared[(cuda.threadIdx.x + 1) % 32]

    return jit.device(shift)


def test_device_functions_of_one_code_and_equal_captures_are_one() -> None:
    assert _scaled(2) is _scaled(2) and _scaled((1, 0.0)) is _scaled((1, 0.0)) and _scaled(_scaled(3)) is _scaled(_scaled(3))
    apart = [
        _scaled(by) for by in (1, 1.0, True, 0.0, -0.0, "1", None, (1, 0.0), (1, -0.0), (True, 0.0), (1,), float32, int32, _scaled(2), _scaled(3))
    ]
    assert len(set(map(id, apart))) == len(apart)


def test_device_functions_with_shared_arrays_stay_apart() -> None:
    """The second writes while other lanes may still read what the first wrote: no race, for each has an array, as in PTX."""
    one, two = _shifted(), _shifted()

    def kernel(y):
        y[cuda.threadIdx.x] = one(int32(cuda.threadIdx.x)) + two(int32(1))

    y = np.zeros(32, np.int32)
    for seed in range(3):
        emulator.run(kernel, (INTS,), 1, 32, [y], mode=Mode(seed))
        assert list(y) == [(k + 1) % 32 + 1 for k in range(32)]
    same = one

    def racing(y):
        y[cuda.threadIdx.x] = one(int32(cuda.threadIdx.x)) + same(int32(1))

    with pytest.raises(Race):
        emulator.run(racing, (INTS,), 1, 32, [y], mode=Mode(0))


def test_a_kernel_may_have_functions_of_its_own() -> None:
    def kernel(y, by):
        def scaled(k):
            return k * by

        y[cuda.threadIdx.x] = scaled(cuda.threadIdx.x) + scaled(1)

    y = np.zeros(8, np.int64)
    emulator.run(kernel, (LONGS, int64), 1, 8, [y, 3])
    assert list(y) == [3 * k + 3 for k in range(8)]


@jit.device
def _take_tile(x, tickets, shared):
    """The next tile of 32, and the sum of its elements up to this lane's."""
    lane = cuda.threadIdx.x
    if lane == 0:
        shared[0] = cuda.atomic.add(tickets, 0, 1)
    cuda.syncthreads()
    tile = shared[0]
    value = x[tile * 32 + lane]
    for k in range(5):
        other = cuda.shfl_up_sync(-1, value, 1 << k)
        if lane >= 1 << k:
            value += other
    return tile, value


def _look_back(publish_fence: bool, read_fence: bool) -> Any:
    """Inclusive sums over tiles of 32: status 1 is a tile's own sum, 2 the sum up to it."""

    def kernel(x, y, tickets, status, sums, prefixes):
        shared = cuda.shared.array(2, int64)
        lane = cuda.threadIdx.x
        tile, value = _take_tile(x, tickets, shared)
        if lane == 31:
            sums[tile] = value  # A
            if publish_fence:
                cuda.threadfence()
            cuda.atomic.exch(status, tile, 1)
            before = int64(0)
            at = tile - 1
            while at >= 0:
                found = cuda.atomic.add(status, at, 0)
                if read_fence:
                    cuda.threadfence()
                if found == 2:
                    before += prefixes[at]  # C
                    break
                if found == 1:
                    before += sums[at]  # B
                    at -= 1
            shared[1] = before
            prefixes[tile] = before + value
            if publish_fence:
                cuda.threadfence()
            cuda.atomic.exch(status, tile, 2)
        cuda.syncthreads()
        y[tile * 32 + lane] = shared[1] + value

    return kernel


def _look_back_word():
    """The same with value and status in one word, which needs no fence."""

    def kernel(x, y, tickets, words, sums, prefixes):
        shared = cuda.shared.array(2, int64)
        lane = cuda.threadIdx.x
        tile, value = _take_tile(x, tickets, shared)
        if lane == 31:
            cuda.atomic.exch(words, tile, value * 4 + 1)
            before, at = int64(0), tile - 1
            while at >= 0:
                word = cuda.atomic.add(words, at, 0)
                if word & 3:
                    before += word >> 2
                    at -= 1
                    if word & 2:
                        break
            shared[1] = before
            cuda.atomic.exch(words, tile, (before + value) * 4 + 2)
        cuda.syncthreads()
        y[tile * 32 + lane] = shared[1] + value

    return kernel


def _prefix_sums(kernel: Any, mode: Mode) -> tuple[Any, Any]:
    x = np.random.default_rng(1).integers(0, 1000, 192)
    y, tickets, status, sums, prefixes = (np.zeros(n, np.int64) for n in (192, 1, 6, 6, 6))
    emulator.run(kernel, (LONGS,) * 6, 6, 32, [x, y, tickets, status, sums, prefixes], mode=mode)
    return y, np.cumsum(x)


@pytest.mark.parametrize("kernel", [_look_back(True, True), _look_back_word()], ids=["fences", "one word"])
def test_decoupled_look_back(kernel: Any) -> None:
    for seed in (None, *range(10)):
        np.testing.assert_array_equal(*_prefix_sums(kernel, Mode(seed)))


@pytest.mark.parametrize("fences", [(False, True), (True, False), (False, False)])
def test_look_back_without_a_fence_is_a_race(fences: tuple[bool, bool]) -> None:
    kernel = _look_back(*fences)
    for seed in range(4):
        with pytest.raises(Race) as caught:
            _prefix_sums(kernel, Mode(seed))
        assert len(re.findall(r"test_emulator\.py:\d+", str(caught.value))) == 2


@jit.device
def block_sum(value, shared):
    """The sum over 256 lanes, in lane 0."""
    for k in range(5):
        value += cuda.shfl_down_sync(-1, value, 16 >> k)
    warp = cuda.threadIdx.x >> 5
    if cuda.laneid == 0:
        shared[warp] = value
    cuda.syncthreads()
    total = float32(0)
    if warp == 0:
        if cuda.laneid < 8:
            total = shared[cuda.laneid]
        for k in range(3):
            total += cuda.shfl_down_sync(-1, total, 4 >> k)
    return total


def row_sum(x, y, n):
    shared = cuda.shared.array(8, float32)
    row = int64(cuda.blockIdx.x) * n
    total = float32(0)
    i = int64(cuda.threadIdx.x)
    while i < n:
        total += x[row + i]
        i += cuda.blockDim.x
    total = block_sum(total, shared)
    if cuda.threadIdx.x == 0:
        y[cuda.blockIdx.x] = total


def _row_sum_by_numpy(x: Any) -> Any:
    """The same order of additions."""
    rows, n = x.shape
    padded = np.zeros((rows, -(-n // 256) * 256), np.float32)
    padded[:, :n] = x
    lanes = np.zeros((rows, 256), np.float32)
    for start in range(0, padded.shape[1], 256):
        lanes += padded[:, start : start + 256]
    values = lanes.reshape(rows, 8, 32)
    while values.shape[2] > 1:
        half = values.shape[2] // 2
        values = values[:, :, :half] + values[:, :, half:]
    values = values[:, :, 0]
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        values = values[:, :half] + values[:, half:]
    return values[:, 0]


@pytest.mark.parametrize("n", [1, 255, 256, 1000, 5000])
@pytest.mark.parametrize("mode", MODES[:2])
def test_block_reduction(n: int, mode: Mode) -> None:
    """Bit for bit: float32 additions in the kernel's order."""
    x = np.random.default_rng(n).standard_normal((3 if n < 5000 else 1, n)).astype(np.float32)
    y = np.zeros(len(x), np.float32)
    emulator.run(row_sum, (CPointer(float32), CPointer(float32), int64), len(x), 256, [x, y, n], mode=mode)
    np.testing.assert_array_equal(y, _row_sum_by_numpy(x))


FORMS = ("{} + {}", "{} - {}", "{} * 3 - {}", "{} ^ {}", "({} & 15) - ({} & 7)", "{} if {} > 2 else 1", "min({}, {})", "({} >> 1) + {}")


class _Writer:
    """Writes random functions of three integers; every variable has a value, and every loop ends."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.lines, self.fuel = draw, ["def function(a, b, c):", "    d = a - b", "    e = 0"], 0

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def expression(self) -> str:
        form = self.pick(
            "{} + {}", "{} - {}", "{} * 3 - {}", "{} ^ {}", "({} & 15) - ({} & 7)", "{} if {} > 2 else 1", "min({}, {})", "({} >> 1) + {}"
        )
        return form.format(*self.draw(st.lists(st.sampled_from("abcde"), min_size=2, max_size=2)))

    def block(self, depth: int, in_loop: bool) -> None:
        pad = "    " * depth
        for _ in range(self.draw(st.integers(1, 3))):
            kind = self.pick("assign", "assign", "swap", "if", "while", "for", "leave", "return") if depth < 5 else "assign"
            if kind == "swap":
                self.lines.append(f"{pad}{self.pick('a, b = b, a', 'c, d = d, a', 'a, b, e = b, e, a')}")
            elif kind == "if":
                self.lines.append(f"{pad}if {self.pick('a < b', 'c & 1', 'd == e', 'not b', 'a < c < 9 or b > 3')}:")
                self.block(depth + 1, in_loop)
                if self.pick(True, False):
                    self.lines.append(f"{pad}else:")
                    self.block(depth + 1, in_loop)
            elif kind in ("while", "for"):
                self.fuel += 1
                k = f"k{self.fuel}"
                if kind == "while":
                    self.lines += [f"{pad}{k} = 0", f"{pad}while {k} < 4 and a != {self.pick(3, 5)}:", f"{pad}    {k} += 1"]
                else:
                    self.lines += [f"{pad}for {k} in range({self.pick('3', '4, 0, -2', '0', 'b & 3')}):", f"{pad}    e += {k}"]
                self.block(depth + 1, True)
                if self.pick(True, False):
                    self.lines.append(f"{pad}else:")
                    self.block(depth + 1, in_loop)
            elif kind == "leave" and in_loop:
                self.lines += [f"{pad}if {self.pick('a > b', 'e & 2', 'c < 0')}:", f"{pad}    {self.pick('break', 'continue')}"]
            elif kind == "return" and depth > 1:
                self.lines += [f"{pad}if {self.pick('a > b + 4', 'e > 40')}:", f"{pad}    return a, b, c, d, e"]
            else:
                self.lines.append(f"{pad}{self.pick(*'abcde')} {self.pick('=', '=', '+=')} {self.expression()}")
                self.lines.append(f"{pad}{self.pick(*'abcde')} &= 63")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_control_flow(data: Any) -> None:
    """Random programs do what CPython makes of them."""
    writer = _Writer(data.draw)
    writer.block(1, False)
    scope: dict[str, Any] = {}
    exec(compile("\n".join([*writer.lines, "    return a, b, c, d, e"]), "<random>", "exec"), scope)
    function = scope["function"]
    lowered = program.entry_of(function, (int64,) * 3)
    for arguments in [(0, 0, 0), (5, 3, -1), (-7, 12, 30), (2, 40, 9)]:
        assert lowered(None, *arguments) == function(*arguments), "\n".join(writer.lines)


def test_arguments_have_the_type_of_their_parameter() -> None:
    def kernel(y, a, b, c):
        y[0] = a
        y[1] = b[0] + b[1]
        y[2] = c

    y = np.zeros(3)
    signature = (CPointer(types.float64), float32, types.UniTuple(int32, 2), types.boolean)
    emulator.run(kernel, signature, 1, 1, [y, 0.1, (np.int64(3), 4), np.bool_(True)])
    assert list(y) == [np.float32(0.1), 7, 1]
    with pytest.raises(OverflowError, match="argument 2: 2147483648 is no int32"):
        emulator.run(kernel, signature, 1, 1, [y, 0.1, (2**31, 4), True])


def test_narrow_stores_wrap() -> None:
    def kernel(y, z, n):
        y[0] = n
        z[0] = n

    y, z = np.zeros(1, np.int8), np.zeros(1, np.uint8)
    emulator.run(kernel, (CPointer(int8), CPointer(uint8), int64), 1, 1, [y, z, 200])
    assert (y[0], z[0]) == (-56, 200)
