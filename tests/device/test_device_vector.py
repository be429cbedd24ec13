"""Vector access: every form, count and element type, its machine code, its refusals, and the split of a range into head, body and tail."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_cases import ARCHITECTURES, Case, check_everywhere, code_of, codes_of, emulated, everywhere
from numba import cuda
from numba.core.errors import NumbaError
from numba.cuda import types
from numba.cuda.types import CPointer, bfloat16, float32, float64, int64, uint16

from numba_baracuda.device import (
    LOAD,
    LOAD_DIRECT,
    LOAD_ONCE,
    LOAD_STREAM,
    STORE,
    STORE_STREAM,
    aligned_span,
    load_2,
    load_2_stream,
    load_4,
    load_8,
    load_8_direct,
    load_16,
    prefetch,
    recast,
    store_4,
    store_4_stream,
    store_8,
)  # fmt: skip
from numba_baracuda.emulator.memory import MemoryFault

FORMS = {"plain": (LOAD, STORE), "once": (LOAD_ONCE, STORE), "stream": (LOAD_STREAM, STORE_STREAM), "direct": (LOAD_DIRECT, STORE_STREAM)}
DTYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "int64", "uint64")
#: every count that fits 16 bytes
SHAPES = [(dtype, count) for dtype, count in itertools.product(DTYPES, LOAD) if count * np.dtype(dtype).itemsize <= 16]


def copy(form: str, count: int, element: Any, held: Any = None) -> Callable[..., None]:
    load, store = (table[count] for table in FORMS[form])
    kind = held or element

    def kernel(x, y):
        batch = cuda.local.array(count, kind)
        at = cuda.grid(1) * count
        load(x, at, batch, 0)
        store(y, at, batch, 0)

    return kernel


@everywhere
@pytest.mark.parametrize("form", FORMS)
def test_copies_keep_every_bit(form: str, run: Any) -> None:
    for dtype, count in SHAPES:
        if run.compiles and 1 < count * np.dtype(dtype).itemsize < 16:
            continue
        raw = np.random.default_rng(count).integers(0, 256, 16 * count * np.dtype(dtype).itemsize, dtype=np.uint8)
        if dtype in ("float32", "float64"):
            raw.reshape(-1, np.dtype(dtype).itemsize)[:, -1] = 1  # no NaN: a signalling one is quiet in the emulator
        x, y = raw.view(dtype), np.zeros(16 * count, dtype)
        run(copy(form, count, getattr(types, dtype)), 2, 8, x, y)
        assert y.tobytes() == x.tobytes(), (dtype, count)


def increment(form: str, count: int) -> Callable[..., None]:
    load, store = (table[count] for table in FORMS[form])

    def kernel(x, y):
        batch = cuda.local.array(8, uint16)
        at = cuda.grid(1) * count
        load(recast(x, bfloat16), at, batch, 8 - count)
        for k in range(8 - count, 8):
            batch[k] += uint16(1)
        store(recast(y, bfloat16), at, batch, 8 - count)

    return kernel


@everywhere
@pytest.mark.parametrize("form", FORMS)
def test_bfloat16_travels_as_uint16(form: str, run: Any) -> None:
    for count in (1, 2, 4, 8):
        x, y = np.arange(8 * count, dtype=np.uint16) * np.uint16(777), np.zeros(8 * count, np.uint16)
        run(increment(form, count), 1, 8, x, y)
        np.testing.assert_array_equal(y, x + np.uint16(1))


@everywhere
def test_between_global_and_shared_memory(run: Any) -> None:
    """The plain forms reach any memory."""

    def kernel(x, y):
        tile = cuda.shared.array(128, float32, alignment=16)
        batch = cuda.local.array(4, float32)
        load_4(x, 4 * cuda.threadIdx.x, batch, 0)
        store_4(tile, 4 * cuda.threadIdx.x, batch, 0)
        cuda.syncthreads()
        load_4(tile, 4 * (31 - cuda.threadIdx.x), batch, 0)
        store_4(y, 4 * cuda.threadIdx.x, batch, 0)

    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    run(kernel, 1, 32, x, y)
    np.testing.assert_array_equal(y.reshape(32, 4), x.reshape(32, 4)[::-1])


@everywhere
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16"])
def test_prefetched_memory_is_as_it_was(dtype: str, run: Any) -> None:
    """Each thread calls up what it will load in the next round and, which is no race, an element that another thread stores."""

    def kernel(x, y):
        for k in range(cuda.grid(1), 96, cuda.gridsize(1)):
            prefetch(x, min(k + cuda.gridsize(1), 95))
            prefetch(y, 95 - k)
            y[k] = x[k] + x[k]

    x, y = np.arange(1, 97).astype(dtype), np.zeros(96, dtype)
    run(kernel, 2, 16, x, y)
    np.testing.assert_array_equal(y, (2 * np.arange(1, 97)).astype(dtype))


# ---------------------------------------------------------------- any alignment, any length


def doubled(count: int, dtype: Any) -> Callable[..., None]:
    """2x over the elements from one bound to the other: a scalar head, a vector body, a scalar tail; ``steps`` counts what each did."""
    load, store = LOAD[count], STORE[count]

    def kernel(x, y, bounds, steps):
        first, last = bounds[0], bounds[1]
        begin, end = aligned_span(x, first, last, count)
        batch = cuda.local.array(count, dtype)
        for i in range(first + cuda.grid(1), begin, cuda.gridsize(1)):
            y[i] = x[i] + x[i]
            cuda.atomic.add(steps, 0, 1)
        for i in range(begin + count * cuda.grid(1), end, count * cuda.gridsize(1)):
            load(x, i, batch, 0)
            for k in range(count):
                batch[k] = batch[k] + batch[k]
            store(y, i, batch, 0)
            cuda.atomic.add(steps, 1, 1)
        for i in range(end + cuda.grid(1), last, cuda.gridsize(1)):
            y[i] = x[i] + x[i]
            cuda.atomic.add(steps, 2, 1)

    return kernel


@everywhere
@pytest.mark.parametrize("dtype, count", [("float32", 4), ("int64", 2), ("uint8", 16)])
def test_head_body_and_tail(dtype: str, count: int, run: Any) -> None:
    kernel = doubled(count, getattr(types, dtype))
    for offset, length in itertools.product(range(8), (0, 1, count - 1, 2 * count + 1, 40)):
        x = np.arange(1, 50, dtype=dtype)
        y, steps = np.zeros(49, dtype), np.zeros(3, np.int64)
        run(kernel, 2, 4, x, y, np.array([offset, offset + length]), steps)
        wanted = np.zeros_like(x)
        wanted[offset : offset + length] = 2 * x[offset : offset + length]
        np.testing.assert_array_equal(y, wanted)
        head = min(-offset % count, length)
        assert list(steps) == [head, (length - head) // count, (length - head) % count]


@emulated
def test_the_span_of_memory_that_starts_anywhere(run: Any) -> None:
    """The address counts, not the index: a view that starts at any element, and empty or backward ranges."""

    def kernel(x, bounds, spans):
        i = 2 * cuda.grid(1)
        spans[i], spans[i + 1] = aligned_span(x, bounds[i], bounds[i + 1], 4)

    base = np.zeros(64, np.float32)
    shift = -(base.ctypes.data // 4) % 4
    bounds = np.array([(first, last) for first in range(9) for last in (first, first + 1, first + 3, first + 4, first + 9, first - 2)])
    for start in range(8):
        spans = np.zeros(bounds.size, np.int64)
        run(kernel, 1, len(bounds), base[shift + start : shift + start + 32], bounds.ravel(), spans)
        for (first, last), (begin, end) in zip(bounds, spans.reshape(-1, 2), strict=True):
            assert (end - begin) % 4 == 0 and begin <= end
            assert begin == last or (begin + start) % 4 == 0
            if last >= first:
                assert first <= begin <= end <= last and begin - first < 4 and last - end < 4


# ---------------------------------------------------------------- refusals


def reading(load: Any, local: Any, index: Any = 0) -> Callable[..., None]:
    def kernel(x, y):
        batch = cuda.local.array(16, local)
        load(x, index, batch, 0)
        y[0] = batch[0]

    return kernel


BAD = {
    "more than 16 bytes": (reading(load_8, float32), float32, "load_8: 8 elements of float32 are 32 bytes, wants at most 16"),
    "more than 16 bytes of two": (reading(load_4, float64), float64, "load_4: 4 elements of float64 are 32 bytes, wants at most 16"),
    "more than 16 bytes of halves": (reading(load_16, uint16), uint16, "load_16: 16 elements of uint16 are 32 bytes, wants at most 16"),
    "another type in the local array": (reading(load_2, float32), float64, "load_2: the local array holds float32, wants float64 as the memory does"),
    "a float index": (reading(load_2, float32, 0.5), float32, "load_2: index is float64, wants an integer"),
    "complex elements": (reading(load_2, float32), types.complex64, "load_2: elements are complex64, wants numbers"),
    "a float index of what is called up": (lambda x, y: prefetch(x, 0.5), float32, "prefetch: index is float64, wants an integer"),
    "a number for a pointer": (lambda x, y: prefetch(x[0], 0), float32, "prefetch: pointer is float32, wants a 1-D C-contiguous array"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_use_is_refused(name: str) -> None:
    from numba_baracuda.runtime import jit

    kernel, kind, message = BAD[name]
    with pytest.raises(NumbaError, match=message):
        jit.infer(kernel, (CPointer(kind), CPointer(kind)))


def test_matrices_and_strides_are_refused() -> None:
    from numba_baracuda.runtime import jit

    for array, message in ((types.Array(float32, 1, "A"), "1-D C-contiguous"), (types.Array(float32, 2, "C"), "1-D C-contiguous")):
        with pytest.raises(NumbaError, match=message):
            jit.infer(reading(load_2, float32), (array, CPointer(float32)))


@emulated
def test_misaligned_accesses_are_faults(run: Any) -> None:
    for load in (load_4, LOAD_ONCE[4], LOAD_STREAM[4], LOAD_DIRECT[4]):
        with pytest.raises(MemoryFault, match="not aligned to its 16-byte access"):
            run(reading(load, float32, 2), 1, 1, np.zeros(8, np.float32), np.zeros(1, np.float32))
        with pytest.raises(MemoryFault, match="out of bounds"):
            run(reading(load, float32, 8), 1, 1, np.zeros(8, np.float32), np.zeros(1, np.float32))


@emulated
def test_forms_for_global_memory_refuse_shared_memory(run: Any) -> None:
    def kernel(x, y):
        tile = cuda.shared.array(4, float32, alignment=16)
        batch = cuda.local.array(4, float32)
        load_2_stream(x, 0, batch, 0)
        load_2(x, 2, batch, 2)
        store_4_stream(tile, 0, batch, 0)

    with pytest.raises(MemoryFault, match=r"shared array .* is not in global memory"):
        run(kernel, 1, 1, np.zeros(8, np.float32), np.zeros(1, np.float32))


@emulated
def test_only_global_memory_is_prefetched(run: Any) -> None:
    def shared(x):
        tile = cuda.shared.array(4, float32)
        prefetch(x, 0)
        prefetch(tile, 0)

    def local(x):
        batch = cuda.local.array(4, float32)
        prefetch(batch, 0)

    for kernel in (shared, local):
        with pytest.raises(MemoryFault, match=rf"{kernel.__name__} array .* is not in global memory"):
            run(kernel, 1, 1, np.zeros(8, np.float32))


# ---------------------------------------------------------------- machine code

WIDE = {
    "plain": (r"LDG\.E\.128\s", r"STG\.E\.128\s"), "once": (r"LDG\.E\.128\.CONSTANT", r"STG\.E\.128\s"),
    "stream": (r"LDG\.E\.EF\.128\s", r"STG\.E\.EF\.128\s"), "direct": (r"LDG\.E\.NA\.128\.CONSTANT", r"STG\.E\.EF\.128\s"),
}  # fmt: skip
ELEMENTS = {"float32": 4, "float64": 2, "int64": 2, "uint16": 8, "float16": 8, "bfloat16": 8, "int8": 16}


@pytest.mark.compile
@pytest.mark.parametrize("name", ELEMENTS)
def test_sixteen_bytes_are_one_access(name: str) -> None:
    element, held = getattr(types, name), uint16 if name == "bfloat16" else None
    cases = [Case(copy(form, ELEMENTS[name], element, held), (CPointer(element), CPointer(element)), WIDE[form]) for form in FORMS]
    for arch in ARCHITECTURES if name in ("float32", "bfloat16") else ("sm_90", "sm_100"):
        for form, case, text in zip(FORMS, cases, codes_of(cases, arch), strict=True):
            assert (len(re.findall(r"\bLDG", text)), len(re.findall(r"\bSTG", text))) == (1, 1), (arch, form)
            assert arch != "sm_90" or all(re.search(pattern, text) for pattern in case.wanted), form


@pytest.mark.compile
def test_arrays_compile_to_the_same_accesses() -> None:
    def kernel(x, y):
        batch = cuda.local.array(8, uint16)
        load_8_direct(x, 8 * cuda.grid(1), batch, 0)
        store_8(y, 8 * cuda.grid(1), batch, 0)

    check_everywhere(Case(kernel, (uint16[::1], uint16[::1]), [r"LDG\.E\.NA\.128\.CONSTANT", r"STG\.E\.128\s"]))


@pytest.mark.compile
def test_a_split_range_compiles_clean() -> None:
    check_everywhere(Case(doubled(4, float32), (CPointer(float32), CPointer(float32), int64[::1], int64[::1]), [r"LDG\.E\.128", r"STG\.E\.128"]))


@pytest.mark.compile
@pytest.mark.parametrize("given", [CPointer(float32), float32[::1]], ids=["pointer", "array"])
def test_a_prefetch_is_one_instruction(given: Any) -> None:
    """Not a load, and kept though nothing depends on it."""

    def kernel(x, y):
        prefetch(x, cuda.grid(1))
        y[cuda.grid(1)] = float32(1)

    for arch in ARCHITECTURES:
        text = code_of(kernel, (given, given), arch)
        assert (len(re.findall(r"\bCCTL\.E\.PF2\b", text)), len(re.findall(r"\bLDG", text))) == (1, 0), arch
