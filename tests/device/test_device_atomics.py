"""Atomic updates: the value left and the value returned, many lanes at one word, machine code and refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device_cases import ARCHITECTURES, Case, check_everywhere, chosen, codes_of, emulated, everywhere, nearest, same
from numba import cuda
from numba.core.errors import NumbaError
from numba.cuda import types
from numba.cuda.types import CPointer, bfloat16, float16, float32, float64, int64, uint32, uint64

from numba_baracuda import device as d
from numba_baracuda.emulator.memory import MemoryFault
from numba_baracuda.runtime import jit

INTEGERS = ("int32", "uint32", "int64", "uint64")
ELEMENTS = (*INTEGERS, "float32", "float64", "float16", "bfloat16")
#: floats that meet each other: ties of rounding, overflow, underflow, both zeros, what is no number
REALS = [0.0, -0.0, 1.0, -1.0, 1.5, 0.5, 2.0**-9, 2.0**-11, 2.0**-12 * 3, 3e4, -6.5e4, 7e4, 3e38, -3e38, math.inf, -math.inf, math.nan]
#: sums that float32 would round to a tie of the 16-bit type
STICKY = [1 + 2.0**-10, 1 + 2.0**-7, 2.0**-11 + 2.0**-23, 2.0**-11 + 2.0**-35, 2.0**-8 + 2.0**-30, 1.0000001, 0.99999994, 2.0**-133, 2.0**-149]


def dtype_of(name: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def kept(name: str) -> Any:
    """The dtype of the array that holds these elements: bfloat16 as uint16."""
    return np.dtype(np.uint16) if name == "bfloat16" else np.dtype(name)


def given(name: str) -> Any:
    """The dtype of values: float32 for 16-bit floats."""
    return np.dtype(np.float32) if dtype_of(name).itemsize == 2 else np.dtype(name)


def pairs(name: str, operation: str) -> tuple[Any, Any]:
    """Old elements and the values that meet them."""
    if name in INTEGERS:
        info = np.iinfo(name)
        edges = np.array([info.min, info.min + 1, 0, 1, 5, 12, info.max // 3, info.max], name)
        a, b = np.meshgrid(edges, edges)
        return a.ravel(), b.ravel()
    halves = dtype_of(name).itemsize == 2
    reals = np.array(REALS + (STICKY if halves else [1e-40, 1e-310] if operation != "add" else [1.0 + 2.0**-23]))
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        a, b = (grid.ravel() for grid in np.meshgrid(reals.astype(dtype_of(name)), reals.astype(given(name))))
        more = rng.standard_normal((2, 300)) * 2.0 ** rng.integers(-12, 12, (2, 300))
        return np.concatenate([a, more[0].astype(a.dtype)]), np.concatenate([b, more[1].astype(b.dtype)])


def once_rounded(operation: str, name: str, old: float, value: float) -> float:
    """The exact sum or product of floats with one rounding to a 16-bit type."""
    loose = old + value if operation == "add" else old * value
    if not (math.isfinite(old) and math.isfinite(value)):
        return loose
    exact = Fraction(old) + Fraction(value) if operation == "add" else Fraction(old) * Fraction(value)
    return nearest(exact, "f16" if name == "float16" else "bf16") if exact else loose


def truth(operation: str, name: str, old: Any, value: Any) -> Any:
    """What is left of ``old`` elements after each met its value."""
    dtype = dtype_of(name)
    with np.errstate(all="ignore"):
        if name in INTEGERS:
            return {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[operation](old, value)
        if operation in ("max", "min"):
            results = [chosen(operation, a, b) for a, b in zip(old.astype(float).tolist(), value.astype(float).tolist(), strict=True)]
            return np.array(results).astype(value.dtype).astype(dtype)
        if dtype.itemsize == 2:
            items = zip(old.astype(float).tolist(), value.astype(float).tolist(), strict=True)
            return np.array([once_rounded(operation, name, a, b) for a, b in items]).astype(dtype)
        return old + value if operation == "add" else old * value


def updating(function: Any, element: Any, returns: bool) -> Callable[..., None]:
    if returns:

        def kernel(x, values, old):
            place = d.recast(x, element)
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                old[i] = function(place, i, values[i])
    else:

        def kernel(x, values, old):
            place = d.recast(x, element)
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                function(place, i, values[i])

    return kernel


@everywhere
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("operation", ["add", "mul", "max", "min", "red_add"])
def test_one_update(operation: str, name: str, run: Any) -> None:
    """Neighbours are left alone: 16-bit elements meet their values side by side."""
    returns = operation != "red_add"
    function, operation = getattr(d, f"atomic_{operation}" if returns else operation), operation.removeprefix("red_")
    old, values = (run.some(array, 17) for array in pairs(name, operation))
    x, returned = old.copy().view(kept(name)), np.zeros_like(values)
    run(updating(function, getattr(types, name), returns), 2, 32, x, values, returned)
    same(x.view(dtype_of(name)), truth(operation, name, old, values))
    if returns:
        same(returned, old.astype(values.dtype))


@everywhere
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_computed_nans_are_canonical(name: str, run: Any) -> None:
    element, itemsize = getattr(types, name), dtype_of(name).itemsize
    nan = (1 << (8 * itemsize - 1)) - 1
    for operation in ("max", "min"):
        x, values, old = np.array([1.0, math.nan, -1.0]).astype(dtype_of(name)), np.array([math.nan, 1, 2], given(name)), np.zeros(3, given(name))
        held = x.view(kept(name))
        run(updating(getattr(d, f"atomic_{operation}"), element, True), 1, 3, held, values, old)
        assert list(held.view(f"u{itemsize}")[:2]) == [nan] * 2


@everywhere
def test_float32_sums_flush_subnormals(run: Any) -> None:
    """As PTX says of additions in global memory: subnormal operands and sums are zeros of their sign."""
    old = np.array([1e-40, -1e-40, 1e-40, 1.5e-38, 1e-45], np.float32)
    values = np.array([1e-40, -1e-40, 1.0, -1.4e-38, 0.0], np.float32)
    wanted = np.array([0.0, -0.0, 1.0, 0.0, 0.0], np.float32)
    for function in (d.atomic_add, d.red_add):
        x = old.copy()
        run(updating(function, float32, function is d.atomic_add), 1, 5, x, values, np.zeros(5, np.float32))
        same(x, wanted)


def crowding(function: Any, element: Any, at: int) -> Callable[..., None]:
    def kernel(x, values):
        place = d.recast(x, element)
        for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
            function(place, at, values[i])

    return kernel


@everywhere
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("function", ["atomic_add", "atomic_max", "atomic_min", "atomic_mul", "red_add"])
def test_many_lanes_at_one_element(function: str, name: str, run: Any) -> None:
    """No update is lost, whatever the order; the other half of a 32-bit word stays."""
    size = 96
    exact = dtype_of(name)
    values = (np.arange(size) % 7 + (name in INTEGERS)).astype(given(name))
    if function == "atomic_mul":
        values = np.where(np.arange(size) % 12 == 0, 2, 1).astype(given(name))
    x = np.array([3, 1, 3], exact)
    x[0] = x[2] = 77
    held = x.view(kept(name))
    run(crowding(getattr(d, function), getattr(types, name), 1), 3, 16, held, values)
    fold = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[function.rpartition("_")[2]]
    wanted = fold.reduce(values.astype(np.float64), initial=1)
    if function.endswith("add") and name == "bfloat16":
        assert abs(float(held.view(exact)[1]) - wanted) <= 8 * 4  # 8 bits hold sums up to 256
    else:
        assert float(held.view(exact)[1]) == wanted
    assert [float(held.view(exact)[k]) for k in (0, 2)] == [77, 77]


# ---------------------------------------------------------------- shared memory

SHARED = ("int32", "uint32", "int64", "uint64", "float32", "float64")


def adding(element: Any) -> Callable[..., None]:
    """Adds up values in three of four elements of shared memory."""

    def kernel(values, y):
        sums = cuda.shared.array(4, element)
        if cuda.threadIdx.x < 4:
            sums[cuda.threadIdx.x] = y[cuda.threadIdx.x]
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, values.size, cuda.blockDim.x):
            d.red_add_shared(sums, i % 3, values[i])
        cuda.syncthreads()
        if cuda.threadIdx.x < 4:
            y[cuda.threadIdx.x] = sums[cuda.threadIdx.x]

    return kernel


@everywhere
@pytest.mark.parametrize("name", SHARED)
def test_sums_in_shared_memory(name: str, run: Any) -> None:
    """No addition is lost; others' elements stay, and integers wrap."""
    values, y = (np.arange(90) % 7 - (name[0] in "if") * 2).astype(name), np.array([1, 2, 3, 77]).astype(name)
    y[2] = np.iinfo(name).max if name in INTEGERS else 0.25
    wanted = y.copy()
    with np.errstate(over="ignore"):
        np.add.at(wanted, np.arange(90) % 3, values)
    run(adding(getattr(types, name)), 1, 32, values, y)
    same(y, wanted)


