"""What is installed on this machine, what kernels run on, and what is wrong: for ``numba-baracuda info``, also of a broken installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import Any


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


def report(machine: Machine) -> dict[str, str]:
    """The facts of a machine, a line each."""
    facts = {f"GPU {ordinal}": device for ordinal, device in enumerate(machine.devices)}
    if not facts:
        facts["GPU"] = f"none; kernels run in the CPU emulator{f' ({machine.problem})' if machine.problem else ''}"
    facts["driver"] = f"CUDA {machine.driver // 1000}.{machine.driver % 1000 // 10}" if machine.driver else "none"
    facts["Python"] = f"{sys.version.split()[0]} at {sys.executable}"
    facts |= {name: machine.versions.get(name, "not installed") for name in ("numba-baracuda", "numba", "numba-cuda", "numpy")}
    facts["CuPy"] = ", ".join(f"{name} {machine.versions[name]}" for name in machine.cupy) or "not installed"
    wheels = [f"{name} {version}" for name, version in machine.versions.items() if name.startswith(("nvidia-", "cuda-"))]
    facts["toolchain"] = ", ".join(wheels) or "no wheels"
    facts |= machine.libraries
    facts |= {name: f"not found, for {purpose}" for name, purpose in machine.missing.items()}
    facts["cache"] = available(cache)
    return facts


def families() -> dict[str, dict[str, list[str]]]:
    """The names of ops and kernels of each family."""
    from .core.registry import OPS

    found: dict[str, dict[str, list[str]]] = {}
    for name, op in OPS.items():
        found.setdefault(op.family, {"ops": [], "kernels": []})["ops"].append(name)
    for family, names in found.items():
        names["kernels"] = list(import_module(f"{__package__}.{family}.kernels").__all__)
    return found


def available(describe: Callable[[], Any]) -> Any:
    """What a function returns, or the error that it raises as a text: a report says what is broken, and does not break."""
    try:
        return describe()
    except Exception as error:
        return f"not available ({type(error).__name__}: {error})"


def cache() -> str:
    """Where compiled kernels are kept, how many and of what size, once abandoned files are removed."""
    from .runtime import cache

    abandoned = cache.sweep()
    kernels, nbytes = cache.size()
    swept = f", {abandoned} abandoned temporary files removed" if abandoned else ""
    return f"{cache.directory()}, {kernels} kernels, {nbytes / 1e6:.1f} MB{swept}"
