"""What the names of ``numba.cuda`` mean in the emulator: index registers, barriers, shuffles, votes, fences, atomics, integer and float functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from numba import cuda

from .emulator import Lane
from .lowering import CALLS, VALUES
from .memory import Pointer

for _register, _text in {"threadIdx": "lane.thread", "blockIdx": "lane.block.index"}.items():
    for _axis in "xyz":
        VALUES[(getattr(cuda, _register), _axis)] = f"{_text}.{_axis}"
for _register, _text in {"blockDim": "lane.launch.block_size", "gridDim": "lane.launch.grid"}.items():
    VALUES[(getattr(cuda, _register), "x")] = _text
    VALUES[(getattr(cuda, _register), "y")] = VALUES[(getattr(cuda, _register), "z")] = "1"
for _register, _text in {"threadIdx": "lane.thread", "blockIdx": "lane.block.index", "blockDim": "None", "gridDim": "None"}.items():
    VALUES[getattr(cuda, _register)] = _text
VALUES[cuda.laneid] = "lane.laneid"
VALUES[cuda.warpsize] = "32"


def means(*stubs: Any, lane: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a Python function as the meaning of stubs; with ``lane`` it takes the lane and the source site first."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for stub in stubs:
            CALLS[stub] = function, lane
        return function

    return register


@means(cuda.grid, lane=True)
def _grid(lane: Lane, _site: str, dimensions: int) -> int:
    if dimensions != 1:
        raise NotImplementedError("grids of more than one dimension")
    return lane.block.index.x * lane.launch.block_size + lane.thread.x


@means(cuda.gridsize, lane=True)
def _gridsize(lane: Lane, _site: str, dimensions: int) -> int:
    if dimensions != 1:
        raise NotImplementedError("grids of more than one dimension")
    return lane.launch.grid * lane.launch.block_size


@means(cuda.syncthreads, lane=True)
def _syncthreads(lane: Lane, site: str) -> None:
    lane.barrier(site)


for _stub, _fold in ((cuda.syncthreads_count, lambda v: sum(map(bool, v))), (cuda.syncthreads_and, lambda v: int(all(v))), (cuda.syncthreads_or, lambda v: int(any(v)))):
    means(_stub, lane=True)(lambda lane, site, value, _fold=_fold: lane.barrier(site, value, _fold))


@means(cuda.syncwarp, lane=True)
def _syncwarp(lane: Lane, site: str, mask: int = -1) -> None:
    lane.warp_meet(site, "syncwarp", mask, None, lambda _values, _lane: None, orders=True)


def _shuffle(name: str, source: Callable[[int, int], int]) -> None:
    def shuffle(lane: Lane, site: str, mask: int, value: Any, operand: int) -> Any:
        def answer(values: dict[int, Any], own: int) -> Any:
            wanted = source(own, wants[own])
            if not 0 <= wanted < 32:
                wanted = own
            if wanted not in values:
                from .emulator import DivergentBarrier

                raise DivergentBarrier(f"{site}: {name} reads lane {wanted}, which is not in the mask {mask & 0xFFFFFFFF:#010x} ({lane})")
            return values[wanted][0]

        wants: dict[int, int] = {}

        def gather(values: dict[int, Any], own: int) -> Any:
            if not wants:
                wants.update({key: given[1] for key, given in values.items()})
            return answer(values, own)

        return lane.warp_meet(site, name, mask, (value, operand), gather)

    means(getattr(cuda, name), lane=True)(shuffle)


_shuffle("shfl_sync", lambda _own, operand: operand % 32)
_shuffle("shfl_up_sync", lambda own, operand: own - operand)
_shuffle("shfl_down_sync", lambda own, operand: own + operand)
_shuffle("shfl_xor_sync", lambda own, operand: own ^ operand)


def _signed(mask: int) -> int:
    return mask - (1 << 32) if mask >> 31 else mask


@means(cuda.ballot_sync, lane=True)
def _ballot(lane: Lane, site: str, mask: int, predicate: Any) -> int:
    return lane.warp_meet(site, "ballot_sync", mask, bool(predicate), lambda values, _own: _signed(sum(1 << k for k, v in values.items() if v)))  # type: ignore[no-any-return]


@means(cuda.all_sync, lane=True)
def _all(lane: Lane, site: str, mask: int, predicate: Any) -> bool:
    return lane.warp_meet(site, "all_sync", mask, bool(predicate), lambda values, _own: all(values.values()))  # type: ignore[no-any-return]


@means(cuda.any_sync, lane=True)
def _any(lane: Lane, site: str, mask: int, predicate: Any) -> bool:
    return lane.warp_meet(site, "any_sync", mask, bool(predicate), lambda values, _own: any(values.values()))  # type: ignore[no-any-return]


@means(cuda.match_any_sync, lane=True)
def _match_any(lane: Lane, site: str, mask: int, value: Any) -> int:
    def answer(values: dict[int, Any], own: int) -> int:
        return _signed(sum(1 << k for k, v in values.items() if v == values[own]))

    return lane.warp_meet(site, "match_any_sync", mask, value, answer)  # type: ignore[no-any-return]


@means(cuda.threadfence, cuda.threadfence_system, lane=True)
def _threadfence(lane: Lane, _site: str) -> None:
    if lane.checked:
        lane.clock.fence()


@means(cuda.nanosleep, lane=True)
def _nanosleep(lane: Lane, _site: str, _nanoseconds: int) -> None:
    lane.pause()


def _wrap_like(pointer: Pointer, value: Any) -> Any:
    """Wraps an integer to the pointer's width and rounds a float32."""
    code = pointer.code
    if code == "f":
        from .scalars import f32

        return f32(value)
    if code in "bhiqBHIQ":
        bits = pointer.size * 8
        value &= (1 << bits) - 1
        return value - (1 << bits) if code in "bhiq" and value >> (bits - 1) else value
    return value


