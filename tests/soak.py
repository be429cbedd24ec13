"""A long run of one process: many threads and streams, mixed ops and new shapes, captured graphs, a damaged cache, memory that runs out.

    python -m tests.soak [--seconds T] [--threads 8] [--streams 4] [--seed K] [--op PATTERN] [--only NAME,…] [--emulate]

Needs a GPU, and exits with status 2 without one; ``--emulate`` runs the scenarios that work in the emulator. Every result is checked. After each of
two halves all threads stop and memory is measured: that of pools, of the device and of the host. It must not grow, except for kernels that were built
in between. The exit status is 1 after any failure, or if a thread hangs; all stacks are then printed.
"""

from __future__ import annotations

import argparse
import faulthandler
import fnmatch
import gc
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.append(str(Path(__file__).parent))

MB = 1 << 20
#: MB that memory may grow by in the second half: a constant, and for each kernel that is built or loaded meanwhile
HOST_BOUND, DEVICE_BOUND, POOL_BOUND = (256, 6), (128, 2), (16, 0)
#: failures after which a thread stops: an error of the device persists
ENOUGH = 10


@dataclass
class Record:
    """The results of a scenario: runs, failures and seconds."""

    runs: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass
class Measure:
    """Memory in MB while nothing runs, and how many kernels there are."""

    host: float
    device: float
    pool: float
    kernels: int


