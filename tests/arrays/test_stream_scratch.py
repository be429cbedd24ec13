"""The memory that a stream keeps for small calls: which streams have it, and when it is left alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from numba_baracuda.arrays import stream_scratch
from numba_baracuda.arrays.stream_scratch import ALL_FRESH_BYTES, MOST_STREAMS, NBYTES, TAKEN_BYTES, ZEROED_BYTES
from numba_baracuda.core.errors import KernelLaunchError
from numba_baracuda.core.op import FRESH_BYTES
from numba_baracuda.runtime import driver


class Memory:
    """The driver's memory: what was allocated and cleared, which streams are captured, and how many allocations fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[tuple[int, int, int]] = []
        self.cleared: list[tuple[int, ...]] = []
        self.captured: set[int] = set()
        self.numbers: dict[int, int] = {}  #: of streams whose number is not their handle
        self.failing = 0
        self.implicit = False  #: whether the legacy default stream would wait for one that is captured
        monkeypatch.setattr(driver, "alloc_async", self._alloc)
        monkeypatch.setattr(driver, "memset_async", lambda *what: self.cleared.append(what))
        monkeypatch.setattr(driver, "stream_number", self._number)
        monkeypatch.setattr(driver, "meets_capture", lambda stream, device: stream in self.captured or (stream in (0, 1) and self.implicit))

    def _number(self, stream: int, device: int) -> int:
        assert stream, "the number of the legacy default stream is asked for at each call"
        return self.numbers.get(stream, stream)

    def _alloc(self, nbytes: int, stream: int, device: int) -> int:
        time.sleep(0.01)  # so that threads meet here
        if self.failing:
            self.failing -= 1
            raise KernelLaunchError("cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY (2)", 2)
        self.taken.append((nbytes, stream, device))
        return len(self.taken) << 25


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    monkeypatch.setattr(stream_scratch, "_memories", {})
    monkeypatch.setattr(stream_scratch, "_made", [])
    monkeypatch.delenv("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", raising=False)
    driver._default_per_thread.cache_clear()
    yield Memory(monkeypatch)
    driver._default_per_thread.cache_clear()


def address(device: int, stream: int) -> int:
    """Where a stream's memory is; 0 where it has none."""
    found = stream_scratch.of(device, stream)
    return found.base if found else 0


def slots(device: int, stream: int, offsets: tuple[int, ...], restored: int, nbytes: int, fresh: int = 0) -> list[int] | None:
    """The addresses of slots in the memory of a stream, and NULL; None where they do not fit, or where it has none."""
    found = stream_scratch.of(device, stream)
    return found and found.places(offsets, fresh, restored, nbytes)


def fresh(stream: int, nbytes: int) -> int:
    """The address of fresh zeros of a stream, for the next call."""
    found = stream_scratch.of(0, stream)
    assert found is not None
    return found.fresh.take(nbytes, stream, 0)


def test_a_stream_of_a_device_gets_its_memory_once(memory: Memory) -> None:
    found = [address(device, stream) for _ in range(2) for device in (0, 1) for stream in (0, 7)]
    assert found == [1 << 25, 2 << 25, 3 << 25, 4 << 25] * 2
    assert memory.taken == [(NBYTES, stream, device) for device in (0, 1) for stream in (0, 7)]
    assert memory.cleared == [((k + 1) << 25, TAKEN_BYTES, stream, 0, device) for k, (_, stream, device) in enumerate(memory.taken)]


def test_slots_that_are_restored_lie_in_the_zeros_and_others_behind_them(memory: Memory) -> None:
    base = address(0, 7)
    assert slots(0, 7, (0, 16, 48), 1, 64) == [base, base + TAKEN_BYTES + 16, base + TAKEN_BYTES + 48, 0]
    assert slots(0, 7, (0, 16), 2, 64) == [base, base + 16, 0]
    assert slots(0, 7, (0,), 0, NBYTES - TAKEN_BYTES) == [base + TAKEN_BYTES, 0]


def test_fresh_slots_are_left_out(memory: Memory) -> None:
    base = address(0, 7)
    assert slots(0, 7, (0, ZEROED_BYTES, 2 * ZEROED_BYTES), 0, 3 * ZEROED_BYTES, fresh=2) == [base + TAKEN_BYTES + 2 * ZEROED_BYTES, 0]
    assert slots(0, 7, (0,), 0, 16, fresh=1) == [0]


def test_what_does_not_fit_allocates(memory: Memory) -> None:
    assert slots(0, 7, (0, ZEROED_BYTES + 16), 1, ZEROED_BYTES + 32) is None
    assert slots(0, 7, (0,), 1, ZEROED_BYTES + 16) is None
    assert slots(0, 7, (0, 16), 1, NBYTES - TAKEN_BYTES + 16) is None
    assert slots(0, 7, (0, ZEROED_BYTES), 1, NBYTES - TAKEN_BYTES) is not None


