"""The kernels of a surface's cells, compiled before the first is measured, by as many processes as there are cores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from numba_baracuda.core.errors import BaracudaError
from numba_baracuda.core.op import Launch
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.runtime.warm import warm

from .surface_cells import Drawn


def kernels(cases: Iterable[Drawn]) -> Iterator[KernelSpec]:
    """The kernels that the plans of cases launch for contiguous operands; none of a case that no plan serves, which fails when it is measured."""
    for case in cases:
        try:
            plan = case.plan()
            recipe = plan.variant.recipe(plan.op, plan.descriptor, next(iter(plan.descriptor.typical_layouts(plan.op))), plan.target)
        except BaracudaError:
            continue
        yield from (step.spec.plain() for step in recipe.steps if isinstance(step, Launch) and step.config[0])


def compile_all(cases: Iterable[Drawn]) -> int:
    """Compiles what is missing in the cache; returns the number of kernels compiled."""
    drawn = list(cases)
    return warm(dict.fromkeys(kernels(drawn)), drawn[0].plan().target.arch) if drawn else 0
