"""Words between blocks: message passing, tickets, 128-bit words, the grid barrier; the twin with relaxed forms is a race."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_cases import Case, Emulated, OnDevice, check_everywhere, code_of, emulated, everywhere
from numba import cuda
from numba.core.errors import NumbaError
from numba.cuda import types
from numba.cuda.types import CPointer, float32, float64, int16, int32, int64, uint32, uint64

from numba_baracuda import device as d
from numba_baracuda.device.order import start_number
from numba_baracuda.emulator.emulator import Deadlock, Mode
from numba_baracuda.emulator.memory import MemoryFault
from numba_baracuda.emulator.races import Race
from numba_baracuda.runtime import jit

SEEDS = range(5)
WORDS = ("int32", "uint32", "int64", "uint64", "float32", "float64")


def fenced_load(pointer, index):
    value = d.load_relaxed(pointer, index)
    d.fence()
    return value


def fenced_store(pointer, index, value):
    d.fence()
    d.store_relaxed(pointer, index, value)


def added_load(pointer, index):
    return d.fetch_add_acq_rel(pointer, index, 0)


def added_store(pointer, index, value):
    d.fetch_add_acq_rel(pointer, index, value)


LOADS = {"acquire": d.load_acquire, "fence": jit.device(fenced_load), "acq_rel": jit.device(added_load), "relaxed": d.load_relaxed}
STORES = {"release": d.store_release, "fence": jit.device(fenced_store), "acq_rel": jit.device(added_store), "relaxed": d.store_relaxed}


def message_passing(store: Any, load: Any) -> Callable[..., None]:
    """Block 0 writes a payload and raises a flag, the others wait for it; all threads of a block speak through their first."""

    def kernel(payload, flag, out):
        i = cuda.threadIdx.x
        if cuda.blockIdx.x == 0:
            payload[i] = 10 * i + 1
            cuda.syncthreads()
            if i == 0:
                store(flag, 0, 1)
        else:
            if i == 0:
                while load(flag, 0) == 0:
                    pass
            cuda.syncthreads()
            out[cuda.grid(1) - cuda.blockDim.x] = payload[cuda.blockDim.x - 1 - i]

    return kernel


def passed(run: Any, store: str, load: str) -> Any:
    out = np.zeros(16, np.int32)
    run(message_passing(STORES[store], LOADS[load]), 3, 8, np.zeros(8, np.int32), np.zeros(1, np.int32), out)
    return out


@everywhere
@pytest.mark.parametrize("store, load", [pair for pair in itertools.product(STORES, LOADS) if "relaxed" not in pair])
def test_a_message_arrives(store: str, load: str, run: Any) -> None:
    np.testing.assert_array_equal(passed(run, store, load), [*range(71, 0, -10)] * 2)


@pytest.mark.parametrize("store, load", [pair for pair in itertools.product(STORES, LOADS) if "relaxed" in pair])
def test_its_relaxed_twin_is_a_race(store: str, load: str) -> None:
    for seed in SEEDS:
        with pytest.raises(Race, match="touch the same element"):
            passed(Emulated(Mode(seed)), store, load)


def in_turn(flags, indices):
    number = int32(start_number())
    if cuda.threadIdx.x == 0:
        while number > 0 and d.load_acquire(flags, number - 1) == 0:
            pass
        indices[number] = cuda.blockIdx.x
        d.store_release(flags, number, 1)


def indices_in_turn(run: Any) -> Any:
    """The indices of blocks that wait for each other, in the order in which they started."""
    indices = np.full(256, -1, np.int32)
    run(in_turn, 256, 32, np.zeros(256, np.int32), indices)
    return indices


@everywhere
def test_blocks_wait_for_those_that_started_before(run: Any) -> None:
    np.testing.assert_array_equal(np.sort(indices_in_turn(run)), range(256))


def test_the_emulator_starts_blocks_in_another_order() -> None:
    assert any((indices_in_turn(Emulated(Mode(seed, resident=2))) != range(256)).any() for seed in SEEDS)


def through_words(x, y, z):
    i = cuda.grid(1)
    d.store_relaxed(y, i, d.load_relaxed(x, i) if i % 2 else d.load_near(x, i))
    d.store_release(z, i, d.load_acquire(x, i))


@everywhere
@pytest.mark.parametrize("dtype", WORDS)
def test_every_kind_of_word(dtype: str, run: Any) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 30, 64).astype(dtype) + np.array(0.5).astype(dtype)
    y, z = np.zeros_like(x), np.zeros_like(x)
    run(through_words, 2, 32, x, y, z)
    assert x.tobytes() == y.tobytes() == z.tobytes()


@everywhere
@pytest.mark.parametrize("dtype", WORDS[:4])
@pytest.mark.parametrize("function", ["fetch_add", "fetch_add_acq_rel"])
def test_tickets(function: str, dtype: str, run: Any) -> None:
    """Everyone gets another one; the counter wraps."""
    take = getattr(d, function)

    def kernel(counter, taken):
        taken[cuda.grid(1)] = take(counter, 0, 1)

    start = np.iinfo(dtype).max - 10
    counter, taken = np.full(1, start, dtype), np.zeros(64, dtype)
    run(kernel, 2, 32, counter, taken)
    wanted = start + np.arange(65).astype(dtype)
    assert counter[0] == wanted[64]
    assert set(taken.tolist()) == set(wanted[:64].tolist())


def last_block(take: Any) -> Callable[..., None]:
    """The last block to arrive sums what all have written."""

    def kernel(partial, ticket, y):
        if cuda.threadIdx.x == 0:
            partial[cuda.blockIdx.x] = cuda.blockIdx.x + 1
            if take(ticket, 0, 1) == cuda.gridDim.x - 1:
                total = int32(0)
                for k in range(cuda.gridDim.x):
                    total += partial[k]
                y[0] = total

    return kernel


@everywhere
def test_the_last_block_sees_all_others(run: Any) -> None:
    y = np.zeros(1, np.int32)
    run(last_block(d.fetch_add_acq_rel), 6, 8, np.zeros(6, np.int32), np.zeros(1, np.uint32), y)
    assert y[0] == 21


def test_the_last_block_with_a_relaxed_ticket_is_a_race() -> None:
    for seed in SEEDS:
        with pytest.raises(Race):
            Emulated(Mode(seed))(last_block(d.fetch_add), 6, 8, np.zeros(6, np.int32), np.zeros(1, np.uint32), np.zeros(1, np.int32))


# ---------------------------------------------------------------- 128-bit words


def chained(x, words, y):
    """Every block adds its element to what its predecessor published: the sum and a flag in one 128-bit word, no fence."""
    pair = cuda.local.array(2, int64)
    if cuda.threadIdx.x == 0:
        block = int64(cuda.blockIdx.x)
        before = int64(0)
        if block > 0:
            pair[1] = 0
            while pair[1] == 0:
                d.load_relaxed_2(words, 2 * (block - 1), pair, 0)
            before = pair[0]
        pair[0] = before + x[block]
        pair[1] = block + 1
        d.store_relaxed_2(words, 2 * block, pair, 0)
        y[block] = pair[0]


def aligned(count: int, dtype: Any) -> Any:
    """Zeros that start at a multiple of 16 bytes."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 16, np.uint8)
    first = -raw.ctypes.data % 16
    return raw[first : first + count * np.dtype(dtype).itemsize].view(dtype)


