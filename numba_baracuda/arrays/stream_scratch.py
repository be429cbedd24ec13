"""Stream scratch: memory that a stream keeps as the workspace of small calls, which then allocate nothing.

Work on a stream runs in order, so its calls can share this memory, while only one at a time queues launches. It begins with zeros, and each call
leaves these as it found them. Behind them are two twins, which calls take in turn: each finds zeros in the one and sets the other to zeros.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from ..core.errors import KernelLaunchError
from ..core.op import TWIN_BYTES
from ..runtime import driver

#: bytes of the zeros that the memory begins with
ZEROED_BYTES = 64 << 10
#: bytes before the slots that no call needs to find as zeros
TAKEN_BYTES = ZEROED_BYTES + 2 * TWIN_BYTES
#: bytes of the memory
NBYTES = TAKEN_BYTES + (8 << 20)
#: streams that get such memory, which is never freed
MOST_STREAMS = 64


class Twins:
    """Two memories of ``TWIN_BYTES`` from an address on, both zero at first, that the calls of a stream take in turn."""

    def __init__(self, base: int) -> None:
        self._addresses, self._turn = ((base, base + TWIN_BYTES), (base + TWIN_BYTES, base)), 0
        self._dirty = ([0, 0], [0, 0])  #: the bytes of each that may not be 0: from the first to the one behind the last

    def take(self, nbytes: int, stream: int, device: int) -> tuple[int, int]:
        """(Address of ``nbytes`` zeros, address of as many bytes that the call sets to 0). Clears here what a larger call has left, if any."""
        turn = self._turn
        addresses, mine, other = self._addresses[turn], self._dirty[turn], self._dirty[1 - turn]
        first, end = mine
        if first < end and first < nbytes:
            driver.memset_async(addresses[0] + first, min(end, nbytes) - first, stream, 0, device)
        self._turn, mine[0] = 1 - turn, 0
        if end < nbytes:
            mine[1] = nbytes
        if other[0] < nbytes:
            other[0] = nbytes
        return addresses


class Memory:
    """The memory of a stream: its address, a lock that a call holds while it queues its launches, and its twins."""

    __slots__ = ("base", "lock", "twins")

    def __init__(self, base: int) -> None:
        self.base, self.lock, self.twins = base, threading.Lock(), Twins(base + ZEROED_BYTES)

    def places(self, offsets: Sequence[int], restored: int, nbytes: int) -> list[int] | None:
        """The addresses of slots with ``offsets`` in a workspace of ``nbytes``, the first ``restored`` in the zeros; None where they do not fit."""
        if (offsets[restored] if restored < len(offsets) else nbytes) > ZEROED_BYTES or TAKEN_BYTES + nbytes > NBYTES:
            return None
        return [self.base + offset + (0 if k < restored else TAKEN_BYTES) for k, offset in enumerate(offsets)]


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
