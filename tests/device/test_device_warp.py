"""Warp collectives: every monoid, every group of lanes, folded in the order that is documented."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
import sass
from collectives import ARGMAX, CASES, Case, Reference, emulated, load_store_of, on_device, one_result
from device_cases import ARCHITECTURES
from numba import cuda
from numba.cuda import types

from numba_baracuda import device
from numba_baracuda.algebra import MEAN, SUM, KernelMonoid, Monoid
from numba_baracuda.core.errors import InvalidProblem
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.runtime import jit

SEEDS = (None, 0)
LANES = (1, 2, 4, 8, 16, 32)
#: case and lanes: all of each at least once
PAIRS = [*((name, 32) for name in CASES), *((name, lanes) for name in ("sum-f32", "affine") for lanes in LANES[:-1])]
MASKS = {"none": 0.0, "some": 0.2, "most": 0.8, "all": 1.0}


@functools.cache
def reduce_kernel(name: str, lanes: int, threads: int = 64) -> Any:
    case = CASES[name]
    return one_result(device.warp_reduce(case.monoid, case.kind, lanes), case.kinds, threads)


@functools.cache
def scan_kernel(name: str, lanes: int, exclusive: bool, threads: int = 64) -> Any:
    case = CASES[name]
    return one_result(device.warp_scan(case.monoid, case.kind, lanes, exclusive), case.kinds, threads)


@functools.cache
def segmented_kernel(name: str, threads: int = 64) -> Any:
    case = CASES[name]
    collective = device.segmented_warp_scan(case.monoid, case.kind)
    load, store = load_store_of(case.kinds, threads)

    def kernel(x, y, heads):
        i = cuda.threadIdx.x
        store(y, i, collective(load(x, i), heads[i] != 0))

    return kernel


def groups(case: Case, lanes: int, count: int = 64) -> tuple[Reference, list[Any]]:
    reference = Reference(case)
    states = reference.unpack(case.states(count))
    return reference, [states[first : first + lanes] for first in range(0, count, lanes)]


def reduced(case: Case, lanes: int, count: int = 64) -> tuple[Reference, list[Any]]:
    reference, parts = groups(case, lanes, count)
    return reference, [reference.tree(part) for part in parts for _ in part]


def scanned(case: Case, lanes: int, exclusive: bool, count: int = 64) -> tuple[Reference, list[Any]]:
    reference, parts = groups(case, lanes, count)
    wanted = [reference.prefixes(part) for part in parts]
    if exclusive:
        wanted = [[reference.identity, *part[:-1]] for part in wanted]
    return reference, [prefix for part in wanted for prefix in part]


def heads_of(share: float, count: int = 64) -> Any:
    return (np.random.default_rng(3).uniform(0, 1, count) < share).astype(np.int32)


def segmented(case: Case, heads: Any) -> tuple[Reference, list[Any]]:
    reference, warps = groups(case, 32, len(heads))
    wanted: list[Any] = []
    for number, part in enumerate(warps):
        starts = [k for k in range(len(part)) if k == 0 or heads[32 * number + k]]
        for first, last in zip(starts, [*starts[1:], len(part)], strict=True):
            wanted += reference.prefixes(part[first:last])
    return reference, wanted


@pytest.mark.parametrize(("name", "lanes"), PAIRS)
def test_reduce(name: str, lanes: int) -> None:
    case = CASES[name]
    reference, wanted = reduced(case, lanes)
    for seed in SEEDS:
        reference.expect(emulated(reduce_kernel(name, lanes), 64, case.states(64), len(case.kinds), seed), wanted)


@pytest.mark.parametrize("exclusive", [False, True], ids=["inclusive", "exclusive"])
@pytest.mark.parametrize(("name", "lanes"), PAIRS)
def test_scan(name: str, lanes: int, exclusive: bool) -> None:
    case = CASES[name]
    reference, wanted = scanned(case, lanes, exclusive)
    for seed in SEEDS:
        reference.expect(emulated(scan_kernel(name, lanes, exclusive), 64, case.states(64), len(case.kinds), seed), wanted)


@pytest.mark.parametrize("share", MASKS)
@pytest.mark.parametrize("name", ["sum-i32", "affine", "argmax", "welford"])
def test_segmented_scan(name: str, share: str) -> None:
    case, heads = CASES[name], heads_of(MASKS[share])
    reference, wanted = segmented(case, heads)
    for seed in SEEDS:
        reference.expect(emulated(segmented_kernel(name), 64, case.states(64), len(case.kinds), seed, heads), wanted)


def test_nan_stays_in_its_segment() -> None:
    heads = np.array([0, 1] * 16, np.int32)
    x = np.ones((1, 32))
    x[0, 5] = np.nan
    made = emulated(segmented_kernel("sum-f32", 32), 32, x, 1, None, heads)[0]
    assert list(np.flatnonzero(np.isnan(made))) == [5, 6]


@pytest.mark.parametrize("threads", [1, 9, 40])
def test_scans_in_a_last_warp_with_lanes_missing(threads: int) -> None:
    case = CASES["affine"]
    heads = heads_of(0.3, threads)
    for seed in SEEDS:
        reference, wanted = scanned(case, 32, True, threads)
        reference.expect(emulated(scan_kernel("affine", 32, True, threads), threads, case.states(threads), 2, seed), wanted)
        reference, wanted = segmented(case, heads)
        reference.expect(emulated(segmented_kernel("affine", threads), threads, case.states(threads), 2, seed, heads), wanted)


def test_reductions_in_a_last_warp_with_groups_missing() -> None:
    case = CASES["affine"]
    reference, wanted = reduced(case, 8, 40)
    for seed in SEEDS:
        reference.expect(emulated(reduce_kernel("affine", 8, 40), 40, case.states(40), 2, seed), wanted)


@pytest.mark.parametrize("name", ["gcd by default", "a device function"])
def test_monoids_of_a_user(name: str) -> None:
    """Only identity and combine are needed; combine may be a device function already."""

    def gcd(a, b):
        while b != 0:
            a, b = b, a % b
        return a

    combine = cuda.jit(device=True)(gcd) if name == "a device function" else gcd
    collective = device.warp_reduce(Monoid("gcd", (0,), combine=combine), types.int64)

    @cuda.jit
    def kernel(x, y):
        y[cuda.threadIdx.x] = collective(x[cuda.threadIdx.x])

    x, y = np.random.default_rng(0).integers(1, 10**6, 32) * 84, np.zeros(32, np.int64)
    device.emulate(kernel)[1, 32](x, y)
    assert set(y) == {np.gcd.reduce(x)}


def test_defaults_of_a_monoid() -> None:
    made = KernelMonoid("some", (0,), combine=max)
    assert (made.lift(3, 0, 1), made.finish((1, 2), 7, 1), made.finishes, made.width) == (3, (1, 2), False, 1)
    assert MEAN.finishes and not SUM.finishes
    assert (MEAN.finish(6, 3, 1), SUM.finish(6, 3, 1), MEAN.lift(2, 0, 1)) == (2, 6, 2)


def test_the_same_arguments_give_the_same_function() -> None:
    assert device.warp_reduce(SUM, "f32") is device.warp_reduce(SUM, types.float32, lanes=32) is device.warp_reduce(SUM, (types.float32,))
    assert device.warp_scan(SUM, "i32", 32, False) is device.warp_scan(SUM, "int32", exclusive=False)
    assert device.segmented_warp_scan(SUM, "i64") is device.segmented_warp_scan(SUM, types.int64)
    assert device.warp_reduce(SUM, "f32") is not device.warp_reduce(SUM, "f64")


WRONG = {
    "lanes": (lambda: device.warp_reduce(SUM, "f32", 12), r"warp_reduce: lanes is 12, wants a power of two from 1 to 32"),
    "too many lanes": (lambda: device.warp_scan(SUM, "f32", 64), r"warp_scan: lanes is 64, wants a power of two from 1 to 32"),
    "monoid": (lambda: device.warp_reduce("sum", "f32"), r"warp_reduce: monoid is 'sum', wants a numba_baracuda.algebra.Monoid"),
    "small kind": (
        lambda: device.segmented_warp_scan(SUM, types.float16),
        r"segmented_warp_scan: kind is float16, wants one of i32, .*widen smaller ones",
    ),
    "bf16": (lambda: device.warp_reduce(SUM, "bf16"), r"kind is bf16, wants one of"),
    "no kind": (lambda: device.warp_reduce(SUM, None), r"kind is None, wants one of"),
    "too wide a kind": (lambda: device.warp_reduce(SUM, ("f32", "f32")), r"kind is \(f32, f32\), wants one type for monoid sum"),
    "too narrow a kind": (lambda: device.warp_reduce(ARGMAX, "f32"), r"kind is f32, wants a tuple of 2 for monoid argmax"),
    "identity": (lambda: device.warp_reduce(ARGMAX, ("i32", "i64")), r"the identity of monoid argmax holds -inf, wants a value of int32"),
    "fraction": (lambda: device.warp_reduce(Monoid("odd", (0.5,), max), "i32"), r"holds 0.5, wants a value of int32"),
    "no tuple": (lambda: device.warp_reduce(Monoid("odd", 0, max), "i32"), r"identity of monoid odd is 0, wants a tuple of 1 to 4 numbers"),
    "width": (lambda: device.warp_reduce(Monoid("odd", (0,) * 5, max), ("i32",) * 5), r"wants a tuple of 1 to 4 numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(InvalidProblem, match=message):
        make()


# ---------------------------------------------------------------- machine code


@jit.kernel
def compiled(*, what: str, name: str, lanes: int) -> Any:
    if what == "segmented":
        return segmented_kernel(name)
    return reduce_kernel(name, lanes) if what == "reduce" else scan_kernel(name, lanes, what == "exclusive")


#: kernel, case, lanes -> shuffles in the machine code
COMPILED = {
    ("reduce", "sum-f32", 32): 5, ("reduce", "sum-u64", 8): 6, ("reduce", "affine", 32): 10, ("reduce", "welford", 16): 12,
    ("reduce", "logsumexp", 32): 10, ("reduce", "argmax", 32): 15, ("scan", "sum-f32", 32): 5, ("exclusive", "sum-u32", 4): 3,
    ("segmented", "sum-f32", 32): 5,
}  # fmt: skip


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_machine_code(arch: str) -> None:
    specs, cubins = [], []
    for what, name, lanes in COMPILED:
        specs.append(KernelSpec(f"{__name__}:compiled", (("lanes", lanes), ("name", name), ("what", what)), max_threads=64))
        kinds = (types.float32, types.float32, types.int32)[: 3 if what == "segmented" else 2]
        cubins.append(jit.assemble(jit.resolve(specs[-1]).py_func, tuple(map(types.CPointer, kinds)), arch, 64))
    for spec, cubin, text, shuffles in zip(specs, cubins, sass.disassemble_all(cubins, arch), COMPILED.values(), strict=True):
        assert sass.resource_faults(cubin) + sass.code_faults(text, spec, cubin) == [], spec.name
        # sm_80 holds one more, with its distance in a register, for warps that have diverged
        assert cubin.shared == 0 and len(re.findall(r"SHFL\.\w+ PT, R\d+, R\d+, 0x", text)) == shuffles, spec.name


# ---------------------------------------------------------------- GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "lanes"), PAIRS)
def test_gpu_equals_emulator(name: str, lanes: int) -> None:
    case = CASES[name]
    x, rows = case.states(64), len(case.kinds)
    for kernel in (reduce_kernel(name, lanes), scan_kernel(name, lanes, False), scan_kernel(name, lanes, True)):
        made, wanted = on_device(kernel, 64, x, rows), emulated(kernel, 64, x, rows, None)
        np.testing.assert_allclose(made, wanted, rtol=2e-5 if case.check == "closely" else 0, atol=1e-6 if case.check == "closely" else 0)


@pytest.mark.gpu
@pytest.mark.parametrize("threads", [9, 64])
@pytest.mark.parametrize("share", MASKS)
def test_gpu_segmented_equals_emulator(share: str, threads: int) -> None:
    heads = heads_of(MASKS[share], threads)
    for name in ("sum-f32", "affine"):
        x, kernel, rows = CASES[name].states(threads), segmented_kernel(name, threads), len(CASES[name].kinds)
        np.testing.assert_array_equal(on_device(kernel, threads, x, rows, heads), emulated(kernel, threads, x, rows, None, heads))


def test_affine_maps_do_not_commute() -> None:
    """What makes the table above a test of order."""
    reference = Reference(CASES["affine"])
    a, b = reference.unpack(CASES["affine"].states(2))
    assert reference.combine(a, b) != reference.combine(b, a)
