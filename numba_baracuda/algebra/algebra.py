"""The monoids of folds and scans, by name. :class:`KernelMonoid` says what a monoid is."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from .extremes import FIRST_MAX, FIRST_MIN, TIED_MAX, TIED_MIN, value_and_one
from .moments import MOMENTS, STD, VAR
from .monoid import ByType, KernelMonoid

INF = math.inf


def _add(a: Any, b: Any) -> Any:
    return a + b


def _multiply(a: Any, b: Any) -> Any:
    return a * b


def _average(state: Any, count: Any, one: Any) -> Any:
    return state / count


def _square(x: Any, other: Any, one: Any) -> Any:
    return x * x


def _root(state: Any, count: Any, one: Any) -> Any:
    return math.sqrt(state)


SUM = KernelMonoid("sum", (0.0,), _add)
MEAN = KernelMonoid("mean", (0.0,), _add, finish=_average, counts=True)
MAX = KernelMonoid("max", (-INF,), "numba_baracuda.device.numbers:maximum")
MIN = KernelMonoid("min", (INF,), "numba_baracuda.device.numbers:minimum")
PROD = KernelMonoid("prod", (1.0,), _multiply)
NORM2 = KernelMonoid("norm2", (0.0,), _add, _square, _root)

# ---------------------------------------------------------------- products

_PRODUCTS = "numba_baracuda.kernels.products"
#: the product with an exponent of its own, and which of 0, infinity and NaN occur: enough for the product of all elements but one
SCALED_PROD = KernelMonoid(
    "scaled_prod",
    (1.0, 0.0, 0.0),
    ByType(f"{_PRODUCTS}:combine_products"),
    ByType(f"{_PRODUCTS}:lift_factor"),
    ByType(f"{_PRODUCTS}:finish_product"),
    results=2,
)

# ---------------------------------------------------------------- exponentials


def _combine_exponentials(a: Any, b: Any) -> Any:
    """Σ exp x as exp(m) · s with m the greatest x. The difference of equal infinities is taken as 0; a NaN goes to s."""
    greater = a[0] > b[0]
    most, more, less = a[0] if greater else b[0], a[1] if greater else b[1], b[1] if greater else a[1]
    distance = b[0] - a[0] if greater else a[0] - b[0]
    scaled = less * math.exp(distance)
    return most, more + (less if a[0] == b[0] else scaled)


def _log_of_sum(state: Any, count: Any, one: Any) -> Any:
    return state[0] + math.log(state[1])


def _greatest_and_share(state: Any, count: Any, one: Any) -> Any:
    return state[0], one / state[1] + (state[0] - state[0])


def _greatest_and_log(state: Any, count: Any, one: Any) -> Any:
    return state[0], math.log(state[1]) + (state[0] - state[0])


def _product(x: Any, other: Any, one: Any) -> Any:
    return x * other


def _greater(a: Any, x: Any) -> Any:
    return max(a, x)


_EXPONENTIALS: dict[str, Any] = {
    "choose_pivot": _greater,
    "packed_choice": "max",
    "pivot_terms": ByType("numba_baracuda.kernels.pivots:exponential_terms"),
    "rebase": ByType("numba_baracuda.kernels.pivots:exponential_rebase"),
}
LOGSUMEXP = KernelMonoid("logsumexp", (-INF, 0.0), _combine_exponentials, value_and_one, _log_of_sum, **_EXPONENTIALS)
#: the same monoid for results that are rounded to a half type
ROUNDED_LOGSUMEXP = replace(LOGSUMEXP, name="rounded_logsumexp", finish="numba_baracuda.kernels.pivots:rounded_log_of_sum")
#: the greatest element m and 1 / Σ exp(x − m), NaN where m is infinite
SOFTMAX = KernelMonoid("softmax", (-INF, 0.0), _combine_exponentials, value_and_one, _greatest_and_share, results=2, **_EXPONENTIALS)
#: the same of halves where a fold knows m before it adds up: sums about different pivots do not combine
SETTLED_SOFTMAX = replace(
    SOFTMAX, name="settled_softmax", pivot_terms="numba_baracuda.kernels.pivots:settled_terms",
    settle=ByType("numba_baracuda.kernels.pivots:settled_line"), finish="numba_baracuda.kernels.pivots:pivot_and_inverse",
)  # fmt: skip
#: the same of float32 where a fold knows m before it adds up, with accurate terms in a unit of their own; m is NaN if an element is
SOFTMAX_OF_TERMS = replace(
    SOFTMAX, name="softmax_of_terms", pivot_terms=ByType("numba_baracuda.kernels.pivots:accurate_terms"),
    settle="numba_baracuda.kernels.pivots:finite_pivot", choose_pivot="numba_baracuda.device.numbers:maximum",
    finish="numba_baracuda.kernels.pivots:pivot_and_accurate_inverse",
)  # fmt: skip
#: the greatest element m and log Σ exp(x − m), NaN where m is infinite
LOG_SOFTMAX = KernelMonoid("log_softmax", (-INF, 0.0), _combine_exponentials, value_and_one, _greatest_and_log, results=2, **_EXPONENTIALS)
#: Σ of the products of two arrays
DOT = KernelMonoid("dot", (0.0,), _add, _product, pairs=True, lifted="sum")

# ---------------------------------------------------------------- squares


def _scaled(x: Any, other: Any, one: Any) -> Any:
    return abs(x), one if x != 0 else one - one


def _combine_scaled(a: Any, b: Any) -> Any:
    """Σ x² as u² · s with u about the size of the greatest x, so that no square leaves the range; see Blue, "A portable Fortran program" (1978)."""
    greater = a[0] > b[0]
    most, more, less, rest = a[0] if greater else b[0], a[1] if greater else b[1], b[0] if greater else a[0], b[1] if greater else a[1]
    ratio = less / most
    return most, more + (rest if a[0] == b[0] else rest * ratio * ratio)


def _root_of_scaled(state: Any, count: Any, one: Any) -> Any:
    return state[0] * math.sqrt(state[1])


def _greater_size(a: Any, x: Any) -> Any:
    return max(a, abs(x))


#: √Σ x²; no intermediate overflows or underflows where the result does not
HYPOT = KernelMonoid(
    "hypot", (0.0, 0.0), _combine_scaled, _scaled, _root_of_scaled,
    choose_pivot=_greater_size,
    pivot_terms=ByType("numba_baracuda.kernels.pivots:scaled_square_terms"),
    rebase=ByType("numba_baracuda.kernels.pivots:rescale_sum"),
    pivot_state=ByType("numba_baracuda.kernels.pivots:unit_and_sum"),
    divides=True,
)  # fmt: skip
#: √Σ x²; faster where unscaled squares stay in range
UNIT_PIVOT_HYPOT = replace(HYPOT, name="unit_pivot_hypot", unit_pivot_suffices=ByType("numba_baracuda.kernels.pivots:squares_suffice"))


def _add_three(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


_NORMS = "numba_baracuda.kernels.norms"
#: √Σ x² without a pivot, for folds that lift elements one by one
SCALED_NORM2 = KernelMonoid("scaled_norm2", (0.0, 0.0, 0.0), _add_three, ByType(f"{_NORMS}:squares"), ByType(f"{_NORMS}:root"))

#: what the name of a monoid ends with whose results are the scalars of a state
_STATE = ".state"

# ---------------------------------------------------------------- truth


def _is_true(x: Any, other: Any, one: Any) -> Any:
    return one if x != 0 else one - one


def _or(a: Any, b: Any) -> Any:
    return a | b


def _and(a: Any, b: Any) -> Any:
    return a & b


#: truth values of x ≠ 0; NaN is true
ANY = KernelMonoid("any", (0,), _or, _is_true, kind="i32")
ALL = KernelMonoid("all", (1,), _and, _is_true, kind="i32")
COUNT = KernelMonoid("count_nonzero", (0,), _add, _is_true, kind="i64")

_MONOIDS = {
    monoid.name: monoid
    for monoid in (
        SUM, MEAN, MAX, MIN, PROD, NORM2, FIRST_MAX, FIRST_MIN, TIED_MAX, TIED_MIN, SCALED_PROD, LOGSUMEXP, ROUNDED_LOGSUMEXP, SOFTMAX,
        SETTLED_SOFTMAX, SOFTMAX_OF_TERMS, LOG_SOFTMAX, DOT, HYPOT, UNIT_PIVOT_HYPOT, SCALED_NORM2, VAR, STD, MOMENTS, ANY, ALL, COUNT,
    )
}  # fmt: skip


def state_of(name: str) -> str:
    """The name of the monoid whose results are the scalars of the named monoid's state."""
    return name if name.endswith(_STATE) else f"{name}{_STATE}"


def monoid_of(name: str) -> KernelMonoid:
    """The monoid of a name."""
    return _unfinished(name) if name.endswith(_STATE) else _MONOIDS[name]


@functools.cache
def _unfinished(name: str) -> KernelMonoid:
    monoid = _MONOIDS[name.removesuffix(_STATE)]
    return replace(monoid, name=name, finish=KernelMonoid.finish, results=monoid.width, counts=False)


def register(monoid: KernelMonoid) -> KernelMonoid:
    """Adds a monoid whose name is a hash of its functions; returns the monoid that has the name, which is an earlier one if there is any."""
    return _MONOIDS.setdefault(monoid.name, monoid)
