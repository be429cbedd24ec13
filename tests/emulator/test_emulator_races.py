"""Planted bugs: checked mode catches each, names the lines, and lets the corrected twin pass."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import CPointer, float32, int8, int32, int64

from numba_baracuda.device.build import ptx_memory
from numba_baracuda.device.vector import load_4, store_4
from numba_baracuda.emulator import emulator
from numba_baracuda.emulator.emulator import Deadlock, DivergentBarrier, Mode
from numba_baracuda.emulator.memory import Memory, MemoryFault
from numba_baracuda.emulator.races import ACQUIRE, ATOMIC, READ, RELEASE, WRITE, Race
from numba_baracuda.runtime import jit

SEEDS = range(6)
FLOATS, INTS, LONGS = float32[::1], int32[::1], int64[::1]

load_relaxed = ptx_memory(
    "load_relaxed", "ld.relaxed.gpu.global.b32 $0, [$1];", 0, lambda lane, site, p, k: p.load(lane, k, site, READ | ATOMIC), returns=True
)
load_acquire = ptx_memory(
    "load_acquire", "ld.acquire.gpu.global.b32 $0, [$1];", 0, lambda lane, site, p, k: p.load(lane, k, site, READ | ATOMIC | ACQUIRE), returns=True
)
store_relaxed = ptx_memory(
    "store_relaxed", "st.relaxed.gpu.global.b32 [$0], $1;", 1, lambda lane, site, p, k, x: p.store(lane, k, x, site, WRITE | ATOMIC)
)
store_release = ptx_memory(
    "store_release", "st.release.gpu.global.b32 [$0], $1;", 1, lambda lane, site, p, k, x: p.store(lane, k, x, site, WRITE | ATOMIC | RELEASE)
)


class Program(NamedTuple):
    """A kernel, how it is launched, and what it computes; with ``broken`` it has its bug."""

    make: Callable[[bool], Callable[..., None]]
    types: tuple[Any, ...]
    arguments: Callable[[], list[Any]]
    grid: int
    block: int
    right: Callable[[list[Any]], bool]

    def run(self, broken: bool, mode: Mode) -> list[Any]:
        arguments = self.arguments()
        emulator.run(self.make(broken), self.types, self.grid, self.block, arguments, mode=mode)
        return arguments


def marked(kernel: Callable[..., None], mark: str) -> str:
    """``file:line`` of the line of a kernel, or of a function inside it, that ends in ``# mark``."""
    lines, first = inspect.getsourcelines(kernel)
    (found,) = (k for k, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}"))
    return f"test_emulator_races.py:{first + found}"


def _ones(n: int, dtype: Any = np.int32) -> Any:
    return np.ones(n, dtype)


def lost_update(broken: bool) -> Any:
    def kernel(y):
        if broken:
            y[0] += 1  # A # B
        else:
            cuda.atomic.add(y, 0, 1)

    return kernel


def missing_barrier(broken: bool) -> Any:
    def kernel(y):
        shared = cuda.shared.array(64, int32)
        shared[63 - cuda.threadIdx.x] = 0  # or a read that comes first is one of unwritten memory
        cuda.syncthreads()
        shared[cuda.threadIdx.x] = cuda.threadIdx.x  # A
        if not broken:
            cuda.syncthreads()
        y[cuda.threadIdx.x] = shared[63 - cuda.threadIdx.x]  # B

    return kernel


def reused_shared(broken: bool) -> Any:
    def kernel(y):
        shared = cuda.shared.array(64, int32)
        total = int32(0)
        for k in range(2):
            shared[cuda.threadIdx.x] = cuda.threadIdx.x * (k + 1)  # A
            cuda.syncthreads()
            total += shared[63 - cuda.threadIdx.x]  # B
            if not broken:
                cuda.syncthreads()
        y[cuda.threadIdx.x] = total

    return kernel


