"""A kernel as data: enough to find it in the cache without importing numba, and to build it when it is not there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelSpec:
    """Names one compiled kernel.

    ``factory`` is ``"package.module:function"``; calling it with ``constants`` as keywords gives the Python kernel. ``signature`` lists the
    parameter types in order, separated by blanks: ``*f32`` is a pointer to float32, ``i64`` a scalar, ``3xi64`` a tuple of three scalars. All
    pointers come first.
    """

    factory: str
    constants: tuple[tuple[str, int | str | bool], ...]
    signature: str
    max_threads: int = 1024  #: most threads a block is launched with
    min_blocks: int = 0  #: resident blocks a multiprocessor should hold; 0 leaves it to the compiler

    @property
    def name(self) -> str:
        """Readable identity, e.g. ``fold_tiles[monoid=sum,value=f32]``."""
        inner = ",".join(f"{key}={value}" for key, value in self.constants)
        return f"{self.factory.partition(':')[2]}[{inner}]"


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel for one architecture, and what the linker says of it."""

    entry: str  #: name of the kernel inside the image
    image: bytes
    registers: int
    spills: int  #: bytes stored to and loaded from spill slots
    stack: int  #: bytes of local memory a thread
    shared: int  #: bytes of static shared memory a block


def capability_of(arch: str) -> tuple[int, int]:
    """``"sm_90"`` -> ``(9, 0)``."""
    digits = arch.removeprefix("sm_")
    return int(digits[:-1]), int(digits[-1])
