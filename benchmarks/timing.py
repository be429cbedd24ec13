"""Times on the device: between CUDA events, with a kernel that blocks the stream until every call is queued, and a cold L2 cache."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Call = Callable[[], Any]

#: calls are timed together until they take this long, once one takes less than SHORT (microseconds)
SHORT, TOGETHER = 20.0, 100.0
#: device time of one measurement at most, unless the least number of samples takes longer (microseconds)
BUDGET, FEWEST = 1e6, 5
#: a call that takes longer is timed once (microseconds)
SLOW = 2e6
#: device time for which a call runs before it is timed in turn with others, and while it is (microseconds)
TURN = 1e5
#: longer than the host time of a call that does not wait for the device (nanoseconds)
WAIT = 1e7
#: most operand sets, for operands far smaller than the cache
MOST_SETS = 128
_HOLD = """
extern "C" __global__ void hold(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call in each sample; ``dry``: the queue ran empty while it was filled, so that samples may include host time."""

    samples: tuple[float, ...]
    dry: bool = False

    def _percentile(self, which: float) -> float:
        return float(np.percentile(self.samples, which))

    @property
    def median(self) -> float:
        return self._percentile(50)

    @property
    def low(self) -> float:
        """The 10th percentile."""
        return self._percentile(10)

    @property
    def high(self) -> float:
        """The 90th percentile."""
        return self._percentile(90)


def set_count(nbytes: int, cache: int, memory: int) -> int:
    """The number of operand sets to alternate: together more than twice the cache, at least 2, else no more than fit in memory."""
    wanted = 2 * cache // max(1, nbytes) + 1
    return max(2, min(wanted, memory // max(1, nbytes), MOST_SETS))


def plan_samples(estimate: float, repeats: int) -> tuple[int, int]:
    """Samples, and calls in each, for calls of about ``estimate`` microseconds."""
    calls = 1 if estimate >= SHORT else min(64, int(TOGETHER / max(estimate, 1.0)) + 1)
    return max(min(FEWEST, repeats), min(repeats, int(BUDGET / (max(estimate, 1.0) * calls)))), calls


class Events:
    """Times calls that queue their work on CuPy's current stream, which is also PyTorch's default one."""

    def __init__(self, cupy: Any) -> None:
        self._cuda = cupy.cuda
        self._hold = cupy.RawKernel(_HOLD, "hold")
        self._held(1000)

    def _held(self, nanoseconds: float) -> Any:
        """Keeps the stream busy for so long; returns the event at its end."""
        self._hold((1,), (1,), (np.uint64(nanoseconds),))
        over = self._cuda.Event()
        over.record()
        return over

    def __call__(self, calls: Sequence[Call], repeats: int) -> Timing:
        """Times ``calls`` in turn, which do the same on operand sets of their own, after two rounds of warming up.

        Calls that wait for the device cannot be queued behind a blocked stream; they are timed without. Of calls that take seconds, one is timed.
        """
        pair, _ = self._sample(iter(calls), 1)
        first = self._elapsed([pair])[0]
        if first > SLOW:
            return Timing((first,), False)
        for call in [*calls[1:], *calls]:
            call()
        self._cuda.Device().synchronize()
        waits = self._waits(calls[0])
        pair, host = self._sample(itertools.cycle(calls), len(calls))
        estimate = self._elapsed([pair])[0] / len(calls)
        samples, each = plan_samples(estimate, repeats)
        hold = 0.0 if waits else 1.5e9 * host / len(calls) * samples * each + 1e6
        for _ in range(1 if waits else 3):
            turns = itertools.cycle(calls)
            over = self._held(min(hold, 2e9))
            start = time.perf_counter()
            pairs = [self._sample(turns, each)[0] for _ in range(samples)]
            dry = bool(over.done)
            hold = 2e9 * (time.perf_counter() - start) + 1e6
            elapsed = self._elapsed(pairs)
            if not dry:
                break
        return Timing(tuple(microseconds / each for microseconds in elapsed), dry)

    def in_turns(self, calls: Sequence[Call], rounds: int) -> list[Timing]:
        """Timings of calls that do different things: each runs once in every round, in an order that changes from round to round.

        A call runs for the time of ``TURN`` untimed, and then as often timed. So it is timed at the clocks and the power of its own work, whichever
        call ran before it.
        """
        for call in [*calls, *calls]:
            call()
        times = [max(1, math.ceil(TURN / self._elapsed([self._turn(call, 1)[0]])[0])) for call in calls]
        pairs: list[list[tuple[Any, Any]]] = [[] for _ in calls]
        dry = [False] * len(calls)
        for each in range(rounds):
            for k in np.random.default_rng(each).permutation(len(calls)):
                for _ in range(times[k]):
                    calls[k]()
                pair, ran_dry = self._turn(calls[k], times[k])
                pairs[k].append(pair)
                dry[k] |= ran_dry
        found = [[microseconds / number for microseconds in self._elapsed(samples)] for samples, number in zip(pairs, times, strict=True)]
        return [Timing(tuple(samples), empty) for samples, empty in zip(found, dry, strict=True)]

    def _waits(self, call: Call) -> bool:
        """Whether a call returns only after the device has run the work that was queued before it."""
        over = self._held(WAIT)
        call()
        waited = bool(over.done)
        self._cuda.Device().synchronize()
        return waited

    def _sample(self, turns: Any, calls: int) -> tuple[tuple[Any, Any], float]:
        """Queues calls between two events; returns the events and the seconds of host time."""
        begin, end = self._cuda.Event(), self._cuda.Event()
        start = time.perf_counter()
        begin.record()
        for _ in range(calls):
            next(turns)()
        end.record()
        return (begin, end), time.perf_counter() - start

    def _turn(self, call: Call, number: int) -> tuple[tuple[Any, Any], bool]:
        """Queues a call so often between two events; returns the events, and whether the device reached the last call before it was queued."""
        begin, last, end = (self._cuda.Event() for _ in range(3))
        begin.record()
        for _ in range(number - 1):
            call()
        last.record()
        call()
        end.record()
        return (begin, end), bool(last.done)

    def _elapsed(self, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
        self._cuda.Device().synchronize()
        return [1e3 * self._cuda.get_elapsed_time(begin, end) for begin, end in pairs]


class WallClock:
    """Times calls on a stream that events cannot be recorded on: several at a time by the host's clock, with a wait for the last."""

    def __init__(self, wait: Callable[[Any], Any]) -> None:
        self._wait = wait

    def __call__(self, calls: Sequence[Call], repeats: int) -> Timing:
        for call in [*calls, *calls]:
            self._wait(call())
        estimate = self._round(itertools.cycle(calls), 4)
        each = min(200, max(4, int(1e4 / estimate)))  # 10 ms, so that the wait at the end is negligible
        samples = max(min(FEWEST, repeats), min(repeats, int(BUDGET / (estimate * each))))
        turns = itertools.cycle(calls)
        return Timing(tuple(self._round(turns, each) for _ in range(samples)))

    def _round(self, turns: Any, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            result = next(turns)()
        self._wait(result)
        return max(1e6 * (time.perf_counter() - start) / calls, 1e-3)


class Copy:
    """A copy from device memory to device memory, always between the same two buffers: elsewhere it may be a tenth slower."""

    def __init__(self, cupy: Any, nbytes: int) -> None:
        here, there = cupy.zeros(nbytes, cupy.uint8), cupy.zeros(nbytes, cupy.uint8)
        self._nbytes = nbytes
        self._calls = [lambda: there.data.copy_from_device_async(here.data, nbytes), lambda: here.data.copy_from_device_async(there.data, nbytes)]

    def rate(self, events: Events, repeats: int) -> float:
        """GB/s, read and write counted."""
        return 2 * self._nbytes / events(self._calls, repeats).median / 1e3