@everywhere
def test_sums_in_shared_memory_keep_subnormals(run: Any) -> None:
    y = np.array([1e-45, -1e-45, 0, 0], np.float32)
    run(adding(float32), 1, 32, np.array([2e-45, 1e-45], np.float32), y)
    same(y, np.array([1e-45 + np.float32(2e-45), 0, 0, 0], np.float32))


# ---------------------------------------------------------------- maximum and minimum without a loop


def extreme(operation: str, element: Any, word: Any, empty: float) -> Callable[..., None]:
    function, finish = getattr(d, f"red_{operation}"), getattr(d, f"red_{operation}_value")

    def kernel(x, ids, y, out):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            function(y, ids[i], x[i])
        cuda.syncthreads()
        if cuda.threadIdx.x < out.size:
            out[cuda.threadIdx.x] = finish(d.recast(y, word)[cuda.threadIdx.x], element(empty))

    return kernel


GROUPS = [
    [], [0.0, -0.0], [-0.0], [-0.0, -1.0], [0.0, 1.0], [-math.inf], [math.inf], [-math.inf, math.inf], [math.nan], [math.nan, math.inf, -3.0],
    [1.0, -math.nan], [1e-45, -1e-45], [-1e-45], [3e38, -3e38], [-5.0, -2.5, -7.0], [5.0, 2.5, 7.0], [-1.0, 2.0, -3.0, 4.0],
]  # fmt: skip


