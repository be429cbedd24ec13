"""The command ``numba-baracuda``: demo, bench, info, warmup, ops. What a command needs is imported when it runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import machine

TABLE_BEGIN = "<!-- ops: begin; written by numba-baracuda ops --markdown --into docs/ops.md -->"
TABLE_END = "<!-- ops: end -->"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    console = Console(highlight=False)
    command: Callable[[Console, argparse.Namespace], int] = arguments.run
    return command(console, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="numba-baracuda", description="GPU kernels written in Python with numba.cuda.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="demo|bench|info|warmup|ops")

    demo = commands.add_parser("demo", help="run each family of ops on the standard library's files, checked; measure rates if there is a GPU")
    demo.add_argument("--quick", action="store_true", help="leave out the measurements, learn in fewer steps")
    demo.add_argument("--plot", type=Path, metavar="DIR", help="also save plots into this folder, as PNG; needs matplotlib")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="how fast segment_sum is on this GPU, beside a copy of memory")
    bench.set_defaults(run=_bench)

    info = commands.add_parser("info", help="what is installed, what the kernels run on, and what is wrong")
    info.add_argument("--json", action="store_true", help="as one JSON object: facts, versions, families, faults")
    info.set_defaults(run=_info)

    warmup = commands.add_parser("warmup", help="compile every kernel into the cache")
    warmup.add_argument("--arch", help="architecture such as sm_90; by default that of the GPU in this machine")
    warmup.add_argument("--workers", type=int, help="worker processes (default: one for each core)")
    warmup.add_argument("--op", default="*", metavar="PATTERN", help="only ops whose name matches, e.g. 'unsorted_*' (default: all)")
    warmup.add_argument(
        "--every-shape", action="store_true", help="every kernel that contiguous operands of any extents can need, not the usual ones"
    )
    warmup.add_argument("--element", default="*", metavar="PATTERN", help="with --every-shape: only elements that match, e.g. f32 (default: all)")
    warmup.set_defaults(run=_warmup)

    ops = commands.add_parser("ops", help="list the ops")
    ops.add_argument("--markdown", action="store_true", help="as the table of docs/ops.md")
    ops.add_argument("--kernels", metavar="ELEMENT", help="how many kernels contiguous operands of an element and of any extents can need, on sm_90")
    ops.add_argument("--into", type=Path, metavar="FILE", help="with --markdown: replace the table between the two markers in FILE")
    ops.set_defaults(run=_ops)
    return parser


def _demo(console: Console, arguments: argparse.Namespace) -> int:
    from . import demo

    return demo.run(console, arguments.quick, arguments.plot)


def _info(console: Console, arguments: argparse.Namespace) -> int:
    found = machine.survey()
    facts, families, faults = machine.report(found), machine.available(machine.families), machine.faults(found)
    if arguments.json:
        print(json.dumps({"facts": facts, "versions": found.versions, "families": families, "faults": faults}, indent=2))
        return 0
    for label, text in facts.items():
        console.print(f"{label:<20}{text}", markup=False, soft_wrap=True)
    if isinstance(families, str):
        console.print(f"{'ops':<20}{families}", markup=False, soft_wrap=True)
    else:
        table = Table("family", "has", "names", show_lines=True)
        for family, names in families.items():
            for what, each in names.items():
                table.add_row(family, f"{len(each)} {what}", ", ".join(each))
        console.print(table)
    for fault in faults:
        console.print(f"fault: {fault}", markup=False, soft_wrap=True)
    return 0


def _bench(console: Console, arguments: argparse.Namespace) -> int:
    from . import demo

    return demo.bench(console)


def _warmup(console: Console, arguments: argparse.Namespace) -> int:
    arch = arguments.arch or _own_arch()
    if arch is None:
        console.print("warmup: no GPU here to take the architecture from; give one, e.g. --arch sm_90", markup=False)
        return 2
    from rich.progress import Progress

    from .core.registry import kernel_specs
    from .runtime.warm import warm

    specs = kernel_specs(arguments.op, arch)
    if arguments.every_shape:
        found = _inventory(console, arguments.op, arguments.element, arch, arguments.workers)
        specs = list(dict.fromkeys([*(specs if arguments.element == "*" else ()), *(spec for each in found.values() for spec in each)]))
    if not specs:
        console.print(f"warmup: no op matches {arguments.op!r}", markup=False)
        return 2
    with Progress(console=console) as progress:
        task = progress.add_task(f"Compiling for {arch}", total=len(specs))
        try:
            compiled = warm(specs, arch, arguments.workers, lambda _: progress.advance(task))
        except Exception as error:  # from any of the compilers; other kernels are in the cache
            console.print(f"warmup: {type(error).__name__}: {error}", markup=False, soft_wrap=True)
            return 1
    console.print(
        f"{len(specs)} kernels for {arch}, {compiled} of them compiled now; cache: {machine.available(machine.cache)}", markup=False, soft_wrap=True
    )
    return 0


def _inventory(console: Console, op: str, element: str, arch: str, workers: int | None) -> dict[tuple[str, str, str], list[Any]]:
    """What plans may ask for, by op, element and index type."""
    from rich.progress import Progress

    from .plans import inventory
    from .runtime.helpers import cores

    wanted = inventory.classes(op, element)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("Listing kernels", total=len(wanted))
        return inventory.list_all(wanted, arch, workers or cores(), lambda _: progress.advance(task))


def _own_arch() -> str | None:
    try:
        from .runtime import driver

        return "sm_{}{}".format(*driver.compute_capability(0)) if driver.device_count() else None
    except Exception:  # no bindings, no driver: no GPU
        return None


def _ops(console: Console, arguments: argparse.Namespace) -> int:
    from .core.registry import HEADINGS, OPS, rows

    if arguments.into is not None:
        text = arguments.into.read_text(encoding="utf-8")
        before, begin, rest = text.partition(TABLE_BEGIN)
        _, end, after = rest.partition(TABLE_END)
        if not (begin and end):
            console.print(f"ops: {arguments.into} lacks the lines {TABLE_BEGIN} and {TABLE_END}", markup=False, soft_wrap=True)
            return 2
        arguments.into.write_text(f"{before}{begin}\n{markdown_table(OPS)}\n{end}{after}", encoding="utf-8")
    elif arguments.markdown:
        print(markdown_table(OPS))
    elif arguments.kernels:
        from .plans.inventory import by_kernel

        table = Table("op", "ids or indices", "kernels", "of them")
        for (name, _, index), specs in _inventory(console, "*", arguments.kernels, "sm_90", None).items():
            table.add_row(name, index, str(len(specs)), by_kernel(specs))
        console.print(table)
    else:
        table = Table(*HEADINGS)
        for cells in rows(OPS):
            table.add_row(*map(Text, cells))
        console.print(table)
    return 0


def markdown_table(ops: Mapping[str, Any]) -> str:
    """The table of docs/ops.md, without a newline at its end."""
    from .core.registry import HEADINGS, rows

    lines = [f"| {' | '.join(HEADINGS)} |", "|" + "---|" * len(HEADINGS)]
    for name, formula, elements, indices, kernels, backward in rows(ops):
        cells = (f"`{name}`", formula.replace("|", "\\|"), elements, indices, kernels, f"`{backward}`" if backward else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