def _atomic(name: str, change: Callable[[Any, Any], Any]) -> None:
    def atomic(lane: Lane, site: str, array: Pointer, index: int, value: Any) -> Any:
        return array.update(lane, index, lambda old: _wrap_like(array, change(old, value)), site)

    means(getattr(cuda.atomic, name), lane=True)(atomic)


def _no_nan(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The comparison of numba's float atomics: a NaN in memory stays, a NaN operand is ignored."""
    return lambda old, value: old if value != value or old != old else choose(old, value)


for _name, _change in {
    "add": operator.add, "sub": operator.sub, "and_": operator.and_, "or_": operator.or_, "xor": operator.xor,
    "max": _no_nan(max), "min": _no_nan(min), "exch": lambda _old, value: value,
}.items():  # fmt: skip
    _atomic(_name, _change)


@means(cuda.atomic.cas, lane=True)
def _cas(lane: Lane, site: str, array: Pointer, index: int, expected: Any, value: Any) -> Any:
    return array.update(lane, index, lambda old: value if old == expected else old, site)


def _unsigned(value: int) -> int:
    return value & 0xFFFFFFFF if -(1 << 31) <= value < 1 << 32 else value & 0xFFFFFFFFFFFFFFFF


means(cuda.popc)(lambda value: _unsigned(value).bit_count())
means(cuda.ffs)(lambda value: (_unsigned(value) & -_unsigned(value)).bit_length())
means(cuda.fma)(lambda a, b, c: a * b + c)


def _total(function: Callable[[float], float], overflow: float) -> Callable[[float], float]:
    """A function of :mod:`math` that answers NaN and infinity instead of raising."""

    def total(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return overflow
        except ValueError:
            return math.nan

    return total


means(math.exp)(_total(math.exp, math.inf))
means(math.log)(lambda x: -math.inf if x == 0 else _total(math.log, math.inf)(x))
means(math.sqrt)(_total(math.sqrt, math.inf))
means(math.fabs)(math.fabs)
means(math.isnan)(math.isnan)
means(math.isinf)(math.isinf)
