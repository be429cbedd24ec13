"""Every kernel that plans of an op may ask for.

That is for one element and index type, the usual options and preference, and contiguous operands that begin at multiples of 16 bytes. Plans choose
kernels by extents alone then, and the op's grid of extents stands for all of them, up to 2^31 along an axis.
"""

from __future__ import annotations

import fnmatch
import itertools
import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from ..core.errors import BaracudaError
from ..core.op import Launch, Op, Target
from ..core.registry import OPS
from ..core.spec import KernelSpec, capability_of
from . import plan
from .preference import PlanPreference

_USUAL = PlanPreference()
_MULTIPROCESSORS = 132  #: of the device that recipes are asked for
Class = tuple[str, str, str]  #: op, element and index type by name


def specs_of(op: Op, element: str, index: str, extents: Sequence[int], target: Target) -> tuple[KernelSpec, ...]:
    """The kernels of the plan for one problem; none if no variant serves it."""
    assert op.poses is not None
    try:
        made = plan.choose(op.poses(op, element, index, *extents), _USUAL, target.ordinal, target)
    except BaracudaError:
        return ()
    layouts = next(iter(made.descriptor.typical_layouts(made.op)))
    recipe = made.variant.recipe(made.op, made.descriptor, layouts, target)
    return tuple(step.spec for step in recipe.steps if isinstance(step, Launch) and step.config[0])


def kernels(op: Op, element: str, index: str, target: Target) -> list[KernelSpec]:
    """Each kernel once, for an op that has a grid."""
    told_apart: list[dict[int, None]] = []
    for k, axis in enumerate(op.grid):
        extents = dict.fromkeys(axis.coarse)
        alike: dict[tuple[tuple[KernelSpec, ...], ...], int] = {}
        for extent in axis.dense:
            others = [(extent,) if j == k else other.anchors for j, other in enumerate(op.grid)]
            alike.setdefault(tuple(specs_of(op, element, index, each, target) for each in itertools.product(*others)), extent)
        told_apart.append(extents | dict.fromkeys(alike.values()))
    found: dict[KernelSpec, None] = {}
    for each in itertools.product(*told_apart):
        found.update(dict.fromkeys(specs_of(op, element, index, each, target)))
    return list(found)


def classes(pattern: str, element: str = "*") -> list[Class]:
    """The ops with a grid whose names match a pattern of the shell, in each element that matches another.

    Each is there once for every type of its ids or indices, if it always has some.
    """
    ops = [op for name, op in OPS.items() if op.grid and fnmatch.fnmatchcase(name, pattern)]
    elements = {op.name: [each for each in op.elements if fnmatch.fnmatchcase(each, element)] for op in ops}
    indices = {op.name: op.indices if any(operand.index for operand in op.operands) else ("",) for op in ops}
    return [(op.name, each, index) for op in ops for each in elements[op.name] for index in indices[op.name]]


def kernels_of(which: Class, arch: str) -> list[KernelSpec]:
    """The kernels of one class on an architecture."""
    name, element, index = which
    return kernels(OPS[name], element, index, Target(capability_of(arch), _MULTIPROCESSORS))


def list_all(wanted: Sequence[Class], arch: str, workers: int, on_done: Callable[[Class], object]) -> dict[Class, list[KernelSpec]]:
    """The kernels of each class, found by so many processes."""
    with ProcessPoolExecutor(max(1, min(workers, len(wanted))), mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(kernels_of, which, arch): which for which in wanted}
        for future in as_completed(running):
            on_done(running[future])
        return {which: future.result() for future, which in running.items()}


def by_kernel(specs: Sequence[KernelSpec]) -> str:
    """How many of each kernel there are, most first."""
    return ", ".join(f"{count} {name}" for name, count in Counter(spec.kernel for spec in specs).most_common())