@everywhere
def test_value_and_flag_in_one_word(run: Any) -> None:
    x, y = np.arange(1, 5) << 33, np.zeros(4, np.int64)
    if isinstance(run, Emulated) and run.mode.checked:
        run = Emulated(Mode(run.mode.seed, resident=4))
    run(chained, 4, 2, x, aligned(8, np.int64), y)
    np.testing.assert_array_equal(y, np.cumsum(x))


@everywhere
@pytest.mark.parametrize("load", [d.load_relaxed_2, d.load_near_2])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_pairs_of_every_kind(dtype: str, load: Any, run: Any) -> None:
    element = getattr(types, dtype)

    def kernel(x, y):
        pair = cuda.local.array(3, element)
        load(x, 2 * cuda.grid(1), pair, 1)
        d.store_relaxed_2(y, 2 * cuda.grid(1), pair, 1)

    x, y = aligned(32, dtype), aligned(32, dtype)
    x[:] = np.random.default_rng(0).integers(0, 1 << 40, 32)
    run(kernel, 2, 8, x, y)
    assert x.tobytes() == y.tobytes()


# ---------------------------------------------------------------- the grid barrier


@functools.cache
def rounds(times: int) -> Callable[..., None]:
    """Each round writes what another block wrote in the round before, from one array to the other and back."""

    def kernel(words, x, y):
        i = cuda.grid(1)
        other = (i + cuda.blockDim.x + 1) % cuda.gridsize(1)
        for k in range(times):
            if k % 2 == 0:
                y[i] = x[other] + 1
            else:
                x[i] = y[other] + 1
            d.grid_barrier(words)

    return kernel


