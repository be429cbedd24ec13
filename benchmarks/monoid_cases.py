"""Folds by monoids that a caller writes, on the problems of the built-in ops that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numba_baracuda as nb

from .case import Arrays, Bind, Spec, output_of
from .checks import Truth
from .reduce_cases import ReduceCase
from .scan_cases import ScanCase
from .segment_cases import SegmentCase


def _pooled(a: Any, b: Any) -> Any:
    """Count, mean, and squared deviations from it, of two sets (Chan, Golub and LeVeque 1979)."""
    count, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / count if count > 0 else b[0]
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def _unbiased(state: Any) -> Any:
    return state[2] / (state[0] - 1) if state[0] > 1 else state[2]


#: the functions of built-in ops, by the end of their names
MONOIDS = {
    "sum": nb.Monoid("total", (0,), lambda a, b: a + b, commutes=True),
    "max": nb.Monoid("greatest", (float("-inf"),), lambda a, b: max(a, b), commutes=True),
    "var": nb.Monoid("variance", (0, 0, 0), _pooled, lambda x: (1, x, 0), _unbiased, commutes=True),
}


@dataclass(frozen=True)
class MonoidCase:
    """The problem of a built-in op, computed by one of ``MONOIDS``."""

    like: SegmentCase | ReduceCase | ScanCase

    @property
    def monoid(self) -> nb.Monoid:
        return MONOIDS[self.like.op[-3:]]

    @property
    def op(self) -> str:
        return {"segment": "segment_reduce", "reduce": "reduce_axis", "scan": "scan_axis"}[nb.OPS[self.like.op].family]

    @property
    def id(self) -> str:
        return f"{self.like.op}-{self.like.id}"

    @property
    def element(self) -> str:
        return self.like.element

    @property
    def segments(self) -> int:
        return self.like.segments

    @property
    def indexed(self) -> bool:
        return self.like.indexed

    @property
    def specs(self) -> dict[str, Spec]:
        return self.like.specs

    @property
    def moved(self) -> dict[str, Spec]:
        return self.like.moved

    def tiny(self) -> MonoidCase:
        return replace(self, like=self.like.tiny())

    def make(self, xp: Any) -> Arrays:
        return self.like.make(xp)

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        return self.like.truth(xp, operands)

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        output, (first, *_) = output_of(self.like), self.specs

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            x, out = operands[first], operands[output]

            def call() -> None:
                if isinstance(self.like, SegmentCase):
                    is_sorted = not self.like.op.startswith("unsorted")
                    nb.segment_reduce(x, operands["segment_ids"], self.segments, self.monoid, is_sorted=is_sorted, empty=0, out=out)
                elif isinstance(self.like, ReduceCase):
                    nb.reduce_axis(x, self.monoid, self.like.axes, out=out)
                else:
                    nb.scan_axis(x, self.monoid, self.like.axis, out=out)

            return call

        return f"{self.monoid.name} {self.element}", bind
