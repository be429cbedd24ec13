"""A peer is a function of another library for an op, with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numba_baracuda.core.dtypes import element

from .case import Case
from .segment_truths import segment_truth
from .values import cast

#: folds that are measured with the sorting permutation given
INDEXED = ("sum", "max")


class Given:
    """The operands of a case as arrays of a framework, and what peers derive from them before their clock starts."""

    def __init__(self, xp: Any, operands: Mapping[str, Any], segments: int, share: Callable[[Any], Any]) -> None:
        self._xp, self._operands, self._share = xp, operands, share
        self.segments = segments

    def __getattr__(self, name: str) -> Any:
        return self._share(self._operands[name])

    def __contains__(self, name: str) -> bool:
        return name in self._operands

    @property
    def _ids(self) -> Any:
        return self._operands["segment_ids"]

    @cached_property
    def _order(self) -> Any:
        return self._xp.argsort(self._ids, kind="stable").astype(self._xp.int64, copy=False)

    @cached_property
    def _lengths(self) -> Any:
        return self._xp.bincount(self._ids, minlength=self.segments).astype(self._xp.int64)

    @property
    def lengths(self) -> Any:
        """Rows of each segment, 64-bit."""
        return self._share(self._lengths)

    @property
    def counts(self) -> Any:
        """Rows of each segment, at least 1, in the dtype of the values and a shape that divides them."""
        values = next(iter(self._operands.values()))
        counts = self._xp.maximum(self._lengths, 1).astype(self._xp.float64).reshape(-1, *[1] * (values.ndim - 1))
        return self._share(cast(self._xp, counts, element(values.dtype).name))

    @property
    def long_ids(self) -> Any:
        return self._share(self._ids.astype(self._xp.int64))

    @property
    def permutation(self) -> Any:
        """Rows in the order of their ids, 64-bit."""
        return self._share(self._order)

    @property
    def sorted_ids(self) -> Any:
        return self._share(self._ids[self._order])

    def extreme(self, which: str) -> Any:
        """The result of the forward op."""
        dy, x = self._operands["d_output"], self._operands["input"]
        found = segment_truth(self._xp, f"segment_{which}", {"input": x, "segment_ids": self._ids, "output": dy}).value
        return self._share(cast(self._xp, found, element(x.dtype).name))


def always(case: Case) -> bool:
    return True


def indexed(case: Case) -> bool:
    return case.indexed


def floats(case: Case) -> bool:
    return case.element[0] != "i"


def one_go(case: Case) -> bool:
    """Whether elements are floats and ids are not sorted."""
    return floats(case) and not case.indexed


def packed(case: Case) -> bool:
    """Whether arrays are contiguous: JAX imports no others."""
    return getattr(case, "lies", "") != "every_second_row"


def calm(case: Case) -> bool:
    """No segment holds most rows: products by compare and swap take microseconds a row there, one after another."""
    return getattr(case, "ids", "") != "hot"


def no_crowded_halves(case: Case) -> bool:
    """No segment holds most rows of halves, which JAX adds up by compare and swap: a call took up to half an hour there (H200)."""
    return calm(case) or element(case.element).itemsize > 2


def brief(case: Case) -> bool:
    """No segment has so many rows that one thread, which takes 92 ns a row (H200), reads them for a second."""
    return calm(case) or getattr(case, "rows", 0) < 10_000_000


def both(one: Callable[[Case], bool], other: Callable[[Case], bool]) -> Callable[[Case], bool]:
    """Cases that fit two ways."""
    return lambda case: one(case) and other(case)


def along(axis: int, reverse: bool = False) -> Callable[[Case], bool]:
    """Whether a scan is along this axis in this direction, which a peer fixes at compile time."""
    return lambda case: (getattr(case, "axis", None), getattr(case, "reverse", None)) == (axis, reverse)


def native(case: Case) -> bool:
    """Whether CuPy has atomic additions for the element type."""
    return case.element != "bf16"


@dataclass(frozen=True)
class Peer:
    """One way to compute an op; ``ops`` is a shell pattern, ``fits`` selects cases of these ops."""

    name: str
    ops: str
    given: Callable[[Given], tuple[Any, ...]]
    run: Callable[..., Any]
    fits: Callable[[Case], bool] = always


def extreme_given(which: str) -> Callable[[Given], tuple[Any, ...]]:
    """The arguments for the gradient of a maximum or a minimum, which other libraries take from the result of the forward op."""
    return lambda t: (t.d_output, t.input, t.segment_ids, t.extreme(which))
