"""Runs a kernel's own Python source without a GPU: lanes are greenlets, warps and blocks meet in collectives, memory is watched.

Two modes. *Checked*, for tests: a lane can be preempted at every access to shared and global memory and at every atomic, in a seeded random order; blocks start
in random order, several resident at a time; races, deadlocks, divergent barriers, wrong masks, bad addresses and unwritten memory are errors that name the source
line. *Fast*, for demos: lanes run from one collective to the next, and only addresses, barriers and unwritten memory are checked.
What is not modelled: relaxed visibility itself (the race detector finds the missing fence instead), and fused multiply-add.
"""

from __future__ import annotations

import linecache
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from greenlet import getcurrent, greenlet

from . import jit, lowering, races
from .memory import Memory, Pointer

#: a launch whose lanes neither write nor meet nor end for this many turns a lane is spinning for ever
PATIENCE = 2000


class Deadlock(RuntimeError):
    """No lane can go on, or all that can only spin."""


class DivergentBarrier(RuntimeError):
    """A barrier or warp operation that some of its lanes do not reach, or reach elsewhere, or with another mask."""


class Dim3(NamedTuple):
    x: int
    y: int = 1
    z: int = 1


class Mode(NamedTuple):
    """How a launch is run; ``seed`` None is the fast mode."""

    seed: int | None = None
    resident: int = 4  #: blocks that run at a time

    @property
    def checked(self) -> bool:
        return self.seed is not None


class Meeting:
    """Lanes that wait for each other at one collective."""

    def __init__(self, what: str, site: str, expected: int) -> None:
        self.what, self.site, self.expected = what, site, expected
        self.arrived: dict[Lane, Any] = {}


