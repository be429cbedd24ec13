"""Stream scratch: memory that a stream keeps as the workspace of small calls, which then allocate nothing.

Work on a stream runs in order, so its calls can share this memory, while only one at a time queues launches. It begins with zeros, and each call
leaves these as it found them. Behind them are fresh zeros: a call takes the next of these and leaves there what it likes; once they are used up, all
are cleared at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from ..core.errors import KernelLaunchError
from ..runtime import driver

#: bytes of the zeros that the memory begins with
ZEROED_BYTES = 64 << 10
#: bytes of zeros that calls take one after another
ALL_FRESH_BYTES = 32 << 20
#: bytes of a line of the caches: a word on which others wait should not lie on two, nor on that of another call
LINE_BYTES = 128
#: bytes before the other slots
TAKEN_BYTES = ZEROED_BYTES + ALL_FRESH_BYTES
#: bytes of these slots
ROOM_BYTES = 8 << 20
#: bytes of the memory
NBYTES = TAKEN_BYTES + ROOM_BYTES
#: streams that get such memory, which is never freed
MOST_STREAMS = 32


class Fresh:
    """Memory of ``ALL_FRESH_BYTES`` from an address on, zero at first, of which calls take the next zeros."""

    __slots__ = ("_base", "_used")

    def __init__(self, base: int) -> None:
        self._base, self._used = base, 0

    def take(self, nbytes: int, stream: int, device: int) -> int:
        """The address of ``nbytes`` zeros, where a line of the caches begins. Clears all that was taken where no more are left."""
        start = self._used
        if start + nbytes > ALL_FRESH_BYTES:
            driver.memset_async(self._base, start, stream, 0, device)
            start = 0
        self._used = (start + nbytes + LINE_BYTES - 1) & -LINE_BYTES
        return self._base + start


class Memory:
    """The memory of a stream: its address, a lock that a call holds while it queues its launches, and its fresh zeros."""

    __slots__ = ("base", "fresh", "lock")

    def __init__(self, base: int) -> None:
        self.base, self.lock, self.fresh = base, threading.Lock(), Fresh(base + ZEROED_BYTES)

    def places(self, offsets: Sequence[int], fresh: int, restored: int, nbytes: int) -> list[int] | None:
        """The addresses of slots with ``offsets`` in a workspace of ``nbytes``, followed by NULL; None where they do not fit.

        The first ``restored`` are in the zeros; the first ``fresh``, where there are some instead, are left out.
        """
        if nbytes > ROOM_BYTES:
            return None
        room = self.base + TAKEN_BYTES
        places = [room + offset for offset in offsets[fresh:]]
        places.append(0)
        if restored:
            if (offsets[restored] if restored < len(offsets) else nbytes) > ZEROED_BYTES:
                return None
            places[:restored] = map(self.base.__add__, offsets[:restored])
        return places


_memories: dict[tuple[int, int], Memory | None] = driver.of_contexts({})  #: by device and number of the stream; None where it has none
_made: list[Memory] = driver.of_contexts([])  #: all that were allocated, also those out of use
_making = threading.Lock()
#: instead of a number of the legacy default stream, which is there as long as its context, and whose number nobody has to ask for
_LEGACY = -1


def of(device: int, stream: int) -> Memory | None:
    """The memory of a stream; None where a call has to allocate.

    A stream that is being captured has none, since replays may run beside other work of the stream; the legacy default stream never is. A handle
    that stands for another stream in every thread has none either.
    """
    if not stream and (found := _memories.get((device, _LEGACY))):
        return found  # made only where handle 0 is the legacy default stream, which is never captured
    if driver.per_thread(stream) or driver.is_capturing(stream, device):
        return None
    key = _key(device, stream)
    try:
        return _memories[key]
    except KeyError:
        return _make(key, stream)


def _key(device: int, stream: int) -> tuple[int, int]:
    return device, driver.stream_number(stream, device) if stream else _LEGACY


def _make(key: tuple[int, int], stream: int) -> Memory | None:
    """Allocates the memory of a stream, unless another thread has done so, or many streams have some."""
    device = key[0]
    if driver.meets_capture(stream, device):
        return None
    with _making:
        found = _memories.get(key)
        if key not in _memories and len(_made) < MOST_STREAMS:
            with contextlib.suppress(KernelLaunchError):
                memory = Memory(driver.alloc_async(NBYTES, stream, device))
                driver.memset_async(memory.base, TAKEN_BYTES, stream, 0, device)
                _made.append(memory)
                found = memory
            _memories[key] = found
        return found


def drop(device: int, stream: int) -> None:
    """Takes a stream's memory out of use, after a call that failed and may not have restored its zeros."""
    with contextlib.suppress(KernelLaunchError):  # after some errors the driver answers nothing: the error of the launch is the one to raise
        _memories.pop(_key(device, stream), None)
