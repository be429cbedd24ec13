"""Scalars in the emulator: their types are those numba infers for CUDA, their values those of ``numba.njit`` on the CPU."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda
from numba.core.errors import NumbaError
from numba.cuda import types
from numba.cuda.types import float32, float64, int8, int16, int32, int64, uint32, uint64

from numba_baracuda.emulator import emulator, program
from numba_baracuda.emulator.conversions import UnknownConstruct, family
from numba_baracuda.emulator.scalars import ScalarFault, f32, int_to_float, wrap
from numba_baracuda.runtime import jit

NUMPY = {
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "f32": np.float32,
    "f64": np.float64, "bool": np.bool_,
}  # fmt: skip
FLOATS = [0.0, -0.0, 1.0, -2.5, 1.0 / 3, 1e-45, 3.4e38, -3.4e38, math.inf, -math.inf, math.nan]


def edges(name: str) -> list[Any]:
    """Values of a type at which arithmetic goes wrong."""
    if name == "bool":
        return [False, True]
    if name[0] == "f":
        return [float(NUMPY[name](x)) for x in FLOATS]
    info = np.iinfo(NUMPY[name])
    return sorted({x for x in (0, 1, 2, 3, 7, 31, 100, -1, -2, -7, info.min, info.min + 1, info.max, info.max // 3) if info.min <= x <= info.max})


def holds(value: Any, ty: Any) -> bool:
    """Whether a Python value is one that a variable of numba type ``ty`` can have."""
    if isinstance(ty, types.BaseTuple):
        return isinstance(value, tuple) and len(value) == len(ty) and all(map(holds, value, ty.types))
    if family(ty) == "bool":
        return type(value) is bool
    if family(ty) == "int":
        return type(value) is int and ty.minval <= value <= ty.maxval
    return type(value) is float and (ty.bitwidth == 64 or math.isnan(value) or f32(value) == value)


def bits(value: Any) -> Any:
    """Equal for equal bits; all NaNs are equal."""
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    value = value.item() if hasattr(value, "item") else value
    return struct.pack("d", value) if isinstance(value, float) and not math.isnan(value) else repr(value)


class Pair:
    """One function in the emulator and in ``njit``."""

    def __init__(self, function: Any, kinds: str, truth: Any = None) -> None:
        self.names = kinds.split()
        self.types = tuple(jit.SCALARS[name] for name in self.names)
        self.result = jit.infer(function, self.types)[-1]
        self.entry = program.entry_of(function, self.types)
        self.compiled = numba.njit(truth or function, error_model="numpy")

    def agree(self, *values: Any) -> None:
        values = tuple(f32(value) if name == "f32" else value for name, value in zip(self.names, values, strict=True))
        got = self.entry(None, *values)
        assert holds(got, self.result), f"{values}: {got!r} is no {self.result}"
        with np.errstate(all="ignore"):
            wanted = self.compiled(*[NUMPY[name](value) for name, value in zip(self.names, values, strict=True)])
        assert bits(got) == bits(wanted), f"{values}: {got!r}, njit {wanted!r}"

    def same_type(self) -> None:
        (overload,) = self.compiled.overloads.values()
        assert str(self.result) == str(overload.signature.return_type)


def _ring(a, b):
    return a + b, a - b, a * b


def _bitwise(a, b):
    return a & b, a | b, a ^ b


def _compare(a, b):
    return a < b, a <= b, a > b, a >= b, a == b, a != b


def _divide(a, b):
    return a // b, a % b, a / b


def _quotient(a, b):
    return a / b


def _shift(a, b):
    return a << b, a >> b


def _unary(a):
    return -a, +a, ~a, not a, abs(a)


def _bool_unary(a):
    return -a, +a, ~a, not a


def _float_unary(a):
    return -a, +a, not a, abs(a), math.fabs(a), math.sqrt(a), math.isnan(a), math.isinf(a)


def _choose(a, b):
    return min(a, b), max(a, b), a and b, a or b


INTEGER_PAIRS = ["i32 i32", "i32 i64", "i64 i64", "u32 i32", "u32 u32", "u32 i64", "u64 i64", "u64 u64", "u64 i32", "u8 i8", "bool i32"]


FLOAT_PAIRS = ["f32 f32", "f64 f64", "f32 f64", "f32 i32", "f32 i64", "bool f32"]
NO_CHOICE = ("bool i32", "u64 i64", "u64 i32")  #: numba takes min and max of the last two to float64, which the emulator does not know
BINARY = [
    *itertools.product([_ring, _compare], [*INTEGER_PAIRS, *FLOAT_PAIRS, "bool bool"]),
    *itertools.product([_bitwise], [*INTEGER_PAIRS, "bool bool"]),
    *itertools.product([_divide, _shift], [kinds for kinds in INTEGER_PAIRS if kinds != "bool i32"]),
    *itertools.product([_choose], [kinds for kinds in INTEGER_PAIRS if kinds not in NO_CHOICE]),
    *itertools.product([_quotient], FLOAT_PAIRS),
]


@pytest.mark.parametrize("function, kinds", BINARY, ids=lambda x: getattr(x, "__name__", x))
def test_binary(function: Any, kinds: str) -> None:
    first, second = kinds.split()
    pair = Pair(function, kinds)
    for a, b in itertools.product(edges(first), edges(second)):
        if (function is _divide and b == 0) or (function is _shift and not 0 <= b < 64):
            continue
        pair.agree(a, b)
    pair.same_type()


@pytest.mark.parametrize("kind", [types.float32, types.float64])
def test_extremes_of_floats_ignore_a_nan_and_order_zeros(kind: Any) -> None:
    def extremes(x: Any, y: Any) -> None:
        y[0], y[1] = max(x[0], x[1]), min(x[0], x[1])

    nan = math.nan
    for a, b, greatest, least in ((1, 2, 2, 1), (nan, 2, 2, 2), (1, nan, 1, 1), (-0.0, 0.0, 0.0, -0.0), (0.0, -0.0, 0.0, -0.0), (nan, nan, nan, nan)):
        dtype = np.dtype(str(kind))
        y = np.zeros(2, dtype)
        emulator.run(extremes, (kind[::1], kind[::1]), 1, 1, [np.array([a, b], dtype), y])
        assert [repr(float(each)) for each in y] == [repr(float(greatest)), repr(float(least))]


@pytest.mark.parametrize("kind", list(NUMPY))
def test_unary(kind: str) -> None:
    pair = Pair(_bool_unary if kind == "bool" else _float_unary if kind[0] == "f" else _unary, kind)
    for value in edges(kind):
        pair.agree(value)
    pair.same_type()


@pytest.mark.parametrize("source", list(NUMPY))
def test_cast(source: str) -> None:
    """Every cast; what does not fit is wrapped among integers and a fault from floats, where LLVM leaves it undefined."""
    if source == "bool":
        wide = Pair(lambda a: (int64(a), float32(a), float64(a), bool(a), int(a)), source)
    else:
        wide = Pair(lambda a: (int64(a), float32(a), float64(a), bool(a), float(a), int(a)), source)
    narrow = Pair(lambda a: (int8(a), int16(a), int32(a), uint32(a), uint64(a)), source)
    for value in edges(source):
        for pair, bound in ((wide, 2.0**63), (narrow, 100.0)):
            if source[0] != "f" or 0 <= value < bound or (pair is wide and abs(value) < bound):
                pair.agree(value)
    wide.same_type()
    narrow.same_type()


def _unify_float(a):
    x = a if a > 0 else 0.5
    if x > 2:
        x = 1
    return x


def _unify_integer(a, b):
    x = a
    if b > 3:
        x = b
    return x * 2


def _collatz(a):
    steps = 0
    while a != 1:
        a = 3 * a + 1 if a % 2 else a // 2
        steps += 1
        if steps > 500:
            break
    return steps, a


def _nested(n):
    total = int32(0)
    for i in range(n):
        if i == 5:
            continue
        for j in range(i, 0, -2):
            if j * i > 40:
                break
            total += j
        else:
            total += 1000
    return total


def _steps(a, b, c):
    total, last = 0, int64(-7)
    for k in range(a, b, c):
        total = total * 3 + k
        last = k
    return total, last


def _swap(n):
    """The copies between blocks go in parallel: the old ``a`` must reach ``b``."""
    a, b = 0, 1
    while n > 0:
        a, b = b, a + b
        n -= 1
    return a, b


def _used_after_loop(n):
    k = 9
    for k in range(n):  # noqa: B007 - its last value is the point
        pass
    return k


def _tuples(a, b):
    pair = (a, b)
    x, y = pair
    nested = (pair, (y, x * 2))
    total = float32(0)
    for value in (x, x + x, x):
        total += value
    return nested[1][0], nested[0][1], nested[-1][1], pair[0] + total, len(nested)


def _chain(a, b):
    return (1 if a < b < 10 else 2 if a == b else 3), (0 <= a <= b), not (a < 0 or b < 0)


def _early(a):
    for k in range(10):
        if k * k >= a:
            return k
    return -1


def _moves(a):
    """A value must be read before what it reads is assigned anew."""
    before = a + 1
    a = a * 10
    after = a + 1
    a = before
    return before, after, a


def _augment(a, b):
    a += b
    a -= 1
    a *= b
    a <<= 3
    a >>= 1
    a |= 5
    a &= 0xFFF
    a ^= b
    a //= 7
    a %= 1000
    return a


def _dispatch(kind):
    """A closure whose constants leave one branch."""

    def chosen(a):
        if kind == "twice":
            return a + a
        elif kind == "half":
            return a * float32(0.5)
        else:
            return float64(a)

    return chosen


SHIFT, SCALE, TABLE, HALF = 3, np.float32(0.1), (2, 3, 5), 0.5


class Case(NamedTuple):
    function: Any
    kinds: str
    result: str
    values: list[tuple[Any, ...]]


CASES = {
    "int32 * int32 is int64": Case(lambda a, b: a * b, "i32 i32", "int64", [(2**30, 4)]),
    "int32(2^30) * 4 is 2^32": Case(lambda a: int32(a) * 4, "i64", "int64", [(2**30,)]),
    "cast back wraps": Case(lambda a: int32(int32(a) * 4), "i64", "int32", [(2**30,), (2**29,), (-(2**30) - 1,)]),
    "uint32(3) - 5 is signed": Case(lambda a: uint32(a) - 5, "i64", "int64", [(3,)]),
    "uint32 - uint32 is uint64": Case(lambda a, b: a - b, "u32 u32", "uint64", [(3, 5)]),
    "int64 wraps": Case(lambda a: a * 3 + 1, "i64", "int64", [(2**62,), (-(2**62),)]),
    "a double literal pulls float32 up": Case(lambda a: a * 0.1, "f32", "float64", [(1.0,), (3.0,)]),
    "an integer literal does, too": Case(lambda a: a * 2, "f32", "float64", [(1.5,)]),
    "float32(2) does not": Case(lambda a: float32(2) * a, "f32", "float32", [(1.5,), (3e38,), (math.nan,)]),
    "nor would int32(2) on a GPU": Case(lambda a: a * int32(2), "f32", "float64", [(1.5,)]),
    "nor a NumPy constant": Case(lambda a: a * SCALE, "f32", "float32", [(1.5,), (0.3,)]),
    "float32 rounds": Case(lambda a, b: a * b + a, "f32 f32", "float32", [(1.1, 3.3), (16777216.0, 1.0), (1e-30, 1e-30), (3e38, 3e38)]),
    "float32 / float32": Case(lambda a, b: a / b, "f32 f32", "float32", [(1.0, 3.0), (1.0, 0.0), (0.0, 0.0), (-1.0, 0.0), (1.0, -0.0)]),
    "exp and log": Case(lambda a: math.exp(a) + math.log(a), "f64", "float64", [(1.0,), (0.0,), (710.0,)]),
    "shift by a constant": Case(lambda a: (a << SHIFT, a >> SHIFT), "i32", "UniTuple(int64 x 2)", [(2**31 - 1,), (-77,)]),
    "hex masks": Case(lambda a: (a & 0xFFFFFFFF, a >> 63), "i64", "UniTuple(int64 x 2)", [(-1,), (2**33 + 1,)]),
    "a literal that takes 64 bits": Case(lambda a: a + 0x9E3779B97F4A7C15, "u64", "uint64", [(2**63,), (1,)]),
    "a constant tuple by index": Case(lambda a: TABLE[a] * TABLE[-1], "i64", "int64", [(0,), (2,)]),
    "constants of a module": Case(lambda a: (a * math.pi, a - math.inf), "f32", "UniTuple(float64 x 2)", [(1.5,), (math.inf,)]),
    "a double constant": Case(lambda a: a + HALF, "f32", "float64", [(1.0,)]),
    "chained comparisons": Case(_chain, "i32 i64", "Tuple(int64, bool, bool)", [(1, 2), (3, 3), (-1, 20), (12, 11)]),
    "conditional expression": Case(lambda a: a if a > 0 else float32(0), "f32", "float32", [(1.5,), (-1.0,), (math.nan,)]),
    "branches of two types": Case(_unify_float, "f32", "float64", [(1.5,), (-1.0,)]),
    "branches of two integer types": Case(_unify_integer, "i32 i64", "int64", [(2**31 - 1, 0), (1, 2**40)]),
    "while and break": Case(_collatz, "i64", "UniTuple(int64 x 2)", [(1,), (27,), (97,)]),
    "nested loops": Case(_nested, "i32", "int64", [(0,), (6,), (12,)]),
    "range with a step": Case(_steps, "i64 i64 i64", "UniTuple(int64 x 2)", [(0, 10, 3), (10, 0, -4), (5, 5, 1)]),
    "parallel copies": Case(_swap, "i64", "UniTuple(int64 x 2)", [(0,), (1,), (10,)]),
    "a loop variable after its loop": Case(_used_after_loop, "i64", "int64", [(0,), (1,), (4,)]),
    "tuples": Case(_tuples, "f32 f32", "Tuple(float32, float32, float64, float32, int64)", [(1.1, 2.2)]),
    "early return": Case(_early, "i32", "int64", [(0,), (50,), (500,)]),
    "reassignment": Case(_moves, "i64", "UniTuple(int64 x 3)", [(5,)]),
    "augmented assignment": Case(_augment, "i64 i64", "int64", [(12345, 77), (-3, 2**40)]),
    "a closure of doubling": Case(_dispatch("twice"), "f32", "float32", [(3e38,), (1.1,)]),
    "a closure of halving": Case(_dispatch("half"), "f32", "float32", [(1e-45,), (1.1,)]),
    "a closure of widening": Case(_dispatch("other"), "f32", "float64", [(1.5,)]),
    "mixed signs compare as numbers": Case(lambda a, b: (a < b, a == b), "u64 i64", "UniTuple(bool x 2)", [(2**63, -1), (2**64 - 1, -1), (3, 5)]),
    "large integers to float32, rounded once": Case(lambda a: float32(a), "i64", "float32", [(2**60 + 2**36 + 1,), (2**24 + 1,), (-(2**63),)]),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case = CASES[name]
    pair = Pair(case.function, case.kinds)
    assert str(pair.result) == case.result
    for values in case.values:
        pair.agree(*values)
    pair.same_type()


@pytest.mark.parametrize("name", CASES)
def test_stored(name: str) -> None:
    """Through a kernel: what reaches memory has the bits that the function returned."""
    case = CASES[name]
    function = jit.device(case.function)
    kinds = tuple(jit.SCALARS[kind] for kind in case.kinds.split())
    result = jit.infer(case.function, kinds)[-1]
    parts = list(result.types) if isinstance(result, types.BaseTuple) else [result]
    outputs = [np.zeros(1, str(ty)) for ty in parts]
    count = len(parts)

    def whole(o0, a0, a1, a2):
        o0[0] = function(a0) if arity == 1 else function(a0, a1) if arity == 2 else function(a0, a1, a2)

    def two(o0, o1, a0, a1, a2):
        value = function(a0) if arity == 1 else function(a0, a1) if arity == 2 else function(a0, a1, a2)
        o0[0] = value[0]
        o1[0] = value[-1]

    arity = len(kinds)
    outputs = outputs if count == 1 else [outputs[0], outputs[-1]]
    padded = (*kinds, *[types.int64] * (3 - arity))
    given = (*case.values[0], *[0] * (3 - arity))
    signature = (*[types.CPointer(types.boolean if o.dtype == bool else getattr(types, o.dtype.name)) for o in outputs], *padded)
    emulator.run(whole if count == 1 else two, signature, 1, 1, [*outputs, *given])
    wanted = program.entry_of(case.function, kinds)(
        None, *[f32(x) if kind == types.float32 else x for x, kind in zip(case.values[0], kinds, strict=True)]
    )
    wanted = [wanted] if count == 1 else [wanted[0], wanted[-1]]
    assert [bits(output[0]) for output in outputs] == [bits(value) for value in wanted]


def test_typemap_shows_a_double_literal() -> None:
    """What keeps float64 out of a float32 kernel: its types are there to be looked at."""

    def kernel(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] * 0.1

    def single(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] * SCALE

    pointer = types.CPointer(types.float32)
    assert types.float64 in jit.infer(kernel, (pointer, pointer))[1].values()
    assert types.float64 not in jit.infer(single, (pointer, pointer))[1].values()


def test_local_array() -> None:
    """A local array holds elements of its own type, and assignments are cast to it."""

    def kernel(x, y, n):
        window = cuda.local.array(4, float32)
        small = cuda.local.array(2, int8)
        for k in range(4):
            window[k] = x[k] * 0.1
        small[0] = n
        total = float32(0)
        for k in range(3, -1, -1):
            total += window[k]
        y[0] = total
        y[1] = small[0]

    x = np.array([1, 2, 3, 4], np.float64)
    y = np.zeros(2, np.float32)
    emulator.run(kernel, (types.CPointer(types.float64), types.CPointer(types.float32), types.int64), 1, 1, [x, y, 300])
    total = np.float32(0)
    for value in x[::-1]:
        total += np.float32(value * 0.1)
    assert y.tolist() == [total, np.int8(300 - 256)]


def test_lengths_of_arrays() -> None:
    """Of an operand, a shared and a local array; also where the memory behind them is longer."""

    def kernel(x, y):
        shared, local = cuda.shared.array(5, int32), cuda.local.array(3, float32)
        y[0], y[1], y[2] = x.size, len(x), x.shape[0]
        y[3], y[4] = shared.size, len(local)

    y = np.zeros(5, np.int64)
    emulator.run(kernel, (types.float32[::1], types.int64[::1]), 1, 1, [np.ones(9, np.float32)[1:8], y])
    assert list(y) == [7, 7, 7, 5, 3]


@pytest.mark.parametrize("kind", ["i8", "u8", "i16", "i32", "u32", "i64", "u64"])
def test_leading_zeros(kind: str) -> None:
    entry = program.entry_of(_leading_zeros, (jit.SCALARS[kind],))
    width = 8 * NUMPY[kind](0).itemsize
    for value in edges(kind):
        assert entry(None, value) == width - (value % 2**width).bit_length()


def _leading_zeros(a):
    return cuda.clz(a)


@pytest.mark.parametrize("kind", ["i32", "u32", "i64", "u64"])
def test_set_bits_and_the_first_of_them(kind: str) -> None:
    entry = program.entry_of(_set_bits, (jit.SCALARS[kind],))
    for value in edges(kind):
        bits = value % 2 ** (8 * NUMPY[kind](0).itemsize)
        assert entry(None, value) == (bits.bit_count(), (bits & -bits).bit_length())


def _set_bits(a):
    return cuda.popc(a), cuda.ffs(a)


def test_device_functions_are_typed_for_each_call() -> None:
    @jit.device
    def double(a):
        return a + a

    def function(a, b):
        return double(a), double(b), double(double(float32(a)))

    pair = Pair(function, "i32 f64", truth=_doubles)
    assert str(pair.result) == "Tuple(int64, float64, float32)"
    pair.agree(2**31 - 1, 0.1)


@numba.njit
def _double(a):
    return a + a


def _doubles(a, b):
    return _double(a), _double(b), _double(_double(float32(a)))


I32, I64, U32, U64 = (st.integers(int(np.iinfo(t).min), int(np.iinfo(t).max)) for t in (np.int32, np.int64, np.uint32, np.uint64))
F32 = st.floats(width=32)


def _polynomial(a, b, c):
    x = (a * b - c) ^ (a << 7)
    return (x >> 3) + (b & 255) * c, int32(x) * int32(b), uint32(x) + uint32(c)


def _floats(a, b):
    total = a * b + a
    return total, total - b, (a + b) / (a - b), a * 0.1, float32(float64(a) + b), a < b, a == b, max(int32(3), int32(5)) * a


_made: dict[Any, Pair] = {}


def _pair(function: Any, kinds: str) -> Pair:
    return _made.setdefault((function, kinds), Pair(function, kinds)) if (function, kinds) not in _made else _made[function, kinds]


@settings(max_examples=100, deadline=None)
@given(I32, I64, U32)
def test_random_integers(a: int, b: int, c: int) -> None:
    _pair(_polynomial, "i32 i64 u32").agree(a, b, c)


@settings(max_examples=100, deadline=None)
@given(F32, F32)
def test_random_floats(a: float, b: float) -> None:
    _pair(_floats, "f32 f32").agree(a, b)


@settings(max_examples=50, deadline=None)
@given(st.one_of(I64, U64), st.floats())
def test_random_conversions(a: int, b: float) -> None:
    assert int_to_float(a, 32) == float(np.float32(np.uint64(a) if a > 0 else np.int64(a)))
    assert int_to_float(a, 64) == float(a)
    with np.errstate(all="ignore"):
        assert bits(f32(b)) == bits(float(np.float32(b)))
    assert wrap(a, 32) == np.array(a & (2**64 - 1), np.uint64).astype(np.int32)


@pytest.mark.parametrize("values, sign", [((1, 0), "//"), ((1, 0), "%"), ((1, 64), "<<"), ((1, -1), ">>")])
def test_undefined_arithmetic_is_a_fault_with_its_line(values: tuple[int, int], sign: str) -> None:
    def kernel(y, a, b):
        if mode == 0:
            y[0] = a // b
        elif mode == 1:
            y[0] = a % b
        elif mode == 2:
            y[0] = a << b
        else:
            y[0] = a >> b

    mode = ["//", "%", "<<", ">>"].index(sign)
    with pytest.raises(ScalarFault, match=r"test_emulator_scalars\.py:\d+: .* \(block 0 thread 0\)"):
        emulator.run(kernel, (types.CPointer(types.int64), types.int64, types.int64), 1, 1, [np.zeros(1, np.int64), *values])


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.0**31, -(2.0**31) - 1])
def test_floats_that_fit_no_integer_are_a_fault(value: float) -> None:
    with pytest.raises(ScalarFault, match="does not fit int32"):
        program.entry_of(_to_int32, (types.float64,))(None, value)


def _to_int32(a):
    return int32(a)


def _prints(y, a):
    print(a)


def _raises(y, a):
    if a > 3:
        raise ValueError("too large")


def _catches(y, a):
    try:
        y[0] = a
    except Exception:
        y[0] = 0


def _dict(y, a):
    y[0] = {1: a}[1]


def _list(y, a):
    y[0] = [a, a][0]


def _array_sum(y, a):
    y[0] = np.sum(y)


def _slice(y, a):
    z = y[1:]
    z[0] = a


def _mask(y, a):
    y[0] = cuda.activemask()


def _float_floor(y, a):
    y[0] = float32(a) // float32(2)


def _power(y, a):
    y[0] = float32(a) ** 2


def _mixed_max(y, a):
    y[0] = max(float32(a), float64(2))


def _gamma(y, a):
    y[0] = math.lgamma(float32(a))


def _grid_2d(y, a):
    i, j = cuda.grid(2)
    y[i] = j


def _fused(y, a):
    y[0] = cuda.fma(float32(a), float32(a), float32(a))


def _rounded(y, a):
    y[0] = round(float32(a))


def _starred(y, a):
    pair = (a, a)
    y[0] = min(*pair)


def _cube(y, a):
    tile = cuda.shared.array((4, 4), float32)
    tile[1, 2] = a


def _two_registers(y, a):
    """Numba types both as Dim3: which one it is shows only at run time."""
    where = cuda.threadIdx if a > 0 else cuda.blockIdx
    y[0] = where.x


@jit.device
def _with_default(a, b=3):
    return a + b


def _default(y, a):
    y[0] = _with_default(a)


def _fence_block(y, a):
    cuda.threadfence_block()


UNKNOWN = [
    _prints, _raises, _slice, _mask, _float_floor, _power, _mixed_max, _gamma, _grid_2d, _fused, _rounded, _cube,
    _two_registers, _default, _fence_block,
]  # fmt: skip
NOT_CUDA = [_catches, _dict, _list, _array_sum, _starred]


@pytest.mark.parametrize("kernel", UNKNOWN, ids=lambda f: f.__name__[1:])
def test_unknown_constructs_are_errors(kernel: Any) -> None:
    for _ in range(2):
        with pytest.raises(UnknownConstruct):
            emulator.run(kernel, (types.float32[::1], types.int64), 1, 1, [np.ones(4, np.float32), 2])


@pytest.mark.parametrize("kernel", NOT_CUDA, ids=lambda f: f.__name__[1:])
def test_what_numba_refuses_is_an_error(kernel: Any) -> None:
    with pytest.raises((UnknownConstruct, NumbaError)):
        emulator.run(kernel, (types.float32[::1], types.int64), 1, 1, [np.ones(4, np.float32), 2])