def test_fresh_zeros_are_given_once_and_renewed_together(memory: Memory) -> None:
    """Each call here writes all that it gets."""
    base = address(0, 7) + ZEROED_BYTES
    written = np.zeros(ALL_FRESH_BYTES // 16, bool)  # whether 16 bytes may be other than 0
    memory.cleared.clear()
    random = np.random.default_rng(3)
    for count in random.integers(1, FRESH_BYTES // 16 + 1, 200):
        begun = len(memory.cleared)
        at = (fresh(7, 16 * int(count)) - base) // 16
        for first, nbytes, stream, byte, device in memory.cleared[begun:]:
            assert (first, stream, byte, device) == (base, 7, 0, 0) and nbytes <= ALL_FRESH_BYTES and at == 0
            written[: nbytes // 16] = False
        assert at >= 0 and at + count <= len(written) and not written[at : at + count].any()
        written[at : at + count] = True
    fewest = 200 * (FRESH_BYTES // 2) / ALL_FRESH_BYTES  # if calls left nothing over, with the mean of their bytes
    assert 0.9 * fewest < len(memory.cleared) < 2 * fewest


def test_a_captured_stream_has_none_until_its_capture_ends(memory: Memory) -> None:
    memory.captured = {7}
    assert slots(0, 7, (0, 16), 1, 32) is None and not memory.taken
    memory.captured = set()
    base = address(0, 7)
    assert base
    memory.captured = {7}
    assert address(0, 7) == 0
    memory.captured = {8}
    assert address(0, 7) == base


@pytest.mark.parametrize("default", [0, 1])
def test_the_default_stream_gets_no_memory_while_it_would_break_a_capture(memory: Memory, default: int) -> None:
    memory.implicit = True
    assert address(0, default) == 0 and not memory.taken
    memory.implicit = False
    base = address(0, default)
    assert base and address(0, default) == base


def test_a_handle_that_is_another_stream_in_every_thread_has_none(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert address(0, 2) == 0 and address(0, 1)
    monkeypatch.setenv("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "1")
    driver._default_per_thread.cache_clear()
    assert address(0, 0) == 0
    monkeypatch.setenv("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0")
    driver._default_per_thread.cache_clear()
    assert address(1, 0)
    assert [stream for _, stream, _ in memory.taken] == [1, 0]


def test_only_so_many_streams_get_memory(memory: Memory) -> None:
    found = [address(0, stream) for stream in range(100, 110 + MOST_STREAMS)]
    assert all(found[:MOST_STREAMS]) and not any(found[MOST_STREAMS:])
    assert len(memory.taken) == len(stream_scratch._memories) == MOST_STREAMS


def test_a_stream_with_the_handle_of_one_that_is_gone_has_memory_of_its_own(memory: Memory) -> None:
    first = address(0, 7)
    memory.numbers = {7: 1007}
    second = address(0, 7)
    assert second not in (0, first) and address(0, 7) == second
    stream_scratch.drop(0, 7)
    memory.numbers = {}
    assert address(0, 7) == first


def test_a_stream_without_memory_is_not_asked_again(memory: Memory) -> None:
    memory.failing = 1
    assert address(0, 7) == 0 and address(0, 7) == 0
    assert address(0, 8) and len(memory.taken) == 1


def test_memory_that_a_failed_launch_used_is_used_no_more(memory: Memory) -> None:
    first, other = address(0, 7), address(0, 8)
    stream_scratch.drop(0, 7)
    assert address(0, 7) not in (0, first, other)
    assert address(0, 8) == other and len(memory.cleared) == 3


def test_a_driver_that_answers_nothing_leaves_the_launch_s_own_error(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(stream: int, device: int) -> int:
        raise KernelLaunchError("cuStreamGetId: CUDA_ERROR_ILLEGAL_ADDRESS (700)", 700)

    assert address(0, 7)
    monkeypatch.setattr(driver, "stream_number", fail)
    stream_scratch.drop(0, 7)


def test_threads_share_the_memory_of_a_stream(memory: Memory) -> None:
    found: list[int] = []
    start = threading.Barrier(8)

    def look() -> None:
        start.wait()
        found.append(address(0, 7))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1 << 25] * 8 and len(memory.taken) == 1


def test_memory_that_is_out_of_use_counts(memory: Memory) -> None:
    """It is never freed."""
    for _ in range(MOST_STREAMS):
        assert address(0, 7)
        stream_scratch.drop(0, 7)
    assert address(0, 7) == 0 and len(memory.taken) == MOST_STREAMS


def test_memory_of_contexts_that_are_gone_is_forgotten() -> None:
    stream_scratch._memories[9, 9] = stream_scratch.Memory(1 << 20)
    stream_scratch._made.append(stream_scratch.Memory(1 << 20))
    driver.reset()
    assert not stream_scratch._memories and not stream_scratch._made
