"""Scan operators: what scans compute, as plain functions of scalars, without an index, a direction or a dtype.

A scan walks along a row in its own order and keeps the state of the elements so far. For each element it reads up to three inputs, a, b and c:

1. ``transform(a, b, c, neighbour, one)`` makes (p, q, r) of them;
2. ``lift(p, q, position, one)`` makes a state of p and q, which the monoid combines with the state before the element;
3. ``emit(before, after, p, r, position, one)`` makes the result of the states before and after the element.

``initial_state(initial, position, one)`` is the state before the first element. As in a ``KernelMonoid``, ``one`` stands in for literals, and what
needs numba is named as ``"package.module:function"``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..algebra import MAX, MIN, PROD, SUM, ByType, Given, KernelMonoid, monoid_of
from ..core.spec import FOREIGN

INF = math.inf
#: positions that no element has: that of ``initial``, and that of no number at all
INITIAL, NOTHING = -1, -2


Function = Callable[..., Any] | ByType | Given


def _first_input(a: Any, b: Any, c: Any, neighbour: Any, one: Any) -> Any:
    return a, a, a


def _element(p: Any, q: Any, position: Any, one: Any) -> Any:
    return p


def _initial_number(initial: Any, position: Any, one: Any) -> Any:
    return initial


def _after(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    return after


def _before(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    return before


@dataclass(frozen=True)
class ScanOperator:
    """A scan as data. ``inputs`` names the operands that are a, b and c; ``distinct`` says how many of p, q and r are different numbers.

    ``neighbour`` is c of the next element in the scan's order (``neighbour_offset`` 1) or of the one before (−1). The last element's next is
    ``initial``, the first one's previous its own c. ``kinds`` has a letter for each scalar of a state: ``a`` for the accumulator's type, ``p`` for
    the type of positions. A state with positions has the position of its winner as second scalar. An operator that ``scatters`` gives every element
    0, but a winner gets what is emitted where the next one takes over; ``extreme`` is the monoid of its winners' numbers. Where q and r are
    ``costly`` to compute, p is a and all three are distinct, kernels compute them once and keep them. Where several elements cost less together than
    one by one, ``together`` names the functions for that, of an operator whose p is a and is all that it uses: see
    :func:`.kernels.exponentials.together_after`; ``inputs_together`` names them of one that uses a, b and c and the c that follows: see
    :func:`.kernels.exponentials.shares_together`. Where a result is ``of_next``, of the c that follows, all of these must lie in the row: only
    threads that walk down columns use these. Where c is cheap to make of b, ``remade`` names the operator whose results it is, the other way: a
    thread that has a whole row, or column, makes it rather than read it.
    """

    monoid: KernelMonoid
    lift: Function = _element
    initial_state: Function = _initial_number
    emit: Function = _after
    transform: Function = _first_input
    inputs: tuple[str, ...] = ("x",)
    distinct: int = 1
    neighbour_offset: int = 0
    kinds: str = "a"
    scatters: bool = False
    extreme: KernelMonoid | None = None
    costly: bool = False
    together: ByType | None = None
    inputs_together: ByType | None = None
    of_next: bool = False
    remade: str = ""


# ---------------------------------------------------------------- exponentials


def _exponential(p: Any, q: Any, position: Any, one: Any) -> Any:
    return p, one


def _one_exponential(initial: Any, position: Any, one: Any) -> Any:
    return initial, one


def _exponentials(name: str) -> ByType:
    return ByType(f"numba_baracuda.scan.kernels.exponentials:{name}")


# ---------------------------------------------------------------- extremes with their positions

_EXTREMES = "numba_baracuda.scan.kernels.extremes"


def _with_position(p: Any, q: Any, position: Any, one: Any) -> Any:
    return p, position


def _initial_with_position(initial: Any, position: Any, one: Any) -> Any:
    return initial, position


def _value_after(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    return after[0]


def _value_before(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    return before[0]


# ---------------------------------------------------------------- gradients of extremes: sums over runs of one winner


def _run_of_greatest(a: Any, b: Any) -> Any:
    """(winner, its position, its gradient since it took over, the sum of all). A later element wins if it is greater, or is the first NaN."""
    later = ((not b[0] <= a[0]) & (a[0] == a[0])) | (a[1] == NOTHING)
    return b[0] if later else a[0], b[1] if later else a[1], b[2] if later else a[2] + b[3], a[3] + b[3]


def _run_of_least(a: Any, b: Any) -> Any:
    later = ((not b[0] >= a[0]) & (a[0] == a[0])) | (a[1] == NOTHING)
    return b[0] if later else a[0], b[1] if later else a[1], b[2] if later else a[2] + b[3], a[3] + b[3]


def _gradient_and_element(a: Any, b: Any, c: Any, neighbour: Any, one: Any) -> Any:
    return a, b, a


def _run_with_own(p: Any, q: Any, position: Any, one: Any) -> Any:
    return q, position, p, p


def _run_without_own(p: Any, q: Any, position: Any, one: Any) -> Any:
    return q, position, one - one, p


def _no_run(initial: Any, position: Any, one: Any) -> Any:
    return initial, position, one - one, one - one


def _ended_run(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    return before[2]


def _ended_run_and_own(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    return before[2] + p


# ---------------------------------------------------------------- gradients of products and of exponentials: affine maps


def _compose(a: Any, b: Any) -> Any:
    """s → c·s + d, first a, then b. A factor of 0 removes what comes before it, even if that is out of range."""
    scaled = a[0] * b[0] if (a[0] != 0) & (b[0] != 0) else a[0] if a[0] == 0 else b[0]
    return scaled, b[1] + b[0] * a[1] if (b[0] != 0) & (a[1] != 0) else b[1]


def _compose_shares(a: Any, b: Any) -> Any:
    """The same of factors up to 1, by which nothing leaves the range: NaN passes through a share of 0."""
    return a[0] * b[0], b[1] + b[0] * a[1]


def _scaled_map(p: Any, q: Any, position: Any, one: Any) -> Any:
    return q, q * p if (p != 0) & (q != 0) else one - one


def _share_map(p: Any, q: Any, position: Any, one: Any) -> Any:
    """As :func:`_compose_shares` composes them."""
    return q, q * p


def _plain_map(p: Any, q: Any, position: Any, one: Any) -> Any:
    return q, p


def _identity_map(initial: Any, position: Any, one: Any) -> Any:
    return one, one - one


def _scaled_sum_with_own(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    return r * (p + before[1])


def _scaled_sum(before: Any, after: Any, p: Any, r: Any, position: Any, one: Any) -> Any:
    """Before the first element there is nothing: its gradient is 0, that of :func:`_identity_map`, even if r is not finite."""
    return r * before[1] if position > 0 else before[1]


def _factor_and_next_product(a: Any, b: Any, c: Any, neighbour: Any, one: Any) -> Any:
    return a, b, neighbour


def _factor_and_product(a: Any, b: Any, c: Any, neighbour: Any, one: Any) -> Any:
    return a, b, c


_MONOIDS = {
    "cumsum": SUM,
    "cumprod": PROD,
    "cummax": MAX,
    "cummin": MIN,
    "logcumsumexp": KernelMonoid("logcumsumexp", (-INF, 0.0), _exponentials("add_exponentials")),
}
_WITH_POSITION = {
    "cummax": KernelMonoid("max_with_position", (-INF, NOTHING), f"{_EXTREMES}:greatest_with_position"),
    "cummin": KernelMonoid("min_with_position", (INF, NOTHING), f"{_EXTREMES}:least_with_position"),
}
_RUNS = {
    "cummax": KernelMonoid("run_of_max", (-INF, NOTHING, 0.0, 0.0), _run_of_greatest),
    "cummin": KernelMonoid("run_of_min", (INF, NOTHING, 0.0, 0.0), _run_of_least),
}
_AFFINE = KernelMonoid("affine", (1.0, 0.0), _compose)
_SHARES = KernelMonoid("shares", (1.0, 0.0), _compose_shares)


def _operator_of_a_user(monoid: KernelMonoid, exclusive: bool) -> ScanOperator:
    def given(name: str, function: Any) -> Given:
        return Given(f"numba_baracuda.scan.kernels.given:{name}", getattr(function, "function", function), monoid.width)

    emit = ("before" if exclusive else "after") + ("_counted" if monoid.counts else "")
    return ScanOperator(monoid, given("lift", monoid.lift), given("begin", monoid.identity), given(emit, monoid.finish), kinds="a" * monoid.width)


@functools.cache
def operator_of(name: str, exclusive: bool) -> ScanOperator:
    """The operator of ``cumsum``, of ``cummax_indices``, which emits the winners' indices too, of ``cumprod_backward``, or of a user's monoid."""
    if name.startswith(FOREIGN):
        return _operator_of_a_user(monoid_of(name), exclusive)
    kind, _, suffix = name.partition("_")
    if suffix == "indices":
        return ScanOperator(_WITH_POSITION[kind], _with_position, _initial_with_position, _value_before if exclusive else _value_after, kinds="ap")
    plain_emit = _before if exclusive else _after
    if not suffix and kind == "logcumsumexp":
        logarithm, together = (_exponentials(f"{name}_{'before' if exclusive else 'after'}") for name in ("logarithm", "together"))
        return ScanOperator(_MONOIDS[kind], _exponential, _one_exponential, logarithm, kinds="aa", together=together)
    if not suffix or kind == "cumsum":
        return ScanOperator(_MONOIDS[kind], emit=plain_emit, inputs=("dy",) if suffix else ("x",))
    if kind in _RUNS:
        lift, emit = (_run_without_own, _ended_run_and_own) if exclusive else (_run_with_own, _ended_run)
        return ScanOperator(
            _RUNS[kind], lift, _no_run, emit, _gradient_and_element, ("dy", "x"), 2, kinds="apaa", scatters=True, extreme=_MONOIDS[kind]
        )
    emit = _scaled_sum if exclusive else _scaled_sum_with_own
    if kind == "cumprod":
        lift = _plain_map if exclusive else _scaled_map
        factors, neighbour_offset = (_factor_and_product, 0) if exclusive else (_factor_and_next_product, 1)
        return ScanOperator(
            _AFFINE, lift, _identity_map, emit, factors, ("dy", "x", "y"), 3, neighbour_offset, "aa", costly=neighbour_offset != 0,
            inputs_together=None if exclusive else ByType("numba_baracuda.scan.kernels.products:products_together"), of_next=not exclusive,
            remade="cumprod",
        )  # fmt: skip
    lift, shares = (_plain_map, _exponentials("shares_exclusive")) if exclusive else (_share_map, _exponentials("shares_inclusive"))
    inputs, neighbour_offset, inputs_together = ("dy", "x", "y"), -1 if exclusive else 1, None if exclusive else _exponentials("shares_together")
    return ScanOperator(
        _SHARES, lift, _identity_map, emit, shares, inputs, 3, neighbour_offset, "aa", costly=True, inputs_together=inputs_together
    )  # fmt: skip
