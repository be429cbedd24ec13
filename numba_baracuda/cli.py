"""The command ``numba-baracuda``: demo, info, warmup, ops. What a command needs is imported when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

TABLE_BEGIN = "<!-- ops: begin; written by numba-baracuda ops --markdown --into README.md -->"
TABLE_END = "<!-- ops: end -->"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    console = Console(highlight=False)
    command: Callable[[Console, argparse.Namespace], int] = arguments.run
    return command(console, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="numba-baracuda", description="GPU kernels written in Python with numba.cuda.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="demo|info|warmup|ops")

    demo = commands.add_parser("demo", help="run each family of ops on the standard library's files, checked; measure rates if there is a GPU")
    demo.add_argument("--quick", action="store_true", help="leave out the measurements, learn in fewer steps")
    demo.set_defaults(run=_demo)

    info = commands.add_parser("info", help="what is installed, what the kernels run on, and what is wrong")
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
    ops.add_argument("--markdown", action="store_true", help="as the table of README.md")
    ops.add_argument("--kernels", metavar="ELEMENT", help="how many kernels contiguous operands of an element and of any extents can need, on sm_90")
    ops.add_argument("--into", type=Path, metavar="FILE", help="with --markdown: replace the table between the two markers in FILE")
    ops.set_defaults(run=_ops)
    return parser


def _demo(console: Console, arguments: argparse.Namespace) -> int:
    from . import demo

    return demo.run(console, quick=arguments.quick)


@dataclass
class Machine:
    """What ``info`` found; what is missing is None or empty."""

    versions: dict[str, str] = field(default_factory=dict)  #: distribution name -> version
    devices: list[str] = field(default_factory=list)
    driver: int | None = None  #: newest CUDA version the driver serves, 13000 for 13.0
    problem: str = ""  #: why there is no driver or device
    forced: bool = False  #: NUMBA_BARACUDA_EMULATE asks for the emulator
    libraries: dict[str, str] = field(default_factory=dict)  #: shared library -> where it was found
    missing: dict[str, str] = field(default_factory=dict)  #: shared library -> what it is for

    @property
    def cupy(self) -> list[str]:
        return [name for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if name in self.versions]

    @property
    def toolkit(self) -> int | None:
        """Major CUDA version of the newest compiler wheel."""
        compilers = ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-nvjitlink-cu12", "nvidia-nvjitlink")
        return max((_release(self.versions[name])[0] for name in compilers if name in self.versions), default=None)


DISTRIBUTIONS = (
    "numba-baracuda", "numba", "numba-cuda", "llvmlite", "numpy", "ml_dtypes", "cuda-bindings", "cuda-core", "cupy-cuda12x", "cupy-cuda13x", "cupy",
    "torch", "cuda-toolkit", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-nvjitlink-cu12", "nvidia-nvjitlink",
)  # fmt: skip


def survey() -> Machine:
    """Look at this machine; a package or driver that is missing or broken is part of the result and never raises."""
    machine = Machine(forced=os.environ.get("NUMBA_BARACUDA_EMULATE", "") not in ("", "0"))
    for name in DISTRIBUTIONS:
        try:
            machine.versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    try:
        from .runtime import driver

        machine.driver = driver.driver_version()
        for ordinal in range(driver.device_count()):
            machine.devices.append(f"{driver.device_name(ordinal)}, compute capability {'.'.join(map(str, driver.compute_capability(ordinal)))}")
    except Exception as error:  # the user runs info to read what is wrong with the driver
        machine.problem = f"{type(error).__name__}: {error}"
    try:
        from .runtime import libraries
    except ImportError:
        return machine
    for name, purpose in libraries.LIBRARIES.items():
        try:
            found = libraries.load(name)
            machine.libraries[f"lib{name}"] = f"{found.path} ({found.how}), for {purpose}"
        except Exception:
            machine.missing[f"lib{name}"] = purpose
    return machine


def faults(machine: Machine) -> list[str]:
    """The usual reasons why the package does not run, or not on the GPU, each with its cure."""
    found = []
    numpy = machine.versions.get("numpy", "")
    if numpy and _release(numpy) >= (2, 5):
        found.append(f"NumPy {numpy}: numba-cuda 0.30.4 cannot be imported with NumPy 2.5 or newer. Cure: pip install 'numpy<2.5'")
    numba_cuda = machine.versions.get("numba-cuda", "")
    if not (0, 30, 4) <= _release(numba_cuda) < (0, 31):
        found.append(f"numba-cuda is {numba_cuda or 'not installed'}: wants 0.30.4 up to 0.31. Cure: pip install 'numba-cuda>=0.30.4,<0.31'")
    extra = "cuda13" if machine.driver and machine.driver >= 13000 else "cuda12"
    if not machine.cupy:
        found.append(f"no CuPy: the demo and the examples want it on a GPU. Cure: pip install 'numba-baracuda[{extra}]'")
    elif len(machine.cupy) > 1:
        found.append(f"{' and '.join(machine.cupy)} overwrite each other. Cure: pip uninstall {' '.join(machine.cupy)}, then install one of them")
    absent = [f"{name} ({purpose})" for name, purpose in machine.missing.items() if name != "libcuda"]
    if absent:
        found.append(f"not found: {', '.join(absent)}. Cure: pip install 'numba-baracuda[{extra}]'")
    newest = max([12 if name.endswith("12x") else 13 for name in machine.cupy if name != "cupy"] + [machine.toolkit or 0])
    if machine.driver and newest > machine.driver // 1000:
        served = f"{machine.driver // 1000}.{machine.driver % 1000 // 10}"
        cure = "install a newer driver" + (", or pip install 'numba-baracuda[cuda12]' into a new environment" if machine.driver >= 12000 else "")
        found.append(f"driver older than the toolkit: it serves CUDA {served}, the packages are for CUDA {newest}. Cure: {cure}")
    if machine.driver and not machine.devices:
        reason = machine.problem or "is it hidden by CUDA_VISIBLE_DEVICES?"
        found.append(f"there is a driver but no device to use: {reason}. Cure: compare CUDA_VISIBLE_DEVICES with what nvidia-smi lists")
    if machine.forced:
        found.append("NUMBA_BARACUDA_EMULATE is set: kernels run in the CPU emulator, GPU or not. Cure: unset NUMBA_BARACUDA_EMULATE")
    return found


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; (0,) if there are none."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers) or (0,)


def _info(console: Console, arguments: argparse.Namespace) -> int:
    machine = survey()
    lines: list[tuple[str, str]] = [(f"GPU {ordinal}", device) for ordinal, device in enumerate(machine.devices)]
    if not machine.devices:
        lines.append(("GPU", f"none; kernels run in the CPU emulator{f' ({machine.problem})' if machine.problem else ''}"))
    lines.append(("driver", f"CUDA {machine.driver // 1000}.{machine.driver % 1000 // 10}" if machine.driver else "none"))
    lines.append(("Python", f"{sys.version.split()[0]} at {sys.executable}"))
    lines += [(name, machine.versions.get(name, "not installed")) for name in ("numba-baracuda", "numba", "numba-cuda", "numpy")]
    lines.append(("CuPy", ", ".join(f"{name} {machine.versions[name]}" for name in machine.cupy) or "not installed"))
    wheels = [f"{name} {version}" for name, version in machine.versions.items() if name.startswith(("nvidia-", "cuda-"))]
    lines.append(("toolchain", ", ".join(wheels) or "no wheels"))
    lines += list(machine.libraries.items()) + [(name, f"not found, for {purpose}") for name, purpose in machine.missing.items()]
    lines.append(("cache", _guarded(_cache)))
    lines.append(("ops", _guarded(_op_names)))
    for label, text in lines:
        console.print(f"{label:<20}{text}", markup=False, soft_wrap=True)
    for fault in faults(machine):
        console.print(f"fault: {fault}", markup=False, soft_wrap=True)
    return 0


def _guarded(describe: Callable[[], str]) -> str:
    try:
        return describe()
    except Exception as error:  # info reports what is broken instead of breaking
        return f"not available ({type(error).__name__}: {error})"


def _cache() -> str:
    from .runtime import cache

    abandoned = cache.sweep()
    kernels, nbytes = cache.size()
    swept = f", {abandoned} abandoned temporary files removed" if abandoned else ""
    return f"{cache.directory()}, {kernels} kernels, {nbytes / 1e6:.1f} MB{swept}"


def _op_names() -> str:
    from .core.registry import OPS

    return f"{len(OPS)}: {', '.join(OPS)}"


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
    console.print(f"{len(specs)} kernels for {arch}, {compiled} of them compiled now; cache: {_guarded(_cache)}", markup=False, soft_wrap=True)
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
    from .core.registry import OPS

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
        table = Table("op", "computes", "elements", "ids or indices", "kernels", "backward")
        for cells in _rows(OPS):
            table.add_row(*map(Text, cells))
        console.print(table)
    return 0


def _rows(ops: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str, str, str]]:
    """Name, formula, elements, index types, variants and backward of each op that is not the backward of another."""
    gradients = {op.backward for op in ops.values()}
    for name, op in ops.items():
        if name not in gradients:
            kernels = ", ".join(variant.name + ("" if variant.deterministic else " (order varies)") for variant in op.variants)
            yield name, op.formula, " ".join(op.elements), " ".join(op.indices), kernels, op.backward or ""


def markdown_table(ops: Mapping[str, Any]) -> str:
    """The table of README.md, without a newline at its end."""
    lines = ["| op | computes | elements | ids or indices | kernels | backward |", "|---|---|---|---|---|---|"]
    for name, formula, elements, indices, kernels, backward in _rows(ops):
        cells = (f"`{name}`", formula.replace("|", "\\|"), elements, indices, kernels, f"`{backward}`" if backward else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
