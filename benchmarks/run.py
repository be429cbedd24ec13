"""Ops against the copy rate of the card and against other libraries: ``python -m benchmarks.run``, on a machine with a GPU.

Every result is checked against float64 before it is timed, and once more afterwards. Times are of the device, between CUDA events; shares are of the
rate at which the card copies memory, measured just before each case.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from numba_baracuda.arrays import arrays

from . import peers, report, results
from .case import Arrays, Case, nbytes, output_of
from .cases import matching
from .checks import Truth, complaint
from .peer import Peer
from .results import OURS, RIGHT, Row
from .timing import Copy, Events, Timing, set_count
from .values import duplicate, poison

COPY_BYTES = 1 << 30
TOO_SLOW = 1.0  #: seconds that a call of a peer may take and still be timed
FIRST = 10.0  #: the same of its first call, in which it may compile; after a longer one it is not called again
SLOW = 0.05  #: seconds; a slower call of a peer is timed once, by the host's clock


@dataclass(frozen=True)
class Bench:
    """The settings of a run."""

    xp: Any
    events: Events
    frameworks: tuple[peers.Framework, ...]
    repeats: int
    cache: int  #: bytes of the level 2 cache


def verify(xp: Any, case: Case, operands: Arrays, call: Callable[[], Any], wanted: Truth) -> str:
    """What is wrong with the second of two runs, whose workspace has values of the first; "" if it is right."""
    output = output_of(case)
    poison(operands[output])
    call()
    call()
    return complaint(xp, operands[output], wanted)


def message(error: Exception) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"


def run_case(case: Case, bench: Bench) -> list[Row]:
    """Rows for ours and then for every peer; only ours if it is wrong."""
    xp, size = bench.xp, nbytes(case)
    name = OURS
    try:
        kernel, bind = case.prepare(xp)
        name = f"{OURS} {kernel}"
        first = case.make(xp)
        free = xp.cuda.runtime.memGetInfo()[0] + xp.get_default_memory_pool().free_bytes()
        copies = set_count(size, bench.cache, int(0.3 * free)) - 1
        sets = [first, *({key: duplicate(xp, array) for key, array in first.items()} for _ in range(copies))]
        calls = [bind(operands) for operands in sets]
        wanted = case.truth(xp, first)
        wrong = next(filter(None, (verify(xp, case, operands, call, wanted) for operands, call in zip(sets, calls, strict=True))), "")
        timing = None if wrong else bench.events(calls, bench.repeats)
        wrong = wrong or next(filter(None, (complaint(xp, operands[output_of(case)], wanted) for operands in sets)), "")
    except Exception as error:  # from a compiler, the driver or an allocator: other cases still run
        return [Row(case.op, case.id, name, size, None, f"FAILED: {message(error)}")]
    if wrong:
        return [Row(case.op, case.id, name, size, None, f"WRONG: {wrong}")]
    rows = [Row(case.op, case.id, name, size, timing)]
    peers.release(xp)  # memory of the truth, which frameworks cannot use
    for framework in bench.frameworks:
        for peer in framework.of(case):
            rows.append(_run_peer(case, bench, framework, peer, sets, wanted))
    return rows


def _run_peer(case: Case, bench: Bench, framework: peers.Framework, peer: Peer, sets: list[Arrays], wanted: Truth) -> Row:
    """The row of a peer. A wrong peer is timed as well, a slow one once, and one that takes seconds not at all; an error is in the row."""
    xp = bench.xp
    who, size = f"{framework.name} {peer.name}", nbytes(case)
    try:
        calls = framework.bind(peer, xp, case, sets)
        poison(sets[0][output_of(case)])
        seconds, found = _once(xp, calls[0])
        wrong = complaint(xp, framework.take(found), wanted, conventions=False)
        if seconds <= FIRST:
            seconds, _ = _once(xp, calls[0])
        if seconds > TOO_SLOW:
            return Row(case.op, case.id, who, size, None, f"too slow: {seconds:.1f} s a call")
        once = seconds > SLOW
        timing = Timing((1e6 * seconds,)) if once else framework.time(bench.events, calls, bench.repeats)
    except Exception as error:  # frameworks raise anything
        return Row(case.op, case.id, who, size, None, f"failed: {message(error)}")
    return Row(case.op, case.id, who, size, timing, f"WRONG: {wrong}" if wrong else RIGHT, "one call, host clock" if once else framework.note)


def _once(xp: Any, call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call with all its work on the device, and its result."""
    xp.cuda.Device().synchronize()
    start = time.perf_counter()
    found = call()
    xp.cuda.Device().synchronize()
    return time.perf_counter() - start, found


