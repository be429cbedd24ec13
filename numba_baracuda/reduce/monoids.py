"""``reduce_axis``: reductions by a user's monoid."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..algebra import Monoid
from ..algebra.given import adopted, expected
from ..core.dtypes import NUMBERS
from ..core.op import Op
from ..core.vocabulary import MonoidKind, Named, OpCategory
from ..plans.signatures import guarded
from .calls import forward_function
from .descriptor import ReduceDescriptor
from .ops import FOLD, INDEX, X

_OP = Op(
    "reduce_axis", MonoidKind.REDUCE_AXIS, OpCategory.REDUCTION, "reduce", "y = finish(⊕ lift(x))", (X, INDEX), (), NUMBERS, NUMBERS,
    traits={"narrow": {}, "keywords": ("dtype",), "notes": "", "backward": False},
)  # fmt: skip


@functools.lru_cache(1024)
def _op_of(monoid: str) -> Op:
    """The op of a monoid by the name that kernels know it by."""
    fold = replace(FOLD, named=lambda op, descriptor, target: f"fold:{monoid}")
    return replace(_OP, variants=(fold,), traits=_OP.traits | {"monoid": monoid})


@dataclass(frozen=True, eq=False)
class ReduceAxisDescriptor(ReduceDescriptor):
    """A reduction by a user's ``monoid``; ``result`` is the dtype of the result, by default that of the elements."""

    monoid: Monoid | None = None
    kinds: ClassVar[type[Named]] = MonoidKind

    def __post_init__(self) -> None:
        expected(_OP.name, self.monoid)
        self._settle(_OP.name)
        object.__setattr__(self, "result", self.result or self.element)

    def find_op(self) -> Op:
        """The op of the monoid."""
        return _op_of(adopted(self.op_name, self.monoid, self.element).name)

    @property
    def accumulator(self) -> str:
        """Short name of the type that states are kept in."""
        return adopted(self.op_name, self.monoid, self.element).kind

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve, and for functions that cannot be compiled."""
        super().check(op)
        from ..kernels import given

        given.check(self.op_name, self.monoid, self.element)


@functools.lru_cache(1024)
def _function_of(monoid: Monoid) -> Callable[..., Any]:
    return forward_function(_OP, functools.partial(ReduceAxisDescriptor, monoid=monoid))


@guarded
def reduce_axis(
    x: Any, monoid: Monoid, axis: Any, keepdims: bool = True, *, dtype: Any = None, out: Any = None, stream: Any = None, workspace: Any = None
) -> Any:
    """y = finish(lift(x₀) ⊕ lift(x₁) ⊕ …)

    over the n elements along ``axis``, in C order: a number, several axes, or None for all of them. ``monoid`` is a :class:`~numba_baracuda.Monoid`;
    of no elements the result is that of its identity. ``x`` [any shape] may be a strided view of up to 8 axes; the result has 1 for every reduced
    axis, or with ``keepdims=False`` lacks them. Values: float16, bfloat16, float32, float64, int32, int64; the result is of ``dtype``, one of these,
    by default that of x. The order of every fold is fixed by shape and strides. ``out=`` takes the result, ``stream=`` a stream or its handle,
    ``workspace=`` device bytes; calls never wait.

    Raises ``InvalidProblem`` for arguments that contradict each other, ``Unsupported`` for dtypes that are not served, more than 8 axes, and
    functions that Numba cannot compile.
    """
    return _function_of(expected(_OP.name, monoid))(x, axis, keepdims, dtype=dtype, out=out, stream=stream, workspace=workspace)
