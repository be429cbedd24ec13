"""What the names of ``numba.cuda`` mean in the emulator: index registers, barriers, shuffles, votes, fences, atomics, integer and float functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numba import cuda

from .conversions import UnknownConstruct
from .meanings import VALUES, means, means_by_type
from .memory import OUTSIDE, Pointer
from .scalars import f32, wrap

if TYPE_CHECKING:
    from .lanes import Lane

__all__ = ["means"]

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


@means(cuda.grid, lane=True)
def _grid(lane: Lane, _site: str, dimensions: int) -> int:
    if dimensions != 1:
        raise UnknownConstruct("grids of more than one dimension")
    return lane.block.index.x * lane.launch.block_size + lane.thread.x


@means(cuda.gridsize, lane=True)
def _gridsize(lane: Lane, _site: str, dimensions: int) -> int:
    if dimensions != 1:
        raise UnknownConstruct("grids of more than one dimension")
    return lane.launch.grid * lane.launch.block_size


@means(cuda.syncthreads, lane=True)
def _syncthreads(lane: Lane, site: str) -> None:
    lane.barrier(site)


def _counting(stub: Any, fold: Callable[[Sequence[int]], int]) -> None:
    means(stub, lane=True)(lambda lane, site, value: lane.barrier(site, value, fold))


_counting(cuda.syncthreads_count, lambda values: sum(map(bool, values)))
_counting(cuda.syncthreads_and, lambda values: int(all(values)))
_counting(cuda.syncthreads_or, lambda values: int(any(values)))


@means(cuda.syncwarp, lane=True)
def _syncwarp(lane: Lane, site: str, mask: int = -1) -> None:
    lane.warp_meet(site, "syncwarp", mask, None, lambda _values, _lane: None, orders=True)


def _shuffle(name: str, source: Callable[[int, int], int]) -> None:
    @means(getattr(cuda, name), lane=True)
    def shuffle(lane: Lane, site: str, mask: int, value: Any, operand: int) -> Any:
        return lane.shuffle(site, name, mask, value, source(lane.laneid, operand))


_shuffle("shfl_sync", lambda _own, operand: operand % 32)
_shuffle("shfl_up_sync", lambda own, operand: own - operand)
_shuffle("shfl_down_sync", lambda own, operand: own + operand)
_shuffle("shfl_xor_sync", lambda own, operand: own ^ operand)


@means(cuda.ballot_sync, lane=True)
def _ballot(lane: Lane, site: str, mask: int, predicate: Any) -> int:
    return lane.warp_meet(site, "ballot_sync", mask, bool(predicate), lambda values, _own: wrap(sum(1 << k for k, v in values.items() if v), 32))  # type: ignore[no-any-return]


@means(cuda.all_sync, lane=True)
def _all(lane: Lane, site: str, mask: int, predicate: Any) -> bool:
    return lane.warp_meet(site, "all_sync", mask, bool(predicate), lambda values, _own: all(values.values()))  # type: ignore[no-any-return]


@means(cuda.any_sync, lane=True)
def _any(lane: Lane, site: str, mask: int, predicate: Any) -> bool:
    return lane.warp_meet(site, "any_sync", mask, bool(predicate), lambda values, _own: any(values.values()))  # type: ignore[no-any-return]


@means(cuda.match_any_sync, lane=True)
def _match_any(lane: Lane, site: str, mask: int, value: Any) -> int:
    def answer(values: dict[int, Any], own: int) -> int:
        mine = repr(values[own])
        return wrap(sum(1 << k for k, v in values.items() if repr(v) == mine), 32)  # by bits: −0 is not 0, NaN is NaN

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
        return f32(value)
    return wrap(value, pointer.size * 8, code in "bhiq") if code in "bhiqBHIQ" else value


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


@means(len)
def _length(array: Pointer) -> int:
    """The number of elements of a 1-D array: an operand, or a shared or local array."""
    memory = array.memory
    return memory.owner.size if memory.owner is not None else (len(memory.state) - memory.state.count(OUTSIDE)) // array.size


def _of_bits(stub: Any, function: Callable[[int, int], int]) -> None:
    """``function(value, bits)`` of the unsigned integer with the operand's bits."""

    @means_by_type(stub)
    def meaning(signature: Any) -> Callable[[int], int]:
        bits = signature.args[0].bitwidth
        return lambda value: function(wrap(value, bits, signed=False), bits)


_of_bits(cuda.popc, lambda value, _bits: value.bit_count())
_of_bits(cuda.ffs, lambda value, _bits: (value & -value).bit_length())
_of_bits(cuda.clz, lambda value, bits: bits - value.bit_length())


def _total(function: Callable[[float], float], overflow: float) -> Callable[[float], float]:
    """A function of :mod:`math` that returns NaN or infinity instead of raising."""

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
means(math.tanh)(math.tanh)
means(math.fabs)(math.fabs)
means(math.isnan)(math.isnan)
means(math.isinf)(math.isinf)


def _of_floats(stub: Any) -> None:
    """``max`` or ``min`` of two floats, as the PTX instruction computes it: a NaN operand is ignored, and −0 < +0."""

    @means_by_type(stub)
    def meaning(signature: Any) -> Callable[[float, float], float]:
        if len(signature.args) != 2 or any(kind != signature.return_type for kind in signature.args):
            raise UnknownConstruct(f"{stub.__name__} of {', '.join(map(str, signature.args))}")
        return lambda a, b: b if a != a else a if b != b else stub(a, b, key=lambda x: (x, math.copysign(1.0, x)))


_of_floats(max)
_of_floats(min)
