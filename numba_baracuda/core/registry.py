"""Every op by name."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import html
from .errors import Unsupported
from .lazy import load
from .op import Launch, Op, Target
from .spec import KernelSpec, capability_of

_ROOT = __name__.partition(".")[0]
#: in the order of their tables, with the pattern of their ops' names
FAMILIES = {"segment": "*segment_*", "reduce": "reduce_*", "scan": "*cum*", "loss": "fused_*"}


class Registry(Mapping[str, Op]):
    """Name → op, in the order of the tables. A family fills it when an op of such a name is first read, and all do when it is read as a whole."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = {}
        self._complete = False

    def add(self, op: Op) -> Op:
        if op.name in self._ops:
            raise ValueError(f"two ops are named {op.name}")
        self._ops[op.name] = op
        return op

    def _all(self) -> dict[str, Op]:
        if not self._complete:
            for family in FAMILIES:  # a family's table registers its rows
                load(f"{_ROOT}.{family}.ops")
            order = list(FAMILIES)
            self._ops = dict(sorted(self._ops.items(), key=lambda item: order.index(item[1].family)))  # whichever was imported first
            self._complete = True
        return self._ops

    def __getitem__(self, name: str) -> Op:
        if isinstance(name, str) and name not in self._ops:
            for family, pattern in FAMILIES.items():
                if fnmatch.fnmatchcase(name, pattern):
                    load(f"{_ROOT}.{family}.ops")
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _repr_html_(self) -> str:
        return html.table(HEADINGS, rows(self), f"{len(self)} ops")


OPS = Registry()
HEADINGS = ("op", "computes", "elements", "ids or indices", "kernels", "backward")


def rows(ops: Mapping[str, Op]) -> Iterator[tuple[str, str, str, str, str, str]]:
    """``HEADINGS`` of each op that is not the backward of another."""
    gradients = {op.backward for op in ops.values()}
    for name, op in ops.items():
        if name not in gradients:
            kernels = ", ".join(variant.name + ("" if variant.deterministic else " (order varies)") for variant in op.variants)
            yield name, op.formula, " ".join(op.elements), " ".join(op.indices), kernels, op.backward or ""


def find(name: str, family: str = "") -> Op:
    """The op of a name, of one family if that is given, or :class:`Unsupported` with the nearest names."""
    op = OPS.get(name) if isinstance(name, str) else None
    if op is None:
        near = difflib.get_close_matches(str(name), OPS, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise Unsupported(f"op: got {name!r}, wants one of the {len(OPS)} in numba_baracuda.OPS{hint}")
    if family and op.family != family:
        raise Unsupported(f"op: got {name!r}, which is of the family {op.family}, wants one of the family {family}, as the descriptor is")
    return op


def function(name: str) -> Callable[..., Any]:
    """The public function of an op: families call each other's ops by it."""
    return getattr(load(f"{_ROOT}.{find(name).family}"), name)  # type: ignore[no-any-return]


def kernel_specs(pattern: str = "*", arch: str = "sm_90") -> list[KernelSpec]:
    """Every kernel that the samples of the ops whose names match use on an architecture, each once."""
    target = Target(capability_of(arch), 132)
    found: dict[KernelSpec, None] = {}
    for name, op in OPS.items():
        if fnmatch.fnmatchcase(name, pattern):
            for descriptor, layouts in op.samples(op):
                for variant in op.variants:
                    if variant.refuses(op, descriptor) is None:
                        steps = variant.recipe(op, descriptor, layouts, target).steps
                        found.update({step.spec: None for step in steps if isinstance(step, Launch)})
    return list(found)
