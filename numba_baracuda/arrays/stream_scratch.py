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
NBYTES = TAKEN_BYTES + (4 << 20)
#: streams that get such memory, which is never freed
MOST_STREAMS = 64


class Twins:
    """Two memories of ``TWIN_BYTES`` from an address on, both zero at first, that the calls of a stream take in turn."""

    def __init__(self, base: int) -> None:
        self._addresses, self._turn = (base, base + TWIN_BYTES), 0
        self._dirty = [(0, 0), (0, 0)]  #: the bytes of each that may not be 0: from the first to the one behind the last

    def take(self, nbytes: int, stream: int, device: int) -> list[int]:
        """[address of ``nbytes`` zeros, address of as many bytes that the call sets to 0]. Clears here what a larger call has left, if any."""
        mine, other = self._turn, 1 - self._turn
        (first, end), (other_first, other_end) = self._dirty[mine], self._dirty[other]
        if first < min(end, nbytes):
            driver.memset_async(self._addresses[mine] + first, min(end, nbytes) - first, stream, 0, device)
        self._turn, self._dirty[mine], self._dirty[other] = other, (0, max(end, nbytes)), (max(other_first, nbytes), other_end)
        return [self._addresses[mine], self._addresses[other]]


_addresses: dict[tuple[int, int], int] = driver.of_contexts({})  #: by device and number of the stream; 0 where it has no such memory
_locks: dict[int, threading.Lock] = driver.of_contexts({})  #: of each memory by its address, held while a call queues its launches
_twins: dict[int, Twins] = driver.of_contexts({})  #: of each memory by its address
_making = threading.Lock()


def address(device: int, stream: int) -> int:
    """Where a stream's memory is; 0 where a call has to allocate.

    A stream that is being captured has none, since replays may run beside other work of the stream. A handle that stands for another stream in every
    thread has none either.
    """
    if driver.per_thread(stream) or driver.meets_capture(stream, device):
        return 0
    key = device, driver.stream_number(stream, device)
    found = _addresses.get(key)
    return _make(key, stream) if found is None else found


def _make(key: tuple[int, int], stream: int) -> int:
    """Allocates the memory of a stream, unless another thread has done so, or many streams have some."""
    with _making:
        found, device = _addresses.get(key), key[0]
        if found is None:
            found = 0
            if len(_locks) >= MOST_STREAMS:
                return found
            try:
                found = driver.alloc_async(NBYTES, stream, device)
                _locks[found] = threading.Lock()
                _twins[found] = Twins(found + ZEROED_BYTES)
                driver.memset_async(found, TAKEN_BYTES, stream, 0, device)
            except KernelLaunchError:
                found = 0
            _addresses[key] = found
        return found


def claim(
    device: int, stream: int, offsets: Sequence[int], restored: int, nbytes: int, twins: bool = False
) -> tuple[threading.Lock, list[int]] | None:
    """The addresses of slots in a stream's memory, and a lock, which the caller releases when all its launches are queued.

    None where there is no such memory, not enough, or another thread queues launches that use it. ``offsets`` are those of a workspace of ``nbytes``;
    the zeros hold the first ``restored`` slots, the twins the first two if there are ``twins``, the bytes behind them the others.
    """
    if (offsets[restored] if restored < len(offsets) else nbytes) > ZEROED_BYTES or TAKEN_BYTES + nbytes > NBYTES:
        return None
    base = address(device, stream)
    lock = _locks.get(base)
    if lock is None or not lock.acquire(blocking=False):
        return None
    slots = [base + offset + (0 if k < restored else TAKEN_BYTES) for k, offset in enumerate(offsets)]
    if twins:
        try:
            slots[:2] = _twins[base].take(offsets[1], stream, device)
        except BaseException:
            drop(device, stream)
            lock.release()
            raise
    return lock, slots


def drop(device: int, stream: int) -> None:
    """Takes a stream's memory out of use, after a call that failed and may not have restored its zeros."""
    with contextlib.suppress(KernelLaunchError):  # after some errors the driver answers nothing: the error of the launch is the one to raise
        _addresses.pop((device, driver.stream_number(stream, device)), None)