def after(times: int, x: Any, block: int) -> Any:
    for _ in range(times):
        x = np.roll(x, -block - 1) + 1
    return x


def resident(run: Any, blocks: int) -> Any:
    return Emulated(Mode(run.mode.seed, resident=blocks)) if isinstance(run, Emulated) else run


@everywhere
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_grid_barrier(blocks: int, dtype: str, run: Any) -> None:
    """Odd and even numbers of barriers, launch after launch on the same word. On a device so few blocks are resident without a cooperative launch."""
    start = np.arange(8 * blocks, dtype=np.int64) * 100
    word = np.zeros(2, dtype)
    for times in (1, 4, 3, 2):
        x, y = start.copy(), np.zeros_like(start)
        resident(run, blocks)(rounds(times), blocks, 8, word, x, y)
        np.testing.assert_array_equal(x if times % 2 == 0 else y, after(times, start, 8))
        assert word[1] == 0
    assert word[0] == 0


def test_grid_barrier_of_blocks_that_are_not_resident() -> None:
    for seed in (None, *SEEDS):
        with pytest.raises(Deadlock, match=r"only spin|wait for ever"):
            Emulated(Mode(seed, resident=3))(rounds(1), 4, 4, np.zeros(1, np.int32), np.zeros(16, np.int64), np.zeros(16, np.int64))


def test_without_the_grid_barrier_it_is_a_race() -> None:
    def kernel(x, y):
        i = cuda.grid(1)
        y[i] = x[(i + 9) % 16]
        cuda.syncthreads()
        x[i] = y[(i + 9) % 16]

    for seed in SEEDS:
        with pytest.raises(Race):
            Emulated(Mode(seed))(kernel, 2, 8, np.zeros(16, np.int64), np.zeros(16, np.int64))


# ---------------------------------------------------------------- refusals