class Block:
    """What the lanes of one block share."""

    def __init__(self, launch: Launch, index: int) -> None:
        self.launch, self.index = launch, Dim3(index, 0, 0)
        self.memory: dict[str, Memory] = {}
        self.barrier: Meeting | None = None
        self.warps: list[dict[int, Meeting]] = [{} for _ in range(-(-launch.block_size // 32))]
        slot = launch.started * launch.block_size
        launch.started += 1
        self.lanes = [Lane(self, thread, slot + thread) for thread in range(launch.block_size)]
        self.live = len(self.lanes)


class Lane(greenlet):
    """One CUDA thread."""

    def __init__(self, block: Block, thread: int, index: int) -> None:
        super().__init__(self._main, getcurrent())
        self.block, self.launch = block, block.launch
        self.thread = Dim3(thread, 0, 0)
        self.laneid, self.warp = thread % 32, thread // 32
        self.checked = block.launch.mode.checked
        self.turns = 1
        self.answer: Any = None
        if self.checked:
            self.clock = races.Clock(index, block.launch.lanes)

    def __str__(self) -> str:
        return f"block {self.block.index.x} thread {self.thread.x}"

    def _main(self) -> None:
        self.launch.entry(self, *self.launch.arguments)

    def pause(self) -> None:
        """Lets another lane go first."""
        self.launch.ready.append(self)
        self.launch.hub.switch()

    def touch(self, memory: Memory, low: int, nbytes: int, site: str, kind: int) -> None:
        """Preempts before an access and hands it to the race detector."""
        launch = self.launch
        self.turns -= 1
        if self.turns <= 0:
            self.pause()
        if kind & races.WRITE:
            launch.idle_turns = 0
        shadow = memory.shadow
        for place in range(low // memory.cell, (low + nbytes - 1) // memory.cell + 1):
            cell = shadow.get(place)
            if cell is None:
                cell = shadow[place] = races.Cell()
            races.check(self, memory.name, cell, site, kind)

    def shared(self, site: str, count: int, code: str) -> Pointer:
        if count == 0:
            site, count = "dynamic", self.launch.dynamic_shared
            memory = self.block.memory.get(site) or Memory.fresh("dynamic shared memory", count, "b")
            memory.cell = 4
            self.block.memory[site] = memory
            return Pointer(memory, code)
        memory = self.block.memory.get(site) or Memory.fresh(f"shared array {site}", count, code)
        self.block.memory[site] = memory
        return Pointer(memory, code)

    def local(self, site: str, count: int, code: str) -> Pointer:
        return Pointer(Memory.fresh(f"local array {site}", count, code, private=True), code)

    def _meet(self, meeting: Meeting, value: Any, finish: Callable[[dict[Lane, Any]], dict[Lane, Any] | None]) -> Any:
        meeting.arrived[self] = value
        self.launch.idle_turns = 0
        if len(meeting.arrived) < meeting.expected:
            self.launch.hub.switch()
        else:
            answers = finish(meeting.arrived)
            for lane in meeting.arrived:
                lane.answer = answers[lane] if answers else None
                if lane is not self:
                    self.launch.ready.append(lane)
            if self.checked:
                self.pause()
        return self.answer

    def barrier(self, site: str, value: int = 0, fold: Callable[[Sequence[int]], int] | None = None) -> Any:
        """``syncthreads`` and its counting forms."""
        block = self.block
        meeting = block.barrier
        if meeting is None:
            if block.live < len(block.lanes):
                raise DivergentBarrier(f"{site}: {len(block.lanes) - block.live} of {len(block.lanes)} lanes ended before this barrier ({self})")
            meeting = block.barrier = Meeting("barrier", site, len(block.lanes))
        elif meeting.site != site:
            raise DivergentBarrier(f"lanes of one block wait at different barriers: {meeting.site} and {site} ({self})")

        def finish(arrived: dict[Lane, int]) -> dict[Lane, Any] | None:
            block.barrier = None
            if self.checked:
                races.join([lane.clock for lane in arrived])
            return dict.fromkeys(arrived, fold(list(arrived.values()))) if fold else None

        return self._meet(meeting, value, finish)

    def warp_meet(self, site: str, what: str, mask: int, value: Any, answer: Callable[[dict[int, Any], int], Any], *, orders: bool = False) -> Any:
        """A warp collective; ``answer(values by lane id, own lane id)`` is computed when all lanes of the mask are there."""
        mask &= 0xFFFFFFFF
        members = [lane for lane in self.block.lanes[self.warp * 32 : self.warp * 32 + 32] if mask >> lane.laneid & 1]
        if not mask >> self.laneid & 1:
            raise DivergentBarrier(f"{site}: {what} by a lane outside its own mask {mask:#010x} ({self})")
        if any(lane.dead for lane in members):
            raise DivergentBarrier(f"{site}: {what} waits for a lane that has ended (mask {mask:#010x}, {self})")
        waiting = self.block.warps[self.warp]
        for other, meeting in waiting.items():
            if other & mask and (other != mask or meeting.what != what or meeting.site != site):
                raise DivergentBarrier(f"{what} at {site} (mask {mask:#010x}) meets {meeting.what} at {meeting.site} (mask {other:#010x}, {self})")
        meeting = waiting.get(mask) or waiting.setdefault(mask, Meeting(what, site, len(members)))

        def finish(arrived: dict[Lane, Any]) -> dict[Lane, Any]:
            del waiting[mask]
            if orders and self.checked:
                races.join([lane.clock for lane in arrived])
            values = {lane.laneid: given for lane, given in arrived.items()}
            return {lane: answer(values, lane.laneid) for lane in arrived}

        return self._meet(meeting, value, finish)

    def ended(self) -> None:
        """Called by the hub: nobody may be waiting for this lane."""
        block = self.block
        block.live -= 1
        self.launch.idle_turns = 0
        if block.barrier is not None:
            raise DivergentBarrier(f"{block.barrier.site}: {self} ended while other lanes wait at this barrier")
        for mask, meeting in block.warps[self.warp].items():
            if mask >> self.laneid & 1:
                raise DivergentBarrier(f"{meeting.site}: {self} ended while other lanes wait for it in {meeting.what}")


class Launch:
    """One run of one kernel."""

    def __init__(self, entry: Callable[..., None], grid: int, block_size: int, arguments: Sequence[Any], dynamic_shared: int, mode: Mode) -> None:
        self.entry, self.grid, self.block_size, self.arguments = entry, grid, block_size, arguments
        self.dynamic_shared, self.mode = dynamic_shared, mode
        self.lanes = grid * block_size
        self.started = self.idle_turns = 0
        self.ready: list[Lane] = []
        self.hub = getcurrent()

    def run(self) -> None:
        order = list(range(self.grid))
        random_order = random.Random(self.mode.seed)
        burst = random_order.choice((1, 1, 4, 32))
        if self.mode.checked:
            random_order.shuffle(order)
        waiting = iter(order)
        blocks: list[Block] = []

        def start() -> None:
            index = next(waiting, None)
            if index is not None:
                blocks.append(Block(self, index))
                self.ready.extend(blocks[-1].lanes if self.mode.checked else reversed(blocks[-1].lanes))

        for _ in range(self.mode.resident):
            start()
        while self.ready:
            if self.mode.checked:
                pick = int(random_order.random() * len(self.ready))
                self.ready[pick], self.ready[-1] = self.ready[-1], self.ready[pick]
            lane = self.ready.pop()
            lane.turns = 1 if burst == 1 else int(random_order.expovariate(1 / burst)) + 1
            lane.switch()
            self.idle_turns += 1
            if lane.dead:
                lane.ended()
                if lane.block.live == 0:
                    blocks.remove(lane.block)
                    start()
            if self.idle_turns > PATIENCE * self.block_size * self.mode.resident:
                raise Deadlock(f"lanes only spin; {lane} is among them")
        if blocks:
            stuck = [str(lane) for block in blocks for lane in block.lanes if not lane.dead]
            where = {meeting.site for block in blocks for meeting in [block.barrier, *(m for w in block.warps for m in w.values())] if meeting}
            raise Deadlock(f"{len(stuck)} lanes wait for ever at {', '.join(sorted(where))}; the first is {stuck[0]}")


_scope = lowering.namespace()
_lowered: dict[Any, tuple[str, Any]] = {}
_lock = threading.RLock()


def lower(function: Callable[..., Any], argument_types: tuple[Any, ...]) -> tuple[str, Any]:
    """The name in ``_scope`` of a kernel or device function for these argument types, and its return type."""
    key = function, argument_types
    with _lock:
        if key not in _lowered:
            name = f"{function.__name__.strip('<>')}_{len(_lowered)}"
            typed = jit.infer(function, argument_types)
            _lowered[key] = name, typed[-1]
            made = lowering.Lowering(typed, lambda dispatcher, types: lower(dispatcher.py_func, types), name)
            text = made.source(name)
            filename = f"<emulated {name}>"
            linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
            _scope.update(made.constants)
            exec(compile(text, filename, "exec"), _scope)  # noqa: S102 - the source is our own, made from typed IR
        return _lowered[key]


def run(
    function: Callable[..., None],
    argument_types: tuple[Any, ...],
    grid: int,
    block: int,
    arguments: Sequence[Any],
    *,
    dynamic_shared: int = 0,
    mode: Mode = Mode(),
) -> None:
    """Runs ``function`` over ``grid`` blocks of ``block`` lanes.

    An argument is a number, a tuple of numbers, a :class:`Pointer`, or a NumPy array (all of it readable and writable). Results are in the arrays afterwards.
    """
    values = [pointer(f"argument {k}", value, ty) if isinstance(value, np.ndarray) else value for k, (value, ty) in enumerate(zip(arguments, argument_types, strict=True))]
    with np.errstate(all="ignore"):
        entry = _scope[lower(function, argument_types)[0]]
        Launch(entry, grid, block, values, dynamic_shared, mode).run()


def pointer(name: str, array: np.ndarray[Any, Any], ty: Any) -> Pointer:
    """A pointer of numba type ``ty`` to an array's first element."""
    return pointer_into(*Memory.of(name, array), ty)


def pointer_into(memory: Memory, offset: int, ty: Any) -> Pointer:
    """A pointer of numba type ``ty`` to a byte of a memory."""
    return Pointer(memory, "B", offset).cast(lowering.code_of(ty.dtype))
