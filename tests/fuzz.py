"""A differential fuzzer: random problems of every op against float64, or exact integers.

    python -m tests.fuzz [--seed K] [--seconds T] [--op PATTERN] [--case N] [--first N] [--most ELEMENTS]

Ops, elements and options come from the op table and the functions' signatures, so that a new row of the table is fuzzed at once; an op without a
reference, or with an option without values, is an error. Runs in the emulator, or with CuPy arrays where there is a GPU. A failure is
shrunk, and printed with the command that repeats it; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "support"))

import numpy as np
from fuzz_arrays import PROFILES, Placed, drawn_layout, on_host, picked
from fuzz_families import CALLS, Case, NoReference, Problem, Reduce, Segment
from fuzz_loss import Loss
from fuzz_scan import Scan
from kinds import KINDS
from watchdog import Watchdog

import numba_baracuda as nb
from numba_baracuda.arrays import arrays, emulation
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Op

FAMILIES: dict[str, Any] = {"segment": Segment(), "reduce": Reduce(), "scan": Scan(), "loss": Loss()}
#: consecutive cases that share op, element and options: the emulator infers the types of each new kernel, which takes longer than running it
BURST = 10
#: resident bytes at which the process restarts: the emulator's lowered kernels are never freed
MOST_MEMORY = 3 << 29
#: profiles of values that cannot test an op, by pattern of the op, and why
WITHOUT: dict[str, tuple[tuple[str, ...], str]] = {
    "*prod*": (("extreme",), "the order of the factors decides what leaves the range"),
    "*var*": (("extreme",), "squares leave the range of the reference as well"),
    "*std*": (("extreme",), "squares leave the range of the reference as well"),
    "*[!xn]_backward": (("extreme",), "products of the limits leave the range of the reference as well"),
    "*softmax_backward": (("extreme",), "sums of products of the limits leave the range"),
    "fused_linear_cross_entropy": (("extreme", "special"), "whole products turn infinite or NaN, of which its reference knows no rule"),
}
#: inputs that are computed from others, and so are not broadcast by their layout
DEPENDENT = ("y", "output", "offsets")
#: what the emulator may say where values are unspecified: of an output, or of an array of the workspace, but not of shared memory or a local array
UNWRITTEN = re.compile(r"were never written|: \w+\[\d+\] is read before it was written")


def check_references(ops: Sequence[Op]) -> None:
    """Raises :class:`NoReference` for the first op that could not be fuzzed."""
    for op in ops:
        family = FAMILIES.get(op.family)
        if family is None:
            raise NoReference(f"{op.name}: the fuzzer has no family {op.family}")
        family.check(op)
        family.draw(np.random.default_rng(0), op, op.elements[0], 100, np.random.default_rng(0))


@functools.cache
def holds(element: str) -> bool:
    """Whether the framework has arrays of this element type: older versions of CuPy lack some."""
    try:
        Placed(_kind(), np.zeros(1, numpy_dtype(element)), None)
    except TypeError:
        return False
    return True


def _kind() -> Any:
    return KINDS["numpy" if arrays.emulating() else "cupy"]


def make(ops: Sequence[Op], seed: int, number: int, most: int) -> Case:
    """Case ``number`` of a seed. Bursts take the ops in turn, in an order by the seed."""
    burst, rng = number // BURST, np.random.default_rng([seed, number])
    turns, place = divmod(burst, len(ops))
    op = ops[np.random.default_rng([seed, 1, turns]).permutation(len(ops))[place]]
    habits = np.random.default_rng([seed, 2, burst])
    element = picked(habits, [name for name in op.elements if holds(name)])
    family = FAMILIES[op.family]
    case: Case = family.draw(rng, op, element, most, habits)
    without = {profile for pattern, (profiles, _) in WITHOUT.items() if fnmatch.fnmatchcase(op.name, pattern) for profile in profiles}
    profile = picked(rng, PROFILES)
    case = replace(case, seed=int(rng.integers(1 << 30)), values="normal" if profile in without else profile)
    problem, plain, layouts = family.problem(op, case), rng.random() < 0.3, {}
    shapes = {name: array.shape for name, array in problem.inputs.items()} | {name: shape for name, (shape, *_) in problem.outputs.items()}
    for name, shape in shapes.items():
        if not plain and rng.random() < 0.6:
            fixed = name in problem.outputs or name in DEPENDENT
            layouts[name] = drawn_layout(rng, len(shape), output=fixed, rows=name in getattr(family, "row_major", ()) and op.backward is not None)
    drawn = {"out": rng.random() < 0.5, "workspace": rng.random() < 0.25 and not case.options.get("skip_ignored"), "twice": rng.random() < 0.15}
    extra = {name: True for name, chosen in drawn.items() if chosen}
    small = arrays.emulating() and int(np.prod(case.shape, dtype=np.int64)) <= 600
    races = case.settings.get("ids") == "shuffled"  # values are then unspecified
    schedule = int(rng.integers(1000)) if small and not races and rng.random() < 0.3 else None
    return replace(case, layouts=layouts, options=case.options | extra, schedule=schedule)


def run(case: Case) -> None:
    """Runs a case; raises if it fails."""
    op, kind = nb.OPS[case.op], _kind()
    problem: Problem = FAMILIES[op.family].problem(op, case)
    updated = any(before is not None for *_, before in problem.outputs.values())
    try:
        results = _once(case, problem, kind)
    except Exception as error:
        if problem.unspecified and UNWRITTEN.search(str(error)):
            return
        raise
    if problem.refusal is not None or problem.unspecified:
        return
    problem.compare(results)
    if case.options.get("twice") and case.options.get("deterministic", True) and not updated:
        for name, array in _once(case, problem, kind).items():
            assert array.tobytes() == results[name].tobytes(), f"{name}: the second run gives other bits"


def _once(case: Case, problem: Problem, kind: Any) -> dict[str, Any]:
    options = {name: option for name, option in case.options.items() if name not in CALLS}
    inputs = {name: Placed(kind, array, case.layouts.get(name)) for name, array in problem.inputs.items()}
    out = {}
    for name, (shape, dtype, before) in problem.outputs.items():
        if case.options.get("out") or before is not None:
            poison = np.full(shape, 99).astype(dtype) if before is None else before
            out[name] = Placed(kind, poison, case.layouts.get(name))
    given, into = {name: placed.array for name, placed in inputs.items()}, {name: placed.array for name, placed in out.items()}
    with kind.schedule(case.schedule):
        try:
            results = _call(problem, given, into, options, kind, bool(case.options.get("workspace")))
        except nb.InvalidProblem as error:
            if problem.refusal is None or problem.refusal not in str(error):
                raise
            results = {}
        else:
            assert problem.refusal is None, f"wants InvalidProblem that says {problem.refusal}"
    for name, placed in inputs.items():
        placed.check_unchanged(name)
    if problem.refusal is not None:
        return {}
    for name, array in results.items():
        assert name not in into or array is into[name], f"{name} is not the array that was given"
        assert kind.owns(array), f"{name} is of {type(array)}"
    return {name: out[name].read() if name in out else on_host(kind, array) for name, array in results.items()}


def _call(problem: Problem, given: Any, into: Any, options: Any, kind: Any, workspace: bool) -> dict[str, Any]:
    """The results of a call; with ``workspace``, in exactly as many bytes as the error for fewer asks for."""
    if workspace:
        try:
            return problem.call(given, into, options | {"workspace": kind.workspace(16)})
        except nb.WorkspaceTooSmall as error:
            return problem.call(given, into, options | {"workspace": kind.workspace(error.needed)})
    return problem.call(given, into, options)


def failure_of(case: Case) -> BaseException | None:
    try:
        run(case)
    except Exception as error:
        return error
    return None


def _simpler(case: Case) -> Iterator[Case]:
    """Simpler cases: smaller, or with fewer options."""
    for axis, extent in enumerate(case.shape):
        if extent > 1:
            yield replace(case, shape=(*case.shape[:axis], extent // 2, *case.shape[axis + 1 :]))
    yield replace(case, layouts={})
    yield replace(case, schedule=None)
    for name in case.options:
        yield replace(case, options={other: option for other, option in case.options.items() if other != name})
    for name in case.layouts:
        yield replace(case, layouts={other: layout for other, layout in case.layouts.items() if other != name})
    for profile in ("normal", "whole"):
        if case.values not in ("normal", "whole"):
            yield replace(case, values=profile)
    yield from FAMILIES[nb.OPS[case.op].family].simpler(case)


def shrink(case: Case, error: BaseException, seconds: float = 60.0) -> tuple[Case, BaseException]:
    """The simplest case found with the same kind of failure."""
    end, found = time.monotonic() + seconds, True
    while found and time.monotonic() < end:
        found = False
        for simpler in _simpler(case):
            if simpler == case or time.monotonic() > end:
                continue
            other = failure_of(simpler)
            if type(other) is type(error):
                case, error, found = simpler, other, True
                break
    return case, error


def report(case: Case, error: BaseException, repeat: str) -> str:
    """The report of a failure: what went wrong, how to repeat it, and the arrays if they are small."""
    lines = [f"FAILED {case.op}: {type(error).__name__}: {error}", f"  repeat: {repeat}", f"  shrunk: from tests.fuzz import *; run({case!r})"]
    if not isinstance(error, AssertionError | nb.BaracudaError):
        lines += ["  " + line for line in "".join(traceback.format_exception(error)[-4:]).splitlines()]
    op = nb.OPS[case.op]
    for name, array in FAMILIES[op.family].problem(op, case).inputs.items():
        if array.size <= 24:
            values = np.asarray(array, np.float64).tolist() if array.dtype.name == "bfloat16" else array.tolist()
            lines.append(f"  {name} = np.array({values!r}).astype({array.dtype.name!r})")
    return "\n".join(lines).replace("nan", "np.nan").replace("np.np.nan", "np.nan")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="cases are drawn from it; a random one by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="when to begin no other case")
    parser.add_argument("--op", default="*", metavar="PATTERN", help="ops whose names match, as in a shell")
    parser.add_argument("--case", type=int, metavar="N", help="this case alone")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this case")
    parser.add_argument("--failed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--most", type=int, metavar="ELEMENTS", help="of an array: 3000 in the emulator, 2000000 on a GPU")
    given = parser.parse_args(arguments)
    seed = int.from_bytes(os.urandom(3), "little") if given.seed is None else given.seed
    most = given.most or (3000 if arrays.emulating() else 2_000_000)
    ops = [op for name, op in nb.OPS.items() if fnmatch.fnmatchcase(name, given.op)]
    if not ops:
        print(f"no op matches {given.op!r}")
        return 2
    warnings.simplefilter("error" if arrays.emulating() else "ignore", RuntimeWarning)  # CuPy's are about speed
    warnings.simplefilter("ignore", emulation.EmulationWarning)
    print(f"seed {seed}, {len(ops)} ops, at most {most} elements, {'in the emulator' if arrays.emulating() else 'on the GPU'}", flush=True)
    try:
        check_references(ops)
    except NoReference as error:
        print(f"NO REFERENCE {error}")
        return 1
    count, failed = given.first, given.failed
    seen: set[tuple[str, str]] = set()
    end = time.monotonic() + given.seconds
    with Watchdog(600) as watchdog:
        while time.monotonic() < end and (given.case is None or count == given.first):
            if count > given.first and count % BURST == 0 and _resident() > MOST_MEMORY and arguments is None:
                rest = {"seed": seed, "seconds": end - time.monotonic(), "op": given.op, "most": most, "first": count, "failed": failed}
                sys.stdout.flush()
                os.execv(sys.executable, [sys.executable, "-m", "tests.fuzz", *[f"--{name}={value}" for name, value in rest.items()]])
            number = count if given.case is None else given.case
            repeat = f"python -m tests.fuzz --seed {seed} --case {number} --most {most}" + (f" --op '{given.op}'" if given.op != "*" else "")
            watchdog.pat(repeat)
            case = make(ops, seed, number, most)
            error = failure_of(case)
            if error is not None:
                failed += 1
                alike = case.op, re.sub(r"[-+.e\d]+", "0", f"{type(error).__name__}: {error}")[:60]
                print(f"FAILED again: {repeat}" if alike in seen else report(*shrink(case, error), repeat), flush=True)
                seen.add(alike)
            count += 1
    print(f"{count - given.first if given.case is not None else count} cases, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