BAD = {
    "a float index": (lambda x: d.load_acquire(x, 0.5), int32, "load_acquire: index is float64, wants an integer"),
    "16-bit words": (lambda x: d.load_relaxed(x, 0), int16, "load_relaxed: elements are int16, wants int32, uint32, int64, uint64, float32, float64"),
    "a float for an integer": (lambda x: d.store_release(x, 0, 0.5), int32, "store_release: value is float64, wants an integer"),
    "tickets of floats": (lambda x: d.fetch_add(x, 0, 1), float32, "fetch_add: elements are float32, wants int32, uint32, int64, uint64"),
    "fractional tickets": (lambda x: d.fetch_add_acq_rel(x, 0, 0.5), int32, "fetch_add_acq_rel: value is float64, wants an integer"),
    "pairs of 32-bit words": (lambda x: d.load_relaxed_2(x, 0, x, 0), float32, "load_relaxed_2: elements are float32, wants int64, uint64, float64"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_use_is_refused(name: str) -> None:
    kernel, kind, message = BAD[name]
    with pytest.raises(NumbaError, match=message):
        jit.infer(kernel, (CPointer(kind),))


def test_a_local_array_of_another_type_is_refused() -> None:
    def kernel(x):
        pair = cuda.local.array(2, uint64)
        d.store_relaxed_2(x, 0, pair, 0)

    with pytest.raises(NumbaError, match="store_relaxed_2: the local array holds uint64, wants float64 as the memory does"):
        jit.infer(kernel, (CPointer(float64),))


@emulated
def test_misaligned_pairs_are_faults(run: Any) -> None:
    def kernel(x):
        pair = cuda.local.array(2, int64)
        d.load_relaxed_2(x, 1, pair, 0)

    with pytest.raises(MemoryFault, match="not aligned to its 16-byte access"):
        run(kernel, 1, 1, aligned(4, np.int64))


@emulated
def test_words_in_shared_memory_are_faults(run: Any) -> None:
    def kernel(x):
        tile = cuda.shared.array(4, int32)
        d.store_release(tile, 0, x[0])

    with pytest.raises(MemoryFault, match=r"shared array .* is not in global memory"):
        run(kernel, 1, 1, np.zeros(4, np.int32))


# ---------------------------------------------------------------- machine code


def loading(function: Any) -> Callable[..., None]:
    def kernel(x, y):
        y[cuda.grid(1)] = function(x, cuda.grid(1))

    return kernel


def storing(function: Any) -> Callable[..., None]:
    def kernel(x, y):
        function(x, cuda.grid(1), y[cuda.grid(1)])

    return kernel


def copying(x, y):
    pair = cuda.local.array(2, int64)
    d.load_relaxed_2(x, 2 * cuda.grid(1), pair, 0)
    d.store_relaxed_2(y, 2 * cuda.grid(1), pair, 0)


def near(x, y):
    pair = cuda.local.array(2, int64)
    d.load_near_2(x, 2 * cuda.grid(1), pair, 0)
    y[2 * cuda.grid(1)], y[2 * cuda.grid(1) + 1] = pair[0], pair[1]


def fencing(x, y):
    x[0] = y[0]
    d.fence()
    x[1] = y[1]


FENCE = r"MEMBAR\.ALL\.GPU"
CODE = [
    (loading(d.load_relaxed), [r"LDG\.E\.STRONG\.GPU"], [FENCE, "CCTL"], uint32),
    (loading(d.load_near), [r"LDG\.E\.STRONG\.SM"], [FENCE, "CCTL"], float32),
    (near, [r"LDG\.E\.128\.STRONG\.SM"], [FENCE, "CCTL", r"LDG\.E\.64"], int64),
    (loading(d.load_acquire), [r"LDG\.E\.64\.STRONG\.GPU", r"CCTL\.IVALL"], [FENCE], float64),
    (storing(d.store_relaxed), [r"STG\.E\.64\.STRONG\.GPU"], [FENCE, "CCTL"], int64),
    (storing(d.store_release), [FENCE, r"STG\.E\.STRONG\.GPU"], ["CCTL"], float32),
    (storing(d.fetch_add), [r"(REDG|ATOMG)\.E\.ADD\.STRONG\.GPU"], [FENCE, "CCTL"], int32),
    (storing(d.fetch_add_acq_rel), [FENCE, r"ATOMG\.E\.ADD\.64\.STRONG\.GPU", r"CCTL\.IVALL"], [], uint64),
    (copying, [r"LDG\.E\.128\.STRONG\.SYS", r"STG\.E\.128\.STRONG\.GPU"], [FENCE, "CCTL", r"LDG\.E\.64", r"STG\.E\.64"], int64),
    (fencing, [FENCE], [r"MEMBAR\.SC"], int32),
]


@pytest.mark.compile
def test_instructions() -> None:
    check_everywhere(*[Case(kernel, (CPointer(kind), CPointer(kind)), wanted, unwanted, kind == float64) for kernel, wanted, unwanted, kind in CODE])


@pytest.mark.compile
def test_grid_barrier_compiles_clean() -> None:
    """Without a call into a library: its own few instructions, which release and acquire, for arrays too."""

    def kernel(words, y):
        y[cuda.grid(1)] = 1
        d.grid_barrier(words)
        y[cuda.grid(1) + 1] = 2

    wanted = [r"BAR\.SYNC", FENCE, r"ATOMG\.E\.ADD\.STRONG\.GPU", r"LDG\.E\.STRONG\.GPU", r"CCTL\.IVALL"]
    check_everywhere(Case(kernel, (uint32[::1], int64[::1]), wanted))
    assert "CALL" not in code_of(kernel, (CPointer(int32), CPointer(int64)))


@pytest.mark.gpu
def test_grid_barrier_of_a_full_device() -> None:
    """As many blocks as there are multiprocessors, many barriers."""
    blocks = cuda.get_current_device().MULTIPROCESSOR_COUNT
    start = np.arange(256 * blocks, dtype=np.int64)
    x, y, word = start.copy(), np.zeros_like(start), np.zeros(1, np.uint32)
    OnDevice()(rounds(200), blocks, 256, word, x, y)
    np.testing.assert_array_equal(x, after(200, start, 256))
    assert word[0] == 0
