"""What scans do to elements, as plain functions of scalars: without an index, a direction or a dtype.

A scan walks its elements in an order of its own and keeps the fold of those behind it. ``prepare(a, b, c, near, one)`` makes (p, q, r) of what is
read for an element, ``lift(p, q, place, one)`` a state of p and q, ``emit(before, after, p, r, place, one)`` the result of the states before and
after the element, and ``begin(initial, place, one)`` the state before the first. As in a ``KernelMonoid`` there are no other literals, and what needs
numba is named as ``"package.module:function"``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..algebra import MAX, MIN, PROD, SUM, ByType, Given, KernelMonoid, monoid_of

INF = math.inf
#: places that no element has: of ``initial``, and of nothing at all
INITIAL, NOTHING = -1, -2


Function = Callable[..., Any] | ByType | Given


def _alone(a: Any, b: Any, c: Any, near: Any, one: Any) -> Any:
    return a, a, a


def _element(p: Any, q: Any, place: Any, one: Any) -> Any:
    return p


def _number(initial: Any, place: Any, one: Any) -> Any:
    return initial


def _after(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    return after


def _before(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    return before


@dataclass(frozen=True)
class Rule:
    """A scan. ``reads`` names the operands that give a, b and c, ``items`` says how many of p, q and r are told apart.

    ``near`` is the c of the next element in the scan's order (1) or of the one before (−1). Where there is none, that is ``initial`` or the
    element's own. ``kinds`` has a letter for each scalar of a state: ``a`` for the accumulator's type, ``p`` for that of places. The second scalar
    of a state with places is the place of its winner: with ``scatters`` every element gets 0 but for winners, each of which gets what is emitted
    where the next one takes over. Where it is ``costly`` to make q and r, of three items of which p is a, they are made once.
    """

    monoid: KernelMonoid
    lift: Function = _element
    begin: Function = _number
    emit: Function = _after
    prepare: Function = _alone
    reads: tuple[str, ...] = ("x",)
    items: int = 1
    near: int = 0
    kinds: str = "a"
    scatters: bool = False
    costly: bool = False


# ---------------------------------------------------------------- exponentials


def _exponential(p: Any, q: Any, place: Any, one: Any) -> Any:
    return p, one


def _one_exponential(initial: Any, place: Any, one: Any) -> Any:
    return initial, one


def _exponentials(name: str) -> ByType:
    return ByType(f"numba_baracuda.scan.kernels.exponentials:{name}")


# ---------------------------------------------------------------- extremes with their places

_EXTREMES = "numba_baracuda.scan.kernels.extremes"


def _placed(p: Any, q: Any, place: Any, one: Any) -> Any:
    return p, place


def _at(initial: Any, place: Any, one: Any) -> Any:
    return initial, place


def _value_after(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    return after[0]


def _value_before(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    return before[0]


# ---------------------------------------------------------------- gradients of extremes: sums over runs of one winner


def _run_of_greatest(a: Any, b: Any) -> Any:
    """(winner, its place, what it has got since it took over, what all had to give). A later element wins where it is greater, or the first NaN."""
    later = ((not b[0] <= a[0]) & (a[0] == a[0])) | (a[1] == NOTHING)
    return b[0] if later else a[0], b[1] if later else a[1], b[2] if later else a[2] + b[3], a[3] + b[3]


def _run_of_least(a: Any, b: Any) -> Any:
    later = ((not b[0] >= a[0]) & (a[0] == a[0])) | (a[1] == NOTHING)
    return b[0] if later else a[0], b[1] if later else a[1], b[2] if later else a[2] + b[3], a[3] + b[3]


def _gradient_and_element(a: Any, b: Any, c: Any, near: Any, one: Any) -> Any:
    return a, b, a


def _run(p: Any, q: Any, place: Any, one: Any) -> Any:
    return q, place, p, p


def _run_behind(p: Any, q: Any, place: Any, one: Any) -> Any:
    return q, place, one - one, p


def _no_run(initial: Any, place: Any, one: Any) -> Any:
    return initial, place, one - one, one - one


def _ended_run(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    return before[2]


def _ended_run_and_own(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    return before[2] + p


# ---------------------------------------------------------------- gradients of products and of exponentials: affine maps


def _compose(a: Any, b: Any) -> Any:
    """s → c·s + d, first a, then b. A zero ends what comes from behind it, even if that has left the range."""
    scaled = a[0] * b[0] if (a[0] != 0) & (b[0] != 0) else a[0] if a[0] == 0 else b[0]
    return scaled, b[1] + b[0] * a[1] if (b[0] != 0) & (a[1] != 0) else b[1]


def _compose_shares(a: Any, b: Any) -> Any:
    """The same of factors up to 1, which nothing leaves the range by: NaN comes through a share of 0."""
    return a[0] * b[0], b[1] + b[0] * a[1]


def _scaled_gradient(p: Any, q: Any, place: Any, one: Any) -> Any:
    return q, q * p if (p != 0) & (q != 0) else one - one


def _gradient(p: Any, q: Any, place: Any, one: Any) -> Any:
    return q, p


def _from_nothing(initial: Any, place: Any, one: Any) -> Any:
    return one, one - one


def _own_and_behind(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    return r * (p + before[1])


def _behind(before: Any, after: Any, p: Any, r: Any, place: Any, one: Any) -> Any:
    """Behind the first element is nothing: its gradient is 0, that of :func:`_from_nothing`, even if r is not finite."""
    return r * before[1] if place > 0 else before[1]


def _factor_and_product_before(a: Any, b: Any, c: Any, near: Any, one: Any) -> Any:
    return a, b, near


def _factor_and_product(a: Any, b: Any, c: Any, near: Any, one: Any) -> Any:
    return a, b, c


_MONOIDS = {
    "cumsum": SUM,
    "cumprod": PROD,
    "cummax": MAX,
    "cummin": MIN,
    "logcumsumexp": KernelMonoid("logcumsumexp", (-INF, 0.0), _exponentials("joined")),
}
_PLACED = {
    "cummax": KernelMonoid("placed_max", (-INF, NOTHING), f"{_EXTREMES}:greatest_with_place"),
    "cummin": KernelMonoid("placed_min", (INF, NOTHING), f"{_EXTREMES}:least_with_place"),
}
_RUNS = {
    "cummax": KernelMonoid("run_of_max", (-INF, NOTHING, 0.0, 0.0), _run_of_greatest),
    "cummin": KernelMonoid("run_of_min", (INF, NOTHING, 0.0, 0.0), _run_of_least),
}
_AFFINE = KernelMonoid("affine", (1.0, 0.0), _compose)
_SHARES = KernelMonoid("shares", (1.0, 0.0), _compose_shares)


def _rule_of_a_user(monoid: KernelMonoid, exclusive: bool) -> Rule:
    def given(name: str, function: Any) -> Given:
        return Given(f"numba_baracuda.scan.kernels.given:{name}", getattr(function, "function", function), monoid.width)

    emit = ("before" if exclusive else "after") + ("_counted" if monoid.counts else "")
    return Rule(monoid, given("lift", monoid.lift), given("begin", monoid.identity), given(emit, monoid.finish), kinds="a" * monoid.width)


@functools.cache
def rule_of(name: str, exclusive: bool) -> Rule:
    """The rule of ``cumsum``, of ``cummax_places``, which emits the winners' places too, of ``cumprod_backward``, or of a user's monoid."""
    if name.startswith("user:"):
        return _rule_of_a_user(monoid_of(name), exclusive)
    kind, _, more = name.partition("_")
    if more == "places":
        return Rule(_PLACED[kind], _placed, _at, _value_before if exclusive else _value_after, kinds="ap")
    alike = _before if exclusive else _after
    if not more and kind == "logcumsumexp":
        logarithm = _exponentials("logarithm_before" if exclusive else "logarithm_after")
        return Rule(_MONOIDS[kind], _exponential, _one_exponential, logarithm, kinds="aa")
    if not more or kind == "cumsum":
        return Rule(_MONOIDS[kind], emit=alike, reads=("dy",) if more else ("x",))
    if kind in _RUNS:
        lift, emit = (_run_behind, _ended_run_and_own) if exclusive else (_run, _ended_run)
        return Rule(_RUNS[kind], lift, _no_run, emit, _gradient_and_element, ("dy", "x"), 2, kinds="apaa", scatters=True)
    lift, emit = (_gradient, _behind) if exclusive else (_scaled_gradient, _own_and_behind)
    if kind == "cumprod":
        factors, near = (_factor_and_product, 0) if exclusive else (_factor_and_product_before, 1)
        return Rule(_AFFINE, lift, _from_nothing, emit, factors, ("dy", "x", "y"), 3, near, "aa", costly=near != 0)
    shares = _exponentials("shares_behind" if exclusive else "shares_ahead")
    return Rule(_SHARES, lift, _from_nothing, emit, shares, ("dy", "x", "y"), 3, -1 if exclusive else 1, "aa", costly=True)
