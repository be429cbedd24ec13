"""Kernels as a user writes them: a weighted quantile, sums of rows, the page of the device library, and how they are launched in the emulator."""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest
import sass
from numba import cuda
from numba.cuda.types import CPointer, float32, int64
from weighted_quantile import BINS, accumulate, locate, weighted_quantile

from numba_baracuda import device
from numba_baracuda.core.errors import InvalidProblem
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.emulator.conversions import UnknownConstruct
from numba_baracuda.emulator.emulator import Deadlock
from numba_baracuda.emulator.races import Race
from numba_baracuda.runtime import jit

SEEDS = (None, 0, 1)


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, pages.ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rowsum = _load("benchmarks/rowsum.py")

# ---------------------------------------------------------------- weighted quantile


def samples(count: int, integers: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(count)
    weights = rng.integers(0, 9, count) if integers else rng.uniform(0, 1, count)
    return rng.normal(0, 1, count).clip(-4, 4).astype(np.float32), weights.astype(np.float32)


def quantile_by_numpy(values: Any, weights: Any, q: float) -> float:
    """The same bins and the same float32 arithmetic; exact where the sums are."""
    one = np.float32
    histogram = np.histogram(values, BINS, (-4, 4), weights=weights)[0].astype(one)
    up_to = np.cumsum(histogram, dtype=one)
    target = one(q) * up_to[-1]
    k = int(np.flatnonzero((up_to > 0) & (up_to >= target))[0])
    part = (target - (up_to[k] - histogram[k])) / histogram[k] if histogram[k] else one(0)
    return float(one(-4) + (one(k) + part) * one(8 / BINS))


@pytest.mark.parametrize("q", [0, 0.25, 0.5, 0.9, 1])
def test_weighted_quantile(q: float) -> None:
    for integers in (True, False):
        values, weights = samples(3000, integers)
        order = np.argsort(values)
        up_to = np.cumsum(weights[order], dtype=float)
        truth = values[order][np.searchsorted(up_to, max(q * up_to[-1], 1e-6))] if q < 1 else values[weights > 0].max()
        for seed in SEEDS[:2]:
            found = weighted_quantile(values, weights, q, -4, 4, start=partial(device.emulate, seed=seed))
            assert abs(found - truth) <= 8 / BINS
            if integers:
                assert found == quantile_by_numpy(values, weights, q)


def test_weighted_quantile_leaves_out_what_is_not_in_range() -> None:
    values = np.array([0.5, np.nan, -5, 7, np.inf, 4], np.float32)
    assert 0.5 <= weighted_quantile(values, np.ones(6, np.float32), 0.5, -4, 4) <= 0.5 + 8 / BINS
    assert np.isnan(weighted_quantile(values[1:4], np.ones(3, np.float32), 0.5, -4, 4))


@pytest.mark.compile
@pytest.mark.parametrize(("kernel", "signature"), [(accumulate, "aaffa"), (locate, "afffa")], ids=["accumulate", "locate"])
def test_weighted_quantile_has_no_float64(kernel: Any, signature: str) -> None:
    text, _ = jit.compile_ptx(kernel.py_func, tuple({"a": float32[::1], "f": float32}[each] for each in signature), "sm_90", BINS)
    assert ".f64" not in text and "div.s64" not in text and ".shared" in text


@pytest.mark.gpu
@pytest.mark.parametrize("q", [0, 0.25, 0.5, 1])
def test_gpu_weighted_quantile(q: float) -> None:
    """The products that the GPU might fuse are exact for these q, so the result has the same bits."""
    import cupy

    values, weights = samples(100_000, integers=True)
    found = weighted_quantile(cupy.asarray(values), cupy.asarray(weights), q, -4, 4, xp=cupy, start=lambda kernel: kernel)
    assert found == quantile_by_numpy(values, weights, q)


# ---------------------------------------------------------------- sums of rows


def row_sums_by_numpy(x: Any) -> Any:
    """The kernel's order of additions."""
    rows, columns = x.shape
    padded = np.zeros((rows, -(-columns // rowsum.STEP), rowsum.THREADS, rowsum.VECTOR), np.float32)
    padded.reshape(rows, -1)[:, :columns] = x
    partial_sums = np.zeros_like(padded[:, 0])
    for step in range(padded.shape[1]):
        partial_sums = partial_sums + padded[:, step]
    values = (partial_sums[..., 0] + partial_sums[..., 1]) + (partial_sums[..., 2] + partial_sums[..., 3])
    while values.shape[1] > 1:
        values = values[:, ::2] + values[:, 1::2]
    return values[:, 0]


@pytest.mark.parametrize("columns", [4, 1000, 1024, 3072, 4096, 7172])
def test_row_sum(columns: int) -> None:
    x, out = np.random.default_rng(columns).standard_normal((2, columns)).astype(np.float32), np.zeros(2, np.float32)
    for seed in SEEDS[:2]:
        device.emulate(rowsum.row_sum, seed=seed)[rowsum.launch(2, columns)](x.reshape(-1), out, columns)
        np.testing.assert_array_equal(out, row_sums_by_numpy(x))


def test_row_sum_wants_whole_vectors() -> None:
    with pytest.raises(ValueError, match="columns is 6, wants a multiple of 4"):
        rowsum.launch(2, 6)


@jit.kernel
def compiled() -> Any:
    return rowsum.row_sum.py_func


@pytest.mark.compile
def test_row_sum_machine_code() -> None:
    """Four 16-byte loads start before the first addition waits for one."""
    for arch in ("sm_80", "sm_90", "sm_100"):
        spec = KernelSpec(f"{__name__}:compiled", (), max_threads=rowsum.THREADS)
        cubin = jit.assemble(rowsum.row_sum.py_func, (CPointer(float32), CPointer(float32), int64), arch, rowsum.THREADS)
        text = sass.disassemble(cubin)
        assert sass.resource_faults(cubin) + sass.code_faults(text, spec, cubin) == []
        code = re.findall(r"\b(LDG\.E\.128\.CONSTANT|FADD)\b", text)
        assert code.count("LDG.E.128.CONSTANT") == 7, arch
        assert "LDG.E.128.CONSTANT " * 4 in " ".join(code) + " ", arch


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (3, 1000), (1000, 8192), (7, 1 << 20)])
def test_gpu_row_sum(rows: int, columns: int) -> None:
    import cupy

    x = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    out = cupy.zeros(rows, np.float32)
    rowsum.row_sum[rowsum.launch(rows, columns)](cupy.asarray(x).reshape(-1), out, columns)
    np.testing.assert_array_equal(cupy.asnumpy(out), row_sums_by_numpy(x))


# ---------------------------------------------------------------- launches in the emulator


@cuda.jit
def scale(x, y, factor, offsets):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i] * factor + offsets[0] - offsets[1]


@pytest.mark.parametrize("kernel", [scale, scale.py_func, jit.Kernel(scale.py_func, None)], ids=["dispatcher", "function", "Kernel"])
def test_emulate_takes_every_kind_of_kernel(kernel: Any) -> None:
    x = np.arange(10, dtype=np.float32)
    for configuration in [(3, 4), ((3,), (4, 1, 1)), (3, np.int64(4), None), (3, 4, 0, 64)]:
        for seed in SEEDS[:2]:
            y = np.zeros_like(x)
            device.emulate(kernel, seed)[configuration](x, y, np.float32(3), (5, 2.5))
            np.testing.assert_array_equal(y, 3 * x + 2.5)


def test_arguments_are_typed_as_in_a_launch() -> None:
    """A Python int is an int64, a float a float64; NumPy numbers keep their type."""

    def kernel(y, number):
        y[0] = number + number

    for number, wanted in [(2**40, 2**41), (np.int32(2**31 - 1), 2**32 - 2), (0.5, 1), (True, 2), (np.uint8(200), 400)]:
        y = np.zeros(1, np.int64)
        device.emulate(kernel)[1, 1](y, number)
        assert y[0] == wanted

    def single(y, number):
        y[0] = number * number

    for number in (np.float32(1.1), 1.1):
        wide = np.zeros(1)
        device.emulate(single)[1, 1](wide, number)
        assert wide[0] == number * number


def test_bfloat16_arrays() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def kernel(x, y):
        y[cuda.grid(1)] = device.bf16_to_f32(device.bf16_as_u16(x[cuda.grid(1)]))

    x, y = np.arange(8).astype(ml_dtypes.bfloat16), np.zeros(8, np.float32)
    device.emulate(kernel)[1, 8](x, y)
    assert list(y) == list(range(8))


def test_dynamic_shared_memory_is_the_fourth() -> None:
    def kernel(y):
        shared = cuda.shared.array(0, float32)
        shared[cuda.threadIdx.x] = float32(cuda.threadIdx.x)
        cuda.syncthreads()
        y[cuda.threadIdx.x] = shared[cuda.blockDim.x - 1 - cuda.threadIdx.x]

    y = np.zeros(8, np.float32)
    device.emulate(kernel, seed=0)[1, 8, None, 32](y)
    assert list(y) == list(range(7, -1, -1))


def test_a_seed_finds_races() -> None:
    def kernel(y):
        y[0] = y[0] + 1

    device.emulate(kernel)[1, 32](np.zeros(1, np.int32))
    with pytest.raises(Race):
        device.emulate(kernel, seed=0)[1, 32](np.zeros(1, np.int32))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_blocks_can_be_resident(seed: int | None) -> None:
    def kernel(arrived):
        if cuda.threadIdx.x == 0:
            cuda.atomic.add(arrived, 0, 1)
            while cuda.atomic.add(arrived, 0, 0) < cuda.gridDim.x:
                cuda.nanosleep(20)

    arrived = np.zeros(1, np.int32)
    device.emulate(kernel, seed, resident=9)[9, 2](arrived)
    assert arrived[0] == 9
    with pytest.raises(Deadlock):
        device.emulate(kernel, seed, resident=8)[9, 2](np.zeros(1, np.int32))


NUMBERS = np.zeros(8, np.float32)
REFUSED = {
    "two dimensions": (
        NUMBERS.reshape(2, 4),
        r"argument 0 has shape \(2, 4\) and strides \(16, 4\), wants a 1-D C-contiguous array: x.reshape\(-1\)",
    ),
    "strides": (NUMBERS[::2], r"argument 0 has shape \(4,\) and strides \(8,\), wants a 1-D C-contiguous array"),
    "complex": (NUMBERS.astype(np.complex64), r"argument 0 is an array of complex64, wants one of bool, int8, .*, bfloat16"),
    "byte order": (NUMBERS.astype(">f4"), r"argument 0 is an array of >f4, wants"),
    "objects": (NUMBERS.astype(object), r"argument 0 is an array of object, wants"),
    "string": ("x", r"argument 0 is 'x', wants a NumPy array or a number"),
    "nothing": (None, r"argument 0 is None, wants a NumPy array or a number"),
    "complex number": (1j, r"argument 0 is 1j, wants a NumPy array or a number"),
    "foreign": (Path("x"), r"argument 0 is a pathlib[.\w]+, wants a NumPy array or a number"),
    "in a tuple": ((1, None), r"argument 0 is None, wants a NumPy array or a number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_are_refused(name: str) -> None:
    value, message = REFUSED[name]
    with pytest.raises(InvalidProblem, match=f"emulate: {message}"):
        device.emulate(scale)[1, 8](value, NUMBERS, 1, (1, 2))


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        (8, r"the configuration is 8, wants \[blocks, threads\] or \[blocks, threads, stream, shared_bytes\]"),
        ((1, 2, 3, 4, 5), r"the configuration is \(1, 2, 3, 4, 5\), wants"),
        ((0, 32), r"blocks is 0, wants one dimension, of 1 to 2147483647"),
        ((1, 1025), r"threads is 1025, wants one dimension, of 1 to 1024"),
        (((2, 2), 32), r"blocks is \(2, 2\), wants one dimension"),
        ((1.0, 32), r"blocks is 1.0, wants one dimension"),
        ((1, 32, None, -1), r"shared_bytes is -1, wants a number of bytes"),
    ],
)
def test_configurations_that_are_refused(configuration: Any, message: str) -> None:
    with pytest.raises(InvalidProblem, match=f"emulate: {message}"):
        device.emulate(scale)[configuration]


def test_kernels_that_are_refused() -> None:
    with pytest.raises(InvalidProblem, match=r"emulate: kernel is 3, wants a kernel made by numba\.cuda\.jit, or its function"):
        device.emulate(3)
    with pytest.raises(InvalidProblem, match="emulate: kernel is the device function add_held, wants a kernel"):
        device.emulate(rowsum.add_held)
    with pytest.raises(InvalidProblem, match="emulate: resident is 0, wants a number of blocks"):
        device.emulate(scale, resident=0)
    with pytest.raises(UnknownConstruct):
        device.emulate(lambda x: print(x[0]))[1, 1](NUMBERS)


# ---------------------------------------------------------------- docs/device.md


@pytest.mark.parametrize("name", device.__all__)
def test_the_page_names_every_function(name: str) -> None:
    assert re.search(rf"`{name}\b", pages.TEXTS["docs/device.md"]), name
