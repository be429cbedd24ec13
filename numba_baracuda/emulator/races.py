"""Race detection by vector clocks over the lanes of a launch.

Two accesses to one cell race when at least one writes, not both are atomic, and no happens-before edge orders them. Edges come from ``syncthreads``
and ``syncwarp`` (every participant with every other), from release to acquire of one word, and from the pattern fence, atomic, atomic, fence. A
shuffle or a vote makes lanes wait for each other but is no edge, as CUDA promises no order of memory for it; nor is a relaxed atomic without a fence.
After Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection" (PLDI 2009), with read and write sets kept a lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .lanes import Lane

READ, WRITE, ATOMIC, RELEASE, ACQUIRE = 1, 2, 4, 8, 16

Clocks = np.ndarray[Any, np.dtype[np.int32]]


class Race(RuntimeError):
    """Two conflicting accesses with no edge between them; the message has both source lines."""


class Cell:
    """What the detector remembers of one cell: the unordered accesses, and the clocks published through it."""

    __slots__ = ("published", "reads", "writes")

    def __init__(self) -> None:
        self.reads: dict[int, tuple[int, str, bool]] = {}
        self.writes: dict[int, tuple[int, str, bool]] = {}
        self.published: Clocks | None = None


def merge(a: Clocks | None, b: Clocks | None) -> Clocks | None:
    """The elementwise maximum of two clocks."""
    if a is None or a is b:
        return b
    return a if b is None else np.maximum(a, b)


class Clock:
    """A lane's vector clock. ``seen`` [lanes] is shared between lanes and never changed in place; ``own`` is the lane's current time."""

    __slots__ = ("fenced", "index", "own", "pending", "seen")

    def __init__(self, index: int, origin: Clocks) -> None:
        self.index, self.own = index, 1
        self.seen = origin
        self.fenced: Clocks | None = None  #: what a relaxed atomic publishes: all before the last fence
        self.pending: Clocks | None = None  #: what relaxed atomics have read, known from the next fence on

    def snapshot(self) -> Clocks:
        """The clock of all that happened before now; the lane's time advances."""
        now = self.seen.copy()
        now[self.index] = self.own
        self.own += 1
        return now

    def fence(self) -> None:
        self.seen = merge(self.seen, self.pending)  # type: ignore[assignment]
        self.pending = None
        self.fenced = self.snapshot()


def join(clocks: list[Clock]) -> None:
    """A barrier: each lane gets the maximum of all clocks."""
    distinct = {id(clock.seen): clock.seen for clock in clocks}
    everything = np.maximum.reduce(list(distinct.values()))
    everything[[clock.index for clock in clocks]] = [clock.own for clock in clocks]
    for clock in clocks:
        clock.seen = everything
        clock.own += 1


def _unordered(clock: Clock, others: dict[int, tuple[int, str, bool]], atomic: bool) -> str | None:
    for lane, (time, site, was_atomic) in others.items():
        if lane != clock.index and not (atomic and was_atomic) and time > clock.seen[lane]:
            return site
    return None


def check(lane: Lane, name: str, cell: Cell, site: str, kind: int) -> bool:
    """Reports a race of this access with an earlier one, then remembers it.

    False if the access makes no progress by itself: the lane has read the cell since it was last written, or updates it by an atomic.
    """
    clock, atomic = lane.clock, bool(kind & ATOMIC)
    if kind & ATOMIC:
        _synchronise(clock, cell, kind)
    other = _unordered(clock, cell.writes, atomic)
    if other is None and kind & WRITE:
        other = _unordered(clock, cell.reads, atomic)
    if other is not None:
        raise Race(f"{name}: {site} and {other} touch the same element with nothing that orders them ({lane})")
    entry = (clock.own, site, atomic)
    if kind & WRITE:
        if not atomic:
            cell.reads.clear()
            cell.writes.clear()
        cell.writes[clock.index] = entry
        return not kind & READ
    news = clock.index not in cell.reads
    cell.reads[clock.index] = entry
    return news


def _synchronise(clock: Clock, cell: Cell, kind: int) -> None:
    """Edges through an atomic word.

    A read merges the published clock into the lane's, now (acquire) or at the next fence. A write publishes the lane's clock.
    """
    if kind & READ:
        if kind & ACQUIRE:
            clock.seen = merge(clock.seen, cell.published)  # type: ignore[assignment]
        else:
            clock.pending = merge(clock.pending, cell.published)
    if kind & WRITE:
        mine = clock.snapshot() if kind & RELEASE else clock.fenced
        cell.published = merge(cell.published, mine) if kind & READ else mine
