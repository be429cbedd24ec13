"""Stream scratch: memory that a stream keeps as the workspace of small calls, which then allocate nothing.

Work on a stream runs in order, so its calls can share this memory, while only one at a time queues launches. It begins with zeros, and each call
leaves these as it found them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from ..core.errors import KernelLaunchError
from ..runtime import driver

#: bytes of the memory, and of the zeros that it begins with
NBYTES, ZEROED_BYTES = 4 << 20, 64 << 10
#: streams that get such memory, which is never freed
MOST_STREAMS = 64

_addresses: dict[tuple[int, int], int] = driver.of_contexts({})  #: by device and number of the stream; 0 where it has no such memory
_locks: dict[int, threading.Lock] = driver.of_contexts({})  #: of each memory by its address, held while a call queues its launches
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
                driver.memset_async(found, ZEROED_BYTES, stream, 0, device)
            except KernelLaunchError:
                found = 0
            _addresses[key] = found
        return found


def claim(device: int, stream: int, offsets: Sequence[int], restored: int, nbytes: int) -> tuple[threading.Lock, list[int]] | None:
    """The addresses of slots in a stream's memory, and a lock, which the caller releases when all its launches are queued.

    None where there is no such memory, not enough, or another thread queues launches that use it. ``offsets`` are those of a workspace of ``nbytes``;
    the zeros hold the first ``restored`` slots, the bytes behind them the others.
    """
    if (offsets[restored] if restored < len(offsets) else nbytes) > ZEROED_BYTES or ZEROED_BYTES + nbytes > NBYTES:
        return None
    base = address(device, stream)
    lock = _locks.get(base)
    if lock is None or not lock.acquire(blocking=False):
        return None
    return lock, [base + offset + (0 if k < restored else ZEROED_BYTES) for k, offset in enumerate(offsets)]


def drop(device: int, stream: int) -> None:
    """Takes a stream's memory out of use, after a call that failed and may not have restored its zeros."""
    with contextlib.suppress(KernelLaunchError):  # after some errors the driver answers nothing: the error of the launch is the one to raise
        _addresses.pop((device, driver.stream_number(stream, device)), None)
