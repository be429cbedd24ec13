"""Ops of several GPUs against one: ``torchrun --nproc-per-node 2 -m benchmarks.distributed [--case PATTERN] [--repeats N] [--csv FILE]``.

Each case runs on one GPU and on all ranks, in turn. A time is the median over repeats of the slowest rank's, between CUDA events behind a barrier
and a kernel that holds the device until all work is queued; the host's time has a column of its own. It is taken again where collectives exchange
nothing: the difference is the time that ranks wait for each other. Memory is the most that a call takes beyond its operands, on the rank where that
is most. Every result is checked against that of one GPU before it is timed, and must have the same bits in a second run; after a wrong one the exit
status is 1. Every rank makes the inputs from a seed. Other packages' losses run where they are installed.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from numba_baracuda.distributed import Communicator, TorchCommunicator

from . import results
from .distributed_cases import Case, Silent, Work, cases

Line = dict[str, str]
#: clocks for which a kernel holds a device while calls are queued behind it
_HELD = 10_000_000


def slowest(call: Callable[[], Any], repeats: int, device: Any) -> float:
    """The median of the slowest rank's milliseconds."""
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda._sleep(_HELD)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(_most(begin.elapsed_time(end), device))
    return statistics.median(times)


def host_time(call: Callable[[], Any], repeats: int, device: Any) -> float:
    """The median of the milliseconds that a call takes the slowest rank's host, which queues its work behind a kernel that holds the device."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda._sleep(_HELD)
        begin = time.perf_counter()
        call()
        times.append(_most((time.perf_counter() - begin) * 1e3, device))
    return statistics.median(times)


def _most(number: float, device: Any) -> float:
    """The greatest of all ranks."""
    held = torch.tensor(number, device=device, dtype=torch.float64)
    dist.all_reduce(held, dist.ReduceOp.MAX)
    return float(held)


def memory(call: Callable[[], Any], device: Any) -> float:
    """MiB that a call takes at most, beyond what is there, on the rank that takes most."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize()
    return _most((torch.cuda.max_memory_allocated(device) - before) / 2**20, device)


def off(single: Any, several: Any) -> float:
    """The greatest difference, as a share of the greatest number."""
    return float((single.double() - several.double().reshape(single.shape)).abs().max() / single.double().abs().max().clamp(min=1e-30))


def same_bits(first: Iterable[tuple[Any, Any]], again: Iterable[tuple[Any, Any]]) -> bool:
    """Whether this rank's results of two runs are the same, bit by bit."""
    return all(
        torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
        for (_, a), (_, b) in zip(first, again, strict=True)
    )


def _peers(case: Case, work: Work, single: Any, ours: float, repeats: int, device: Any) -> Iterable[Line]:
    """Lines of other packages; one that is missing or cannot do it says so."""
    for name, call in work.peers.items():
        try:
            worst = max(off(*each) for each in work.pairs(single, call()))
        except Exception as error:  # every rank fails alike
            yield {"case": case.name, "who": name, "note": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]}
            continue
        held, took = memory(call, device), slowest(call, max(repeats // 2, 3), device)
        yield {
            "case": case.name,
            "who": name,
            "ms": f"{took:.3f}",
            "mib": f"{held:.0f}",
            "off_by": f"{_most(worst, device):.1e}",
            "ours_is": f"{took / ours:.2f}",
        }


def run(case: Case, group: Communicator, mesh: Any, device: Any, repeats: int) -> list[Line]:
    """The lines of a case: ours on one GPU and on all, then others."""
    torch.manual_seed(1)
    work = case.make(group, mesh, device)
    single, several = work.one(), work.several(group)
    pairs = work.pairs(single, several)
    worst = _most(max(off(*each) for each in pairs), device)
    again = not _most(not same_bits(pairs, work.pairs(single, work.several(group))), device)
    verdict = "yes" if worst <= case.allowed and again else "other bits in a second run" if worst <= case.allowed else "no"
    del pairs, several
    one, held = slowest(work.one, repeats, device), memory(lambda: work.several(group), device)
    silent = Silent(group)
    work.several(silent)
    all_ranks, alone = slowest(lambda: work.several(group), repeats, device), slowest(lambda: work.several(silent), repeats, device)
    bar = case.bars.get(group.size)
    shared: Line = {"case": case.name, "ranks": str(group.size), "checked": verdict}
    ratio = {"times_one_gpu": f"{one / all_ranks:.3f}", "bar": "" if bar is None else str(bar)}
    lines = [
        shared | {"who": "one GPU", "ms": f"{one:.3f}", "mib": f"{memory(work.one, device):.0f}"},
        shared | ratio | {"who": results.OURS, "ms": f"{all_ranks:.3f}", "mib": f"{held:.0f}", "off_by": f"{worst:.1e}"}
        | {"exposed_ms": f"{all_ranks - alone:.3f}", "host_ms": f"{host_time(lambda: work.several(group), repeats, device):.3f}"},
    ]  # fmt: skip
    return [*lines, *(line | {"ranks": str(group.size)} for line in _peers(case, work, single, all_ranks, repeats, device))]


_KEYS = ("case", "ranks", "who", "ms", "times_one_gpu", "bar", "exposed_ms", "host_ms", "mib", "ours_is", "off_by", "checked", "note")


def main() -> int:
    """Runs the cases that match."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", help="a pattern of names, as of a shell; all cases by default")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs a GPU for each rank", file=sys.stderr)
        return 2
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    group, mesh = TorchCommunicator(), init_device_mesh("cuda", (dist.get_world_size(),))
    lines: list[Line] = []
    for case in cases():
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in given.case or ["*"]):
            found = run(case, group, mesh, device, given.repeats)
            torch.cuda.empty_cache()
            lines += [dict.fromkeys(_KEYS, "") | line for line in found]
            if group.rank == 0:
                for line in found:
                    print("; ".join(f"{key} {line[key]}" if key != "case" else line[key] for key in _KEYS if line.get(key)), flush=True)
                if given.csv:
                    results.write_csv(given.csv, results.stamp() | {"gpus": str(group.size)}, lines)
    dist.destroy_process_group()
    return 0 if all(line["checked"] in ("", results.RIGHT) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
