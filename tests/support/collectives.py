"""Collectives under test: monoids with states to fold, references in plain Python, and kernels that call a collective."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.cuda import types

from numba_baracuda import device
from numba_baracuda.algebra import SUM, Monoid
from numba_baracuda.device.warp import kinds_of
from numba_baracuda.runtime import jit

ZERO, MINUS_INFINITY = np.float32(0), np.float32(-np.inf)


def _first_of_largest(a, b):
    return b if b[0] > a[0] or (b[0] == a[0] and b[1] < a[1]) else a


def _pool(a, b):
    n = a[0] + b[0]
    if n == ZERO:
        return a
    share, delta = b[0] / n, b[1] - a[1]
    return n, a[1] + delta * share, a[2] + b[2] + delta * delta * a[0] * share


def _then(a, b):
    """x → b(a(x)) for maps x → c·x + d."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def _times(a, b):
    """The product of two matrices, by rows."""
    return a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]


def _log_add(a, b):
    m = a[0] if a[0] > b[0] else b[0]
    if m == MINUS_INFINITY:
        return a
    return m, a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)


ARGMAX = Monoid("argmax", (-math.inf, 2**63 - 1), combine=_first_of_largest)
WELFORD = Monoid("welford", (0, 0, 0), combine=_pool)
AFFINE = Monoid("affine", (1, 0), combine=_then)
MATRICES = Monoid("matrices", (1, 0, 0, 1), combine=_times)
LOGSUMEXP = Monoid("logsumexp", (-math.inf, 0), combine=_log_add)


class Case(NamedTuple):
    """States of one monoid. ``check`` is the reference of a collective: a fold from the left, where any order gives the same bits; the fold in the
    documented order; or a fold in float64 with a tolerance, where a GPU may fuse a product and a sum or has another ``exp``."""

    monoid: Monoid
    kind: Any
    draw: Callable[[Any, int], tuple[Any, ...]]
    check: str = "any order"

    @property
    def kinds(self) -> tuple[Any, ...]:
        return kinds_of("case", self.monoid, self.kind)

    @property
    def carrier(self) -> Any:
        """A dtype that represents all of the scalars exactly."""
        return np.dtype("float64" if any(isinstance(kind, types.Float) for kind in self.kinds) else "int64")

    def states(self, count: int, seed: int = 0) -> Any:
        """One row for each scalar of a state."""
        drawn = self.draw(np.random.default_rng(seed), count)
        return np.stack([np.asarray(row).astype(str(kind)).astype(self.carrier) for row, kind in zip(drawn, self.kinds, strict=True)])


def _integers(bits: int) -> Callable[[Any, int], tuple[Any, ...]]:
    return lambda rng, count: (rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, count),)


def _floats(rng: Any, count: int) -> tuple[Any, ...]:
    return (10.0 ** rng.uniform(-3, 3, count) * rng.choice([-1, 1], count),)