@everywhere
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operation", ["max", "min"])
def test_extremes_of_floats(operation: str, dtype: str, run: Any) -> None:
    """Exact, of any order; nothing at all gives the empty value, which all −∞ does not."""
    x = np.array([value for group in GROUPS for value in group], dtype)
    ids = np.array([k for k, group in enumerate(GROUPS) for _ in group])
    order = np.random.default_rng(0).permutation(len(x))
    element, word = (float32, uint32) if dtype == "float32" else (float64, uint64)
    fill = (d.RED_MAX_FILL if operation == "max" else d.RED_MIN_FILL)[dtype]
    y = np.full(len(GROUPS), fill, f"u{x.itemsize}").view(dtype)
    out = np.zeros(len(GROUPS), dtype)
    run(extreme(operation, element, word, -7.5), 1, 32, x[order], ids[order], y, out)
    wanted = []
    for group in GROUPS:
        best = group[0] if group else -7.5
        for value in group[1:]:
            best = chosen(operation, best, value)
        wanted.append(best)
    bits = np.array(wanted, dtype)
    bits[np.isnan(bits)] = np.array((1 << (8 * x.itemsize - 1)) - 1, f"u{x.itemsize}").view(dtype)
    np.testing.assert_array_equal(out.view(f"u{x.itemsize}"), bits.view(f"u{x.itemsize}"))


