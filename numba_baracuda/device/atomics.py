"""Atomic updates without a result, on pointers and arrays, in global memory.

``red_add(pointer, index, value)`` adds one scalar (f32, f64, 32- and 64-bit integers); ``red_min`` keeps the least signed integer; ``red_add_4`` adds
four neighbouring float32 in one 16-byte access (compute capability 9.0 and above). Relaxed; any thread may call them alone. Each element is atomic by
itself. Sums of floats depend on the order of arrival.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import types

from ..runtime.meanings import CALLS
from .build import ptx_memory


def _red_add(lane: Any, site: str, pointer: Any, index: int, value: Any) -> None:
    CALLS[cuda.atomic.add][0](lane, site, pointer, index, value)


def _suffix(element: Any) -> str:
    return f"{'f' if isinstance(element, types.Float) else 'u'}{element.bitwidth}"


red_add = ptx_memory("red_add", lambda element: f"red.global.add.{_suffix(element)} [$0], $1;", 1, _red_add)


def _red_min(lane: Any, site: str, pointer: Any, index: int, value: Any) -> None:
    CALLS[cuda.atomic.min][0](lane, site, pointer, index, value)


red_min = ptx_memory("red_min", lambda element: f"red.global.min.s{element.bitwidth} [$0], $1;", 1, _red_min)


def _red_add_4(lane: Any, site: str, pointer: Any, index: int, *values: float) -> None:
    pointer.expect_aligned(index, 4, site)
    for k, value in enumerate(values):
        _red_add(lane, site, pointer, index + k, value)


red_add_4 = ptx_memory("red_add_4", "red.global.v4.f32.add [$0], {$1,$2,$3,$4};", 4, _red_add_4, element=types.float32)