CASES = {
    "sum-i32": Case(SUM, "i32", _integers(32)),
    "sum-i64": Case(SUM, types.int64, _integers(64)),
    "sum-u32": Case(SUM, types.uint32, _integers(32)),
    "sum-u64": Case(SUM, ("u64",), _integers(64)),
    "sum-f32": Case(SUM, types.float32, _floats, "its order"),
    "sum-f64": Case(SUM, "f64", _floats, "its order"),
    "argmax": Case(ARGMAX, (types.float32, types.int64), lambda rng, count: (rng.integers(0, max(count // 3, 2), count), rng.permutation(count))),
    "affine": Case(AFFINE, ("u32", "u32"), lambda rng, count: tuple(rng.integers(0, 2**32, (2, count)))),
    "matrices": Case(MATRICES, ("u32",) * 4, lambda rng, count: tuple(rng.integers(0, 2**32, (4, count)))),
    "welford": Case(WELFORD, ("f32",) * 3, lambda rng, count: (rng.integers(1, 4, count), *rng.uniform(0, 3, (2, count))), "closely"),
    "logsumexp": Case(LOGSUMEXP, ("f32", "f32"), lambda rng, count: (rng.uniform(-40, 40, count), rng.uniform(0, 1, count)), "closely"),
}


class Reference:
    """Folds of a case's states, given as an array [scalars, states], by Python on NumPy scalars."""

    def __init__(self, case: Case) -> None:
        self.case, self.kinds = case, [np.dtype("float64" if case.check == "closely" else str(kind)) for kind in case.kinds]

    def unpack(self, array: Any) -> list[tuple[Any, ...]]:
        return list(zip(*[row.astype(kind) for row, kind in zip(array, self.kinds, strict=True)], strict=True))

    def pack(self, states: Sequence[tuple[Any, ...]]) -> Any:
        return np.array(states).reshape(len(states), -1).T.astype(self.case.carrier) if self.case.carrier == "float64" else _integers_of(states)

    @property
    def identity(self) -> tuple[Any, ...]:
        return tuple(kind.type(number) for kind, number in zip(self.kinds, self.case.monoid.identity, strict=True))

    def combine(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            made = self.case.monoid.combine(*((a, b) if len(a) > 1 else (a[0], b[0])))
            made = made if isinstance(made, tuple) else (made,)
            return tuple(kind.type(number) for kind, number in zip(self.kinds, made, strict=True))

    def left(self, states: Sequence[Any]) -> Any:
        """(((s₀ ⊕ s₁) ⊕ s₂) ⊕ …)."""
        return functools.reduce(self.combine, states)

    def tree(self, states: Sequence[Any]) -> Any:
        """The fold as a balanced tree over neighbours."""
        if self.case.check != "its order":
            return self.left(states)
        while len(states) > 1:
            pairs = [states[k : k + 2] for k in range(0, len(states), 2)]
            states = [self.combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return states[0]

    def prefixes(self, states: Sequence[Any]) -> list[Any]:
        """Inclusive prefixes, by doubling."""
        if self.case.check != "its order":
            return list(itertools.accumulate(states, self.combine))
        step = 1
        while step < len(states):
            states = [self.combine(states[k - step], state) if k >= step else state for k, state in enumerate(states)]
            step *= 2
        return list(states)

    def expect(self, got: Any, wanted: Sequence[Any]) -> None:
        """Compares an array [scalars, states] with states."""
        packed = self.pack(wanted)
        if self.case.check == "closely":
            np.testing.assert_allclose(got, packed, rtol=2e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, packed)


def _integers_of(states: Sequence[tuple[Any, ...]]) -> Any:
    wrapped = [[(int(number) + 2**63) % 2**64 - 2**63 for number in state] for state in states]
    return np.array(wrapped, np.int64).T


def load_store_of(kinds: tuple[Any, ...], count: int) -> tuple[Any, Any]:
    """``load(x, at)`` and ``store(y, at, state)`` of states in arrays [scalars, count]."""
    first, second, third, fourth = (*kinds, *kinds[:1] * 3)[:4]
    width = len(kinds)
    if width == 1:
        load = jit.device(lambda x, at: first(x[at]))
    elif width == 2:
        load = jit.device(lambda x, at: (first(x[at]), second(x[at + count])))
    elif width == 3:
        load = jit.device(lambda x, at: (first(x[at]), second(x[at + count]), third(x[at + 2 * count])))
    else:
        load = jit.device(lambda x, at: (first(x[at]), second(x[at + count]), third(x[at + 2 * count]), fourth(x[at + 3 * count])))

    @jit.device
    def store(y, at, state):
        if width == 1:
            y[at] = state
        else:
            y[at] = state[0]
            y[at + count] = state[1]
            if width > 2:
                y[at + 2 * count] = state[2]
            if width > 3:
                y[at + 3 * count] = state[3]

    return load, store


def one_result(collective: Any, kinds: tuple[Any, ...], threads: int, rounds: int = 1) -> Any:
    """A kernel for one block that calls the collective on ``rounds`` states a thread."""
    load, store = load_store_of(kinds, rounds * threads)

    def kernel(x, y):
        for r in range(rounds):
            at = r * threads + cuda.threadIdx.x
            store(y, at, collective(load(x, at)))

    return kernel


def two_results(collective: Any, kinds: tuple[Any, ...], threads: int, rounds: int = 1) -> Any:
    """The same for a collective that returns a pair; all first results come before the second ones."""
    load, store = load_store_of(kinds, rounds * threads)
    behind = len(kinds) * rounds * threads

    def kernel(x, y):
        for r in range(rounds):
            at = r * threads + cuda.threadIdx.x
            first, second = collective(load(x, at))
            store(y, at, first)
            store(y, at + behind, second)

    return kernel


def emulated(kernel: Any, threads: int, x: Any, rows: int, seed: int | None, *more: Any) -> Any:
    """A kernel's results for states, as an array [rows, states], in the emulator."""
    y = np.zeros(rows * x.shape[1], x.dtype)
    device.emulate(kernel, seed=seed)[1, threads](x.reshape(-1), y, *more)
    return y.reshape(rows, -1)


def on_device(kernel: Any, threads: int, x: Any, rows: int, *more: Any) -> Any:
    """The same on the GPU."""
    import cupy

    y = cupy.zeros(rows * x.shape[1], x.dtype)
    cuda.jit(kernel)[1, threads](cupy.asarray(x.reshape(-1)), y, *map(cupy.asarray, more))
    return cupy.asnumpy(y).reshape(rows, -1)
