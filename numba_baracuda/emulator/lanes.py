"""The lanes of an emulated launch, their warps and blocks, and the barriers and collectives at which they wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import calcsize
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple

from greenlet import getcurrent, greenlet

from . import program, races
from .memory import Memory, Pointer
from .scalars import ScalarFault

if TYPE_CHECKING:
    from .emulator import Launch


class DivergentBarrier(RuntimeError):
    """A barrier or warp operation that some of its lanes do not reach, or reach elsewhere, or with another mask."""


class Dim3(NamedTuple):
    x: int
    y: int = 1
    z: int = 1


class Meeting:
    """Lanes that wait for each other at one collective."""

    __slots__ = ("arrived", "expected", "site", "what")

    def __init__(self, what: str, site: str, expected: int) -> None:
        self.what, self.site, self.expected = what, site, expected
        self.arrived: dict[Lane, Any] = {}


class Warp:
    """Up to 32 lanes of a block; a mask has a bit for each lane."""

    def __init__(self, size: int) -> None:
        self.present, self.ended = (1 << size) - 1, 0
        self.waiting: dict[int, Meeting] = {}  #: by mask


class Block:
    """What the lanes of one block share."""

    def __init__(self, launch: Launch, index: int) -> None:
        size = launch.block_size
        self.launch, self.index = launch, Dim3(index, 0, 0)
        self.memory: dict[str, tuple[Memory, int]] = {}
        self.barrier: Meeting | None = None
        self.warps = [Warp(min(32, size - first)) for first in range(0, size, 32)]
        self.started = launch.started  #: blocks that started before
        launch.started += 1
        self.lanes = [Lane(self, thread, self.started * size + thread) for thread in range(size)]
        self.live = size

    def meetings(self) -> list[Meeting]:
        """The collectives that lanes wait at."""
        return [*([self.barrier] if self.barrier else []), *(meeting for warp in self.warps for meeting in warp.waiting.values())]


class Lane(greenlet):  # type: ignore[misc]
    """One CUDA thread."""

    def __init__(self, block: Block, thread: int, index: int) -> None:
        super().__init__(self._main, getcurrent())
        self.block, self.launch = block, block.launch
        self.thread = Dim3(thread, 0, 0)
        self.laneid, self.warp = thread % 32, block.warps[thread // 32]
        self.checked = block.launch.mode.checked
        self.turns = 1
        self.answer: Any = None
        self.copies: list[list[Any]] = [[]]  #: groups of asynchronous copies to shared memory; the last is not committed yet
        if self.checked:
            self.clock = races.Clock(index, block.launch.origin)

    def __str__(self) -> str:
        return f"block {self.block.index.x} thread {self.thread.x}"

    def _main(self) -> None:
        try:
            self.launch.entry(self, *self.launch.arguments)
        except ScalarFault as fault:
            raise ScalarFault(f"{program.site_of(reversed(list(walk_tb(fault.__traceback__))))}: {fault} ({self})") from fault

    def pause(self) -> None:
        """Lets another lane run first; in fast mode, where the last of the list runs next, all of them."""
        self.launch.ready.insert(len(self.launch.ready) if self.checked else 0, self)
        self.launch.hub.switch()

    def touch(self, memory: Memory, low: int, nbytes: int, site: str, kind: int) -> None:
        """Preempts before an access and hands it to the race detector."""
        self.turns -= 1
        if self.turns <= 0:
            self.pause()
        news = False
        for number in range(low // memory.cell, (low + nbytes - 1) // memory.cell + 1):
            cell = memory.shadow.get(number)
            if cell is None:
                cell = memory.shadow[number] = races.Cell()
            news |= races.check(self, memory.name, cell, site, kind)
        if news:
            self.launch.idle_turns = 0

    def shared(self, site: str, count: int, code: str, alignment: int) -> Pointer:
        """The block's array that is declared at this place in the source; all arrays of size 0 are the one dynamic array."""
        size = calcsize(code)
        if count == 0:
            site, name, count, alignment = "dynamic", "dynamic shared memory", self.launch.dynamic_shared // size, 16
        else:
            name, alignment = f"shared array {site}", alignment or size
        made = self.block.memory.get(site)
        if made is None:
            made = self.block.memory[site] = Memory.fresh(name, count, code, alignment=alignment)
        memory, first = made
        if size < memory.cell:
            # the detector forgets earlier accesses; kernels declare all views of dynamic memory before they use one
            memory.cell, memory.shadow = size, {}
        return Pointer(memory, code, first)

    def local(self, site: str, count: int, code: str, alignment: int) -> Pointer:
        memory, first = Memory.fresh(f"local array {site}", count, code, alignment=alignment or calcsize(code), private=True)
        return Pointer(memory, code, first)

    def _meet(self, meeting: Meeting, value: Any, finish: Callable[[dict[Lane, Any]], dict[Lane, Any] | None]) -> Any:
        arrived, launch = meeting.arrived, self.launch
        arrived[self] = value
        launch.idle_turns = 0
        if len(arrived) < meeting.expected:
            launch.hub.switch()
            return self.answer
        answers = finish(arrived)
        for lane in arrived:
            lane.answer = answers[lane] if answers else None
        del arrived[self]
        launch.ready.extend(arrived)
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
        warp = self.warp
        if not mask >> self.laneid & 1:
            raise DivergentBarrier(f"{site}: {what} by a lane outside its own mask {mask:#010x} ({self})")
        if mask & warp.ended:
            raise DivergentBarrier(f"{site}: {what} waits for a lane that has ended (mask {mask:#010x}, {self})")
        for other, meeting in warp.waiting.items():
            if other == mask and meeting.what == what and meeting.site == site:
                continue
            if other >> self.laneid & 1 and any(mask >> lane.laneid & 1 for lane in meeting.arrived):
                raise DivergentBarrier(f"{what} at {site} (mask {mask:#010x}) meets {meeting.what} at {meeting.site} (mask {other:#010x}, {self})")
        found = warp.waiting.get(mask)
        if found is None:
            found = warp.waiting[mask] = Meeting(what, site, (mask & warp.present).bit_count())

        def finish(arrived: dict[Lane, Any]) -> dict[Lane, Any]:
            del warp.waiting[mask]
            if orders and self.checked:
                races.join([lane.clock for lane in arrived])
            values = {lane.laneid: given for lane, given in arrived.items()}
            return {lane: answer(values, lane.laneid) for lane in arrived}

        return self._meet(found, value, finish)

    def shuffle(self, site: str, what: str, mask: int, value: Any, source: int) -> Any:
        """The value that lane ``source`` gives; a lane's own if there is no such lane in a warp."""

        def answer(values: dict[int, Any], own: int) -> Any:
            wanted = values[own][1]
            if wanted not in values:
                raise DivergentBarrier(
                    f"{site}: {what} of lane {own} reads lane {wanted}, which is not in the mask {mask & 0xFFFFFFFF:#010x} ({self})"
                )
            return values[wanted][0]

        return self.warp_meet(site, what, mask, (value, source if 0 <= source < 32 else self.laneid), answer)

    def ended(self) -> None:
        """Called by the hub when the lane ends; an error if another lane waits for it."""
        block = self.block
        block.live -= 1
        self.launch.idle_turns = 0
        if block.barrier is not None:
            raise DivergentBarrier(f"{block.barrier.site}: {self} ended while other lanes wait at this barrier")
        self.warp.ended |= 1 << self.laneid
        for mask, meeting in self.warp.waiting.items():
            if mask >> self.laneid & 1:
                raise DivergentBarrier(f"{meeting.site}: {self} ended while other lanes wait for it in {meeting.what}")
