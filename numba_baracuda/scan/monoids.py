"""``scan_axis``: scans by a user's monoid."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..algebra import Monoid
from ..algebra.given import adopted, expected
from ..core.dtypes import NUMBERS, element
from ..core.errors import Unsupported
from ..core.op import MAX_RANK, Op
from ..core.options import check_element
from ..core.vocabulary import MonoidKind, Named, OpCategory
from ..plans.signatures import guarded
from .calls import forward_function
from .descriptor import ScanDescriptor
from .ops import FORWARD, X, Y

_OP = Op(
    "scan_axis", MonoidKind.SCAN_AXIS, OpCategory.SCAN, "scan", "y[i] = finish(⊕ lift(x[j]))", (X, Y), (), NUMBERS,
    traits={"notes": "", "backward": False, "has_indices": False, "widened": True, "keywords": ("reverse", "exclusive")},
)  # fmt: skip


@functools.lru_cache(1024)
def _op_of(monoid: str) -> Op:
    """The op of a monoid by the name that kernels know it by."""
    scan = FORWARD[-1]
    named: Any = scan.named
    scan = replace(scan, named=lambda op, descriptor, target: f"{named(op, descriptor, target)}:{monoid}")
    return replace(_OP, variants=(scan,), traits=_OP.traits | {"monoid": monoid})


@dataclass(frozen=True, eq=False)
class ScanAxisDescriptor(ScanDescriptor):
    """A scan by a user's ``monoid``; ``result`` is the dtype of the result, by default that of the elements."""

    monoid: Monoid | None = None
    kinds: ClassVar[type[Named]] = MonoidKind

    def __post_init__(self) -> None:
        expected(_OP.name, self.monoid)
        self._settle(_OP.name)

    @property
    def beginning(self) -> float:
        """0: kernels have the monoid's identity, and do not use this number."""
        return 0

    def find_op(self) -> Op:
        """The op of the monoid."""
        return _op_of(adopted(self.op_name, self.monoid, self.element).name)

    @property
    def accumulator(self) -> str:
        """Short name of the type that states are kept in."""
        return adopted(self.op_name, self.monoid, self.element).kind

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve, and for functions that cannot be compiled."""
        if len(self.input_shape) > MAX_RANK:
            raise Unsupported(f"{op.name}: input_shape has {len(self.input_shape)} axes, wants at most {MAX_RANK}")
        check_element(op, self.element)
        if self.result not in NUMBERS:
            raise Unsupported(f"{op.name}: dtype is {element(self.result).numpy_name}, wants one of {', '.join(NUMBERS)}")
        from ..kernels import given

        given.check(self.op_name, self.monoid, self.element)


@functools.lru_cache(1024)
def _function_of(monoid: Monoid) -> Callable[..., Any]:
    return forward_function(_OP, functools.partial(ScanAxisDescriptor, monoid=monoid))


@guarded
def scan_axis(
    x: Any, monoid: Monoid, axis: Any = -1, *, reverse: bool = False, exclusive: bool = False, dtype: Any = None, out: Any = None,
    stream: Any = None, workspace: Any = None,
) -> Any:  # fmt: skip
    """y[i] = finish(lift(x₀) ⊕ lift(x₁) ⊕ … ⊕ lift(xᵢ))

    over the elements up to the i-th along ``axis``, or with ``reverse=True`` from the last back to the i-th, in this order; ``exclusive=True`` leaves
    the i-th out, so that the first result is that of the identity. ``monoid`` is a :class:`~numba_baracuda.Monoid`; its ``finish`` is given the count
    of the elements up to there. ``x`` [any shape] may be a strided view of up to 8 axes; the result has its shape. Values: float16, bfloat16,
    float32, float64, int32, int64; the result is of ``dtype``, one of these, by default that of x. The order of every fold is fixed by shape and
    strides. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes; calls never wait.

    Raises ``InvalidProblem`` for arguments that contradict each other, ``Unsupported`` for dtypes that are not served, more than 8 axes, and
    functions that Numba cannot compile.
    """
    function = _function_of(expected(_OP.name, monoid))
    return function(x, axis, reverse=reverse, exclusive=exclusive, dtype=dtype, out=out, stream=stream, workspace=workspace)