@everywhere
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("operation", ["max", "min"])
def test_extremes_of_integers(operation: str, name: str, run: Any) -> None:
    info, table = np.iinfo(name), d.RED_MAX_FILL if operation == "max" else d.RED_MIN_FILL
    values = np.array([info.min, 0, 5, info.max, info.max // 2, 1], name)
    for some in (values, values[1:3], values[:1]):
        x = np.full(1, table[name], name)
        run(crowding(getattr(d, f"red_{operation}"), getattr(types, name), 0), 1, 8, x, some)
        wanted = getattr(np, f"{operation}imum").reduce(some, initial=info.min if operation == "max" else info.max)
        assert x[0] == wanted


# ---------------------------------------------------------------- several neighbours at once


def neighbours(count: int, element: Any) -> Callable[..., None]:
    if count == 2:

        def kernel(x, v):
            for i in range(2 * cuda.grid(1), v.size, 2 * cuda.gridsize(1)):
                d.red_add_2(d.recast(x, element), i % x.size, v[i], v[i + 1])
    elif count == 4:

        def kernel(x, v):
            for i in range(4 * cuda.grid(1), v.size, 4 * cuda.gridsize(1)):
                d.red_add_4(d.recast(x, element), i % x.size, v[i], v[i + 1], v[i + 2], v[i + 3])
    else:

        def kernel(x, v):
            for i in range(8 * cuda.grid(1), v.size, 8 * cuda.gridsize(1)):
                d.red_add_8(d.recast(x, element), i % x.size, v[i], v[i + 1], v[i + 2], v[i + 3], v[i + 4], v[i + 5], v[i + 6], v[i + 7])

    return kernel


VECTORS = [("float32", 2), ("float32", 4), *itertools.product(("float16", "bfloat16"), (2, 4, 8))]


@everywhere
@pytest.mark.parametrize("name, count", VECTORS)
def test_one_vector_update(name: str, count: int, run: Any) -> None:
    """The value is rounded to the element, and so is the sum."""
    old, values = (run.some(array[: array.size // 8 * 8].reshape(-1, 8), 7).ravel() for array in pairs(name, "add"))
    x = old.copy().view(kept(name))
    run(neighbours(count, getattr(types, name)), 2, 32, x, values)
    with np.errstate(all="ignore"):
        rounded = values.astype(dtype_of(name))
    same(x.view(dtype_of(name)), truth("add", name, old, rounded))


@everywhere
@pytest.mark.parametrize("name, count", VECTORS)
def test_many_lanes_at_one_vector(name: str, count: int, run: Any) -> None:
    values = np.tile(np.arange(8, dtype=np.float32), 24)
    x = np.zeros(8, kept(name))
    run(neighbours(count, getattr(types, name)), 2, 16, x, values)
    np.testing.assert_array_equal(x.view(dtype_of(name)).astype(np.float32), 24 * np.arange(8))


# ---------------------------------------------------------------- refusals

BAD = {
    "a float index": (lambda x: d.atomic_add(x, 0.5, 1), float32, "atomic_add: index is float64, wants an integer"),
    "halves in shared memory": (lambda x: d.red_add_shared(x, 0, 1.0), float16, "red_add_shared: elements are float16, wants int32.*float64"),
    "a float for an integer": (lambda x: d.atomic_add(x, 0, 0.5), int64, "atomic_add: value is float64, wants an integer"),
    "small integers": (lambda x: d.atomic_max(x, 0, 1), types.int8, "atomic_max: elements are int8, wants int32, uint32, int64"),
    "booleans": (lambda x: d.red_add(x, 0, 1), types.boolean, "red_add: elements are bool"),
    "maximum of halves without a result": (lambda x: d.red_max(x, 0, float32(1)), float16, "red_max: elements are float16, wants int32.*float64"),
    "a vector of doubles": (lambda x: d.red_add_2(x, 0, 1.0, 1.0), float64, "red_add_2: elements are float64, wants float32, float16, bfloat16"),
    "eight floats": (lambda x: d.red_add_8(x, 0, *EIGHT), float32, "red_add_8: elements are float32, wants float16, bfloat16"),
    "a number for a pointer": (lambda x: d.atomic_mul(x[0], 0, 1.0), float32, "atomic_mul: pointer is float32, wants a 1-D C-contiguous array"),
    "signed bits": (lambda x: d.red_max_value(x[0], 0.0), int64, "red_max_value: bits are int64, wants uint32 or uint64"),
}
EIGHT = (1.0,) * 8


@pytest.mark.parametrize("name", BAD)
def test_bad_use_is_refused(name: str) -> None:
    kernel, kind, message = BAD[name]
    with pytest.raises(NumbaError, match=message):
        jit.infer(kernel, (CPointer(kind),))


@emulated
def test_faults(run: Any) -> None:
    def shared(x):
        tile = cuda.shared.array(4, float32, alignment=16)
        tile[0] = x[0]
        d.atomic_add(tile, 0, float32(1))

    def misaligned(x):
        d.red_add_4(x, 2, x[0], x[0], x[0], x[0])

    def outside(x):
        d.red_max(x, 8, x[0])

    def unshared(x):
        d.red_add_shared(x, 0, x[1])

    found = (shared, "is not in global memory"), (unshared, "is not in shared memory")
    for kernel, message in (*found, (misaligned, "not aligned to its 16-byte access"), (outside, "out of bounds")):
        with pytest.raises(MemoryFault, match=message):
            run(kernel, 1, 1, np.zeros(8, np.float32))


# ---------------------------------------------------------------- machine code


@pytest.mark.compile
def test_instructions_that_return() -> None:
    def case(operation: str, name: str) -> Case:
        function = getattr(d, f"atomic_{operation}")

        def kernel(x, values, old):
            old[cuda.grid(1)] = function(x, cuda.grid(1), values[cuda.grid(1)])

        element, value = getattr(types, name), getattr(types, given(name).name)
        native = (name in INTEGERS and operation != "mul") or (operation == "add" and name in ("float32", "float64"))
        pattern = rf"ATOMG\.E\.{operation.upper()}" if native else r"ATOMG\.E\.CAS"
        return Case(kernel, (CPointer(element), CPointer(value), CPointer(value)), [pattern], double=name == "float64")

    check_everywhere(*itertools.starmap(case, itertools.product(("add", "mul", "max", "min"), ELEMENTS)))


REDS = [
    ("red_add", "float32", r"REDG\.E\.ADD\.F32"), ("red_add", "int64", r"REDG\.E\.ADD\.64"), ("red_max", "float32", r"REDG\.E\.MAX\.S32"),
    ("red_max", "float32", r"REDG\.E\.MIN\."), ("red_min", "float64", r"REDG\.E\.MIN\.S64"), ("red_min", "float64", r"REDG\.E\.MAX\.64"),
    ("red_min", "uint32", r"REDG\.E\.MIN\."), ("red_max", "int64", r"REDG\.E\.MAX\.S64"),
]  # fmt: skip


@pytest.mark.compile
def test_instructions_without_a_result() -> None:
    def case(function: str, name: str, pattern: str) -> Case:
        update, element = getattr(d, function), getattr(types, name)

        def kernel(x, values):
            update(x, cuda.grid(1), values[cuda.grid(1)])

        return Case(kernel, (CPointer(element), CPointer(element)), [pattern], ["ATOM"], name == "float64")

    check_everywhere(*itertools.starmap(case, REDS))


@pytest.mark.compile
def test_instructions_in_shared_memory() -> None:
    def case(name: str, pattern: str) -> Case:
        element = getattr(types, name)
        return Case(adding(element), (element[::1], element[::1]), [pattern], ["ATOM\\.", "ATOMG", "RED"], name == "float64")

    whole = [case(name, r"ATOMS\.(ADD|POPC)") for name in ("int32", "uint32")]
    check_everywhere(*whole, *(case(name, r"ATOMS\.(CAS|CAST)") for name in ("int64", "float32", "float64")))


#: by architecture, of the widest form of each element
WIDE = {
    ("float32", 2): ("F32x2", "RED.E.ADD.F32"), ("float32", 4): ("F32x4", "RED.E.ADD.F32"), ("float16", 2): ("F16x2", "RED.E.ADD.F16x2"),
    ("float16", 4): ("F16x4", "RED.E.ADD.F16x2"), ("float16", 8): ("F16x8", "RED.E.ADD.F16x2"), ("bfloat16", 2): ("BF16x2", "ATOMG.E.CAS"),
    ("bfloat16", 4): ("BF16x4", "ATOMG.E.CAS"), ("bfloat16", 8): ("BF16x8", "ATOMG.E.CAS"),
}  # fmt: skip


@pytest.mark.compile
def test_vector_instructions() -> None:
    """One REDG from 9.0 on; the fall-back below it. The same functions serve all three in one process, inside a device function too."""

    def case(name: str, count: int) -> Case:
        update = {2: d.red_add_2, 4: d.red_add_4, 8: d.red_add_8}[count]

        @jit.device
        def inner(x, i, value):
            if count == 2:
                update(x, i, value, value)
            elif count == 4:
                update(x, i, value, value, value, value)
            else:
                update(x, i, value, value, value, value, value, value, value, value)

        def kernel(x, v):
            inner(x, count * cuda.grid(1), v[cuda.grid(1)])

        return Case(kernel, (CPointer(getattr(types, name)), CPointer(float32)))

    cases = list(itertools.starmap(case, WIDE))
    for arch in ARCHITECTURES:
        for vector, text in zip(WIDE, codes_of(cases, arch), strict=True):
            wide, narrow = WIDE[vector]
            assert (narrow if arch == "sm_80" else f"REDG.E.ADD.{wide}.") in text, (arch, vector)
            assert arch == "sm_80" or text.count("RED") == 1, (arch, vector)


@pytest.mark.compile
def test_device_functions_compile_for_arrays() -> None:
    cubin = jit.assemble(extreme("max", float32, uint32, 0.0), (float32[::1], int64[::1], float32[::1], float32[::1]), "sm_90")
    assert cubin.spills == 0


@pytest.mark.gpu
def test_bfloat16_arrays_on_a_device() -> None:
    """CuPy's own bfloat16, which numba types by DLPack."""
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(np.ones(3, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)).view(np.dtype(ml_dtypes.bfloat16))
    cuda.jit(lambda x, v: d.red_add(x, 1, v[0]))[1, 32](x, cupy.full(1, 2, np.float32))
    np.testing.assert_array_equal(cupy.asnumpy(x.view(np.uint16)).view(ml_dtypes.bfloat16).astype(np.float32), [1, 65, 1])


def test_bfloat16_arrays_are_typed() -> None:
    """An array whose elements numba knows as bfloat16 needs no recast."""
    *_, returned = jit.infer(lambda x, v: d.atomic_add(x, 0, v[0]), (types.Array(bfloat16, 1, "C"), float32[::1]))
    assert returned == float32
