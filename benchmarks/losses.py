"""The fused linear cross-entropy against frameworks: ``python -m benchmarks.losses``, on a machine with a GPU, CuPy and PyTorch.

Loss and both gradients of a linear layer in bfloat16. The contestants of a case run in turn, each long enough that the
card, at its power limit, settles at the clocks of that work. Every element of every result is compared with float64. A result is less exact if its
errors exceed those of PyTorch's loss in bfloat16, or 1.5 times those of its gradients, and wrong beyond 2 and 8 times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from numba_baracuda.arrays import arrays

from . import loss_report, peers, report, results
from .loss_cases import WRONG, LossCase, Result, errors, matching, truth, verdict
from .loss_contestants import YARDSTICK, Contestant, Emulated, Ground
from .loss_report import Entry
from .results import Record
from .run import message, no_gpu
from .timing import Call

FAILED = "FAILED"
SLOW_START = 1.0  #: seconds; the note of a contestant has the time of a longer first call


def prepare(ground: Ground, contestant: Contestant, wanted: Result) -> tuple[Entry, Call | None]:
    """Runs a contestant twice, the second time with its memory measured; no call where it failed, and the error in the note."""
    entry = Entry(contestant)
    try:
        start = time.perf_counter()
        call = contestant.make()
        call()
        got, peak = ground.watched(call)
        seconds = time.perf_counter() - start
        if seconds > SLOW_START:
            entry.note = f"{seconds:.1f} s to prepare"
        if contestant.loss:
            entry.peak = peak
            loss, grad_input, grad_weight = got
            entry.errors = errors(ground.xp, Result(float(loss), ground.take(grad_input), ground.take(grad_weight)), wanted)
    except Exception as error:  # whatever a framework raises, for want of itself or of memory: the others go on
        entry.checked = f"{FAILED if entry.ours else FAILED.lower()}: {message(error)}"
        return entry, None
    return entry, call


def judge(entries: Sequence[Entry], loss: float) -> None:
    """Sets the verdict of each entry, by the errors of the yardstick if there is one."""
    yardstick = next((entry.errors for entry in entries if entry.contestant.who == YARDSTICK), None)
    for entry in entries:
        if entry.errors:
            entry.checked = verdict(entry.errors, yardstick, loss) if yardstick else f"not judged: {YARDSTICK} failed"


def race(case: LossCase, ground: Ground, rounds: int) -> list[Entry]:
    """All contestants of a case, checked one by one and then timed in turn; one of ours that is wrong is not timed."""
    x, w, target = ground.operands(case)
    wanted = truth(ground.xp, *map(ground.take, (x, w, target)))
    found = []
    for contestant in ground.contestants(case, x, w, target):
        found.append(prepare(ground, contestant, wanted))
    judge([entry for entry, _ in found], wanted.loss)
    del wanted
    peers.trim(ground.xp)
    running = [(entry, call) for entry, call in found if call and not (entry.ours and entry.checked.startswith(WRONG))]
    for (entry, _), timing in zip(running, ground.times([call for _, call in running], rounds), strict=True):
        entry.timing = timing
    return [entry for entry, _ in found]


def run(cases: Sequence[LossCase], ground: Ground, rounds: int, screen: Console, path: Path | None) -> int:
    """Measures the cases, prints each when it is done, and keeps the file up to date so that an interrupted run leaves what it has."""
    header, found, failed = results.stamp(), list[Record](), list[str]()
    header["rounds"] = str(rounds)
    screen.print("\n".join(f"{key}: {value}" for key, value in header.items()), markup=False)
    for case in cases:
        peers.release(ground.xp)
        start = time.perf_counter()
        try:
            entries = race(case, ground, rounds)
        except Exception as error:  # for want of memory, or where a call that went well before does not any more: the other cases go on
            failed.append(f"{case.id}: {message(error)}")
            continue
        failed += [
            f"{case.id} {entry.contestant.who}: {entry.checked}" for entry in entries if entry.ours and entry.checked.startswith((WRONG, FAILED))
        ]
        rows = loss_report.records(case, entries)
        found += rows
        screen.print(loss_report.case_table(case, rows))
        screen.print(f"{time.perf_counter() - start:.1f} s\n")
        if path:
            results.write_csv(path, header, found)
    screen.print(loss_report.summary(found, "ours, and the fastest peer that is not wrong"))
    if path:
        screen.print(f"written to {path}", markup=False)
    for line in failed:
        screen.print(line, markup=False)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.losses", description=__doc__)
    parser.add_argument("--case", default="*", metavar="PATTERN", help="only cases whose id matches, e.g. 'llama3-*'")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="with torch.compile, which takes seconds a case")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="results file (default: results/loss_<gpu>.csv if all cases are run in full size)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="samples of each time (default: %(default)s)")
    parser.add_argument(
        "--tiny", action="store_true", help="a few rows a case, to try the harness; in the emulator where there is no GPU, without times"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    screen = report.console()
    found = matching(arguments.case)
    if not found:
        screen.print(f"benchmarks.losses: no case matches --case {arguments.case!r}", markup=False)
        return 2
    cases = [case.tiny() for case in found] if arguments.tiny else found
    if arguments.tiny and arrays.emulating():
        return run(cases, Emulated(), arguments.rounds, screen, arguments.csv)
    if no_gpu("benchmarks.losses"):
        return 2
    from numba_baracuda.runtime import driver

    from .loss_torch import Torch

    whole = not arguments.tiny and arguments.case == "*"
    path = arguments.csv or (results.default_path("loss", driver.device_name()) if whole else None)
    return run(cases, Torch(arguments.compile), arguments.rounds, screen, path)


if __name__ == "__main__":
    raise SystemExit(main())