@dataclass
class Soak:
    """The threads, and what they report."""

    threads: int
    streams: int
    seed: int
    most: int
    ops: list[object]
    scenarios: list[object]
    patience: float = 330.0
    place: int = 0  #: index of the next scenario that runs in processes
    longest: float = 0.0  #: seconds of the longest of them
    records: dict[str, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from soak_scenarios import Worker
        from watchdog import Watchdog

        self.lock, self.watchdog = threading.Lock(), Watchdog(self.patience)
        self.workers = [Worker(number, self.seed, self.ops, self.most, self.streams) for number in range(self.threads + 1)]
        self.records = {scenario.name: Record() for scenario in self.scenarios}

    def leg(self, seconds: float) -> None:
        """Runs all threads for so many seconds; then drops the objects that they kept."""
        end = time.monotonic() + seconds
        among = [scenario for scenario in self.scenarios if scenario.weight]
        beside = [scenario for scenario in self.scenarios if not scenario.weight]
        threads = [threading.Thread(target=self._loop, args=(worker, among, end), daemon=True) for worker in self.workers[:-1] if among]
        if beside:
            threads.append(threading.Thread(target=self._aside, args=(self.workers[-1], beside, end), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker in self.workers:
            worker.kept.clear()

    def _loop(self, worker: object, among: list[object], end: float) -> None:
        chosen, failures = random.Random(f"{self.seed} {worker.number}"), 0
        while time.monotonic() < end and failures < ENOUGH:
            scenario = chosen.choices(among, [each.weight for each in among])[0]
            failures += not self._run(scenario, worker)

    def _aside(self, worker: object, beside: list[object], end: float) -> None:
        while time.monotonic() + self.longest < end:  # the last one must end in time
            start = time.monotonic()
            self._run(beside[self.place % len(beside)], worker)
            self.place, self.longest = self.place + 1, max(self.longest, time.monotonic() - start)

    def _run(self, scenario: object, worker: object) -> bool:
        who, start, said = f"thread {worker.number}", time.monotonic(), ""
        self.watchdog.pat(scenario.name, who)
        try:
            scenario.run(worker)
        except BaseException as error:
            said = "".join(traceback.format_exception(error))
        self.watchdog.rest(who)
        with self.lock:
            record = self.records[scenario.name]
            record.runs, record.failed, record.seconds = record.runs + 1, record.failed + bool(said), record.seconds + time.monotonic() - start
            if said and record.failed <= 5:
                print(f"FAILED {scenario.name} in {who}:\n{said[-6000:]}", flush=True)
        return not said


def measure() -> Measure:
    """Memory after all unused memory is freed."""
    from numba_baracuda.arrays import arrays
    from numba_baracuda.runtime import cache, launch

    gc.collect()
    device = pool = 0.0
    if not arrays.emulating():
        import cupy

        cupy.cuda.runtime.deviceSynchronize()
        blocks = cupy.get_default_memory_pool()
        pool = blocks.used_bytes() / MB
        blocks.free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        free, total = cupy.cuda.runtime.memGetInfo()
        device = (total - free) / MB
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Measure(pages * os.sysconf("SC_PAGE_SIZE") / MB, device, pool, max(len(cache._memory), len(launch._kernels)))


def flat(before: Measure, after: Measure) -> bool:
    """Prints the growth of memory; returns whether it is within its bounds."""
    kernels, within = after.kernels - before.kernels, True
    for name, (plain, each) in (("host", HOST_BOUND), ("device", DEVICE_BOUND), ("pool", POOL_BOUND)):
        grown, bound = getattr(after, name) - getattr(before, name), plain + each * kernels
        within &= grown <= bound
        verdict = "flat" if grown <= bound else "GROWS"
        print(
            f"memory, {name}: {getattr(before, name):.0f} -> {getattr(after, name):.0f} MB, {grown:+.0f}, at most {bound:+d}: {verdict}", flush=True
        )
    return within


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--streams", type=int, default=4, help="of each thread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, metavar="ELEMENTS", help="of an array: 300 in the emulator, 400000 on a GPU")
    parser.add_argument("--op", default="*", metavar="PATTERN", help="ops whose names match, as in a shell")
    parser.add_argument("--only", default="", metavar="NAME,…", help="these scenarios alone")
    parser.add_argument("--emulate", action="store_true", help="run the scenarios that work in the emulator")
    given = parser.parse_args(arguments)
    if given.emulate:
        os.environ["NUMBA_BARACUDA_EMULATE"] = "1"
    from numba_baracuda import OPS
    from numba_baracuda.arrays import arrays

    if arrays.emulating() and not given.emulate:
        print("no CUDA device: the soak needs one; --emulate runs what works without")
        return 2
    from soak_scenarios import SCENARIOS

    names = given.only.split(",") if given.only else [scenario.name for scenario in SCENARIOS]
    unknown = set(names) - {scenario.name for scenario in SCENARIOS}
    if unknown:
        print(f"no scenario is named {', '.join(sorted(unknown))}; there are {', '.join(scenario.name for scenario in SCENARIOS)}")
        return 2
    folder = tempfile.TemporaryDirectory(prefix="numba_baracuda-soak-")
    os.environ.setdefault("NUMBA_BARACUDA_CACHE_DIR", folder.name)
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in names and (scenario.emulated or not arrays.emulating())]
    ops = [op for name, op in OPS.items() if fnmatch.fnmatchcase(name, given.op)]
    warnings.simplefilter("ignore")
    if not faulthandler.is_enabled():
        faulthandler.enable()
    soak = Soak(given.threads, given.streams, given.seed, given.most or (300 if arrays.emulating() else 400_000), ops, scenarios)
    print(f"seed {given.seed}: {len(scenarios)} scenarios, {len(ops)} ops, {given.threads} threads of {given.streams} streams", flush=True)
    with soak.watchdog:
        soak.watchdog.pat("measures memory")
        soak.watchdog.rest()
        soak.leg(given.seconds / 2)
        middle = measure()
        print(f"half of {given.seconds:g} s are over", flush=True)
        soak.leg(given.seconds / 2)
        good = flat(middle, measure())
    for name, record in soak.records.items():
        print(f"{name}: {record.runs} runs, {record.failed} failed, {record.seconds:.0f} s", flush=True)
    idle = [name for name, record in soak.records.items() if not record.runs]
    if idle:
        print(f"never ran: {', '.join(idle)}", flush=True)
    failed = sum(record.failed for record in soak.records.values())
    print(f"{sum(record.runs for record in soak.records.values())} runs, {failed} failed", flush=True)
    return 0 if good and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