def two_block_sums(broken: bool) -> Any:
    @jit.device
    def block_sum(value, shared):
        for k in range(5):
            value += cuda.shfl_down_sync(-1, value, 16 >> k)
        if cuda.laneid == 0:
            shared[cuda.threadIdx.x >> 5] = value  # A
        cuda.syncthreads()
        return shared[0] + shared[1]  # B

    def kernel(y):
        shared = cuda.shared.array(2, int32)
        first = block_sum(int32(cuda.threadIdx.x), shared)
        if not broken:
            cuda.syncthreads()
        y[cuda.threadIdx.x] = first + block_sum(int32(1), shared)

    kernel.inner = block_sum.py_func  # type: ignore[attr-defined]
    return kernel


def no_syncwarp(broken: bool) -> Any:
    def kernel(y):
        shared = cuda.shared.array(32, int32)
        shared[cuda.laneid] = 0
        cuda.syncwarp()
        shared[cuda.laneid] = cuda.laneid  # A
        if not broken:
            cuda.syncwarp()
        y[cuda.laneid] = shared[cuda.laneid ^ 1]  # B

    return kernel


def shuffle_is_no_fence(broken: bool) -> Any:
    """A shuffle makes lanes wait for each other; CUDA promises no order of memory."""

    def kernel(y):
        shared = cuda.shared.array(32, int32)
        shared[cuda.laneid] = cuda.laneid  # A
        other = cuda.shfl_xor_sync(-1, cuda.laneid, 1)
        if not broken:
            cuda.syncwarp(-1)
        y[cuda.laneid] = shared[other]  # B

    return kernel


def shared_broadcast(broken: bool) -> Any:
    """Lane 0 writes for all, again before all have read."""

    def kernel(y):
        shared = cuda.shared.array(1, int32)
        for k in range(3):
            if cuda.threadIdx.x == 0:
                shared[0] = k  # A
            cuda.syncthreads()
            y[cuda.threadIdx.x] += shared[0]  # B
            if not broken:
                cuda.syncthreads()

    return kernel


def message_passing(writer: str, reader: str) -> Any:
    """Block 0 publishes a payload, block 1 waits for it."""

    def kernel(payload, flag, y):
        if cuda.blockIdx.x == 0:
            payload[0] = 42  # A
            if writer == "fence":
                cuda.threadfence()
            if writer == "release":
                store_release(flag, 0, 1)
            else:
                store_relaxed(flag, 0, 1)
        else:
            if reader == "acquire":
                while load_acquire(flag, 0) == 0:
                    pass
            else:
                while load_relaxed(flag, 0) == 0:
                    pass
            if reader == "fence":
                cuda.threadfence()
            y[0] = payload[0]  # B

    return kernel


def plain_flag(broken: bool) -> Any:
    def kernel(payload, flag, y):
        if cuda.blockIdx.x == 0:
            payload[0] = 42
            cuda.threadfence()
            if broken:
                flag[0] = 1  # A
            else:
                store_relaxed(flag, 0, 1)
        else:
            if broken:
                while flag[0] == 0:  # B
                    pass
            else:
                while load_relaxed(flag, 0) == 0:
                    pass
            cuda.threadfence()
            y[0] = payload[0]

    return kernel


def last_block(broken: bool) -> Any:
    """The last block to arrive sums what all have written: the fence must come before the ticket."""

    def kernel(partial, ticket, y):
        partial[cuda.blockIdx.x] = cuda.blockIdx.x + 1  # A
        if not broken:
            cuda.threadfence()
        if cuda.atomic.add(ticket, 0, 1) == cuda.gridDim.x - 1:
            cuda.threadfence()
            total = int32(0)
            for k in range(cuda.gridDim.x):
                total += partial[k]  # B
            y[0] = total

    return kernel


def fence_by_another_lane(broken: bool) -> Any:
    """Every lane writes, one publishes: the barrier orders them before its fence, but its fence must come after the barrier."""

    def kernel(partial, flag, y):
        if cuda.blockIdx.x == 0:
            partial[cuda.threadIdx.x] = cuda.threadIdx.x  # A
            if broken:
                cuda.threadfence()
            cuda.syncthreads()
            if not broken:
                cuda.threadfence()
            if cuda.threadIdx.x == 0:
                store_relaxed(flag, 0, 1)
        else:
            while load_relaxed(flag, 0) == 0:
                pass
            cuda.threadfence()
            y[cuda.threadIdx.x] = partial[cuda.threadIdx.x ^ 1]  # B

    return kernel