def measure(case: Case, bench: Bench, copy: Copy) -> list[Row]:
    """The rows of a case, with the rate of a copy just before it."""
    peers.release(bench.xp)
    rate = copy.rate(bench.events, bench.repeats)
    return [replace(row, copy=rate) for row in run_case(case, bench)]


def run(cases: Sequence[Case], bench: Bench, screen: Console, path: Path | None) -> int:
    """Measures the cases, prints each as it is done, and keeps the file up to date so that an interrupted run leaves what it has."""
    header, rows = results.stamp(), list[Row]()
    copy = Copy(bench.xp, COPY_BYTES)
    screen.print("\n".join(f"{key}: {value}" for key, value in header.items()), markup=False)
    for case in cases:
        rows += measure(case, bench, copy)
        header["copy_gb_s"] = copy_rates(rows)
        found = results.records(rows)
        screen.print(report.case_table([record for record in found if (record["op"], record["case"]) == (case.op, case.id)]))
        if path:
            results.write_csv(path, header, found)
    screen.print(report.summary(found, f"copy {header['copy_gb_s']} GB/s, measured before each case"))
    if path:
        screen.print(f"written to {path}", markup=False)
    failed = [row for row in rows if row.ours and row.checked != RIGHT]
    for row in failed:
        screen.print(f"{row.op} {row.case}: {row.checked}", markup=False)
    return 1 if failed else 0


def copy_rates(rows: Sequence[Row]) -> str:
    """Median, least and greatest of the rates of copies, one for each case."""
    rates = list({(row.op, row.case): row.copy for row in rows}.values())
    return f"{statistics.median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f})"


def framework_names(text: str) -> list[str]:
    """What ``--against`` names."""
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in peers.NAMES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(peers.NAMES)}")
    return names


def load_frameworks(names: Sequence[str], xp: Any, screen: Console) -> tuple[peers.Framework, ...]:
    """Those that can be had; says of the others why not."""
    found = []
    for name in names:
        try:
            found.append(peers.load(name, xp))
        except Exception as error:  # missing, or broken in a way of its own
            screen.print(f"{name}: not available ({message(error)})", markup=False)
    return tuple(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--op", default="*", metavar="PATTERN", help="only ops whose name matches, e.g. 'unsorted_*'")
    parser.add_argument("--case", default="*", metavar="PATTERN", help="only cases whose id matches, e.g. 'zipf-*'")
    default = ",".join(peers.DEFAULT)
    against = f"peers, of {', '.join(peers.NAMES)}, or none (default: {default}; torch.compile takes seconds a case)"
    parser.add_argument("--against", type=framework_names, default=default, metavar="NAME,NAME", help=against)
    file = "results file (default: results/ops_<gpu>.csv if all cases are run in full size, else none)"
    parser.add_argument("--csv", type=Path, metavar="FILE", help=file)
    parser.add_argument("--repeats", type=int, default=25, metavar="N", help="samples of each time, fewer for slow calls (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="a few hundred elements a case, to try the harness; the times mean nothing")
    parser.add_argument("--list", action="store_true", help="list the cases and what they must move")
    return parser


def no_gpu(program: str) -> bool:
    """Whether there is no GPU to measure on; prints a message."""
    if arrays.emulating():
        print(f"{program}: no CUDA device to measure on, or NUMBA_BARACUDA_EMULATE is set; times hold only on a GPU")
    return arrays.emulating()


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    screen = report.console()
    found = matching(arguments.op, arguments.case)
    if not found:
        screen.print(f"benchmarks.run: no case matches --op {arguments.op!r} --case {arguments.case!r}; --list shows all", markup=False)
        return 2
    if arguments.list:
        for case in found:
            screen.print(f"{case.op:34s} {case.id:44s} {nbytes(case) / 1e6:10,.1f} MB", markup=False)
        return 0
    if no_gpu("benchmarks.run"):
        return 2
    import cupy

    from numba_baracuda.runtime import driver

    cases = [case.tiny() for case in found] if arguments.tiny else found
    whole = not arguments.tiny and (arguments.op, arguments.case) == ("*", "*")
    path = arguments.csv or (results.default_path("ops", driver.device_name()) if whole else None)
    bench = Bench(cupy, Events(cupy), load_frameworks(arguments.against, cupy, screen), arguments.repeats, driver.l2_bytes())
    return run(cases, bench, screen, path)


if __name__ == "__main__":
    raise SystemExit(main())
