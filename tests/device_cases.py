"""One kernel, everywhere: in the emulator, on a GPU where there is one, and compiled. Shared by the tests of the device library."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import sass
from numba import cuda
from numba.cuda import types

from numba_baracuda.runtime import emulator, jit
from numba_baracuda.runtime.emulator import Mode

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
        """All values, but few of them where a lane can be preempted anywhere."""
        return np.ascontiguousarray(values[::step]) if self.mode.checked else values


@functools.cache
def _dispatcher(kernel: Callable[..., None]) -> Any:
    return cuda.jit(kernel)


class OnDevice:
    """Runs kernels through numba's own dispatcher on CuPy arrays, and copies the results back."""

    compiles = True  #: which takes some tenths of a second for every kernel

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


def code_of(kernel: Callable[..., None], argument_types: tuple[Any, ...], arch: str = "sm_90", double: bool = False) -> str:
    """The SASS of a kernel that must not spill, nor compute in float64 unless ``double``."""
    cubin = jit.assemble(kernel, argument_types, arch)
    assert sass.resource_faults(cubin) == [], arch
    text = sass.disassemble(cubin)
    assert not re.search(r"\b(LDL|STL)\b", text)
    assert double or not sass.DOUBLE.search(text), arch
    return text


def check_everywhere(kernel: Callable[..., None], argument_types: tuple[Any, ...], wanted: Sequence[str] = (), double: bool = False) -> None:
    """Compiles cleanly for every architecture, and the SASS for sm_90 has these patterns."""
    for arch in ARCHITECTURES:
        text = code_of(kernel, argument_types, arch, double)
        if arch == "sm_90":
            for pattern in wanted:
                assert re.search(pattern, text), f"no {pattern} in\n" + "\n".join(re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?);", text))
