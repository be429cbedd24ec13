"""Block collectives: every monoid, every kind of block size, called again and again, folded in the order that is documented."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import sass
from collectives import CASES, Case, Reference, emulated, on_device, one_result, two_results
from numba import cuda
from numba.cuda import types
from numba.cuda.types import CPointer, float32

from numba_baracuda import device
from numba_baracuda.algebra import SUM
from numba_baracuda.core.errors import InvalidProblem
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.emulator.lanes import DivergentBarrier
from numba_baracuda.runtime import jit

SIZES = (1, 31, 32, 33, 96, 128, 256, 1000, 1024)
#: case, threads and calls in a loop
SETTINGS = [
    *((name, threads, 2 if threads < 300 else 1) for threads in SIZES for name in ("sum-f32", "affine")),
    *((name, 70, 3) for name in CASES if name not in ("sum-f32", "affine")),
    *((name, 64, 3) for name in ("argmax", "welford")),
]
SEEDS = (None, 0)


@functools.cache
def reduce_kernel(name: str, threads: int, rounds: int) -> Any:
    case = CASES[name]
    return one_result(device.block_reduce(case.monoid, case.kind, threads), case.kinds, threads, rounds)


@functools.cache
def scan_kernel(name: str, threads: int, rounds: int, exclusive: bool) -> Any:
    case = CASES[name]
    return two_results(device.block_scan(case.monoid, case.kind, threads, exclusive), case.kinds, threads, rounds)


def rounds_of(case: Case, threads: int, rounds: int) -> tuple[Reference, list[list[list[Any]]]]:
    """The states of each round, by warp."""
    reference = Reference(case)
    states = reference.unpack(case.states(threads * rounds))
    blocks = [states[first : first + threads] for first in range(0, len(states), threads)]
    return reference, [[block[first : first + 32] for first in range(0, threads, 32)] for block in blocks]


def reduced(case: Case, threads: int, rounds: int) -> tuple[Reference, list[Any]]:
    reference, blocks = rounds_of(case, threads, rounds)
    join = reference.left if threads % 32 else reference.tree
    totals = [join([reference.tree(warp) for warp in block]) for block in blocks]
    return reference, [total for total in totals for _ in range(threads)]


def scanned(case: Case, threads: int, rounds: int, exclusive: bool) -> tuple[Reference, list[Any], list[Any]]:
    """Prefixes and totals."""
    reference, blocks = rounds_of(case, threads, rounds)
    prefixes, totals = [], []
    for block in blocks:
        made: list[Any] = []
        for warp in block:
            inside = reference.prefixes(warp)
            made += [reference.combine(made[-1], state) for state in inside] if made else inside
        totals += [made[-1]] * threads
        prefixes += [reference.identity, *made[:-1]] if exclusive else made
    return reference, prefixes, totals


@pytest.mark.parametrize(("name", "threads", "rounds"), SETTINGS)
def test_reduce(name: str, threads: int, rounds: int) -> None:
    case = CASES[name]
    reference, wanted = reduced(case, threads, rounds)
    for seed in SEEDS:
        reference.expect(emulated(reduce_kernel(name, threads, rounds), threads, case.states(threads * rounds), len(case.kinds), seed), wanted)


@pytest.mark.parametrize("exclusive", [False, True], ids=["inclusive", "exclusive"])
@pytest.mark.parametrize(("name", "threads", "rounds"), SETTINGS)
def test_scan(name: str, threads: int, rounds: int, exclusive: bool) -> None:
    case = CASES[name]
    rows = len(case.kinds)
    reference, prefixes, totals = scanned(case, threads, rounds, exclusive)
    for seed in SEEDS:
        kernel = scan_kernel(name, threads, rounds, exclusive)
        made = emulated(kernel, threads, case.states(threads * rounds), 2 * rows, seed)
        reference.expect(made[:rows], prefixes)
        reference.expect(made[rows:], totals)


largest = device.block_reduce(CASES["argmax"].monoid, CASES["argmax"].kind, 96)
sum_of = device.block_reduce(SUM, float32, 96)
prefix_of = device.block_scan(SUM, float32, 96)


def several(x, y):
    """Three collectives, one of them at two places, in a loop that all threads leave together."""
    i = cuda.threadIdx.x
    value = x[i]
    for r in range(3):
        winner = largest((value, i))
        value = value / sum_of(value)
        prefix, total = prefix_of(value)
        y[r * 96 + i] = float32(winner[1]) + sum_of(prefix) + total
        if total != total:
            break


def test_several_collectives_in_a_kernel() -> None:
    x = np.random.default_rng(0).uniform(1, 2, 96).astype(np.float32)
    wanted = []
    value = x.astype(float)
    for _ in range(3):
        winner, value = np.argmax(value), value / value.sum()
        wanted.append(np.full(96, winner + np.cumsum(value).sum() + value.sum()))
    results = []
    for seed in (None, *range(5)):
        y = np.zeros(288, np.float32)
        device.emulate(several, seed=seed)[1, 96](x, y)
        np.testing.assert_allclose(y.reshape(3, 96), wanted, rtol=1e-5)
        results.append(y)
    for y in results:
        np.testing.assert_array_equal(y, results[0])


def test_a_thread_that_stays_away_is_an_error() -> None:
    def kernel(x, y):
        if cuda.threadIdx.x < 95:
            y[cuda.threadIdx.x] = sum_of(x[cuda.threadIdx.x])

    with pytest.raises(DivergentBarrier):
        device.emulate(kernel)[1, 96](np.ones(96, np.float32), np.zeros(96, np.float32))


def test_the_same_arguments_give_the_same_function() -> None:
    assert device.block_reduce(SUM, "f32", 96) is sum_of
    assert device.block_scan(SUM, "f32", threads=96, exclusive=False) is prefix_of
    assert device.block_scan(SUM, "f32", 96, True) is not prefix_of


@pytest.mark.parametrize("threads", [0, 1025, -32, 33.5, None])
def test_block_sizes_that_are_none(threads: Any) -> None:
    for make in (device.block_reduce, device.block_scan):
        with pytest.raises(InvalidProblem, match=rf"{make.__name__}: threads is {threads}, wants 1 to 1024"):
            make(SUM, "f32", threads)
        with pytest.raises(InvalidProblem, match=rf"{make.__name__}: kind is int16, wants one of"):
            make(SUM, types.int16, 32)


# ---------------------------------------------------------------- machine code


@jit.kernel
def compiled(*, what: str, name: str, threads: int) -> Any:
    if what == "several":
        return several
    return reduce_kernel(name, threads, 1) if what == "reduce" else scan_kernel(name, threads, 1, what == "exclusive")


#: kernel, case, threads -> bytes of shared memory: one state a warp
COMPILED = {
    ("reduce", "sum-f32", 256): 32, ("reduce", "argmax", 1024): 32 * 12, ("reduce", "welford", 128): 48, ("reduce", "logsumexp", 1000): 256,
    ("inclusive", "sum-f32", 1024): 128, ("exclusive", "affine", 256): 64,
    ("several", "three arrays", 96): 3 * 4 + 3 * 8 + 12 + 12,
}  # fmt: skip


@pytest.mark.compile
@pytest.mark.parametrize(("what", "name", "threads"), COMPILED)
def test_machine_code(what: str, name: str, threads: int) -> None:
    """Clean, and every collective has one shared array, however often it is called."""
    spec = KernelSpec(f"{__name__}:compiled", (("name", name), ("threads", threads), ("what", what)), max_threads=threads)
    for arch in ("sm_80", "sm_90", "sm_100"):
        cubin = jit.assemble(jit.resolve(spec).py_func, (CPointer(float32),) * 2, arch, threads)
        text = sass.disassemble(cubin)
        assert sass.resource_faults(cubin) + sass.code_faults(text, spec, cubin) == [], arch
        assert cubin.shared == COMPILED[what, name, threads], arch
        assert not {"LD.E", "ST.E"} & set(text.split()), f"{arch}: shared memory is reached by generic addresses"


# ---------------------------------------------------------------- GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "threads", "rounds"), SETTINGS)
def test_gpu_equals_emulator(name: str, threads: int, rounds: int) -> None:
    case = CASES[name]
    x, rows = case.states(threads * rounds), len(case.kinds)
    kernels = [(reduce_kernel(name, threads, rounds), rows), *((scan_kernel(name, threads, rounds, each), 2 * rows) for each in (False, True))]
    for kernel, rows in kernels:
        made, wanted = on_device(kernel, threads, x, rows), emulated(kernel, threads, x, rows, None)
        np.testing.assert_allclose(made, wanted, rtol=2e-5 if case.check == "closely" else 0, atol=1e-6 if case.check == "closely" else 0)


@pytest.mark.gpu
def test_gpu_several_collectives() -> None:
    import cupy

    x = np.random.default_rng(0).uniform(1, 2, 96).astype(np.float32)
    y, made = np.zeros(288, np.float32), cupy.zeros(288, np.float32)
    device.emulate(several)[1, 96](x, y)
    cuda.jit(several)[1, 96](cupy.asarray(x), made)
    np.testing.assert_array_equal(cupy.asnumpy(made), y)
