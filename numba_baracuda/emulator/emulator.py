"""Runs a kernel's own Python source without a GPU: lanes are greenlets, warps and blocks meet in collectives, memory is watched.

Two modes. *Checked*, for tests: a lane can be preempted at every access to shared and global memory and at every atomic, in a seeded random order;
blocks start in random order, several resident at a time; races, deadlocks, divergent barriers, wrong masks, bad addresses and unwritten memory are
errors that name the source line. *Fast*, for demos: a lane runs to its next collective, or to an atomic that changes nothing, and only addresses,
barriers and unwritten memory are checked; a lane that waits by plain loads, which is a bug that checked mode finds, hangs there.
What is not modelled: relaxed visibility itself (the race detector finds the missing fence instead), and fused multiply-add.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from traceback import walk_stack
from typing import Any, NamedTuple

import numpy as np
from greenlet import getcurrent
from numba.cuda import types

from . import program
from .conversions import ROUND, code_of, family
from .lanes import Block, DivergentBarrier, Lane
from .memory import Memory, Pointer

__all__ = ["Deadlock", "DivergentBarrier", "Lane", "Launch", "Mode", "pointer", "pointer_into", "run"]

#: a deadlock: for this many turns of each lane no lane changed memory, read a value that was new to it, met others, or ended
PATIENCE = 2000


class Deadlock(RuntimeError):
    """No lane can continue, or all that can only spin."""


class Mode(NamedTuple):
    """How a launch is run; with a ``seed`` of None in fast mode."""

    seed: int | None = None
    resident: int = 4  #: blocks that run at a time

    @property
    def checked(self) -> bool:
        return self.seed is not None


FAST = Mode()


class Launch:
    """One run of one kernel."""

    def __init__(self, entry: Callable[..., None], grid: int, block_size: int, arguments: Sequence[Any], dynamic_shared: int, mode: Mode) -> None:
        self.entry, self.grid, self.block_size, self.arguments = entry, grid, block_size, arguments
        self.dynamic_shared, self.mode = dynamic_shared, mode
        self.origin = np.zeros(grid * block_size, np.int32)
        self.started = self.idle_turns = 0
        self.ready: list[Lane] = []
        self.hub = getcurrent()

    def run(self) -> None:
        checked, ready = self.mode.checked, self.ready
        order = list(range(self.grid))
        random_order = random.Random(self.mode.seed)
        burst = random_order.choice((1, 1, 4, 32))
        if checked:
            random_order.shuffle(order)
        waiting = iter(order)
        blocks: list[Block] = []

        def start() -> None:
            index = next(waiting, None)
            if index is not None:
                blocks.append(Block(self, index))
                ready.extend(blocks[-1].lanes if checked else reversed(blocks[-1].lanes))

        for _ in range(self.mode.resident):
            start()
        while ready:
            if checked:
                pick = int(random_order.random() * len(ready))
                ready[pick], ready[-1] = ready[-1], ready[pick]
            lane = ready.pop()
            if checked:
                lane.turns = 1 if burst == 1 else int(random_order.expovariate(1 / burst)) + 1
            lane.switch()
            self.idle_turns += 1
            if lane.dead:
                lane.ended()
                if lane.block.live == 0:
                    blocks.remove(lane.block)
                    lane.block.lanes.clear()  # frees the lanes at once, which else the garbage collector does
                    start()
            if self.idle_turns > PATIENCE * (len(ready) + 1):
                raise Deadlock(f"{len(ready)} lanes only spin, {lane} at {program.site_of(walk_stack(lane.gr_frame))}")
        if blocks:
            stuck = [str(lane) for block in blocks for lane in block.lanes if not lane.dead]
            where = sorted({meeting.site for block in blocks for meeting in block.meetings()})
            raise Deadlock(f"{len(stuck)} lanes wait for ever at {', '.join(where)}; the first is {stuck[0]}")


def run(
    function: Callable[..., None],
    argument_types: tuple[Any, ...],
    grid: int,
    block: int,
    arguments: Sequence[Any],
    *,
    dynamic_shared: int = 0,
    mode: Mode = FAST,
) -> None:
    """Runs ``function`` over ``grid`` blocks of ``block`` lanes.

    An argument is a number, a tuple of numbers, a :class:`Pointer`, or a NumPy array, all of it readable and writable.
    Results are in the arrays afterwards.
    """
    values = [_argument(f"argument {k}", value, ty) for k, (value, ty) in enumerate(zip(arguments, argument_types, strict=True))]
    with np.errstate(all="ignore"):
        entry = program.entry_of(function, argument_types)
        Launch(entry, grid, block, values, dynamic_shared, mode).run()


def _argument(name: str, value: Any, ty: Any) -> Any:
    """An argument as a kernel gets it: numbers have the parameter's type."""
    if isinstance(value, np.ndarray):
        return pointer(name, value, ty)
    if isinstance(ty, types.BaseTuple):
        return tuple(_argument(name, item, inner) for item, inner in zip(value, ty.types, strict=True))
    kind = family(ty)
    if kind == "float":
        return ROUND[ty.bitwidth](float(value))
    if kind == "int" and not ty.minval <= int(value) <= ty.maxval:
        raise OverflowError(f"{name}: {value} is no {ty}")
    return int(value) if kind == "int" else bool(value) if kind == "bool" else value


def pointer(name: str, array: np.ndarray[Any, Any], ty: Any) -> Pointer:
    """A pointer of numba type ``ty`` to an array's first element."""
    return pointer_into(*Memory.of(name, array), ty)


def pointer_into(memory: Memory, offset: int, ty: Any) -> Pointer:
    """A pointer of numba type ``ty`` to a byte of a memory."""
    return Pointer(memory, "B", offset).cast(code_of(ty.dtype))