def atomic_and_plain(broken: bool) -> Any:
    def kernel(y, z):
        cuda.atomic.add(y, 0, 1)  # A
        if not broken:
            cuda.syncthreads()
        z[cuda.threadIdx.x] = y[0]  # B

    return kernel


SWAPPED = [k ^ 1 for k in range(32)]
RACES = {
    "lost update": Program(lost_update, (INTS,), lambda: [np.zeros(1, np.int32)], 1, 128, lambda a: a[0][0] == 128),
    "missing barrier": Program(missing_barrier, (INTS,), lambda: [_ones(64)], 1, 64, lambda a: list(a[0]) == list(range(63, -1, -1))),
    "shared array reused": Program(reused_shared, (INTS,), lambda: [_ones(64)], 1, 64, lambda a: list(a[0]) == list(range(189, -1, -3))),
    "two block sums": Program(two_block_sums, (INTS,), lambda: [_ones(64)], 1, 64, lambda a: set(a[0]) == {64 * 63 // 2 + 64}),
    "no syncwarp": Program(no_syncwarp, (INTS,), lambda: [_ones(32)], 1, 32, lambda a: list(a[0]) == SWAPPED),
    "shuffle is no fence": Program(shuffle_is_no_fence, (INTS,), lambda: [_ones(32)], 1, 32, lambda a: list(a[0]) == SWAPPED),
    "shared broadcast": Program(shared_broadcast, (INTS,), lambda: [np.zeros(48, np.int32)], 1, 48, lambda a: set(a[0]) == {3}),
    "plain flag": Program(plain_flag, (INTS,) * 3, lambda: [np.zeros(1, np.int32) for _ in range(3)], 2, 1, lambda a: a[2][0] == 42),
    "last block without a fence": Program(
        last_block, (INTS,) * 3, lambda: [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)], 4, 1, lambda a: a[2][0] == 10
    ),
    "fence by another lane": Program(
        fence_by_another_lane, (INTS,) * 3, lambda: [np.zeros(32, np.int32), np.zeros(1, np.int32), np.zeros(32, np.int32)], 2, 32,
        lambda a: list(a[2]) == SWAPPED,
    ),
    "atomic and plain": Program(atomic_and_plain, (INTS,) * 2, lambda: [np.zeros(1, np.int32), _ones(32)], 1, 32, lambda a: set(a[1]) == {32}),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_race_is_caught_with_both_lines(name: str) -> None:
    program = RACES[name]
    kernel = program.make(True)
    source = getattr(kernel, "inner", kernel)
    for seed in SEEDS:  # races are found by clocks, not by luck
        with pytest.raises(Race) as caught:
            emulator.run(kernel, program.types, program.grid, program.block, program.arguments(), mode=Mode(seed))
        sites = re.findall(r"test_emulator_races\.py:\d+", str(caught.value))
        assert sorted(sites) == sorted([marked(source, "A # B")] * 2 if name == "lost update" else [marked(source, "A"), marked(source, "B")])


@pytest.mark.parametrize("name", RACES)
def test_corrected_twin_passes(name: str) -> None:
    program = RACES[name]
    for seed in SEEDS:
        assert program.right(program.run(False, Mode(seed)))
    assert program.right(program.run(False, Mode()))


@pytest.mark.parametrize("writer", ["release", "fence", "nothing"])
@pytest.mark.parametrize("reader", ["acquire", "fence", "nothing"])
def test_message_passing(writer: str, reader: str) -> None:
    """Only a release or a fence on one side and an acquire or a fence on the other order the payload."""
    kernel = message_passing(writer, reader)
    for seed in SEEDS:
        arguments = [np.zeros(1, np.int32) for _ in range(3)]
        if "nothing" in (writer, reader):
            with pytest.raises(Race) as caught:
                emulator.run(kernel, (INTS,) * 3, 2, 1, arguments, mode=Mode(seed))
            assert marked(kernel, "A") in str(caught.value)
            assert marked(kernel, "B") in str(caught.value)
        else:
            emulator.run(kernel, (INTS,) * 3, 2, 1, arguments, mode=Mode(seed))
            assert arguments[2][0] == 42


def _increment(retry: bool) -> Any:
    def kernel(y):
        old = cuda.atomic.add(y, 0, 0)
        while True:
            found = cuda.atomic.cas(y, 0, old, old + 1)
            if found == old or not retry:
                break
            old = found

    return kernel


def test_compare_and_swap_without_retry_loses_updates() -> None:
    """No race, since all is atomic; preemption at atomics shows it."""
    counts = {False: [], True: []}
    for retry, seed in [(retry, seed) for retry in counts for seed in SEEDS]:
        y = np.zeros(1, np.int32)
        emulator.run(_increment(retry), (INTS,), 1, 128, [y], mode=Mode(seed))
        counts[retry].append(int(y[0]))
    assert set(counts[True]) == {128}
    assert any(count != 128 for count in counts[False])


def _tail(guard: bool) -> Any:
    def kernel(x, y, n):
        i = cuda.grid(1)
        if i < n or not guard:
            y[i] = x[i]

    return kernel


def _negative(k: int) -> Any:
    def kernel(x, y, n):
        y[cuda.threadIdx.x] = x[int32(cuda.threadIdx.x) + k]

    return kernel


def _vectors(at: int) -> Any:
    def kernel(x, y, n):
        batch = cuda.local.array(4, float32)
        load_4(x, 4 * cuda.threadIdx.x + at, batch, 0)
        store_4(y, 4 * cuda.threadIdx.x, batch, 0)

    return kernel


def _shared_vectors(alignment: int) -> Any:
    def kernel(x, y, n):
        tile = cuda.shared.array(4, float32, alignment=16) if alignment == 16 else cuda.shared.array(4, float32)
        batch = cuda.local.array(4, float32)
        load_4(x, 0, batch, 0)
        store_4(tile, 0, batch, 0)
        load_4(tile, 0, batch, 0)
        store_4(y, 0, batch, 0)

    return kernel


def _unwritten_shared(fill: bool) -> Any:
    def kernel(x, y, n):
        tile = cuda.shared.array(8, float32)
        if fill:
            tile[cuda.threadIdx.x] = x[cuda.threadIdx.x]
        y[cuda.threadIdx.x] = tile[cuda.threadIdx.x]

    return kernel


def _unwritten_local(fill: bool) -> Any:
    def kernel(x, y, n):
        window = cuda.local.array(2, float32)
        window[0] = x[0]
        if fill:
            window[1] = x[1]
        y[cuda.threadIdx.x] = window[1]

    return kernel


def _accumulates(fill: bool) -> Any:
    def kernel(x, y, n):
        if fill:
            y[cuda.threadIdx.x] = 0
        y[cuda.threadIdx.x] += x[cuda.threadIdx.x]

    return kernel


def _writes_input(broken: bool) -> Any:
    def kernel(x, y, n):
        if broken:
            x[cuda.threadIdx.x] = 0
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    return kernel


#: (broken kernel, corrected kernel, lanes, blocks, message)
FAULTS = {
    "out-of-bounds tail": (_tail(False), _tail(True), 4, 3, "out of bounds"),
    "negative index": (_negative(-1), _negative(1), 4, 1, r"input\[-1\] is out of bounds"),
    "misaligned vector": (_vectors(1), _vectors(0), 2, 1, "not aligned to its 16-byte access"),
    "vector over the end": (_vectors(4), _vectors(0), 2, 1, "out of bounds"),
    "vector in a shared array of default alignment": (_shared_vectors(4), _shared_vectors(16), 1, 1, "not aligned"),
    "unwritten shared memory": (_unwritten_shared(False), _unwritten_shared(True), 8, 1, "read before it was written"),
    "unwritten local memory": (_unwritten_local(False), _unwritten_local(True), 2, 1, "read before it was written"),
    "unwritten output": (_accumulates(False), _accumulates(True), 8, 1, "output.* is read before it was written"),
    "write to an input": (_writes_input(True), _writes_input(False), 8, 1, "is an input and was written"),
}


@pytest.mark.parametrize("mode", [Mode(), Mode(0), Mode(1)], ids=["fast", "checked", "checked-1"])
@pytest.mark.parametrize("name", FAULTS)
def test_memory_fault(name: str, mode: Mode) -> None:
    broken, corrected, lanes, blocks, message = FAULTS[name]

    def run(kernel: Any) -> None:
        x, y = np.arange(10, dtype=np.float32), np.empty(8 if name != "out-of-bounds tail" else 10, np.float32)
        pointers = [
            emulator.pointer_into(*Memory.of("input", x, readonly=True), CPointer(float32)),
            emulator.pointer_into(*Memory.of("output", y, written=False), CPointer(float32)),
        ]
        emulator.run(kernel, (CPointer(float32), CPointer(float32), int64), blocks, lanes, [*pointers, 10], mode=mode)

    with pytest.raises(MemoryFault, match=message) as caught:
        run(broken)
    assert re.search(r"test_emulator_races\.py:\d+", str(caught.value))
    run(corrected)


def _early_return(y):
    if cuda.threadIdx.x >= 20:
        return
    cuda.syncthreads()
    y[cuda.threadIdx.x] = 1


def _two_barriers(y):
    if cuda.threadIdx.x < 16:
        y[cuda.threadIdx.x] = 1
        cuda.syncthreads()
    else:
        y[cuda.threadIdx.x] = 2
        cuda.syncthreads()


def _uneven_loop(y):
    for k in range(1 + (cuda.threadIdx.x & 1)):
        y[cuda.threadIdx.x] = k
        cuda.syncthreads()


def _outside_own_mask(y):
    y[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFF, 1, 0)


def _reads_outside_mask(y):
    if cuda.laneid < 16:
        y[cuda.threadIdx.x] = cuda.shfl_down_sync(0xFFFF, 1, 8)


def _masks_that_overlap(y):
    mask = -1 if cuda.laneid & 1 else 3 << cuda.laneid
    y[cuda.threadIdx.x] = cuda.ballot_sync(mask, 1)


def _different_operations(y):
    if cuda.laneid < 16:
        y[cuda.threadIdx.x] = cuda.shfl_down_sync(-1, 1, 8)
    else:
        cuda.syncwarp()


def _full_mask_in_a_branch(y):
    if cuda.laneid < 31:
        y[cuda.threadIdx.x] = cuda.any_sync(-1, True)


def _after_the_end_of_a_lane(y):
    if cuda.laneid > 0:
        for k in range(20):
            y[cuda.threadIdx.x] = k
        y[cuda.threadIdx.x] = cuda.any_sync(-1, True)


def _barrier_against_warp(y):
    if cuda.threadIdx.x == 0:
        cuda.syncthreads()
        cuda.syncwarp()
    else:
        cuda.syncwarp()
        cuda.syncthreads()
    y[cuda.threadIdx.x] = 1


def _endless_plain(y):
    while y[cuda.threadIdx.x] == 0:
        pass


def _endless_atomic(y):
    while cuda.atomic.add(y, 0, 0) == 0:
        pass


def _endless_sleep(y):
    while cuda.atomic.cas(y, 0, 1, 1) == 0:
        cuda.nanosleep(100)


def _lock_order(y):
    """Two locks, taken in either order."""
    first = cuda.threadIdx.x & 1
    while cuda.atomic.cas(y, first, 0, 1) != 0:
        pass
    cuda.syncthreads()
    while cuda.atomic.cas(y, 1 - first, 0, 1) != 0:
        pass


STUCK = {
    "early return": (_early_return, 32, DivergentBarrier, "ended (before this barrier|while other lanes wait at this barrier)"),
    "two barriers": (_two_barriers, 32, DivergentBarrier, r"different barriers: test_emulator_races\.py:\d+ and test_emulator_races\.py:\d+"),
    "uneven loop": (_uneven_loop, 32, DivergentBarrier, "ended"),
    "outside its own mask": (_outside_own_mask, 32, DivergentBarrier, "outside its own mask"),
    "reads outside the mask": (_reads_outside_mask, 32, DivergentBarrier, r"of lane \d+ reads lane \d+, which is not in the mask 0x0000ffff"),
    "overlapping masks": (_masks_that_overlap, 32, DivergentBarrier, "meets ballot_sync"),
    "different operations": (_different_operations, 32, DivergentBarrier, "meets"),
    "full mask in a branch": (_full_mask_in_a_branch, 32, DivergentBarrier, "ended"),
    "after the end of a lane": (
        _after_the_end_of_a_lane,
        32,
        DivergentBarrier,
        "any_sync waits for a lane that has ended|ended while other lanes wait",
    ),
    "barrier against warp": (_barrier_against_warp, 32, Deadlock, "wait for ever at test_emulator_races"),
    "endless plain spin": (_endless_plain, 4, Deadlock, r"only spin, block 0 thread \d at test_emulator_races\.py:\d+"),
    "endless atomic spin": (_endless_atomic, 4, Deadlock, r"only spin, block 0 thread \d at test_emulator_races\.py:\d+"),
    "endless sleep": (_endless_sleep, 4, Deadlock, r"only spin, block 0 thread \d at test_emulator_races\.py:\d+"),
    "locks in either order": (_lock_order, 2, Deadlock, r"only spin, block 0 thread \d at test_emulator_races\.py:\d+"),
}


@pytest.mark.parametrize("name", STUCK)
@pytest.mark.parametrize("mode", [Mode(), Mode(0), Mode(1), Mode(2)], ids=["fast", "seed-0", "seed-1", "seed-2"])
def test_stuck(name: str, mode: Mode) -> None:
    kernel, lanes, error, message = STUCK[name]
    if name == "endless plain spin" and not mode.checked:
        pytest.skip("fast mode does not look at plain accesses: a lane that spins on one hangs")
    with pytest.raises(error, match=message):
        emulator.run(kernel, (INTS,), 1, lanes, [np.zeros(32, np.int32)], mode=mode)


def test_many_reads_are_no_spin() -> None:
    """Lanes that read long arrays without writing make progress."""

    def kernel(x, y, n):
        total = int64(0)
        for k in range(n):
            total += x[k]
        y[cuda.threadIdx.x] = total

    x, y = np.arange(3000), np.zeros(2, np.int64)
    emulator.run(kernel, (LONGS, LONGS, int64), 1, 2, [x, y, 3000], mode=Mode(0))
    assert list(y) == [x.sum()] * 2


@pytest.mark.parametrize("mode", [Mode(), Mode(0)], ids=["fast", "checked"])
def test_accesses_that_do_not_race(mode: Mode) -> None:
    """Different elements; the same value read by all; one writer before a barrier; atomics of all kinds on one word; own data again."""

    def kernel(x, y, counter):
        i = cuda.threadIdx.x
        y[i] = x[0] + i
        y[i] = y[i] + 1
        cuda.atomic.max(counter, 0, i)
        cuda.atomic.add(counter, 0, 1)
        cuda.syncthreads()
        if i == 5:
            counter[0] = y[(i + 1) % 64]

    x, y, counter = _ones(1), np.zeros(64, np.int32), np.zeros(1, np.int32)
    emulator.run(kernel, (INTS, INTS, INTS), 1, 64, [x, y, counter], mode=mode)
    assert counter[0] == 8
    assert list(y) == [k + 2 for k in range(64)]


def test_neighbouring_bytes_do_not_race() -> None:
    def kernel(y):
        tile = cuda.shared.array(0, int8)
        tile[cuda.threadIdx.x] = cuda.threadIdx.x
        y[cuda.threadIdx.x] = tile[cuda.threadIdx.x]

    y = np.zeros(32, np.int32)
    emulator.run(kernel, (INTS,), 1, 32, [y], dynamic_shared=32, mode=Mode(0))
    assert list(y) == list(range(32))
