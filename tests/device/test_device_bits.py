"""Bits and numbers: casts, conversions, packed arithmetic, maximum and minimum, against NumPy, ml_dtypes and exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from device_cases import Case, check_everywhere, chosen, emulated, everywhere, nearest, same
from numba import cuda
from numba.core.errors import NumbaError
from numba.cuda.types import CPointer, bfloat16, float16, float32, float64, int32, int64, uint8, uint16, uint32, uint64

from numba_baracuda import device as d
from numba_baracuda.runtime import jit

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
HALVES = {"f16": (np.dtype(np.float16), float16), "bf16": (np.dtype(ml_dtypes.bfloat16), bfloat16)}


def over_elements(function: Any, count: int) -> Callable[..., None]:
    """A kernel that maps a function over its first ``count`` arrays into the last."""
    if count == 1:

        def kernel(x, y):
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                y[i] = function(x[i])
    elif count == 2:

        def kernel(x, y, z):
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                z[i] = function(x[i], y[i])
    else:

        def kernel(x, y, z, w):
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                w[i] = function(x[i], y[i], z[i])

    return kernel


def mapped(run: Any, function: Any, dtype: Any, *arrays: Any) -> Any:
    out = np.zeros(arrays[0].size, dtype)
    run(over_elements(function, len(arrays)), 2, 32, *arrays, out)
    return out


# ---------------------------------------------------------------- bit casts

F32 = np.array([0, 0x80000000, 1, 0x807FFFFF, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
F64 = np.array([0, 1 << 63, 1, 0x3FF << 52, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, (1 << 63) - 1, (1 << 64) - 1, 0x800FFFFFFFFFFFFF], np.uint64)
CASTS = {
    "f32_as_u32": (F32.view("f4"), F32), "u32_as_f32": (F32, F32.view("f4")), "f32_as_i32": (F32.view("f4"), F32.view("i4")),
    "i32_as_f32": (F32.view("i4"), F32.view("f4")), "f64_as_u64": (F64.view("f8"), F64), "u64_as_f64": (F64, F64.view("f8")),
    "f64_as_i64": (F64.view("f8"), F64.view("i8")), "i64_as_f64": (F64.view("i8"), F64.view("f8")), "f16_as_u16": (PATTERNS.view("f2"), PATTERNS),
    "u16_as_f16": (PATTERNS, PATTERNS.view("f2")), "f16_as_i16": (PATTERNS.view("f2"), PATTERNS.view("i2")),
    "i16_as_f16": (PATTERNS.view("i2"), PATTERNS.view("f2")),
}  # fmt: skip


@everywhere
@pytest.mark.parametrize("name", CASTS)
def test_bit_casts_keep_every_bit(name: str, run: Any) -> None:
    """NaN payloads too."""
    source, wanted = (run.some(array) if array.size > 100 else array for array in CASTS[name])
    got = mapped(run, getattr(d, name), wanted.dtype, source)
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), wanted.view(f"u{got.itemsize}"))


@everywhere
def test_bfloat16_casts_and_recasts(run: Any) -> None:
    """uint16 memory as bfloat16, its values as integers of either sign, and back."""

    def kernel(x, y, z, w):
        typed, copy, signed = d.recast(x, bfloat16), d.recast(y, bfloat16), d.recast(w, bfloat16)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            copy[i] = d.u16_as_bf16(d.bf16_as_u16(typed[i]))
            z[i] = d.bf16_as_i16(typed[i])
            signed[i] = d.i16_as_bf16(z[i])

    x = run.some(PATTERNS)
    y, z, w = np.zeros_like(x), np.zeros(x.size, np.int16), np.zeros_like(x)
    run(kernel, 2, 32, x, y, z, w)
    np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(x, z.view(np.uint16))
    np.testing.assert_array_equal(x, w)


@everywhere
def test_recast_between_sizes(run: Any) -> None:
    """float32 as uint32, as pairs of uint16 and as bytes."""

    def kernel(x, words, halves, octets):
        i = cuda.grid(1)
        words[i] = d.recast(x, uint32)[i]
        for k in range(2):
            halves[2 * i + k] = d.recast(x, uint16)[2 * i + k]
        for k in range(4):
            octets[4 * i + k] = d.recast(d.recast(x, uint16), uint8)[4 * i + k]

    x = F32.view(np.float32)[:8].copy()
    words, halves, octets = np.zeros(8, np.uint32), np.zeros(16, np.uint16), np.zeros(32, np.uint8)
    run(kernel, 1, 8, x, words, halves, octets)
    assert words.tobytes() == halves.tobytes() == octets.tobytes() == x.tobytes()


# ---------------------------------------------------------------- conversions


def around(kind: str) -> Any:
    """float32 at, beside and half-way between the values of a 16-bit type, and some of every size."""
    values = PATTERNS.view(HALVES[kind][0]).astype(np.float32)
    values = values[np.isfinite(values)]
    halfway = (values + (1 << 12 if kind == "f16" else 1 << 15)).astype(np.float32)
    steps = values.view(np.uint32)[:, None] + np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001], np.uint32)
    random = np.random.default_rng(0).integers(0, 1 << 32, 4000, dtype=np.uint32)
    small = np.float32(2.0) ** np.arange(-149, 20, dtype=np.float32) * np.float32(0.75)
    picked = np.concatenate(
        [values[::31], halfway[::37], steps[::131].ravel().view(np.float32), random.view(np.float32), small, F32.view(np.float32)]
    )
    return np.where(np.isnan(picked), np.float32("nan"), picked)


@everywhere
@pytest.mark.parametrize("kind", HALVES)
def test_float32_rounds_to_16_bits(kind: str, run: Any) -> None:
    """Nearest even, subnormals kept, overflow to infinity; a NaN becomes the canonical one."""
    x = run.some(around(kind))
    got = mapped(run, getattr(d, f"f32_to_{kind}"), np.uint16, x)
    with np.errstate(over="ignore"):
        wanted = x.astype(HALVES[kind][0]).view(np.uint16)
    wanted[np.isnan(x)] = 0x7FFF
    np.testing.assert_array_equal(got, wanted)


@everywhere
@pytest.mark.parametrize("kind", HALVES)
def test_16_bits_widen_exactly(kind: str, run: Any) -> None:
    x = run.some(PATTERNS)
    same(mapped(run, getattr(d, f"{kind}_to_f32"), np.float32, x), x.view(HALVES[kind][0]).astype(np.float32))


@everywhere
@pytest.mark.parametrize("kind", HALVES)
def test_packing_and_unpacking(kind: str, run: Any) -> None:
    pack, unpack = getattr(d, f"f32x2_to_{kind}x2"), getattr(d, f"{kind}x2_to_f32x2")

    def kernel(x, word, low, high):
        for i in range(cuda.grid(1), word.size, cuda.gridsize(1)):
            word[i] = pack(x[2 * i], x[2 * i + 1])
            low[i], high[i] = unpack(word[i])

    x = run.some(around(kind), 101)[: 2 * (run.some(around(kind), 101).size // 2)]
    word, low, high = np.zeros(x.size // 2, np.uint32), np.zeros(x.size // 2, np.float32), np.zeros(x.size // 2, np.float32)
    run(kernel, 2, 32, x, word, low, high)
    with np.errstate(over="ignore"):
        wanted = x.astype(HALVES[kind][0])
    bits = np.where(np.isnan(x), np.uint16(0x7FFF), wanted.view(np.uint16))
    np.testing.assert_array_equal(word, bits.view(np.uint32))
    same(low, wanted[::2].astype(np.float32))
    same(high, wanted[1::2].astype(np.float32))


# ---------------------------------------------------------------- packed arithmetic

EDGES = {
    "f16": [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x1400, 0x3C00, 0x3C01, 0xBC00, 0x3800, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00],
    "bf16": [0, 0x8000, 1, 0x8001, 0x007F, 0x0080, 0x3380, 0x3F80, 0x3F81, 0xBF80, 0x3F00, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0],
}


def exactly(operation: str, kind: str, *values: float) -> float:
    """a + b, a · b or a · b + c with one rounding. Doubles settle what is not a rational number: NaN, infinities and the sign of a zero."""
    a, b, c = values[0], values[1], values[-1]
    loose = {"add": a + b, "mul": a * b, "fma": a * b + c}[operation]
    if not all(map(math.isfinite, values)):
        return loose
    x, y, z = (Fraction(value) for value in (a, b, c))
    exact = {"add": x + y, "mul": x * y, "fma": x * y + z}[operation]
    return nearest(exact, kind) if exact else loose


def operands(kind: str, count: int) -> list[Any]:
    """Edges with edges, values near each other, and any bits."""
    rng = np.random.default_rng(count)
    edges = np.array(EDGES[kind], np.uint16)
    grids = [grid.ravel() for grid in np.meshgrid(*[edges if count == 2 else edges[[0, 1, 2, 6, 7, 8, 9, 11, 13, 15]]] * count)]
    near = rng.integers(0x3000, 0x4400, (count, 700), dtype=np.uint16) | rng.integers(0, 2, (count, 700), dtype=np.uint16) << 15
    far = rng.integers(0, 1 << 16, (count, 700), dtype=np.uint16)
    tie = rng.integers(0x3F80, 0x4000, (count, 300), dtype=np.uint16)
    tie[-1] = rng.integers(0, 0x100, 300, dtype=np.uint16) << 4  # products at or near a tie, and an addend that only breaks it
    return [np.concatenate([*parts]) for parts in zip(grids, near, far, tie, strict=True)]


@everywhere
@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("operation", ["add", "mul", "fma", "max", "min"])
def test_packed_arithmetic(operation: str, kind: str, run: Any) -> None:
    """Bit for bit, with the canonical NaN; both halves of the word."""
    given = [run.some(array, 31) for array in operands(kind, 3 if operation == "fma" else 2)]
    with np.errstate(invalid="ignore"):
        values = [array.view(HALVES[kind][0]).astype(np.float64).tolist() for array in given]
    truth = exactly if operation in ("add", "mul", "fma") else None
    results = [truth(operation, kind, *items) if truth else chosen(operation, *items) for items in zip(*values, strict=True)]
    wanted = np.where(np.isnan(results), np.uint16(0x7FFF), np.array(results).astype(HALVES[kind][0]).view(np.uint16)).astype(np.uint32)
    words = [array.astype(np.uint32) | array[::-1].astype(np.uint32) << 16 for array in given]
    got = mapped(run, getattr(d, f"{operation}_{kind}x2"), np.uint32, *words)
    np.testing.assert_array_equal(got & 0xFFFF, wanted)
    np.testing.assert_array_equal(got >> 16, wanted[::-1])


@everywhere
@pytest.mark.parametrize("kind", HALVES)
def test_equal_halves(kind: str, run: Any) -> None:
    """Zeros of both signs are equal, and NaN to nothing; both halves of the word."""
    given = [run.some(array, 31) for array in operands(kind, 2)]
    given[1][::3] = given[0][::3]
    a, b = (array.view(HALVES[kind][0]).astype(np.float32) for array in given)
    wanted = np.where(a == b, np.uint32(0xFFFF), np.uint32(0))
    words = [array.astype(np.uint32) | array[::-1].astype(np.uint32) << 16 for array in given]
    np.testing.assert_array_equal(mapped(run, getattr(d, f"equal_{kind}x2"), np.uint32, *words), wanted | wanted[::-1] << 16)


def test_the_truth_of_packed_arithmetic_is_numpy() -> None:
    """Sums and products of float16 are safe to round twice, by float32."""
    a, b = (array.view(np.float16) for array in operands("f16", 2))
    with np.errstate(all="ignore"):
        for operation, results in (("add", a + b), ("mul", a * b)):
            same(np.array([exactly(operation, "f16", x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]).astype(np.float16), results)


# ---------------------------------------------------------------- maximum, minimum, powers of two

REALS = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3e38, -3e38, math.inf, -math.inf, math.nan, 2.5]


@everywhere
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maximum_of_floats(dtype: str, run: Any) -> None:
    """The same bits in either order: NaN is canonical, −0 < +0."""
    a, b = (grid.ravel() for grid in np.meshgrid(np.array(REALS, dtype), np.array(REALS, dtype)))
    bits = f"u{a.itemsize}"
    for name, operation in (("maximum", "max"), ("minimum", "min")):
        wanted = np.array([chosen(operation, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype).view(bits)
        wanted[np.isnan(wanted.view(dtype))] = (1 << (8 * a.itemsize - 1)) - 1
        np.testing.assert_array_equal(mapped(run, getattr(d, name), dtype, a, b).view(bits), wanted)


@everywhere
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "uint8"])
def test_maximum_of_integers(dtype: str, run: Any) -> None:
    info = np.iinfo(dtype)
    edges = np.array([info.min, info.min + 1, 0, 1, 7, info.max - 1, info.max], dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(edges, edges))
    same(mapped(run, d.maximum, dtype, a, b), np.maximum(a, b))
    same(mapped(run, d.minimum, dtype, a, b), np.minimum(a, b))


@everywhere
def test_maximum_takes_the_wider_integer_and_literals(run: Any) -> None:
    def kernel(x, y, z):
        i = cuda.grid(1)
        z[i] = d.maximum(d.maximum(x[i], y[i]), 3) + d.minimum(5, y[i])

    x, y, z = np.array([1 << 40, -5, 2], np.int64), np.array([7, 1, -9], np.int32), np.zeros(3, np.int64)
    run(kernel, 1, 3, x, y, z)
    assert list(z) == [(1 << 40) + 5, 4, 3 - 9]


@everywhere
def test_powers_and_logarithms_of_two(run: Any) -> None:
    """Within the stated error; exact at the edges; subnormals are zero."""
    x = run.some(np.linspace(-140, 140, 4001, dtype=np.float32))
    got = mapped(run, d.exp2_approx, np.float32, x)
    wanted = 2.0 ** x.astype(np.float64)
    inside = (wanted >= 2.0**-125) & (wanted < 2.0**128)
    assert np.all(abs(got[inside] / wanted[inside] - 1) <= 2.0**-21.5)
    assert np.all(got[wanted < 2.0**-127] == 0) and np.all(np.isinf(got[wanted >= 2.0**128]))
    x = run.some(np.exp2(np.linspace(-125, 127, 4001)).astype(np.float32))
    got, wanted = mapped(run, d.log2_approx, np.float32, x), np.log2(x.astype(np.float64))
    assert np.all(abs(got - wanted) <= 2.0**-21.5 * np.maximum(1, abs(wanted)))
    x = run.some((rng := np.random.default_rng(3)).choice([-1, 1], 4001) * np.exp2(rng.uniform(-125, 125, 4001))).astype(np.float32)
    assert np.all(abs(mapped(run, d.reciprocal_approx, np.float32, x) * x.astype(np.float64) - 1) <= 2.0**-22)
    edges = np.array([0, -0.0, 1e-40, math.inf, -math.inf, math.nan, 0.0], np.float32)
    same(mapped(run, d.exp2_approx, np.float32, edges), np.array([1, 1, 1, math.inf, 0, math.nan, 1], np.float32))
    same(mapped(run, d.log2_approx, np.float32, edges), np.array([-math.inf] * 3 + [math.inf, math.nan, math.nan, -math.inf], np.float32))
    inverse = [math.inf, -math.inf, math.inf, 0, -0.0, math.nan, math.inf]
    same(mapped(run, d.reciprocal_approx, np.float32, edges), np.array(inverse, np.float32))


# ---------------------------------------------------------------- machine code


class Shape(NamedTuple):
    function: str
    given: Any
    result: Any
    count: int
    code: str


CODE = [
    *[Shape(f"f32_to_{kind}", float32, uint16, 1, rf"F2F?P?\.{kind.upper()}|F2FP\.{kind.upper()}") for kind in HALVES],
    Shape("f16_to_f32", uint16, float32, 1, r"HADD2\.F32"), Shape("bf16_to_f32", uint16, float32, 1, r"STG\.E"),
    *[Shape(f"f32x2_to_{kind}x2", float32, uint32, 2, rf"F2FP\.{kind.upper()}\.F32\.PACK_AB") for kind in HALVES],
    *[Shape(f"{name}_f16x2", uint32, uint32, count, r"H(FMA|ADD|MUL)2") for name, count in (("add", 2), ("mul", 2), ("fma", 3))],
    *[Shape(f"{name}_bf16x2", uint32, uint32, count, r"HFMA2\S*BF16") for name, count in (("add", 2), ("mul", 2), ("fma", 3))],
    *[Shape(f"{name}_f16x2", uint32, uint32, 2, r"HMNMX2\.NAN") for name in ("max", "min")],
    *[Shape(f"{name}_bf16x2", uint32, uint32, 2, r"HMNMX2\.BF16_V2\.NAN") for name in ("max", "min")],
    *[Shape(f"equal_{kind}x2", uint32, uint32, 2, r"HSET2") for kind in HALVES],
    *[Shape(name, float32, float32, 2, r"FMNMX\.NAN") for name in ("maximum", "minimum")],
    *[Shape(name, float64, float64, 2, "DSETP") for name in ("maximum", "minimum")],
    *[Shape(name, int32, int32, 2, "I(MNMX)") for name in ("maximum", "minimum")],
    Shape("reciprocal_approx", float32, float32, 1, r"MUFU\.RCP"),
    Shape("exp2_approx", float32, float32, 1, r"MUFU\.EX2"), Shape("log2_approx", float32, float32, 1, r"MUFU\.LG2"),
    Shape("f32_as_u32", float32, uint32, 1, r"STG\.E"), Shape("u64_as_f64", uint64, float64, 1, r"STG\.E\.64"),
]  # fmt: skip


def once(function: Any, count: int) -> Callable[..., None]:
    if count == 1:
        return lambda x, y: _store(y, function(x[cuda.grid(1)]))
    if count == 2:
        return lambda x, y: _store(y, function(x[cuda.grid(1)], x[cuda.grid(1) + 32]))
    return lambda x, y: _store(y, function(x[cuda.grid(1)], x[cuda.grid(1) + 32], x[cuda.grid(1) + 64]))


@cuda.jit(device=True)
def _store(y, value):
    y[cuda.grid(1)] = value


@pytest.mark.compile
def test_instructions() -> None:
    def case(shape: Shape) -> Case:
        kernel = once(getattr(d, shape.function), shape.count)
        return Case(kernel, (CPointer(shape.given), CPointer(shape.result)), [shape.code], double=float64 in (shape.given, shape.result))

    check_everywhere(*map(case, CODE))


# ---------------------------------------------------------------- bad use

BAD = {
    "a bit cast of another type": (lambda x, y: _store(y, d.f32_as_u32(x[0])), float64, "f32_as_u32: value is float64, wants float32"),
    "a bit cast of a literal": (lambda x, y: _store(y, d.f32_as_u32(1.0)), float64, "f32_as_u32: value is float64, wants float32"),
    "two precisions": (lambda x, y: _store(y, d.maximum(x[0], 0.0)), float32, r"maximum: got float32 and float64, wants two float32.*float32\(0\)"),
    "float and integer": (lambda x, y: _store(y, d.minimum(x[0], 0)), float32, "minimum: got float32 and int64"),
    "two signednesses": (lambda x, y: _store(y, d.maximum(x[0], uint32(1))), int64, "maximum: got int64 and uint32"),
    "a float where bits belong": (lambda x, y: _store(y, d.add_f16x2(x[0], x[1])), float32, "add_f16x2: value is float32, wants an integer"),
    "recast to a value": (lambda x, y: _store(y, d.recast(x, 4)[0]), float32, "recast: dtype is .*, wants a number type"),
    "recast of a number": (lambda x, y: _store(y, d.recast(x[0], uint32)[0]), float32, "recast: pointer is float32, wants a 1-D C-contiguous array"),
}


@emulated
@pytest.mark.parametrize("name", BAD)
def test_bad_use_is_refused(name: str, run: Any) -> None:
    kernel, kind, message = BAD[name]
    with pytest.raises(NumbaError, match=message):
        run(kernel, 1, 1, np.zeros(4, str(kind)), np.zeros(4, np.float64))


@pytest.mark.compile
def test_bad_use_is_refused_by_the_compiler() -> None:
    with pytest.raises(NumbaError, match="maximum: got float32 and float64"):
        jit.assemble(BAD["two precisions"][0], (CPointer(float32), CPointer(float32)), "sm_90")


def test_every_public_function_says_what_it_does() -> None:
    for name in d.__all__:
        value = getattr(d, name)
        if not name.isupper():
            assert len((value.__doc__ or "").split()) >= 5, name
