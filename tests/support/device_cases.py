"""Helpers of the device library's tests: one kernel in the emulator, on a GPU where there is one, and compiled."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import sass
from numba import cuda
from numba.cuda import types

from numba_baracuda.emulator import emulator
from numba_baracuda.emulator.emulator import Mode
from numba_baracuda.runtime import jit

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


def typed(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The types by which numba knows 1-D contiguous arrays."""
    return tuple(types.Array(getattr(types, array.dtype.name), 1, "C") for array in arrays)


class Emulated:
    """Runs kernels in the emulator; results are in the arrays afterwards."""

    compiles = False

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    def __call__(self, kernel: Callable[..., None], grid: int, block: int, *arrays: Any) -> None:
        emulator.run(kernel, typed(arrays), grid, block, arrays, mode=self.mode)

    def some(self, values: Any, step: int = 61) -> Any:
        """All values, or every ``step``-th where a lane can be preempted at every access."""
        return np.ascontiguousarray(values[::step]) if self.mode.checked else values


@functools.cache
def _dispatcher(kernel: Callable[..., None]) -> Any:
    return cuda.jit(kernel)


class OnDevice:
    """Runs kernels through numba's own dispatcher on CuPy arrays, and copies the results back."""

    compiles = True  #: each kernel takes some tenths of a second

    def __call__(self, kernel: Callable[..., None], grid: int, block: int, *arrays: Any) -> None:
        cupy = pytest.importorskip("cupy")
        given = [cupy.asarray(array) for array in arrays]
        _dispatcher(kernel)[grid, block](*given)
        for array, left in zip(arrays, given, strict=True):
            array[...] = cupy.asnumpy(left)

    def some(self, values: Any, step: int = 61) -> Any:
        return values


EMULATED = [pytest.param(Emulated(Mode()), id="fast"), *(pytest.param(Emulated(Mode(seed)), id=f"seed-{seed}") for seed in range(2))]
everywhere = pytest.mark.parametrize("run", [*EMULATED, pytest.param(OnDevice(), id="gpu", marks=pytest.mark.gpu)])
emulated = pytest.mark.parametrize("run", EMULATED)


class Case(NamedTuple):
    """A kernel to compile, and patterns that its SASS for sm_90 must and must not match; float64 arithmetic only with ``double``."""

    kernel: Callable[..., None]
    argument_types: tuple[Any, ...]
    wanted: Sequence[str] = ()
    unwanted: Sequence[str] = ()
    double: bool = False


def codes_of(cases: Sequence[Case], arch: str = "sm_90") -> list[str]:
    """The SASS of kernels, which must not spill, nor compute in float64 without ``double``."""
    cubins = [jit.assemble(case.kernel, case.argument_types, arch) for case in cases]
    texts = sass.disassemble_all(cubins, arch)
    for case, cubin, text in zip(cases, cubins, texts, strict=True):
        assert sass.resource_faults(cubin) == [], (arch, case)
        assert not re.search(r"\b(LDL|STL)\b", text), (arch, case)
        assert case.double or not sass.DOUBLE.search(text), (arch, case)
    return texts


def code_of(kernel: Callable[..., None], argument_types: tuple[Any, ...], arch: str = "sm_90") -> str:
    """The SASS of one kernel."""
    return codes_of([Case(kernel, argument_types)], arch)[0]


def check_everywhere(*cases: Case) -> None:
    """Each case compiles without faults for every architecture, and its SASS for sm_90 matches its patterns."""
    for arch in ARCHITECTURES:
        texts = codes_of(cases, arch)
        if arch == "sm_90":
            for case, text in zip(cases, texts, strict=True):
                listing = "\n".join(re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?);", text))
                assert all(re.search(pattern, text) for pattern in case.wanted), f"wants {case.wanted} in\n{listing}"
                assert not any(re.search(pattern, text) for pattern in case.unwanted), f"wants no {case.unwanted} in\n{listing}"


def same(got: Any, wanted: Any) -> None:
    """Equal bits; NaNs equal any NaN."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    if got.dtype.kind in "fV":
        nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(got), nan)
        got, wanted = got[~nan], wanted[~nan]
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), wanted.view(f"u{wanted.itemsize}"))


def nearest(value: Fraction, kind: str) -> float:
    """An exact number rounded to nearest even, in integers; zero comes out positive."""
    digits, least, largest = (11, -24, 16) if kind == "f16" else (8, -133, 128)
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent += magnitude >= Fraction(2) ** exponent
    step = Fraction(2) ** max(exponent - digits, least)
    whole, rest = divmod(magnitude, step)
    whole += rest * 2 > step or (rest * 2 == step and whole % 2 == 1)
    rounded = whole * step
    return math.copysign(math.inf if rounded >= Fraction(2) ** largest else float(rounded), value)


def chosen(operation: str, a: float, b: float) -> float:
    """The greater or the lesser of two numbers: NaN wins, and −0 is less than +0."""
    if a != a or b != b:
        return math.nan
    return sorted((a, b), key=lambda x: (x, math.copysign(1, x)))[operation == "max"]
