"""The shared libraries of CUDA that ops load, and where each is found.

``cuda.pathfinder`` finds all of them, also those that numba-cuda, cuda.core, cuda.compute and CuPy load. It takes what the process has loaded,
whoever loaded it; else NVIDIA's wheels, which torch installs, too; conda's packages; what the system's loader finds, such as a toolkit; CUDA_PATH and
CUDA_HOME. Wheels come before a toolkit because torch fails to start in a process with a cuBLAS older than its own.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

from ..core.errors import Unsupported
from . import driver

#: what ops load, by the name ``cuda.pathfinder`` has for it, and what for
LIBRARIES = {
    "cuda": "launching kernels",
    "cublasLt": "matrix products of the loss",
    "nvvm": "compiling kernels",
    "nvJitLink": "linking kernels",
    "nvrtc": "building sorts and CuPy's kernels",
    "cudart": "loading cuda.compute, which sorts",
    "cccl.c.parallel": "sorting ids",
}
_SORTS = "cccl.c.parallel"  #: a part of cuda.compute, whose wheel has one for each major version of CUDA
_HOW = {"was-already-loaded-from-elsewhere": "loaded already", "site-packages": "wheel", "system-search": "system"}


class Found(NamedTuple):
    """Where a library is, and how it was found: ``loaded already``, ``wheel``, ``conda``, ``system`` or ``CUDA_PATH``."""

    path: str
    how: str

    @property
    def major(self) -> int | None:
        """Major version of CUDA, which the names of all but libnvvm end with."""
        number = re.search(r"\.so\.(\d+)", Path(self.path).name)
        return int(number.group(1)) if number else None


def load(name: str) -> Found:
    """Load one of :data:`LIBRARIES` for the whole process; :class:`Unsupported` with the cure where it is not found."""
    return _beside_compute() if name == _SORTS else _by_pathfinder(name)


def _missing(name: str, why: str) -> Unsupported:
    return Unsupported(f"no lib{name} for {LIBRARIES[name]} ({why}): {driver.INSTALL_TOOLKIT}")


def _by_pathfinder(name: str) -> Found:
    try:
        from cuda import pathfinder

        found = pathfinder.load_nvidia_dynamic_lib(name)
    except (ImportError, RuntimeError) as error:
        raise _missing(name, str(error).partition("\n")[0]) from error
    return Found(str(found.abs_path), _HOW.get(found.found_via, found.found_via))


def _beside_compute() -> Found:
    """Found but not loaded: it wants the driver and the others loaded first, as cuda.compute does."""
    major = _by_pathfinder("nvrtc").major
    package = importlib.util.find_spec("cuda.compute")
    for folder in (package.submodule_search_locations or ()) if package else ():
        path = Path(folder) / f"cu{major}" / "cccl" / f"lib{_SORTS}.so"
        if path.is_file():
            return Found(str(path), "wheel")
    raise _missing(_SORTS, f"cuda-cccl has none for CUDA {major}" if package else "cuda-cccl is not installed")


def served(found: Found) -> Found:
    """The library, if the driver serves its version of CUDA."""
    newest = driver.driver_version() // 1000
    if found.major is not None and found.major > newest:
        raise Unsupported(
            f"{found.path} is of CUDA {found.major} and the driver serves CUDA {newest}: pip install 'numba-baracuda[cuda{newest}]'"
            " into an environment of its own, or install a newer driver"
        )
    return found
