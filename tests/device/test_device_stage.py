"""Copies to shared memory that nobody waits for: what they bring, when it may be read, their machine code and their refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_cases import ARCHITECTURES, code_of, emulated, everywhere
from numba import cuda
from numba.core.errors import NumbaError
from numba.cuda import types
from numba.cuda.types import CPointer, bfloat16, float32, float64, int32, uint16

from numba_baracuda.device import LOAD_SHARED, STORE, await_copies, commit_copies, copy_async, load_4_shared, opaque_pointer, recast
from numba_baracuda.device.vector import load_halves
from numba_baracuda.emulator.emulator import Mode
from numba_baracuda.emulator.memory import MemoryFault
from numba_baracuda.emulator.races import Race

THREADS, ROUNDS = 32, 7


def staged(element: Any, held: Any, count: int, ahead: int, late: bool = False) -> Callable[..., None]:
    """Takes its input ``ahead`` copies a thread in flight through a ring of as many places and one, or reads the newest before it is there."""
    places, arrive, last = ahead + 1, await_copies(ahead - 1), await_copies(0)
    load, store, size, gap = LOAD_SHARED[count], STORE[count], places * THREADS * count, THREADS * count
    wide = element is bfloat16

    def kernel(x, y):
        source, sink = (recast(x, bfloat16), recast(y, bfloat16)) if wide else (x, y)
        ring = opaque_pointer(cuda.shared.array(size, held, alignment=16))
        batch = cuda.local.array(count, held)
        mine = cuda.threadIdx.x * count
        for k in range(ahead):
            copy_async(source, k * gap + mine, ring, k * gap + mine)
            commit_copies()
        for k in range(ROUNDS):
            if k + ahead < ROUNDS:
                arrive()
                copy_async(source, (k + ahead) * gap + mine, ring, (k + ahead) % places * gap + mine)
                commit_copies()
            else:
                last()
            load(ring, (k + ahead * late) % places * gap + mine, batch, 0)
            store(sink, k * gap + mine, batch, 0)

    return kernel


@everywhere
@pytest.mark.parametrize("name", ["float32", "float64", "uint16", "int8", "bfloat16"])
def test_what_is_waited_for_is_there(name: str, run: Any) -> None:
    element = getattr(types, name)
    held = uint16 if name == "bfloat16" else element
    dtype = str(held)
    count = 16 // np.dtype(dtype).itemsize
    for ahead in (1, 3):
        x = np.arange(ROUNDS * THREADS * count).astype(dtype)
        y = np.zeros_like(x)
        run(staged(element, held, count, ahead), 1, THREADS, x, y)
        np.testing.assert_array_equal(y, x)


def shifted(element: Any, count: int) -> Callable[..., None]:
    """Each thread takes ``count`` elements of shared memory from one that is as far behind the first as it is itself, but at most to the last."""
    load, size = load_halves(count), THREADS + 2

    def kernel(x, y):
        ring = opaque_pointer(cuda.shared.array(size, element, alignment=4))
        batch = cuda.local.array(count, element)
        mine = cuda.threadIdx.x
        ring[mine] = x[mine]
        cuda.syncthreads()
        inside = min(int32(count), int32(THREADS - mine))
        load(ring, mine, batch, 0, inside)
        for k in range(inside):
            y[mine * count + k] = batch[k]

    return kernel


@everywhere
@pytest.mark.parametrize("name", ["float16", "uint16", "int16"])
@pytest.mark.parametrize("count", [1, 2, 5, 8, 9])
def test_halves_from_any_index(name: str, count: int, run: Any) -> None:
    x = np.arange(7, 7 + THREADS).astype(name)
    y = np.zeros(THREADS * count, name)
    run(shifted(getattr(types, name), count), 1, THREADS, x, y)
    places = np.arange(THREADS)[:, None] + np.arange(count)
    np.testing.assert_array_equal(y.reshape(THREADS, count), np.where(places < THREADS, np.append(x, x)[places], 0))


@emulated
def test_what_is_not_waited_for_may_not_be_read(run: Any) -> None:
    x = np.arange(ROUNDS * THREADS * 4, dtype=np.float32)
    with pytest.raises(MemoryFault, match="read before it was written"):
        run(staged(float32, float32, 4, 3, late=True), 1, THREADS, x, np.zeros_like(x))


def swapped(meet: bool) -> Callable[..., None]:
    """What one thread has copied is read by another."""
    arrived = await_copies(0)

    def kernel(x, y):
        tile = cuda.shared.array(128, float32, alignment=16)
        batch = cuda.local.array(4, float32)
        copy_async(x, 4 * cuda.threadIdx.x, tile, 4 * cuda.threadIdx.x)
        commit_copies()
        arrived()
        if meet:
            cuda.syncthreads()
        load_4_shared(tile, 4 * (31 - cuda.threadIdx.x), batch, 0)
        for k in range(4):
            y[4 * cuda.threadIdx.x + k] = batch[k]

    return kernel


@everywhere
def test_threads_meet_before_they_read_one_another(run: Any) -> None:
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    run(swapped(True), 1, 32, x, y)
    np.testing.assert_array_equal(y.reshape(32, 4), x.reshape(32, 4)[::-1])


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_do_not_meet_are_found(seed: int) -> None:
    from device_cases import Emulated

    x = np.arange(128, dtype=np.float32)
    with pytest.raises((Race, MemoryFault)):
        Emulated(Mode(seed))(swapped(False), 1, 32, x, np.zeros_like(x))


@emulated
def test_only_from_global_to_shared_memory(run: Any) -> None:
    def backwards(x, y):
        tile = cuda.shared.array(4, float32, alignment=16)
        copy_async(tile, 0, x, 0)

    def across(x, y):
        copy_async(x, 0, y, 0)

    def unaligned(x, y):
        tile = cuda.shared.array(8, float32, alignment=16)
        copy_async(x, 1, tile, 0)

    def beyond(x, y):
        tile = cuda.shared.array(4, float32, alignment=16)
        copy_async(x, 0, tile, 4)

    wants = {backwards: "not in global memory", across: "not in shared memory", unaligned: "not aligned", beyond: "out of bounds"}
    for kernel, fault in wants.items():
        with pytest.raises(MemoryFault, match=fault):
            run(kernel, 1, 1, np.zeros(8, np.float32), np.zeros(8, np.float32))


@emulated
def test_shared_loads_refuse_global_memory(run: Any) -> None:
    def kernel(x, y):
        batch = cuda.local.array(4, float32)
        load_4_shared(x, 0, batch, 0)

    with pytest.raises(MemoryFault, match="not in shared memory"):
        run(kernel, 1, 1, np.zeros(8, np.float32), np.zeros(8, np.float32))


REFUSED = {
    "another element": (float64, "copy_async: the shared array holds float64, wants float32 as the memory does"),
    "a float index": (float32, "copy_async: index is float64, wants an integer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    held, message = REFUSED[case]
    index = 0.5 if case == "a float index" else 0

    def kernel(x):
        copy_async(x, index, cuda.shared.array(4, held, alignment=16), 0)

    with pytest.raises(NumbaError, match=message):
        code_of(kernel, (CPointer(float32),))


@pytest.mark.compile
def test_a_copy_is_one_instruction() -> None:
    """Nothing passes through registers, and the shared loads are no generic ones."""
    for arch in ARCHITECTURES:
        text = code_of(staged(float32, float32, 4, 3), (CPointer(float32), CPointer(float32)), arch)
        assert re.search(r"\bLDGSTS\.E\.BYPASS\.128\b", text), arch
        assert not re.search(r"\b(LDG|LD\.E|STS|ST\.E)\b", text), arch
        assert re.search(r"\bLDS\.128\b", text), arch
        assert re.search(r"\bLDGDEPBAR\b", text), arch
        assert re.search(r"\bDEPBAR\.LE SB0, 0x2\b", text), arch


@pytest.mark.compile
def test_an_opaque_pointer_costs_nothing() -> None:
    def kernel(x):
        pointer = opaque_pointer(x)
        pointer[cuda.grid(1)] = float32(1)

    for arch in ARCHITECTURES:
        assert len(re.findall(r"\bSTG?\.E\b", code_of(kernel, (CPointer(float32),), arch))) == 1, arch
